"""Queries that share cores, on virtual time: the same SIC for all, in time, and full cores."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import spillway as sw
from spillway.estimate.sic import Spread
from spillway.studies.dissp_queries import Load
from tests.naive_shared_cores import Query, run

OBJECTIVE = sw.Latency(average="10 s")
LEAD_S, WINDOW_S, END_S = 30.0, 30.0, 120.0


def eight() -> list[Query]:
    """Rates 1:100 and costs 1:50; with what the engine takes it is twice what two cores can do."""
    load = Load.draw(8, 1.8, seed=1)
    pairs = zip(load.rates, load.costs_us, strict=True)
    return [
        Query(name=f"q{i}", rate=float(r), cost_s=float(c) / 1e6) for i, (r, c) in enumerate(pairs)
    ]


def spreads(queries: list[Query]) -> list[Spread]:
    """Return the spread of SIC in every second, from the first whole window on."""
    times = np.arange(LEAD_S + WINDOW_S, END_S, 1.0)
    return [Spread.of([query.sic(t - WINDOW_S, t) for query in queries]) for t in times]


def deviation(found: list[Spread]) -> float:
    return float(np.mean([spread.deviation for spread in found]))


def test_unequal_queries_are_even_and_in_time_and_leave_no_core_idle(tmp_path: Path) -> None:
    """Random shedding has fewer, longer batches, and less work done within the objective.

    The cores are full under both. Of longer batches the engine takes less, so that more work can
    only be had by more latency.
    """
    fair, random = eight(), eight()
    busy = [
        run(fair, tmp_path / "fair", seconds=END_S, objective=OBJECTIVE, split="fair"),
        run(random, tmp_path / "random", seconds=END_S, objective=OBJECTIVE, split="random"),
    ]
    found = spreads(fair)
    assert deviation(found) <= 0.03
    assert np.mean([spread.jain for spread in found]) >= 0.995
    assert deviation(spreads(random)) >= 5 * deviation(found)
    assert min(s.minimum for s in found) >= 0.5 * np.mean([q.sic(LEAD_S, END_S) for q in fair])
    assert max(query.latency_s(LEAD_S) for query in fair) <= OBJECTIVE.limit_s
    assert min(busy) >= 0.95
    assert max(query.latency_s(LEAD_S) for query in random) > OBJECTIVE.limit_s
    assert sum(len(query.done) for query in random) < sum(len(query.done) for query in fair)
    in_time = [sum(q.in_time_s(LEAD_S, OBJECTIVE.limit_s) for q in each) for each in (fair, random)]
    assert in_time[0] >= in_time[1]
