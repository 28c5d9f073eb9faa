"""Instances that begin late are known, and are given less to do."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.cost.start import delays_ns, remember
from spillway.placement.greedy import Greedy
from spillway.values import TaskReport

MS = 1_000_000
Delays = tuple[float, ...]


def tasks(*late_ms: float, busy_ms: float = 1000.0) -> list[TaskReport]:
    """One task for each instance, begun so late after some moment."""
    return [
        TaskReport(
            instance=i, rows_in=9, begun_at_ns=round((77 + late) * MS), busy_ns=round(busy_ms * MS)
        )
        for i, late in enumerate(late_ms)
    ]


def after(*batches: list[TaskReport]) -> Delays:
    known: Delays = ()
    for batch in batches:
        known = remember(known, batch)
    return known


def test_delays_are_counted_from_the_first_to_begin() -> None:
    assert after(tasks(3.0, 0.0, 40.0)) == (3.0 * MS, 0.0, 40.0 * MS)


def test_a_single_batch_moves_them_by_a_quarter() -> None:
    assert after(tasks(0.0, 40.0), tasks(0.0, 80.0)) == (0.0, 50.0 * MS)


def test_they_follow_a_change_within_ten_batches() -> None:
    known = after(*[tasks(0.0, 40.0)] * 20, *[tasks(40.0, 0.0)] * 10)
    assert known == pytest.approx((40.0 * MS, 0.0), abs=5 * MS)


@pytest.mark.parametrize(
    "odd",
    [
        tasks(0.0, 300.0),  # waited for a slot, or another clock
        tasks(0.0),
        [],
        tasks(0.0, 1.0)[1:],
        [*tasks(0.0, 1.0), *tasks(5.0)],
        [TaskReport(instance=i, rows_in=0) for i in range(2)],
    ],
    ids=["far apart", "one", "none", "one is missing", "one twice", "no rows"],
)
def test_what_is_no_delay_is_passed_over(odd: list[TaskReport]) -> None:
    assert after(tasks(0.0, 40.0), odd) == (0.0, 40.0 * MS)


def test_another_number_of_instances_begins_anew() -> None:
    assert after(tasks(0.0, 40.0), tasks(0.0, 5.0, 7.0)) == (0.0, 5.0 * MS, 7.0 * MS)


def test_small_delays_are_not_worth_a_thought() -> None:
    assert delays_ns(()) == ()
    assert delays_ns((0.0, 4.9 * MS)) == ()
    assert delays_ns((0.0, 5.0 * MS)) == (0.0, 5.0 * MS)


@given(
    late_ms=st.lists(st.floats(0.0, 200.0), min_size=2, max_size=10),
    first=st.integers(0, 20),
    seed=st.integers(0, 99),
)
def test_all_are_done_at_about_the_same_time(late_ms: list[float], first: int, seed: int) -> None:
    """Whoever begins late gets less: the ends differ by no more than the cheapest rows."""
    costs_ns = np.random.default_rng(seed).uniform(1.0, 25.0, 2000) * MS
    delays = [late * MS for late in late_ms]
    state = Greedy(instances=len(delays), order="longest").start(first, delays)
    placed = state.place(costs_ns)
    ends = np.bincount(placed, costs_ns, minlength=len(delays)) + delays
    assert state.totals_ns == pytest.approx(ends)
    assert np.ptp(ends) <= 25.0 * MS
