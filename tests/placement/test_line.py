"""The line: every instance expects its share of the work, and no row is without an instance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from spillway.kernels.heavy import bucket_of
from spillway.kernels.sketch import cell
from spillway.kernels.uniform import salt_of, uniform
from spillway.placement.line import NOBODY, Line, lay, unknown

MULTIPLIER = 999_331
work = st.one_of(st.just(0.0), st.floats(1.0, 1e6), st.just(1e15))


@st.composite
def lines(draw: Any) -> tuple[Line, np.ndarray, np.ndarray]:
    """A line with its work by entry and the speeds: also no work, no heavy key, one huge one."""
    buckets, places, cells = (
        draw(st.integers(0, 4)),
        draw(st.integers(1, 3)),
        draw(st.integers(1, 6)),
    )
    items = np.full((buckets, places), NOBODY, dtype=np.int64)
    for item in draw(st.lists(st.integers(0, 2**31 - 1), unique=True, max_size=12)):
        row = items[bucket_of(item, buckets)] if buckets else np.zeros(0)
        if (row == NOBODY).any():
            row[np.argmax(row == NOBODY)] = item
    sized = st.lists(work, min_size=items.size + cells, max_size=items.size + cells)
    amounts = np.array(draw(sized))
    speeds = np.array(draw(st.lists(st.floats(0.5, 2.0), min_size=1, max_size=9)))
    laid = lay(
        items=items,
        item_work=amounts[: items.size].reshape(items.shape),
        cell_work=amounts[items.size :],
        multiplier=MULTIPLIER,
        speeds=speeds,
    )
    amounts[: items.size][items.ravel() == NOBODY] = 0.0
    return laid, amounts if items.size else np.concatenate([[0.0], amounts]), speeds


def expected_loads(laid: Line, amounts: np.ndarray, instances: int) -> np.ndarray:
    """Integrate over u: how much of every entry's work falls to each instance."""
    loads = np.zeros(instances)
    edges = np.arange(laid.owners.size + 1) / laid.owners.size
    for start, length, amount in zip(laid.starts, laid.lengths, amounts, strict=True):
        inside = np.clip(edges, start, start + length)
        inside[-1] = max(inside[-1], start + length)  # rounding beyond 1 belongs to the last
        np.add.at(loads, laid.owners, np.diff(inside) / length * amount)
    return loads


@given(lines())
def test_every_instance_expects_its_share_of_the_work(
    given: tuple[Line, np.ndarray, np.ndarray],
) -> None:
    """Exactly where speeds are equal; else to a step of the grid, at most 1/256 of a mean load."""
    laid, amounts, speeds = given
    loads = expected_loads(laid, amounts, speeds.size)
    fair = speeds / speeds.sum() * amounts.sum()
    assert loads == pytest.approx(fair, abs=amounts.sum() / laid.owners.size * 1.01 + 1e-9)


@given(st.integers(1, 4096), st.lists(st.floats(1.0, 1e6), min_size=1, max_size=8))
def test_equal_instances_expect_equal_work(instances: int, cells: list[float]) -> None:
    nobody = np.zeros((0, 4), dtype=np.int64)
    laid = lay(
        items=nobody,
        item_work=nobody.astype(float),
        cell_work=np.array(cells),
        multiplier=MULTIPLIER,
        speeds=np.ones(instances),
    )
    steps = np.bincount(laid.owners, minlength=instances)
    assert set(steps.tolist()) == {laid.owners.size // instances}
    assert laid.starts[-1] + laid.lengths[-1] == pytest.approx(1.0)


@given(lines(), st.lists(st.integers(0, 2**31 - 1), max_size=20), st.floats(0, 1))
def test_every_row_gets_an_instance_that_exists(
    given: tuple[Line, np.ndarray, np.ndarray], items: list[int], drawn: float
) -> None:
    laid, _, speeds = given
    rows = np.array([*items, *laid.items[laid.items != NOBODY]], dtype=np.int64)
    for u in (0.0, min(drawn, 1 - 2**-53), 1 - 2**-53):
        placed = laid.place(rows, np.full(rows.size, u))
        assert ((placed >= 0) & (placed < speeds.size)).all()


@given(lines(), st.integers(0, 2**31 - 1), st.floats(0, 1, exclude_max=True))
def test_a_row_goes_where_its_entry_lies(
    given: tuple[Line, np.ndarray, np.ndarray], other: int, u: float
) -> None:
    """Its key's own place if it has one, else the cell: looked for one by one."""
    laid, _, _ = given
    for item in [other, *laid.items[laid.items != NOBODY].tolist()]:
        place = [at for at, key in enumerate(laid.items.ravel().tolist()) if key == item]
        entry = place[0] if place else laid.items.size + cell(item, MULTIPLIER, laid.cells)
        point = laid.starts[entry] + u * laid.lengths[entry]
        step = min(int(point * laid.owners.size), laid.owners.size - 1)
        assert laid.place(np.array([item]), np.array([u])).tolist() == [laid.owners[step]]


def test_only_entries_at_a_cut_are_split() -> None:
    """Six cells of a third of an instance each: two instances, nothing is split."""
    nobody = np.zeros((0, 4), dtype=np.int64)
    laid = lay(
        items=nobody,
        item_work=nobody.astype(float),
        cell_work=np.array([2.0, 1, 3, 3, 1, 2]),
        multiplier=MULTIPLIER,
        speeds=np.ones(2),
    )
    first = laid.place(np.arange(500), np.zeros(500))
    last = laid.place(np.arange(500), np.full(500, 1 - 2**-30))
    assert first.tolist() == last.tolist()
    assert set(first.tolist()) == {0, 1}


def test_where_nothing_is_known_rows_go_anywhere_alike() -> None:
    u = (np.arange(7000) + 0.5) / 7000
    placed = unknown(7).place(np.full(7000, 5), u)
    assert np.bincount(placed).tolist() == [1000] * 7


def test_a_key_of_which_nothing_is_known_goes_anywhere_too() -> None:
    nobody = np.zeros((0, 4), dtype=np.int64)
    laid = lay(
        items=nobody,
        item_work=nobody.astype(float),
        cell_work=np.array([0.0, 5.0]),
        multiplier=1,
        speeds=np.ones(4),
    )
    fresh = next(item for item in range(100) if cell(item, 1, 2) == 0)
    u = (np.arange(400) + 0.5) / 400
    assert np.bincount(laid.place(np.full(400, fresh), u)).tolist() == [100] * 4


def test_where_a_row_goes_says_nothing_about_whether_the_gate_keeps_it() -> None:
    """Chi-square: the gate's number in 10 bins by 5 instances; false-alarm rate 1e-4."""
    from spillway.spark.balance import SALT

    salt, laid = salt_of(3, 4), unknown(5)
    kept = [int(uniform(salt, row) * 10) for row in range(20_000)]
    drawn = np.array([uniform(salt, SALT, row) for row in range(20_000)])
    placed = laid.place(np.zeros(drawn.size, dtype=np.int64), drawn)
    table = np.zeros((10, 5))
    np.add.at(table, (kept, placed), 1)
    assert stats.chi2_contingency(table).pvalue > 1e-4
    assert stats.chisquare(table.sum(axis=0)).pvalue > 1e-4
