"""The abstract shedder model: nothing lost nor doubled, fair under overload, whole without it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.estimate.sic import Spread
from spillway.overload.detector import RowDetector, WorkDetector
from spillway.shedders.fair import EqualWork, Fair, Last, Random
from spillway.sim.many_queries import SECOND, Query, Source, arrivals
from spillway.sim.shared_buffer import Node, simulate
from spillway.sim.shared_run import Fate, Run

FAIR = Node(chooser=Fair())
PAPER = Node(chooser=Fair(last=Last.OVER), detector=RowDetector())
RANDOM = Node(chooser=Random(seed=1))
OPEN = Node(chooser=None)
RATES = (20.0, 2000.0, 60.0, 600.0, 200.0, 100.0, 1000.0, 40.0)
COSTS = (50.0, 1.0, 2.0, 10.0, 30.0, 5.0, 3.0, 1.0)


def query(rate: float, cost_s: float, **more: float) -> Query:
    return Query(sources=(Source(steps=((0.0, rate),)),), cost_s=cost_s, **more)


def unequal(factor: float) -> list[Query]:
    """Eight queries, rates 1:100 and costs 1:50, that need `factor` times what the node can do."""
    scale = factor / float(np.dot(RATES, COSTS))
    return [query(rate, cost * scale) for rate, cost in zip(RATES, COSTS, strict=True)]


def spreads(run: Run, from_s: float = 20.0) -> list[Spread]:
    times, sic = run.sic()
    return [Spread.of(row[~np.isnan(row)]) for row in sic[times >= from_s]]


def deviation(run: Run) -> float:
    return float(np.mean([spread.deviation for spread in spreads(run)]))


# Nothing lost, nothing doubled ------------------------------------------------------------------


@settings(max_examples=25)
@given(
    st.integers(0, 1000),
    st.floats(0.2, 4.0),
    st.sampled_from([FAIR, PAPER, RANDOM, OPEN]),
    st.sampled_from([0.0, 1e-3, 0.05]),
    st.sampled_from([0.0, 0.1]),
)
def test_every_batch_has_one_fate_however_long_the_shedder_runs(
    seed: int, factor: float, node: Node, lock_s: float, late_s: float
) -> None:
    node = replace(node, lock_s=lock_s, late_s=late_s, window_s=2.0)
    run = simulate(unequal(factor), node, seconds=6.0, seed=seed)
    run.check()
    assert sum(run.totals.values()) == run.came.rows.sum()


def test_what_arrives_while_the_shedder_runs_is_held_and_not_shed_by_it() -> None:
    """A pass takes 100 ms of every 250: many batches arrive under lock, and all have a fate."""
    node = replace(FAIR, lock_s=0.1, lock_s_batch=0.0)
    run = simulate(unequal(2.0), node, seconds=20.0)
    run.check()
    begin, end = run.locks_ns.T
    lock = np.searchsorted(begin, run.came.at_ns, side="left") - 1  # the pass before the arrival
    held = np.flatnonzero((lock >= 0) & (run.came.at_ns <= end[lock]))
    assert held.size > 300
    ends_ns = end[lock[held]]
    cut, done = run.shed_ns[held] >= 0, run.done_ns[held] >= 0
    assert (run.shed_ns[held][cut] > ends_ns[cut]).all()
    assert (run.done_ns[held][done] > ends_ns[done]).all()
    assert (cut | done)[run.came.at_ns[held] < 19 * SECOND].all()


def test_a_broken_run_is_noticed() -> None:
    run = simulate(unequal(2.0), FAIR, seconds=10.0)
    done = np.flatnonzero(run.fates == Fate.DONE)
    shed = np.flatnonzero(run.fates == Fate.SHED)
    for name, batch, value, rule in (
        ("done_ns", done[5], -1, "done batches, and no others"),
        ("done_ns", shed[5], 10**9, "done batches, and no others"),
        ("rows", shed[5], 1, "shed batches, and no others"),
        ("rows", done[5], int(run.came.rows[done[5]]) - 1, "cut batches, and no others"),
        ("done_ns", done[-1], int(run.came.at_ns[done[-1]]), "work begins after arrival"),
        ("done_ns", done[5], int(run.done_ns[done[6]]) + 1, "one batch at a time"),
        ("shed_ns", shed[5], 1, "what is shed had arrived"),
        ("shed_ns", shed[5], int(run.shed_ns[shed[5]]) + 1, "what is shed is shed in a pass"),
    ):
        changed = getattr(run, name).copy()
        changed[batch] = value
        with pytest.raises(AssertionError, match=rule):
            replace(run, **{name: changed}).check()


def test_the_same_seed_gives_the_same_run_and_another_seed_another() -> None:
    one, same, other = (
        simulate(unequal(2.0), RANDOM, seconds=10.0, seed=seed) for seed in (3, 3, 4)
    )
    assert np.array_equal(one.done_ns, same.done_ns)
    assert not np.array_equal(one.done_ns[:100], other.done_ns[:100])


# Fairness ---------------------------------------------------------------------------------------


def test_rates_1_to_100_and_costs_1_to_50_at_twice_the_capacity() -> None:
    """The issue's bounds on Spark hold on virtual time, in each of five runs."""
    for seed in range(5):
        fair, random = (
            simulate(unequal(2.0), node, seconds=60.0, seed=seed) for node in (FAIR, RANDOM)
        )
        assert deviation(fair) <= 0.03
        assert np.mean([spread.jain for spread in spreads(fair)]) >= 0.995
        assert deviation(random) >= 5 * deviation(fair)
        assert fair.useful_s() >= 0.99 * random.useful_s()
        assert min(spread.minimum for spread in spreads(fair)) > 0.4
        assert fair.latency_s(0.99) < 0.75


def test_passing_over_what_does_not_fit_favours_queries_of_small_batches() -> None:
    """So the last batch is kept in part: three times less deviation (0.03 without, 0.008 with)."""
    whole, part = (
        simulate(unequal(2.0), Node(chooser=Fair(last=last)), seconds=60.0)
        for last in (Last.WITHIN, Last.PART)
    )
    assert deviation(whole) > 3 * deviation(part)


def test_equal_work_is_fair_among_equals_and_favours_the_light_among_others() -> None:
    equal = Node(chooser=EqualWork())
    alike = simulate([query(100.0, 0.002)] * 10, equal, seconds=40.0)
    assert deviation(alike) < 0.03
    light, heavy = query(100.0, 0.001), query(100.0, 0.019)
    times, sic = simulate([light, heavy], equal, seconds=40.0).sic()
    assert sic[times >= 20].mean(axis=0) == pytest.approx([1.0, 0.9 / 1.9], abs=0.05)


def test_below_the_capacity_nothing_is_shed() -> None:
    for seed in range(3):
        run = simulate(unequal(0.7), FAIR, seconds=30.0, seed=seed)
        assert not (run.fates == Fate.SHED).any()
        assert not run.locks_ns.size


def test_without_shedding_nothing_is_lost_but_in_time() -> None:
    run = simulate(unequal(3.0), OPEN, seconds=60.0)
    assert not (run.fates == Fate.SHED).any()
    assert run.latency_s(0.99) > 10.0
    assert spreads(run)[-1].minimum < 0.05


def test_sic_goes_in_proportion_to_weights() -> None:
    queries = [replace(each, weight=1.0 + index % 3) for index, each in enumerate(unequal(5.0))]
    run = simulate(queries, FAIR, seconds=60.0)
    times, sic = run.sic()
    levels = sic[times >= 20] / np.array([each.weight for each in queries])
    assert levels.std(axis=1).mean() < 0.02


def test_a_query_of_several_sources_is_as_fair() -> None:
    """A slow source's rows carry more: they go last, and the query stands where others do."""
    two = Query(sources=(Source(steps=((0.0, 50.0),)), Source(steps=((0.0, 1000.0),))), cost_s=1.0)
    queries = [two, query(500.0, 1.0), query(100.0, 5.0)]
    work = 1050.0 + 500.0 + 500.0
    scaled = [replace(each, cost_s=each.cost_s * 2.0 / work) for each in queries]
    run = simulate(scaled, FAIR, seconds=60.0)
    assert deviation(run) < 0.03
    source = run.came.sources
    kept = [
        float(
            (run.rows * run.in_time)[source == number].sum() / run.came.rows[source == number].sum()
        )
        for number in (0, 1)
    ]
    assert kept[0] > kept[1]


# Queries that come and go -------------------------------------------------------------------------


def test_a_query_that_dies_leaves_its_time_to_the_others() -> None:
    queries = [query(500.0, 0.002), query(500.0, 0.002, dies_s=30.0)]
    run = simulate(queries, FAIR, seconds=60.0)
    run.check()
    times, sic = run.sic()
    assert sic[times == 29, 0] == pytest.approx(0.5, abs=0.05)
    assert sic[times >= 45, 0].min() > 0.95
    assert np.isnan(sic[times > 30, 1]).all()
    assert (run.fates == Fate.ABANDONED).sum() < 20
    late = run.came.at_ns > 30 * SECOND
    assert not (run.came.queries[late] == 1).any()


def test_a_source_that_goes_silent_makes_its_query_neither_rich_nor_poor() -> None:
    """From second 20 on one of its two sources is silent; the other then counts in full."""
    two = Query(
        sources=(
            Source(steps=((0.0, 500.0),)),
            Source(steps=((0.0, 500.0), (20.0, 0.0))),
        ),
        cost_s=0.002,
    )
    run = simulate([two, query(1000.0, 0.002)], FAIR, seconds=60.0)
    times, sic = run.sic()
    assert np.abs(sic[times >= 35, 0] - sic[times >= 35, 1]).max() < 0.05


def test_a_silent_query_has_no_sic_and_takes_no_time() -> None:
    quiet = Query(sources=(Source(steps=((0.0, 500.0), (20.0, 0.0))),), cost_s=0.002)
    run = simulate([quiet, query(500.0, 0.002)], FAIR, seconds=50.0)
    times, sic = run.sic()
    assert np.isnan(sic[times > 31, 0]).all()
    assert sic[times >= 35, 1].min() > 0.95


def test_a_query_added_during_overload_stands_with_the_others_within_a_window() -> None:
    late = Query(sources=(Source(steps=((30.0, 500.0),)),), cost_s=0.002)
    run = simulate([*[query(500.0, 0.002)] * 3, late], FAIR, seconds=60.0)
    times, sic = run.sic()
    assert np.isnan(sic[times < 30, 3]).all()
    assert np.abs(sic[times >= 40, 3] - sic[times >= 40, 0]).max() < 0.05


def test_a_query_of_weight_zero_gets_next_to_nothing_while_others_need_it() -> None:
    """Not quite nothing: when the kept rows take less than foreseen, the runner takes any row."""
    weightless = query(100.0, 0.002, weight=0.0)
    busy = simulate([weightless, query(1000.0, 0.002)], FAIR, seconds=60.0)
    times, sic = busy.sic()
    assert sic[times >= 40, 0].max() < 0.05 < 0.45 < sic[times >= 40, 1].min()


def test_a_query_of_weight_zero_gets_everything_while_they_do_not() -> None:
    calm = simulate([query(100.0, 0.002, weight=0.0), query(200.0, 0.002)], FAIR, seconds=30.0)
    assert np.nanmin(calm.sic()[1]) == 1.0


# The detector -------------------------------------------------------------------------------------


def test_seconds_hold_the_buffer_where_rows_of_an_average_cost_let_it_run_over() -> None:
    """One query bursts whose rows cost 50 times those of the others: the average follows late."""
    cheap = query(3000.0, 1e-4)
    dear = Query(sources=(Source(steps=((0.0, 20.0), (30.0, 800.0))),), cost_s=5e-3)
    by_rows, by_work = (
        simulate([cheap, dear], Node(chooser=Fair(), detector=detector), seconds=45.0)
        for detector in (RowDetector(), WorkDetector())
    )
    assert by_work.latency_s(1.0) < 1.0
    assert by_rows.latency_s(1.0) > 2 * by_work.latency_s(1.0)


# Arrivals -----------------------------------------------------------------------------------------


def test_sources_send_what_their_steps_say_in_batches_that_are_not_too_large() -> None:
    steps = ((0.0, 100.0), (10.0, 0.0), (20.0, 2000.0))
    came = arrivals([Query(sources=(Source(steps=steps),), cost_s=0.001)], seconds=30.0, seed=1)
    second = came.at_ns / SECOND
    rows = [came.rows[(second >= start) & (second < start + 10)].sum() for start in (0, 10, 20)]
    # Poisson totals: five deviations, passed less than once in 10^6.
    assert abs(rows[0] - 1000) < 5 * 1000**0.5
    assert rows[1] == 0
    assert abs(rows[2] - 20_000) < 5 * 20_000**0.5
    assert came.rows.max() <= 50
    assert (np.diff(came.at_ns) >= 0).all()


def test_costs_scatter_around_rows_times_cost() -> None:
    came = arrivals([query(5000.0, 0.001)], seconds=60.0, noise=0.1)
    ratio = came.costs_ns / (came.rows * 0.001 * SECOND)
    assert ratio.mean() == pytest.approx(1.0, abs=5 * 0.1 / ratio.size**0.5)
    assert ratio.std() == pytest.approx(0.1, rel=0.1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Source(steps=()), r"steps must be one or more, in order of time, got \(\)"),
        (lambda: Source(steps=((1.0, 1.0), (0.0, 1.0))), "steps must be one or more, in order"),
        (lambda: Source(steps=((0.0, -1.0),)), "rates must be finite and >= 0"),
        (lambda: Source(steps=((0.0, 1.0),), every_s=0), "every_s must be finite and > 0, got 0"),
        (lambda: Source(steps=((0.0, 1.0),), batch_rows=0), "batch_rows must be >= 1, got 0"),
        (lambda: query(1.0, 0.0), r"cost_s must be finite and > 0, got 0\.0"),
        (lambda: query(1.0, 1.0, weight=-1.0), r"weight must be finite and >= 0, got -1\.0"),
        (lambda: Query(sources=(), cost_s=1.0), "sources must be one or more, got none"),
        (lambda: Node(chooser=None, window_s=0), "window_s must be finite and > 0, got 0"),
        (lambda: Node(chooser=None, lock_s=-1), "lock_s must be finite and >= 0, got -1"),
        (
            lambda: simulate([query(1.0, 1.0)], OPEN, seconds=5),
            r"seconds must be >= window_s, 10\.0",
        ),
        (lambda: simulate([], OPEN, seconds=50), "queries must be one or more, got none"),
    ],
)
def test_what_makes_no_node_is_refused(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]
