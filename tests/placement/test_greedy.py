"""Greedy placement: where a row is done first, never far from the best there is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.placement.greedy import Greedy, Order
from spillway.placement.round_robin import RoundRobin

costs = st.lists(st.floats(0, 1e9, width=32), min_size=1, max_size=60)
instances = st.integers(1, 9)
orders = st.sampled_from(["arrival", "longest"])


def naive(rows: list[list[float]], k: int, first: int, order: str) -> list[int]:
    """Place by the rule's own words: done first, of equals the next in turn after `first`."""
    waiting, placed = [0.0] * k, [0] * len(rows)
    turn = [(first + step) % k for step in range(k)]
    sequence = list(range(len(rows)))
    if order == "longest":
        sequence.sort(key=lambda row: -float(np.mean(rows[row])))
    for row in sequence:
        placed[row] = min(turn, key=lambda i: waiting[i] + rows[row][i])
        waiting[placed[row]] += rows[row][placed[row]]
    return placed


@given(costs=st.lists(st.integers(0, 10**9), max_size=60), k=instances, data=st.data())
def test_rows_go_where_the_naive_twin_puts_them(costs: list[int], k: int, data: Any) -> None:
    first, order = data.draw(st.integers(0, 40)), data.draw(orders)
    state = Greedy(instances=k, order=order).start(first)
    placed = state.place(np.array(costs, dtype=float))
    assert placed.tolist() == naive([[float(cost)] * k for cost in costs], k, first, order)
    given = np.bincount(placed, weights=costs, minlength=k)
    assert state.totals_ns.tolist() == pytest.approx(given.tolist())


@given(k=st.integers(1, 5), data=st.data())
def test_where_speeds_differ_rows_go_where_the_naive_twin_puts_them(k: int, data: Any) -> None:
    row = st.lists(st.integers(0, 10**9), min_size=k, max_size=k)
    rows = data.draw(st.lists(row, min_size=1, max_size=40))
    first, order = data.draw(st.integers(0, 40)), data.draw(orders)
    placed = Greedy(instances=k, order=order).start(first).place(np.array(rows, dtype=float))
    assert placed.tolist() == naive(rows, k, first, order)


@given(costs=costs, k=instances, order=orders)
def test_the_slowest_is_within_the_theorem_of_what_any_placement_can_do(
    costs: list[float], k: int, order: Order
) -> None:
    """Theorem 4.2, against a lower bound on the optimum: the mean load, and the longest row."""
    state = Greedy(instances=k, order=order).start()
    state.place(np.array(costs))
    at_least = max(sum(costs) / k, max(costs))
    assert state.totals_ns.max() <= (2 - 1 / k) * at_least * (1 + 1e-9)


def test_with_the_longest_first_the_slowest_is_within_grahams_bound() -> None:
    """His own worst case: 2k + 1 rows, optimum 3k, the bound is met with equality."""
    k = 4
    costs = np.array([*np.repeat(np.arange(2 * k - 1, k, -1), 2), k, k, k], dtype=float)
    state = Greedy(instances=k, order="longest").start()
    state.place(costs)
    assert costs.sum() == k * 3 * k
    assert state.totals_ns.max() == 4 * k - 1 == pytest.approx((4 / 3 - 1 / (3 * k)) * 3 * k)


@given(sizes=st.lists(st.integers(0, 20), max_size=6), k=instances, first=st.integers(0, 9))
def test_rows_of_equal_cost_are_dealt_in_turn(sizes: list[int], k: int, first: int) -> None:
    """The same as round robin, however the rows come in batches."""
    state = Greedy(instances=k).start(first)
    placed = np.concatenate([*(state.place(np.ones(size)) for size in sizes), [0]])[:-1]
    keys = np.zeros(first % k + sum(sizes), dtype=np.int64)
    in_turn = RoundRobin(instances=k).start().place_all(keys, keys)
    assert placed.tolist() == in_turn[first % k :].tolist()


@given(costs=st.lists(st.integers(0, 10**9), min_size=2, max_size=60), cut=st.integers(0, 60))
def test_in_the_order_of_arrival_it_does_not_matter_how_rows_come_in_batches(
    costs: list[int], cut: int
) -> None:
    rows = np.array(costs, dtype=float)
    state = Greedy(instances=3).start(1)
    parts = [state.place(rows[:cut]), state.place(rows[cut:])]
    assert np.concatenate(parts).tolist() == Greedy(instances=3).start(1).place(rows).tolist()


def test_a_fast_instance_gets_work_in_proportion_to_its_speed() -> None:
    speeds = np.array([1.0, 2.0, 5.0])
    base = np.random.default_rng(4).integers(1, 65, 8000) * 1e6
    state = Greedy(instances=3).start()
    placed = state.place(base[:, None] / speeds)
    work = np.bincount(placed, weights=base)
    assert work / work.sum() == pytest.approx(speeds / speeds.sum(), abs=0.001)
    assert state.totals_ns == pytest.approx(state.totals_ns.mean(), rel=0.001)


def test_costs_that_are_none_never_reach_a_total() -> None:
    state = Greedy(instances=2).start()
    placed = state.place(np.array([np.nan, -5.0, np.inf, -np.inf, 1.0]))
    assert set(placed.tolist()) <= {0, 1}
    assert np.isfinite(state.totals_ns).all()
    assert (state.totals_ns >= 0).all()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"instances": 0}, "instances must be >= 1, got 0"),
        ({"instances": 2, "order": "any"}, "order must be 'arrival' or 'longest', got 'any'"),
    ],
)
def test_nonsense_is_refused_by_name(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Greedy(**given)
