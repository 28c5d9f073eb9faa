"""Load-aware shedding at the gate on virtual time: the shipped cost model, shedder and lookup.

Rows as in the papers: 4,096 keys by Zipf's law with exponent 1, costs of 0.1 to 6.4 ms by key.
Four cores get twice the work they can do; a batch costs 0.2 s besides, the limit is 2 s.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from scipy import stats

from spillway.cost.by_key import CostByKey
from spillway.cost.items import items_of
from spillway.cost.table import CostLookup
from spillway.kernels.uniform import uniforms
from spillway.loop import Loop
from spillway.objective import Latency
from spillway.overload.controller import HoldLatency
from spillway.shedders.load_aware import LoadAware
from spillway.sim.batches import Batch, Engine, Trace, Workload, simulate
from spillway.sim.workloads import MS, Recipe
from spillway.values import Limits
from spillway.workload.rate import parse_rate

CORES, SECONDS = 4, 30
LIMIT = Latency(average="2 s")
AIMS = ["faithful", "fewest", "unbiased"]
RECIPE = Recipe(rows=200_000)


class Content:
    """Rows of a recipe; from a row on, keys may cost something else."""

    def __init__(self, association: int, costs_ns: np.ndarray | None = None) -> None:
        self.keys = RECIPE.draw_keys(association)
        by_key = RECIPE.cost_by_key(association) if costs_ns is None else costs_ns
        self.work_us = by_key[self.keys] // 1000

    def changed(self, from_row: int, costs_ns: np.ndarray) -> Content:
        self.work_us[from_row:] = (costs_ns[self.keys] // 1000)[from_row:]
        return self

    def columns(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        utility = np.where(rows % 10 == 0, 50.0, 1.0)
        odd = np.where(rows % 7 == 0, [np.nan], utility)
        return {
            "key": self.keys[rows],
            "work_us": self.work_us[rows],
            "utility": utility,
            "odd": np.where(rows % 11 == 0, -1.0, odd),
        }

    @property
    def rate(self) -> int:
        """Rows a second that are twice the work of all cores."""
        return round(2 * CORES * 1e6 / self.work_us.mean())


def run(content: Content, aim: Any, *, utility: str | None = None, **changes: Any) -> Trace:
    parts = {name: changes.pop(name) for name in ("limits",) if name in changes}
    loop = Loop(
        controller=HoldLatency(objective=LIMIT),
        cost=CostByKey(),
        shedder=LoadAware(key="key", aim=aim, utility=utility),
        **parts,
    )
    arrivals = parse_rate(str(content.rate), SECONDS)
    work = Workload(arrivals=arrivals, content=content, key="key", **changes)
    return simulate(loop, work, engine=Engine(cores=CORES), seed=1)


@lru_cache(maxsize=24)
def plain(association: int, aim: str) -> Trace:
    return run(Content(association), aim)


def late(trace: Trace) -> list[int]:
    """The late batches, but for the last: rows that stop coming have all waited long."""
    return [batch.batch_id for batch in trace.late(LIMIT) if batch is not trace.batches[-1]]


def settled(trace: Trace) -> list[Batch]:
    return [batch for batch in trace.batches if batch.batch_id >= 6]


def shed_share(trace: Trace) -> float:
    came = sum(batch.seen.rows_in for batch in settled(trace))
    return sum(batch.rows_shed for batch in settled(trace)) / came


def latency_s(trace: Trace) -> float:
    batches = settled(trace)
    rows = [batch.seen.rows_kept for batch in batches]
    return float(np.average([b.seen.latency_s_mean or 0.0 for b in batches], weights=rows))


@pytest.mark.parametrize("association", [1, 2, 3])
@pytest.mark.parametrize("aim", AIMS)
def test_the_objective_holds_from_the_third_batch_on(aim: str, association: int) -> None:
    trace = plain(association, aim)
    assert [batch_id for batch_id in late(trace) if batch_id >= 2] == []
    assert shed_share(trace) > 0.3


def test_fewest_sheds_thirty_per_cent_fewer_rows_at_the_same_latency() -> None:
    """Over six ways to give costs to keys; which keys are dear moves the share by a few points."""
    associations = range(1, 7)
    fewest = np.array([shed_share(plain(each, "fewest")) for each in associations])
    faithful = np.array([shed_share(plain(each, "faithful")) for each in associations])
    assert fewest.mean() <= 0.7 * faithful.mean()
    assert (fewest < 0.75 * faithful).all()
    for each in associations:
        ours, theirs = latency_s(plain(each, "fewest")), latency_s(plain(each, "faithful"))
        assert ours == pytest.approx(theirs, rel=0.04)


def test_unbiased_lies_between_the_two() -> None:
    shares = [shed_share(plain(1, aim)) for aim in ("fewest", "unbiased", "faithful")]
    assert shares == sorted(shares)


@pytest.mark.parametrize("aim", AIMS)
def test_the_kept_work_stays_within_the_budget(aim: str) -> None:
    """A batch's duration is its fixed cost and its kept work: 1.13 s hold the average of 2 s.

    The mean is at most that, and one batch is at most a fifth above it: the plan is cut from a
    sample of 512 rows.
    """
    aimed_s = 0.85 * 2.0 / 1.5
    durations = np.array([batch.seen.duration_s for batch in settled(plain(2, aim))[:-1]])
    assert durations.mean() <= 1.02 * aimed_s
    assert durations.max() <= 1.2 * aimed_s
    assert durations.mean() >= 0.9 * aimed_s  # and the budget is used


@pytest.mark.parametrize("aim", AIMS)
def test_a_floor_of_a_fifth_of_the_rows_is_part_of_the_budget(aim: str) -> None:
    trace = run(Content(3), aim, limits=Limits(keep_min=0.2))
    assert [batch_id for batch_id in late(trace) if batch_id >= 2] == []
    assert all(min(batch.plan.rates) >= 0.2 for batch in trace.batches)


# Changes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("aim", AIMS)
def test_costs_that_double_are_met_within_one_batch(aim: str) -> None:
    trace = run(Content(1), aim, slower=((15.0, 2.0),))
    changed = next(batch.batch_id for batch in trace.batches if batch.start_s >= 15.0)
    assert late(trace) == [changed]  # nobody can know it before


@pytest.mark.parametrize("aim", AIMS)
def test_costs_that_halve_shed_less_at_once_and_are_never_late(aim: str) -> None:
    trace = run(Content(1), aim, slower=((15.0, 0.5),))
    changed = next(batch.batch_id for batch in trace.batches if batch.start_s >= 15.0)
    assert late(trace) == []
    assert trace.batches[changed + 1].seen.share > 0.95


@pytest.mark.parametrize("aim", AIMS)
def test_a_most_frequent_key_that_becomes_the_costliest_is_met_within_three_batches(
    aim: str,
) -> None:
    """Key 0, every ninth row, costs 0.1 ms and then 6.4: all the work grows by a fifth.

    The latency is held again after three batches; after four the gate knows what the key costs.
    """
    costs = RECIPE.cost_by_key(1)
    cheapest = int(np.argmin(costs))
    costs[0], costs[cheapest] = costs[cheapest], costs[0]
    after = costs.copy()
    after[0] = 64 * MS // 10
    content = Content(1, costs)
    from_row = content.rate * SECONDS // 2
    trace = run(content.changed(from_row, after), aim)
    changed = next(b.batch_id for b in trace.batches if b.first_row + b.seen.rows_in > from_row)
    assert set(late(trace)) <= set(range(changed, changed + 3))
    table = trace.batches[changed + 4].plan.costs
    assert table is not None
    known = CostLookup.of(table).estimate_ns(items_of(np.array([0])))[0]
    assert known > 5 * MS or aim != "fewest"


def test_a_costly_key_that_becomes_cheap_is_kept_again() -> None:
    """One row in a hundred of the costliest still passes: within 10 batches it is seen."""
    costs = RECIPE.cost_by_key(1)
    costs[0] = 64 * MS // 10
    after = costs.copy()
    after[0] = MS // 10
    content = Content(1, costs)
    from_row = content.rate * SECONDS // 2
    trace = run(content.changed(from_row, after), "fewest")
    kept = [kept_of_key(batch, content, 0) for batch in trace.batches]
    changed = next(b.batch_id for b in trace.batches if b.first_row + b.seen.rows_in > from_row)
    assert max(kept[changed - 3 : changed]) < 0.1
    assert max(kept[changed + 10 :]) > 0.9


def kept_of_key(batch: Batch, content: Content, key: int) -> float:
    """The share of a key's rows that a batch kept, by the plan's rates."""
    rows = batch.first_row + np.flatnonzero(
        content.keys[batch.first_row : batch.first_row + batch.seen.rows_in] == key
    )
    return float((weights(batch, content, rows, "fewest") > 0).mean()) if rows.size else 0.0


def weights(batch: Batch, content: Content, rows: np.ndarray, aim: Any) -> np.ndarray:
    """The gate's weight of every row, 0 for those that it shed."""
    shedder = LoadAware(key="key", aim=aim)
    if batch.plan.costs is None:
        costs = np.full(rows.size, 100.0)
    else:
        costs = CostLookup.of(batch.plan.costs).estimate_ns(items_of(content.keys[rows]))
    at = np.searchsorted(batch.plan.edges, shedder.scores(costs, np.ones(rows.size)), side="right")
    rates = np.asarray(batch.plan.rates)[at]
    return np.where(uniforms(batch.pinned.salt, rows) < rates, 1.0 / rates, 0.0)


# Utility and totals -------------------------------------------------------------------------


def test_rows_of_fifty_times_the_utility_are_shed_last() -> None:
    trace = run(Content(1), "fewest", utility="utility")
    assert [batch_id for batch_id in late(trace) if batch_id >= 2] == []
    batch = settled(trace)[3]
    above = batch.seen.strata[2]
    assert above.rows_kept == above.rows_in >= 0.09 * batch.seen.rows_in


def test_rows_of_no_usable_utility_go_by_chance_and_are_counted_apart() -> None:
    trace = run(Content(1), "fewest", utility="odd")
    assert [batch_id for batch_id in late(trace) if batch_id >= 2] == []
    for batch in settled(trace):
        unrated = batch.seen.strata[-1]
        assert unrated.name == "unrated"
        share = 1 / 7 + 1 / 11 - 1 / 77
        assert unrated.rows_in == pytest.approx(share * batch.seen.rows_in, rel=0.02, abs=3)
        assert 0 < unrated.rows_kept < unrated.rows_in


@pytest.mark.parametrize("aim", ["fewest", "unbiased"])
def test_weighted_totals_of_the_work_are_unbiased(aim: str) -> None:
    """z-test over all batches of a run, two-sided, false-alarm rate 1e-4."""
    content, trace = Content(2), plain(2, aim)
    error, variance = 0.0, 0.0
    for batch in settled(trace):
        rows = np.arange(batch.first_row, batch.first_row + batch.seen.rows_in)
        value, weight = content.work_us[rows] / 1e3, weights(batch, content, rows, aim)
        assert int((weight > 0).sum()) == batch.seen.rows_kept
        error += float(weight @ value - value.sum())
        variance += float((weight * (weight - 1) * value**2).sum())
    assert 2 * stats.norm.sf(abs(error) / variance**0.5) > 1e-4


def test_unbiased_totals_vary_less_than_faithful_ones_for_the_same_work() -> None:
    """Counts by weight over a run: the estimated variance, summed over the batches.

    For costs spread evenly from 0, theory gives (E √c)² / E c = 8 / 9 of it.
    """

    def variance(aim: str) -> float:
        content, found = Content(2), 0.0
        for batch in settled(plain(2, aim)):
            rows = np.arange(batch.first_row, batch.first_row + batch.seen.rows_in)
            if aim == "faithful":
                rate = batch.plan.rates[0]
                found += batch.seen.rows_kept * (1 / rate) * (1 / rate - 1)
            else:
                weight = weights(batch, content, rows, aim)
                found += float((weight * (weight - 1)).sum())
        return found

    assert variance("unbiased") < 0.92 * variance("faithful")


# What is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "rule"),
    [({"key": "mood"}, r"key must be a column .*'mood'"), ({}, r"utility must be a column")],
)
def test_columns_that_are_none_are_refused(changes: dict[str, str], rule: str) -> None:
    loop = Loop(
        controller=HoldLatency(objective=LIMIT),
        cost=CostByKey(),
        shedder=LoadAware(key="key", utility="mood"),
    )
    rows = {"arrivals": parse_rate("10", 1), "content": Content(1), "key": "key"}
    work = Workload(**{**rows, **changes})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=rule):
        simulate(loop, work)
