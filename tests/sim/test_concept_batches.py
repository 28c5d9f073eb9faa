"""Concept-driven shedding on virtual time: the shipped loop, shedder and lookup, promises checked.

2,000 groups by Zipf's law, 50 µs a row; a burst brings four times the work that can be done.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from scipy import stats

from spillway.cost.items import items_of
from spillway.kernels.uniform import uniforms
from spillway.loop import Loop
from spillway.objective import Latency
from spillway.overload.controller import FixedRate, HoldLatency
from spillway.shedders.concept import ConceptDriven
from spillway.shedders.keep_table import KeepLookup
from spillway.sim.batches import Batch, Engine, Trace, Workload, simulate
from spillway.values import Limits
from spillway.workload.rate import parse_rate
from tests.shedders.concept_rows import zipf

LIMIT = Latency(average="2 s")
BURST = "steps:0=5000,10=80000,25=5000"
ROWS = 1_500_000


class Rides:
    """Rows of routes with fares; from a row on, the routes are others."""

    def __init__(self, changes_at: int = ROWS) -> None:
        self.routes = zipf(2_000, ROWS).copy()
        self.routes[changes_at:] += 5_000_000
        noise = np.random.default_rng(2).standard_normal(ROWS)
        self.fares = (5.0 + self.routes % 50) * (1.0 + 0.3 * noise)

    def columns(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        at_s = rows / 20_000.0
        return {
            "work_us": np.zeros(rows.size),
            "route": self.routes[rows],
            "fare": np.where(rows % 13 == 0, np.nan, self.fares[rows]),
            "at": at_s,
        }


@lru_cache(maxsize=4)
def rides(changes_at: int = ROWS) -> Rides:
    return Rides(changes_at)


def run(shed: ConceptDriven, content: Rides, **changes: Any) -> Trace:
    controller = changes.pop("control", HoldLatency(objective=LIMIT))
    loop = Loop(controller=controller, shedder=shed, limits=changes.pop("limits", Limits()))
    rate = changes.pop("rate", BURST)
    work = Workload(arrivals=parse_rate(rate, 35), cost_s=5e-5, content=content)
    return simulate(loop, work, engine=Engine(**changes), seed=4)


@lru_cache(maxsize=8)
def burst(allocation: str | None = None) -> Trace:
    value = "fare" if allocation else None
    shed = ConceptDriven(by="route", value=value, allocation=allocation)  # type: ignore[arg-type]
    return run(shed, rides())


def shedding(trace: Trace) -> list[Batch]:
    return [batch for batch in trace.batches if batch.rows_shed]


def row_rates(batch: Batch, content: Rides) -> np.ndarray:
    rows = slice(batch.first_row, batch.first_row + batch.seen.rows_in)
    return KeepLookup.of(batch.plan).rates(items_of(content.routes[rows]))


@pytest.mark.parametrize("allocation", [None, "cvopt"])
def test_the_objective_holds_through_a_burst_and_shedding_ends_with_it(
    allocation: str | None,
) -> None:
    trace = burst(allocation)
    assert [batch.batch_id for batch in trace.late(LIMIT)] == []
    assert len(shedding(trace)) > 8
    assert trace.batches[-1].rows_shed == 0
    assert all(batch.start_s < 30.0 for batch in shedding(trace))


def test_groups_that_are_kept_whole_lose_no_row_and_the_books_add_up() -> None:
    for batch in shedding(burst()):
        whole, thinned = batch.seen.strata
        assert (whole.name, thinned.name) == ("whole", "thinned")
        assert whole.rows_shed == 0
        assert whole.rows_in + thinned.rows_in == batch.seen.rows_in
        assert thinned.rows_kept < thinned.rows_in


def test_more_groups_are_seen_than_by_uniform_shedding_of_the_same_share() -> None:
    """Of 60,000 rows a batch 2 % are kept: groups among them, against the uniform expectation."""
    content, ours, uniform = rides(), 0.0, 0.0
    shed = ConceptDriven(by="route", value="fare")
    trace = run(shed, content, control=FixedRate(0.02), rate="30000", fixed_s=2.0)
    assert len(trace.batches) > 10
    for batch in trace.batches[2:]:
        rows = np.arange(batch.first_row, batch.first_row + batch.seen.rows_in)
        kept = uniforms(batch.pinned.salt, rows) < row_rates(batch, content)
        groups, sizes = np.unique(content.routes[rows], return_counts=True)
        ours += np.unique(content.routes[rows][kept]).size / groups.size
        uniform += float((1.0 - (1.0 - batch.seen.share) ** sizes).mean())
    assert ours > 1.5 * uniform


@pytest.mark.parametrize("allocation", [None, "cvopt", "neyman"])
def test_weighted_counts_and_totals_are_unbiased(allocation: str | None) -> None:
    """z-tests over all shedding batches, two-sided, false-alarm rate 1e-4 each."""
    content, trace = rides(), burst(allocation)
    for values in (np.ones(ROWS), content.fares):
        error, variance = 0.0, 0.0
        for batch in shedding(trace):
            rows = np.arange(batch.first_row, batch.first_row + batch.seen.rows_in)
            rate = row_rates(batch, content)
            kept = uniforms(batch.pinned.salt, rows) < rate
            assert int(kept.sum()) == batch.seen.rows_kept
            x = values[rows]
            error += float((x[kept] / rate[kept]).sum() - x.sum())
            variance += float((np.square(x) * (1.0 / rate - 1.0)).sum())
        assert 2 * stats.norm.sf(abs(error) / variance**0.5) > 1e-4


def test_a_fixed_rate_is_kept_from_the_second_batch_on() -> None:
    shed = ConceptDriven(by="route", value="fare", time="at", size="10 s")
    trace = run(shed, rides(), control=FixedRate(0.05), rate="30000")
    shares = [batch.seen.share for batch in trace.batches[1:]]
    assert trace.batches[0].seen.rows_in == 1  # so that nothing is known for the second
    assert np.mean(shares) == pytest.approx(0.05, rel=0.1)
    assert max(shares) < 0.09


def test_routes_that_change_completely_are_met_in_the_batch_after() -> None:
    """The batch of the change keeps new routes whole: nobody can know them before."""
    change = 600_000
    shed = ConceptDriven(by="route")
    trace = run(shed, rides(change), control=FixedRate(0.1), rate="30000")
    at = next(b for b in trace.batches if b.first_row + b.seen.rows_in > change).batch_id
    shares = [batch.seen.share for batch in trace.batches]
    assert np.mean(shares[at - 6 : at]) == pytest.approx(0.1, rel=0.1)
    assert shares[at + 2] == pytest.approx(0.1, rel=0.25)
    assert np.mean(shares[at + 3 : at + 9]) == pytest.approx(0.1, rel=0.1)


def test_a_restart_in_mid_burst_keeps_the_concept() -> None:
    trace = run(ConceptDriven(by="route"), rides(), restarts_s=(17.0,), down_s=1.0)
    after = next(batch for batch in trace.batches if batch.run == 1)
    assert after.rows_shed > 0
    assert after.plan.keep is not None


def test_no_rate_falls_below_the_floor() -> None:
    trace = run(ConceptDriven(by="route"), rides(), limits=Limits(keep_min=0.15))
    assert all(row_rates(batch, rides()).min() >= 0.15 for batch in shedding(trace))


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ({"by": "mood"}, r"by must be a column .*'mood'"),
        ({"by": "route", "value": "tip"}, r"value must be a column .*'tip'"),
        ({"by": ["route", "at"]}, r"by must be one column on virtual time"),
    ],
)
def test_columns_that_are_none_are_refused(arguments: dict[str, Any], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        run(ConceptDriven(**arguments), rides())
