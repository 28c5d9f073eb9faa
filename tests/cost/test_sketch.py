"""Costs by key: exact totals, bounded estimates, the papers' theorems, and bytes that are checked.

Statistics have a false-alarm rate of 1e-4 per test unless they say otherwise; seeds are fixed.
"""

from __future__ import annotations

import math
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, norm

from spillway.cost.items import items_of
from spillway.cost.sketch import CostSketch, SketchShape
from spillway.kernels.sketch import COST_NS_MAX, WORK_NS_MAX
from spillway.sim.workloads import Recipe

ROWS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 10**9)), min_size=1, max_size=80)
FALSE_ALARM = 1e-4


def ints(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def filled(rows: list[tuple[int, int]], shape: SketchShape | None = None) -> CostSketch:
    sketch = CostSketch(shape or SketchShape(rows=2, columns=7))
    sketch.update(*np.array(rows, dtype=np.int64).reshape(-1, 2).T)
    return sketch


# What it promises


@given(rows=ROWS)
def test_every_estimate_lies_between_the_least_and_the_greatest_cost(
    rows: list[tuple[int, int]],
) -> None:
    estimates = filled(rows).estimate_ns(np.arange(200))
    costs = [cost_ns for _, cost_ns in rows]
    assert estimates.min() >= min(costs)
    assert estimates.max() <= max(costs) * (1 + 1e-15)  # one rounding of the division


@given(rows=ROWS)
def test_a_frequency_is_never_less_than_the_truth(rows: list[tuple[int, int]]) -> None:
    keys, truth = np.unique([key for key, _ in rows], return_counts=True)
    assert (filled(rows).frequencies(keys) >= truth).all()


@given(rows=ROWS)
def test_totals_and_mean_are_exact(rows: list[tuple[int, int]]) -> None:
    sketch = filled(rows)
    total = sum(cost_ns for _, cost_ns in rows)
    assert (sketch.rows_seen, sketch.work_total_ns) == (len(rows), total)
    assert sketch.mean_ns == total / len(rows)


def test_a_key_that_was_never_seen_costs_the_mean_and_in_an_empty_sketch_nothing() -> None:
    sketch = CostSketch(SketchShape(rows=2, columns=1000))
    assert sketch.estimate_ns(ints(1, 2)).tolist() == [0.0, 0.0]
    assert math.isnan(sketch.mean_ns)
    sketch.update(ints(1, 2), ints(10, 31))
    assert sketch.estimate_ns(ints(1, 2, 77)).tolist() == [10.0, 31.0, 20.5]


def test_no_keys_have_no_estimates() -> None:
    sketch = CostSketch()
    sketch.update(ints(), ints())
    assert sketch.estimate_ns(ints()).size == sketch.frequencies(ints()).size == 0


@given(rows=ROWS, others=ROWS)
def test_the_order_of_merges_does_not_matter(
    rows: list[tuple[int, int]], others: list[tuple[int, int]]
) -> None:
    one, other = filled(rows), filled(others)
    one.merge(filled(others))
    other.merge(filled(rows))
    assert one.to_bytes() == other.to_bytes() == filled(rows + others).to_bytes()


def test_a_copy_is_independent_and_a_reset_forgets() -> None:
    sketch = filled([(1, 5)])
    twin = sketch.copy()
    twin.update_one(1, 7)
    assert (sketch.rows_seen, twin.rows_seen) == (1, 2)
    sketch.reset()
    assert sketch.to_bytes() == CostSketch(sketch.shape).to_bytes()


def test_sketches_of_another_shape_or_seed_do_not_merge() -> None:
    for shape in (SketchShape(rows=3), SketchShape(seed=1), SketchShape(columns=55)):
        with pytest.raises(ValueError, match="other must have the shape"):
            CostSketch().merge(CostSketch(shape))


# Costs that are none


@pytest.mark.parametrize(("cost_ns", "counts"), [(-1, 0), (-(2**63), 0), (2**63 - 1, COST_NS_MAX)])
def test_an_insane_cost_counts_as_nothing_or_as_a_day(cost_ns: int, counts: int) -> None:
    one, batch = CostSketch(), CostSketch()
    one.update_one(3, cost_ns)
    batch.update(ints(3), ints(cost_ns))
    assert one.work_total_ns == batch.work_total_ns == counts
    assert one.rows_seen == batch.rows_seen == 1


def test_a_cost_beyond_64_bits_counts_as_a_day() -> None:
    sketch = CostSketch()
    sketch.update_one(3, 2**80)
    sketch.update(ints(3), np.array([2**64 - 1], dtype=np.uint64))
    assert sketch.work_total_ns == 2 * COST_NS_MAX


@pytest.mark.parametrize(
    "costs",
    [
        np.array([math.nan]),
        np.array([math.inf]),
        np.array([1.0]),
        np.array([None]),
        np.ma.masked_array([1], mask=[True]),
        np.array([[1]]),
    ],
    ids=str,
)
def test_a_missing_infinite_or_fractional_cost_is_refused_before_anything_is_counted(
    costs: Any,
) -> None:
    sketch = CostSketch()
    with pytest.raises(ValueError, match="costs_ns must"):
        sketch.update(ints(1), costs)
    assert sketch.rows_seen == 0


def test_keys_and_costs_must_come_in_pairs() -> None:
    with pytest.raises(ValueError, match="costs_ns must have one entry per key, got 2 for 1"):
        CostSketch().update(ints(1), ints(1, 2))


def test_a_total_beyond_64_bits_stays_positive_and_serialises() -> None:
    sketch = CostSketch(SketchShape(rows=2, columns=2))
    keys = np.arange(300_000)
    sketch.update(keys, np.full(keys.size, COST_NS_MAX))
    assert sketch.work_ns.min() > 0
    assert 2**63 < sketch.work_total_ns <= 2 * WORK_NS_MAX
    assert 0 < sketch.mean_ns <= COST_NS_MAX
    assert CostSketch.from_bytes(sketch.to_bytes()).to_bytes() == sketch.to_bytes()


# The papers' theorems

KEYS, COLUMNS = 4096, 55
COSTS = np.repeat(np.arange(1, 65), 64)  # 1..64, each for 64 keys


def expected_ratio(cost: float) -> float:
    """E[W/F] of a key's cell, all keys equally frequent (LAS theorem 4.2, POSG theorem 4.3)."""
    n, k, total = KEYS, COLUMNS, float(COSTS.sum())
    empty = (1 - 1 / k) ** n
    return (total - cost) / (n - 1) - k * (total - n * cost) / (n * (n - 1)) * (1 - empty)


def drawn_ratios(draws: int, rows: int) -> np.ndarray:
    """W/F in each row's cell for the first and the last key: (draws, rows, 2).

    The theorem draws every key's cell independently. Spark's hash multiplies and has only the
    multiplier to draw: over one fixed set of keys, consecutive integers above all, its collisions
    are not independent and the mean deviates. So every draw takes new keys too.
    """
    found = np.empty((draws, rows, 2))
    rng = np.random.default_rng(11)
    for draw in range(draws):
        keys = rng.choice(1 << 31, size=KEYS, replace=False)
        sketch = CostSketch(SketchShape(rows=rows, columns=COLUMNS, seed=draw))
        sketch.update(keys, COSTS)
        for at, key in enumerate(keys[[0, -1]]):
            found[draw, :, at] = [ratio_in_row(sketch, i, key) for i in range(rows)]
    return found


def ratio_in_row(sketch: CostSketch, row: int, key: int) -> float:
    alone = CostSketch(sketch.shape)
    alone.update_one(int(key), 0)
    at = int(alone.frequency[row].argmax())
    return float(sketch.work_ns[row, at] / sketch.frequency[row, at])


def test_the_expected_ratio_is_the_papers_numerical_example() -> None:
    expected = [expected_ratio(cost) for cost in range(1, 65)]
    assert expected == sorted(expected)
    assert (round(expected[0], 2), round(expected[-1], 2)) == (32.08, 32.92)


def test_the_mean_ratio_in_our_cells_is_the_theorems() -> None:
    """Two z-tests, each with half the false-alarm rate; they could tell it from the mean cost."""
    ratios = drawn_ratios(draws=2500, rows=1)[:, 0]
    error = ratios.std(axis=0, ddof=1) / math.sqrt(len(ratios))
    limit = norm.isf(FALSE_ALARM / 4)
    z = (ratios.mean(axis=0) - [expected_ratio(1), expected_ratio(64)]) / error
    assert (abs(z) < limit).all(), z
    assert (abs(ratios.mean(axis=0) - COSTS.mean()) / error > limit).all()
    assert ratios.min() >= 1
    assert ratios.max() <= 64


def test_the_tail_is_within_markovs_bound() -> None:
    """Least ratio of 10 rows at 48 or more: at most (11/16)^10 of the time."""
    bound = (11 / 16) ** 10
    assert bound <= 0.024
    assert expected_ratio(64) / 48 <= 11 / 16
    least = drawn_ratios(draws=200, rows=10).min(axis=1)
    beyond = (least >= 48).sum(axis=0)
    assert (beyond <= binom.isf(FALSE_ALARM / 2, 200, bound)).all()


@pytest.mark.parametrize("zipf", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("delta", [0.5, 0.1])
def test_a_frequency_is_too_high_by_epsilon_at_most_with_probability_delta(
    zipf: float, delta: float
) -> None:
    """P(found - f >= ε(m - f)) <= δ: one key from each of 400 sketches, as a binomial."""
    epsilon, draws = 0.05, 400
    recipe = Recipe(rows=4096, keys=1024, zipf=zipf)
    items = items_of(np.arange(recipe.keys))
    exceeded = 0
    for seed in range(draws):
        keys = recipe.draw_keys(seed)
        sketch = CostSketch(SketchShape.for_error(epsilon=epsilon, delta=delta, seed=seed))
        sketch.update(items[keys], np.zeros_like(keys))
        key = keys[0]  # the first row's key is as random as any
        truth = int((keys == key).sum())
        found = int(sketch.frequencies(items[[key]])[0])
        exceeded += found - truth >= epsilon * (recipe.rows - truth)
        assert found >= truth
    assert exceeded <= binom.isf(FALSE_ALARM, draws, delta)


def test_the_papers_epsilon_and_delta_give_four_rows_of_54() -> None:
    shape = SketchShape.for_error(epsilon=0.05, delta=0.1)
    assert (shape.rows, shape.columns) == (4, 54)


@pytest.mark.parametrize(
    "bad",
    [
        {"rows": 0},
        {"columns": 0},
        {"rows": -1},
        {"rows": 1 << 12, "columns": (1 << 12) + 1},
        {"seed": 1 << 63},
    ],
)
def test_a_shape_that_holds_nothing_or_too_much_is_refused(bad: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must be"):
        SketchShape(**bad)


@pytest.mark.parametrize(("epsilon", "delta"), [(0, 0.1), (1.1, 0.1), (0.1, 0), (0.1, 1)])
def test_an_error_that_no_sketch_has_is_refused(epsilon: float, delta: float) -> None:
    with pytest.raises(ValueError, match="must be in"):
        SketchShape.for_error(epsilon=epsilon, delta=delta)


# Bytes

SMALL = SketchShape(rows=2, columns=3, seed=-5)


def resealed(body: bytes) -> bytes:
    return body + struct.pack(">I", zlib.crc32(body))


def with_long(data: bytes, at: int, value: int) -> bytes:
    """Overwrite 8 bytes and make the checksum fit again."""
    return resealed((data[:at] + struct.pack(">q", value) + data[at + 8 :])[:-4])


@given(rows=ROWS, seed=st.integers(-(2**63), 2**63 - 1))
def test_bytes_bring_back_the_same_sketch(rows: list[tuple[int, int]], seed: int) -> None:
    sketch = filled(rows, SketchShape(rows=3, columns=5, seed=seed))
    again = CostSketch.from_bytes(sketch.to_bytes())
    assert again.shape == sketch.shape
    assert again.to_bytes() == sketch.to_bytes()


def test_every_truncation_is_refused() -> None:
    data = filled([(1, 5), (2, 9)], SMALL).to_bytes()
    for size in range(len(data)):
        with pytest.raises(ValueError, match="data must"):
            CostSketch.from_bytes(data[:size])
    with pytest.raises(ValueError, match="data must have"):
        CostSketch.from_bytes(data + b"\0")


def test_every_damaged_bit_is_refused() -> None:
    data = filled([(1, 5), (2, 9)], SMALL).to_bytes()
    for bit in range(8 * len(data)):
        bad = bytearray(data)
        bad[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError, match="must"):
            CostSketch.from_bytes(bytes(bad))


@given(data=st.binary(max_size=200))
@settings(max_examples=200)
def test_foreign_bytes_are_refused(data: bytes) -> None:
    for start in (b"", b"SWC1"):
        with pytest.raises(ValueError, match="must"):
            CostSketch.from_bytes(start + data)


FIRST_CELL = 12 + 20 + 8 * SMALL.rows  # of F, after magic, seed, header and multipliers
TABLE = 20 + 8 * SMALL.rows * (1 + SMALL.columns)


@pytest.mark.parametrize(
    ("at", "value", "rule"),
    [
        (FIRST_CELL, -1, "no negative numbers"),
        (FIRST_CELL + TABLE, -(2**63), "no negative numbers"),
        (FIRST_CELL, 2**40, "add up to the total in every row"),
        (16, 77, "add up to the total in every row"),
        (4, 9, "multipliers of its seed"),
        (24, (2 << 32) + 2**31 - 1, "at most"),
        (24, (2 << 32) + 100, "bytes"),
    ],
)
def test_crafted_bytes_with_a_fitting_checksum_are_refused_by_their_rule(
    at: int, value: int, rule: str
) -> None:
    data = filled([(1, 5), (2, 9)], SMALL).to_bytes()
    with pytest.raises(ValueError, match=rule):
        CostSketch.from_bytes(with_long(data, at, value))


def test_work_without_rows_is_refused() -> None:
    sketch = filled([(1, 5)], SMALL)
    sketch.frequency[:] = 0
    with pytest.raises(ValueError, match="no work where it counts no rows"):
        CostSketch.from_bytes(sketch.to_bytes())
