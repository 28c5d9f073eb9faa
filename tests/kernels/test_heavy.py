"""The compiled table of heavy keys is its slow twin, and no row is ever lost."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.kernels import heavy as kernel
from tests.kernels.test_sketch import cells, multipliers_of
from tests.naive_sketch import NaiveHeavy, NaiveSketch, sane

KEYS = st.one_of(st.integers(0, 12), st.integers(-(2**63), 2**63 - 1))
COSTS = st.one_of(st.integers(0, 1000), st.integers(-(2**63), 2**63 - 1))
ROWS = st.lists(st.tuples(KEYS, COSTS), max_size=80)
SIZES = st.tuples(st.integers(0, 3), st.integers(1, 4))


class Pair:
    """A table beside a sketch of 2 x 5, and its twin, filled alike."""

    def __init__(self, size: tuple[int, int]) -> None:
        self.table = np.zeros((4, *size), dtype=np.int64)
        self.cells = *np.zeros((2, 2, 5), dtype=np.int64), multipliers_of(2)
        self.twin = NaiveHeavy(NaiveSketch(self.cells[2].tolist(), 5), *size)

    def update(self, rows: list[tuple[int, int]]) -> None:
        keys, costs_ns = np.array(rows, dtype=np.int64).reshape(-1, 2).T.copy()
        kernel.update_rows(*self.table, *self.cells, keys, costs_ns)
        for key, cost_ns in rows:
            self.twin.update(key, cost_ns)

    def merge(self, other: Pair) -> None:
        for mine, theirs in zip(self.cells[:2], other.cells[:2], strict=True):
            mine += theirs
        taken = np.zeros(self.table.shape[2], dtype=np.bool_)
        kernel.merge_tables(*self.table, *self.cells, *other.table, taken)
        self.twin.merge(other.twin)

    def assert_equal(self) -> None:
        assert cells(self.cells[0]) == {at: n for at, n in self.twin.sketch.count.items() if n}
        assert cells(self.cells[1]) == {at: n for at, n in self.twin.sketch.work.items() if n}
        expected = [
            [(0, 0, 0, 0) if p is None else (p.key, p.rank, p.count, p.work) for p in bucket]
            for bucket in self.twin.table
        ]
        found = np.moveaxis(self.table, 0, 2).tolist()
        assert found == [[list(place) for place in bucket] for bucket in expected]

    @property
    def totals(self) -> tuple[int, int]:
        counts, work_ns = self.table[2:].sum(axis=(1, 2)).tolist()
        sums = [int(cells[0].sum()) for cells in self.cells[:2]]
        return counts + sums[0], work_ns + sums[1]


@given(size=SIZES, rows=ROWS)
@settings(max_examples=150)
def test_updates_fill_the_twins_places_and_lose_no_row(
    size: tuple[int, int], rows: list[tuple[int, int]]
) -> None:
    pair = Pair(size)
    pair.update(rows)
    pair.assert_equal()
    assert pair.totals == (len(rows), sum(sane(cost_ns) for _, cost_ns in rows))


@given(size=SIZES, rows=ROWS, more=st.lists(KEYS, max_size=20))
def test_estimates_are_the_twins(
    size: tuple[int, int], rows: list[tuple[int, int]], more: list[int]
) -> None:
    pair = Pair(size)
    pair.update(rows)
    keys = np.array([key for key, _ in rows] + more, dtype=np.int64)
    found = np.empty(keys.size)
    table = pair.table[0], pair.table[2], pair.table[3]
    kernel.estimate_rows(*table, *pair.cells, keys, 5.5, found)
    expected = [pair.twin.estimate(key, 5.5) for key in keys.tolist()]
    np.testing.assert_allclose(found, expected, rtol=1e-15)


@given(size=SIZES, rows=ROWS, others=ROWS)
@settings(max_examples=150)
def test_merging_keeps_the_twins_places_and_loses_no_row(
    size: tuple[int, int], rows: list[tuple[int, int]], others: list[tuple[int, int]]
) -> None:
    left, right = Pair(size), Pair(size)
    left.update(rows)
    right.update(others)
    expected = tuple(a + b for a, b in zip(left.totals, right.totals, strict=True))
    left.merge(right)
    left.assert_equal()
    assert left.totals == expected


def test_a_new_key_takes_the_place_of_least_rank_and_inherits_the_rank() -> None:
    pair = Pair((1, 2))
    pair.update([(1, 10), (1, 10), (2, 5), (3, 7)])
    keys, ranks, counts, work_ns = pair.table[:, 0].tolist()
    assert (keys, ranks, counts, work_ns) == ([1, 3], [2, 2], [2, 1], [20, 7])
    assert pair.cells[0].sum(axis=1).tolist() == [1, 1]  # key 2 is in the sketch
