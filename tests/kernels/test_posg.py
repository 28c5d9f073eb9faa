"""Theorem 4.2: greedy placement is within 2 - 1/k of the best, and no better at worst."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.kernels import posg, posg_instance
from tests.naive_posg import best_makespan


def greedy_makespan(costs: list[int], k: int, mode: int) -> float:
    totals = np.zeros(k)
    for cost in costs:
        posg.place_exactly(totals, np.full(k, float(cost)), 0, mode)
    return float(totals.max())


@given(costs=st.lists(st.integers(1, 50), min_size=1, max_size=7), k=st.integers(1, 3))
@settings(max_examples=150)
@pytest.mark.parametrize("mode", [posg.PAPER, posg.DEFAULT])
def test_greedy_is_within_two_minus_one_kth_of_the_best(
    mode: int, costs: list[int], k: int
) -> None:
    assert greedy_makespan(costs, k, mode) <= (2 - 1 / k) * best_makespan(costs, k) + 1e-9


@pytest.mark.parametrize("k", [1, 2, 3, 4, 7])
def test_the_bound_is_reached_by_many_small_rows_before_a_large_one(k: int) -> None:
    """k (k - 1) rows of w / k, then one of w: the best is w, for the large one has its own."""
    w = 60 * k
    costs = [w // k] * (k * (k - 1)) + [w]
    assert greedy_makespan(costs, k, posg.PAPER) == pytest.approx((2 - 1 / k) * w)
    if k <= 3:
        assert best_makespan(costs, k) == w


def test_totals_are_clamped_to_now_where_asked() -> None:
    totals = np.array([5.0, 3.0, 9.0])
    assert posg.free_first(totals, 7, False) == 1
    assert posg.free_first(totals, 7, True) == 0
    posg.charge(totals, 1, 2.0, 7, False)
    posg.charge(totals, 0, 2.0, 7, True)
    assert totals.tolist() == [9.0, 5.0, 9.0]


def test_done_first_weighs_the_queue_against_the_speed() -> None:
    totals, costs = np.array([0.0, 50.0]), np.array([100.0, 10.0])
    assert posg.done_first(totals, costs, 0) == 1
    assert posg.done_first(totals, np.array([55.0, 10.0]), 0) == 0


@given(
    counts=st.lists(st.integers(0, 1000), min_size=6, max_size=6),
    mean=st.integers(0, 10**9),
)
def test_halving_keeps_every_mean_and_forgets_no_cell(counts: list[int], mean: int) -> None:
    table = np.array(counts, dtype=np.int64).reshape(2, 3)
    work = table * mean
    old = table.copy()
    posg_instance.halve(table, work)
    assert np.array_equal(table, (old + 1) // 2)
    assert np.array_equal(work, table * mean)


def test_equal_backlogs_are_served_in_turn() -> None:
    machine = np.zeros(posg.SCHEDULER_SIZE, dtype=np.int64)
    backlogs = np.zeros(3, dtype=np.int64)
    assert [posg.fewest(backlogs, machine) for _ in range(4)] == [0, 1, 2, 0]
