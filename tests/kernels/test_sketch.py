"""The compiled sketch is its slow twin, for every key and every cost."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.kernels import sketch as kernel
from tests.naive_sketch import DAY_NS, INT64_MAX, NaiveSketch, column_of, java_ints

ANY = st.integers(-(2**63), 2**63 - 1)
KEYS = st.one_of(st.integers(0, 9), st.integers(0, 2**31 - 1), ANY)
COSTS = st.one_of(st.integers(0, 1000), ANY)
ROWS = st.lists(st.tuples(KEYS, COSTS), max_size=60)
SHAPES = st.tuples(st.integers(1, 5), st.integers(1, 9))


def multipliers_of(rows: int) -> np.ndarray:
    return np.array(list(islice(java_ints(7), rows)), dtype=np.int64)


class Pair:
    """A sketch and its twin, filled alike."""

    def __init__(self, shape: tuple[int, int]) -> None:
        self.multipliers = multipliers_of(shape[0])
        self.frequency, self.work_ns = np.zeros((2, *shape), dtype=np.int64)
        self.twin = NaiveSketch(self.multipliers.tolist(), shape[1])

    def update(self, rows: list[tuple[int, int]]) -> None:
        keys, costs_ns = np.array(rows, dtype=np.int64).reshape(-1, 2).T.copy()
        kernel.update_rows(self.frequency, self.work_ns, self.multipliers, keys, costs_ns)
        for key, cost_ns in rows:
            self.twin.update(key, cost_ns)

    def assert_equal(self) -> None:
        assert cells(self.frequency) == {at: n for at, n in self.twin.count.items() if n}
        assert cells(self.work_ns) == {at: n for at, n in self.twin.work.items() if n}


def cells(table: np.ndarray) -> dict[tuple[int, int], int]:
    return {(int(i), int(j)): int(table[i, j]) for i, j in np.argwhere(table)}


@given(key=ANY, multiplier=st.integers(0, 2**31 - 1), columns=st.integers(1, 2**31 - 1))
@settings(max_examples=300)
def test_a_key_has_the_column_that_the_java_arithmetic_gives_it(
    key: int, multiplier: int, columns: int
) -> None:
    assert kernel.cell(key, multiplier, columns) == column_of(key, multiplier, columns)


@given(shape=SHAPES, rows=ROWS)
def test_updates_fill_the_twins_cells(shape: tuple[int, int], rows: list[tuple[int, int]]) -> None:
    pair = Pair(shape)
    pair.update(rows)
    pair.assert_equal()


@given(shape=SHAPES, rows=ROWS)
def test_a_batch_is_its_rows_one_by_one(
    shape: tuple[int, int], rows: list[tuple[int, int]]
) -> None:
    pair = Pair(shape)
    for key, cost_ns in rows:
        kernel.update_row(pair.frequency, pair.work_ns, pair.multipliers, key, cost_ns)
        pair.twin.update(key, cost_ns)
    pair.assert_equal()


@given(shape=SHAPES, rows=ROWS, more=st.lists(KEYS, max_size=20))
def test_estimates_and_frequencies_are_the_twins(
    shape: tuple[int, int], rows: list[tuple[int, int]], more: list[int]
) -> None:
    pair = Pair(shape)
    pair.update(rows)
    keys = np.array([key for key, _ in rows] + more, dtype=np.int64)
    found, counts = np.empty(keys.size), np.empty(keys.size, dtype=np.int64)
    kernel.estimate_rows(pair.frequency, pair.work_ns, pair.multipliers, keys, 5.5, found)
    kernel.frequency_rows(pair.frequency, pair.multipliers, keys, counts)
    # One division of rounded numbers against an exact fraction: an ulp or two apart.
    expected = [pair.twin.estimate(key, 5.5) for key in keys.tolist()]
    np.testing.assert_allclose(found, expected, rtol=1e-15)
    assert counts.tolist() == [pair.twin.frequency(key) for key in keys.tolist()]
    table = pair.frequency, pair.work_ns, pair.multipliers
    assert found.tolist() == [kernel.estimate_row(*table, key, 5.5) for key in keys]
    assert counts.tolist() == [
        kernel.frequency_row(pair.frequency, pair.multipliers, key) for key in keys
    ]


@given(shape=SHAPES, rows=ROWS, later=ROWS)
def test_snapshot_and_relative_error_are_the_twins(
    shape: tuple[int, int], rows: list[tuple[int, int]], later: list[tuple[int, int]]
) -> None:
    pair = Pair(shape)
    pair.update(rows)
    means_ns = np.empty(shape)
    kernel.snapshot(pair.frequency, pair.work_ns, means_ns)
    before = pair.twin.snapshot()
    expected = [[float(before[i, j]) for j in range(shape[1])] for i in range(shape[0])]
    np.testing.assert_allclose(means_ns, expected, rtol=1e-15)
    pair.update(later)
    moved = kernel.relative_error(means_ns, pair.frequency, pair.work_ns)
    assert moved == pytest.approx(pair.twin.relative_error(before), rel=1e-9, abs=1e-12)


@given(shape=SHAPES, rows=ROWS, others=ROWS)
def test_merged_sketches_are_the_sketch_of_all_rows(
    shape: tuple[int, int], rows: list[tuple[int, int]], others: list[tuple[int, int]]
) -> None:
    left, right, both = Pair(shape), Pair(shape), Pair(shape)
    left.update(rows)
    right.update(others)
    both.update(rows + others)
    kernel.merge(left.frequency, left.work_ns, right.frequency, right.work_ns)
    np.testing.assert_array_equal(left.frequency, both.frequency)
    np.testing.assert_array_equal(left.work_ns, both.work_ns)


@pytest.mark.parametrize(
    ("cost_ns", "counts"), [(-1, 0), (-(2**63), 0), (DAY_NS + 1, DAY_NS), (INT64_MAX, DAY_NS)]
)
def test_an_insane_cost_counts_as_nothing_or_as_a_day(cost_ns: int, counts: int) -> None:
    pair = Pair((2, 3))
    pair.update([(5, cost_ns)])
    assert pair.frequency.sum(axis=1).tolist() == [1, 1]
    assert pair.work_ns.sum(axis=1).tolist() == [counts, counts]


def test_a_full_cell_stops_at_the_largest_number_and_never_turns_negative() -> None:
    pair = Pair((1, 1))
    pair.update([(1, DAY_NS)] * 106_752)  # 292 years and a bit
    assert pair.work_ns.tolist() == [[INT64_MAX]]
    pair.assert_equal()
    kernel.merge(pair.frequency, pair.work_ns, pair.frequency.copy(), pair.work_ns.copy())
    assert pair.work_ns.tolist() == [[INT64_MAX]]
    assert kernel.estimate_row(pair.frequency, pair.work_ns, pair.multipliers, 1, 0.0) > 0


def test_an_empty_snapshot_is_infinitely_far_from_anything() -> None:
    pair = Pair((2, 2))
    assert kernel.relative_error(np.zeros((2, 2)), pair.frequency, pair.work_ns) == np.inf
