"""Rates by cell agree with the exact allocation of whole rows, where every group has its cell."""

from __future__ import annotations

import numpy as np
import pytest

from spillway.kernels import count_min
from spillway.shedders.concept_cells import FOLDED, Cells, cells_seen, folded
from spillway.shedders.concept_rates import Ahead, Rule, groups_by_cell, keep_rates, values_of
from spillway.shedders.group_sizes import Groups, sample_sizes

RNG = np.random.default_rng(7)
GROUPS = 40
ROWS = np.rint(np.exp(RNG.uniform(np.log(3_000), np.log(300_000), GROUPS))).astype(np.int64)
MEANS = RNG.uniform(5.0, 50.0, GROUPS)
DEVIATIONS = MEANS * RNG.uniform(0.1, 1.0, GROUPS)


def alone() -> np.ndarray:
    """Items that share no cell with one another, not even when folded."""
    items = RNG.integers(0, 2**31, 2_000)
    chosen: list[int] = []
    taken: set[int] = set()
    for item in items.tolist():
        cells = set(folded(count_min.cells_of(np.array([item]))).ravel().tolist())
        if not cells & taken and len(chosen) < GROUPS:
            chosen.append(item)
            taken |= cells
    assert len(chosen) == GROUPS
    return np.array(chosen)


ITEMS = alone()
AT = count_min.cells_of(ITEMS)


def concept(means: np.ndarray = MEANS) -> Cells:
    """A concept with exact counts, and with moments of so many values that nothing leans."""
    cells = Cells.empty()
    cells.counts[AT] = ROWS
    cells.moments[:, folded(AT)] = np.stack([np.full(GROUPS, 1e9), means, DEVIATIONS])[:, None, :]
    return cells


def kept_rows(allocation: str, share: float, means: np.ndarray = MEANS) -> np.ndarray:
    cells = concept(means)
    none = np.zeros((2, 0), dtype=np.int64)
    ahead = Ahead(counts=cells.counts, sampled=none, each=0.0)  # these very rows, not the next
    rule = Rule(share=share, allocation=allocation, rows_min=2, keep_min=1e-6)  # type: ignore[arg-type]
    return keep_rates(cells, ahead, rule)[AT].max(axis=0) * ROWS


@pytest.mark.parametrize("share", [0.002, 0.05, 0.5])
@pytest.mark.parametrize("allocation", ["proportional", "congress", "neyman", "cvopt"])
def test_the_rows_of_every_group_are_those_of_the_exact_allocation(
    allocation: str, share: float
) -> None:
    """Within one and a half rows, of whole ones; `neyman` where the means are 0: √(σ² + μ²) = σ."""
    means = np.zeros(GROUPS) if allocation == "neyman" else MEANS
    groups = Groups(rows=ROWS, means=means, variances=np.square(DEVIATIONS))
    exact = sample_sizes(groups, share * ROWS.sum(), allocation=allocation)  # type: ignore[arg-type]
    found = kept_rows(allocation, share, means)
    assert found.sum() == pytest.approx(share * ROWS.sum(), rel=1e-6)
    if allocation == "congress":  # there are 40 groups: they are counted by the empty cells
        assert found == pytest.approx(exact, rel=0.05, abs=1.5)
    else:
        assert np.abs(found - exact).max() <= 1.5


@pytest.mark.parametrize("groups", [1, 400, 4_096, 16_000])
def test_the_groups_of_a_cell_are_told_by_the_cells_that_are_empty(groups: int) -> None:
    counts = count_min.count(np.random.default_rng(1).integers(0, 2**31, groups))
    assert groups_by_cell(counts.astype(float)) == pytest.approx(groups / 4_096, rel=0.1)


def test_the_kept_share_of_a_row_is_the_greatest_of_its_cells() -> None:
    """The estimate from counts and a sample of all rows is exact."""
    rng = np.random.default_rng(3)
    items, rates = rng.integers(0, 2**31, 5_000), rng.random(2 * 4_096)
    at = count_min.cells_of(items)
    ahead = Ahead(counts=count_min.count(items).astype(float), sampled=at)
    assert ahead.kept(rates) == pytest.approx(rates[at].max(axis=0).mean())


def test_moments_merge_to_those_of_all_rows() -> None:
    rng = np.random.default_rng(4)
    items, values = rng.choice(ITEMS, 900), rng.normal(1e3, 5.0, 900)
    rows = [(float(i), float(v), None) for i, v in zip(items, values, strict=True)]
    counts = count_min.count(items)
    whole = cells_seen(counts, 900.0, tuple(rows))
    parts = [cells_seen(counts, 900.0, tuple(rows[first : first + 300])) for first in (0, 300, 600)]
    merged = parts[0].plus(parts[1]).plus(parts[2])
    assert merged.moments[0].tolist() == whole.moments[0].tolist()
    assert merged.moments[1:] == pytest.approx(whole.moments[1:])
    group = folded(count_min.cells_of(ITEMS[:1]))[0, 0]
    mine = values[items == ITEMS[0]]
    assert whole.moments[:, group] == pytest.approx([mine.size, mine.mean(), mine.std()])


def test_packed_cells_come_back_to_seven_digits() -> None:
    cells = concept()
    again = Cells.of(cells.packed(window=3, rows=5.0))
    assert again.counts.tolist() == cells.counts.tolist()
    assert again.moments == pytest.approx(cells.moments, rel=1e-6)
    assert again.moments.shape == (3, 2 * FOLDED)


def test_a_concept_of_no_values_says_that_all_are_alike() -> None:
    mean, deviation = values_of(Cells.empty())
    assert set(mean.tolist()) == set(deviation.tolist()) == {1.0}
