"""Instances on virtual time against queues computed by hand and by a heap of events."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.cost.sketch import SketchShape
from spillway.placement.full_knowledge import FullKnowledge
from spillway.placement.least_loaded import LeastLoaded
from spillway.placement.proactive import Proactive
from spillway.placement.round_robin import RoundRobin
from spillway.sim.instances import Placement, Speeds, simulate
from spillway.sim.workloads import MS, Recipe, Stream
from tests.naive_posg import NaiveInstance, NaiveScheduler, drive

SECOND = 10**9
SHAPE = SketchShape(rows=2, columns=5, seed=3)


def stream_of(keys: list[int], costs_ns: list[int], arrivals_ns: list[int]) -> Stream:
    arrays = (np.array(values, dtype=np.int64) for values in (keys, costs_ns, arrivals_ns))
    return Stream(**dict(zip(("keys", "costs_ns", "arrivals_ns"), arrays, strict=True)))


def rows_of(stream: Stream) -> list[tuple[int, int, int]]:
    columns = (stream.keys, stream.costs_ns, stream.arrivals_ns)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def the_papers_example() -> Stream:
    """Section II: rows a, b, a, one a second, with costs of 10, 1 and 10 s."""
    return stream_of([0, 1, 0], [10 * SECOND, SECOND, 10 * SECOND], [0, SECOND, 2 * SECOND])


@st.composite
def streams(draw: st.DrawFn, rows_max: int = 120) -> Stream:
    rows = draw(st.integers(1, rows_max))
    keys = draw(st.lists(st.integers(0, 9), min_size=rows, max_size=rows))
    gaps = draw(st.lists(st.integers(0, 6), min_size=rows, max_size=rows))
    costs = [(3 * key) % 8 for key in keys]  # some rows cost nothing
    return stream_of(keys, costs, list(np.cumsum(gaps)))


def test_round_robin_takes_29_s_where_the_papers_example_says_so() -> None:
    run = simulate(the_papers_example(), RoundRobin(instances=2))
    assert run.placed.tolist() == [0, 1, 0]
    assert run.completions_ns.sum() == 29 * SECOND
    run.check()


@pytest.mark.parametrize("mode", ["paper", "default"])
def test_knowing_the_costs_takes_21_s(mode: str) -> None:
    run = simulate(the_papers_example(), FullKnowledge(instances=2, mode=mode))  # type: ignore[arg-type]
    assert run.placed.tolist() == [0, 1, 1]
    assert run.completions_ns.sum() == 21 * SECOND


def test_a_row_takes_its_cost_times_the_speed_factor_of_its_time() -> None:
    stream = stream_of([0] * 4, [10] * 4, [0, 100, 200, 300])
    speeds = (
        Speeds(first_row=3, factors=(0.5, 0.25)),
        Speeds(first_row=0, factors=(1.5, 2.0)),
    )
    run = simulate(stream, RoundRobin(instances=2), speeds=speeds)
    assert run.costs_ns.tolist() == [15, 20, 15, 3]  # 2.5 ns are rounded up
    assert run.worked_ns.tolist() == [30, 23]


def test_fresh_backlogs_send_a_row_to_the_shortest_queue() -> None:
    stream = stream_of([0] * 4, [100, 10, 10, 10], [0, 1, 12, 23])
    assert simulate(stream, LeastLoaded(instances=2)).placed.tolist() == [0, 1, 1, 1]


def test_stale_backlogs_are_those_of_a_while_ago() -> None:
    stream = stream_of([0] * 4, [100, 100, 100, 100], [0, 10, 20, 30])
    run = simulate(stream, LeastLoaded(instances=2, stale_ns=15))
    # At 20 the row placed at 0 is seen (1, 0), at 30 that of 10 is too (1, 1): then turns decide.
    assert run.placed.tolist() == [0, 1, 1, 1]


def test_between_two_reports_the_backlogs_stay_as_reported() -> None:
    stream = stream_of([0] * 5, [100] * 5, [0, 10, 20, 55, 60])
    run = simulate(stream, LeastLoaded(instances=3, report_every_ns=50))
    # Nothing is known until 50; by then every instance has one row.
    assert run.placed.tolist() == [0, 1, 2, 0, 1]
    early = stream_of([0] * 5, [100] * 5, [0, 10, 55, 56, 57])
    run = simulate(early, LeastLoaded(instances=3, report_every_ns=50))
    assert run.placed.tolist() == [0, 1, 2, 2, 2]  # the herd that stale news make


@given(
    stream=streams(),
    k=st.integers(1, 4),
    window=st.integers(1, 6),
    tolerance=st.sampled_from([0.0, 0.3, 10.0]),
    delay_ns=st.integers(0, 20),
    clamped=st.booleans(),
)
@settings(max_examples=150)
def test_the_papers_rules_give_what_the_naive_twin_gives(
    stream: Stream, k: int, window: int, tolerance: float, delay_ns: int, clamped: bool
) -> None:
    config = Proactive(
        instances=k,
        shape=SHAPE,
        mode="clamped" if clamped else "paper",
        window=window,
        tolerance=tolerance,
    )
    multipliers = [int(m) for m in SHAPE.multipliers]
    scheduler = NaiveScheduler(k, multipliers, SHAPE.columns, clamped)
    naive = [
        NaiveInstance(i, multipliers, SHAPE.columns, window, tolerance, clamped) for i in range(k)
    ]
    rows = rows_of(stream)
    trace = drive(rows, scheduler, naive, delay_ns)
    run = simulate(stream, config, delay_ns=delay_ns)
    assert run.placed.tolist() == trace.placed
    assert run.done_ns.tolist() == trace.done_ns
    counts = (run.sketches, run.requests, run.replies, run.stale_replies)
    assert counts == (trace.sketches, trace.requests, trace.replies, trace.stale_replies)


@given(
    stream=streams(),
    mode=st.sampled_from(["paper", "clamped", "default"]),
    delay_ns=st.integers(0, 20),
    sync_rows=st.integers(0, 9),
)
@settings(max_examples=60)
def test_the_simulator_runs_the_shipped_objects(
    stream: Stream, mode: str, delay_ns: int, sync_rows: int
) -> None:
    config = Proactive(
        instances=3,
        shape=SHAPE,
        mode=mode,  # type: ignore[arg-type]
        window=4,
        tolerance=0.5,
        sync_rows=sync_rows,
        heavy_buckets=2,
    )
    rows = rows_of(stream)
    instances = [config.start_instance(i) for i in range(3)]
    trace = drive(rows, config.start(), instances, delay_ns)
    run = simulate(stream, config, delay_ns=delay_ns)
    assert run.placed.tolist() == trace.placed
    assert run.done_ns.tolist() == trace.done_ns
    counts = (run.sketches, run.requests, run.replies, run.stale_replies)
    assert counts == (trace.sketches, trace.requests, trace.replies, trace.stale_replies)


def policies(k: int) -> list[Placement]:
    shape = SketchShape()
    modes = ("paper", "clamped", "default")
    proactive = [Proactive(instances=k, shape=shape, mode=mode, window=64) for mode in modes]
    return [
        RoundRobin(instances=k),
        *proactive,
        FullKnowledge(instances=k, mode="paper"),
        FullKnowledge(instances=k),
        LeastLoaded(instances=k, stale_ns=10 * MS),
        LeastLoaded(instances=k, report_every_ns=20 * MS),
    ]


@pytest.mark.parametrize(("k", "q"), list(itertools.product((1, 2, 7), (0.8, 1.0, 1.3))))
def test_every_row_is_done_once_in_order_and_no_work_is_lost(k: int, q: float) -> None:
    stream = Recipe(rows=3_000, keys=200).stream(k, k)
    stream = stream.arriving_every(q * stream.cost_ns_mean / k)
    speeds = (Speeds(first_row=1_000, factors=tuple(0.5 + i / k for i in range(k))),)
    for placement in policies(k):
        run = simulate(stream, placement, speeds=speeds, delay_ns=3 * MS)
        run.check()
        assert run.worked_ns.sum() == run.costs_ns.sum()
        assert run.requests == run.replies
        if k == 1:
            assert np.array_equal(
                run.done_ns, simulate(stream, policies(1)[0], speeds=speeds).done_ns
            )


def test_the_check_notices_a_row_out_of_order() -> None:
    run = simulate(the_papers_example(), RoundRobin(instances=2))
    run.done_ns[2] -= 1
    with pytest.raises(AssertionError, match="instance 0 did not do its rows in order"):
        run.check()


def test_rows_that_go_back_in_time_are_refused() -> None:
    with pytest.raises(ValueError, match="rows in order of arrival"):
        simulate(stream_of([0, 0], [1, 1], [5, 4]), RoundRobin(instances=1))


def test_nonsense_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="delay_ns must be >= 0, got -1"):
        simulate(the_papers_example(), RoundRobin(instances=1), delay_ns=-1)
    speeds = (Speeds(first_row=0, factors=(1.0,)),)
    with pytest.raises(ValueError, match="factors must be 2, got 1"):
        simulate(the_papers_example(), RoundRobin(instances=2), speeds=speeds)
    with pytest.raises(ValueError, match="factors must be positive"):
        Speeds(first_row=0, factors=(0.0,))
