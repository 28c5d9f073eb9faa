"""How many rows of every group of a window to keep: whole numbers, exactly optimal in their bounds.

Every allocation gives the groups sizes s and minimises Σ s² / k over all whole numbers k within the
bounds that sum to the budget; away from bounds and rounding that is k ∝ s. With n rows of a
group, mean μ and variance σ², N rows and G groups in the window:

    proportional  s = n                  the window in small, as in CoD (section VI-C)
    congress      s = max(n / N, 1 / G)  rare groups as well as frequent ones
    neyman        s = n σ                Σ n² σ² / k: least variance of the window's total
    cvopt         s = σ / |μ|            Σ (σ / μ)² (1 / k - 1 / n): least squared relative errors
                                         of the groups' means, summed

Rows of a group may be told apart further, in strata that are sampled and weighed by themselves.
Then n, σ and k are those of a stratum, and with N_g rows of mean μ_g in its group

    congress      s = max(n / N, n / (G N_g))
    cvopt         s = n σ / (N_g |μ_g|)   the same sum: a group's variance is Σ (n / N_g)² σ² / k

A row more for a group of k - 1 rows lowers s² / k by s² / (k (k - 1)), and each row lowers it by
less than the row before. So the rows that lower it most, whatever their group, are the optimum.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Allocation = Literal["proportional", "congress", "neyman", "cvopt"]

MEAN_MIN = 0.01  # of the median |mean|: below it a relative error is taken of this much
_LARGEST = 1e300  # a variance beyond it is as unknown as an infinite one
_LEAST, _IDLE = 1e-30, 1e-60  # sizes relative to the greatest: of any spread, and of none
_HALVINGS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """The concept of a window: how many rows each group has, and the moments of its values.

    `means` and `variances` have one number per group, or one row per group with a number for
    each aggregated column; a variance is the sample variance (NaN where a group has one row).
    With `parents` the entries are strata, and it numbers the group that each is a part of.
    """

    rows: Ints
    means: Floats
    variances: Floats
    parents: Ints | None = None

    def __post_init__(self) -> None:
        if self.parents is not None and self.parents.shape != self.rows.shape:
            raise ValueError(
                f"parents must have an entry for each of {self.rows.size} strata, "
                f"got shape {self.parents.shape}"
            )
        if self.rows.ndim != 1 or not (self.rows >= 1).all():
            raise ValueError(f"rows must be a list of numbers >= 1, got {self.rows}")
        if self.means.shape[:1] != self.rows.shape or self.means.ndim > 2:
            raise ValueError(
                f"means must have an entry for each of {self.rows.size} groups, "
                f"got shape {self.means.shape}"
            )
        if self.variances.shape != self.means.shape:
            raise ValueError(
                f"variances must have the shape of means {self.means.shape}, "
                f"got {self.variances.shape}"
            )


def sample_sizes(
    groups: Groups,
    budget: float,
    *,
    allocation: Allocation,
    rows_min: int = 2,
    rows_max: int | None = None,
) -> Ints:
    """Return how many rows of every group to keep; they sum to the budget, rounded.

    A group keeps at least `rows_min` of its rows, even where that exceeds the budget, and at most
    `rows_max`; everything is kept if it fits. A group in strata has at least a row of each, and
    `rows_max` is of a stratum. With `rows_min=0` groups may be missing, but the
    first row of any group goes before the second of another. An unknown spread (NaN, infinite)
    counts as the median of the known ones. Equal claims go to the greater size s, then to more
    rows, then to the group named first: the order of groups decides among equals only. O(G log G).

    >>> taxi = Groups(
    ...     rows=np.array([900, 90, 10, 1]),
    ...     means=np.array([10.0, 50.0, 20.0, 5.0]),
    ...     variances=np.array([4.0, 100.0, 16.0, np.nan]),
    ... )
    >>> sample_sizes(taxi, 41, allocation="proportional").tolist()
    [35, 3, 2, 1]
    >>> sample_sizes(taxi, 41, allocation="cvopt").tolist()
    [15, 15, 10, 1]
    """
    _check(budget, allocation, rows_min, rows_max)
    high = np.minimum(groups.rows, rows_max or groups.rows).astype(np.int64)
    low = np.minimum(high, _least(groups, rows_min))
    if budget >= high.sum():
        return high
    sizes = _relative(_SIZES[allocation](groups), groups.rows)
    return _fill(sizes, low, high, budget=max(round(budget), int(low.sum())))


def _check(budget: float, allocation: str, rows_min: int, rows_max: int | None) -> None:
    if not budget >= 0:
        raise ValueError(f"budget must be >= 0, got {budget}")
    if allocation not in _SIZES:
        raise ValueError(f"allocation must be one of {list(_SIZES)}, got {allocation!r}")
    if not rows_min >= 0:
        raise ValueError(f"rows_min must be >= 0, got {rows_min}")
    if rows_max is not None and not rows_max >= max(rows_min, 1):
        raise ValueError(f"rows_max must be >= 1 and >= rows_min ({rows_min}), got {rows_max}")


def _least(groups: Groups, rows_min: int) -> Ints:
    """Share the least number of a group's rows out to its strata."""
    if groups.parents is None:
        return np.full(groups.rows.size, rows_min)
    return -(-rows_min // np.bincount(groups.parents)[groups.parents])


# The sizes s of the groups.


def _proportional(groups: Groups) -> Floats:
    return groups.rows.astype(np.float64)


def _congress(groups: Groups) -> Floats:
    within = _within(groups)
    shares: Floats = np.maximum(groups.rows / groups.rows.sum(), within / within.sum())
    return shares


def _neyman(groups: Groups) -> Floats:
    """With several columns: for the sum of the variances of their totals, in their own units."""
    spreads: Floats = np.sqrt(_known(groups, _variances(groups)).sum(axis=1))
    return groups.rows * spreads


def _cvopt(groups: Groups) -> Floats:
    with np.errstate(over="ignore"):
        squares = np.square(np.sqrt(_variances(groups)) / _magnitudes(groups))
    ratios: Floats = np.sqrt(_known(groups, squares).sum(axis=1))
    return _within(groups) * ratios


_SIZES: dict[str, Callable[[Groups], Floats]] = {
    "proportional": _proportional,
    "congress": _congress,
    "neyman": _neyman,
    "cvopt": _cvopt,
}


def _variances(groups: Groups) -> Floats:
    """Return a column for each aggregate; NaN is unknown, a single row does not vary."""
    given = _by_column(groups.variances)
    known = np.where(given <= _LARGEST, np.maximum(given, 0.0), np.nan)
    return np.where(groups.rows[:, None] == 1, 0.0, known)


def _magnitudes(groups: Groups) -> Floats:
    """Return |μ|, but at least 1 % of the column's median: near 0 no sample would be enough."""
    sizes = np.abs(_of_parents(groups, _by_column(groups.means))).astype(np.float64)
    for column in sizes.T:
        some = column[np.isfinite(column) & (column > 0)]
        np.maximum(column, MEAN_MIN * np.median(some) if some.size else 1.0, out=column)
    return sizes


def _known(groups: Groups, squares: Floats) -> Floats:
    """Replace what is unknown by the median of its column over the groups that vary, else by 1."""
    known = squares <= _LARGEST
    for column, told in zip(squares.T, known.T, strict=True):
        if not told.all():
            varying = column[told & (groups.rows > 1)]
            column[~told] = np.median(varying) if varying.size else 1.0
    return squares


def _within(groups: Groups) -> Floats:
    """Return the share that each entry has of its group's rows."""
    if groups.parents is None:
        return np.ones(groups.rows.size)
    shares: Floats = groups.rows / np.bincount(groups.parents, groups.rows)[groups.parents]
    return shares


def _of_parents(groups: Groups, means: Floats) -> Floats:
    """Return the means of the groups of all entries; a stratum without values does not count."""
    if groups.parents is None:
        return means
    shares = np.where(np.isfinite(means), _within(groups)[:, None], 0.0)
    parts = np.where(shares > 0, means, 0.0) * shares
    each = [np.bincount(groups.parents, part)[groups.parents] for part in parts.T]
    return np.stack(each, axis=1) if each else means


def _by_column(moments: Floats) -> Floats:
    return moments[:, None] if moments.ndim == 1 else moments


def _relative(sizes: Floats, rows: Ints) -> Floats:
    """Scale to at most 1; groups without spread share by rows what no other group can use."""
    greatest = sizes.max()
    idle = _IDLE * (rows / rows.max())
    return np.where(sizes > 0, np.maximum(sizes / (greatest or 1.0), _LEAST), idle)


# The whole numbers k. The k-th row of a group has the price √(k (k - 1)) / s; cheap rows go first.


def _fill(sizes: Floats, low: Ints, high: Ints, *, budget: int) -> Ints:
    """Return low ≤ k ≤ high with the least Σ s² / k among those of this sum."""
    less, more = _around(sizes, low, high, budget)
    counts = more - less
    groups = np.repeat(np.arange(sizes.size), counts)
    nth = np.arange(groups.size) - np.repeat(np.cumsum(counts) - counts - less, counts) + 1.0
    prices = np.sqrt(nth * (nth - 1.0)) / sizes[groups]
    bought = _cheapest(prices, budget - int(less.sum()), sizes[groups], high[groups])
    return less + np.bincount(groups[bought], minlength=sizes.size)


def _around(sizes: Floats, low: Ints, high: Ints, budget: int) -> tuple[Ints, Ints]:
    """Return two fillings around the budget, at most two rows a group apart on average."""
    less, more = low, high
    price_min, price_max = 1.0, 2.0 * float(high.max()) / float(sizes.min())
    for _ in range(_HALVINGS):
        if (more - less).sum() <= 2 * sizes.size:
            break
        price = math.sqrt(price_min * price_max)
        filled = _filled_at(price, sizes, low, high)
        if filled.sum() <= budget:
            price_min, less = price, filled
        else:
            price_max, more = price, filled
    return less, more


def _filled_at(price: float, sizes: Floats, low: Ints, high: Ints) -> Ints:
    """Return for every group how many of its rows cost at most this price."""
    bought = np.sqrt(np.square(price * sizes) + 0.25)
    bought += 0.5
    return np.clip(bought, low, high, out=bought).astype(np.int64)  # which rounds down


def _cheapest(prices: Floats, count: int, sizes: Floats, rows: Ints) -> Ints:
    """Return the places of the `count` lowest prices; ties go by size, then rows, then place."""
    if count <= 0:
        return np.empty(0, dtype=np.int64)
    last = np.partition(prices, count - 1)[count - 1]
    sure, tied = np.flatnonzero(prices < last), np.flatnonzero(prices == last)
    best = np.lexsort((-rows[tied], -sizes[tied]))
    return np.concatenate([sure, tied[best[: count - sure.size]]])
