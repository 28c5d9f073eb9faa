"""Quantiles and results by group from rows with weights 1 / p, each kept or not on its own.

These are rows behind a gate (Poisson sampling): how many are kept is itself random, and so is how
many rows there were. With W = Σ w:

    quantile  where the weighted share of rows F(x) = Σ w [row <= x] / W passes q
              variance of F there = Σ w (w - 1) ([row <= x] - q)² / W²       (Woodruff's interval)
    by group  the totals of `spillway.estimate.totals`, group by group

`top` of `spillway.estimate.groups` finds the groups of the highest values among them.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from spillway.estimate.groups import Estimates
from spillway.estimate.moments import divided
from spillway.estimate.totals import Estimate, z_score

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FREQUENCY = 10_000  # equal rows that a weight of 1 stands for where weights differ


def quantile(values: Floats, weights: Floats, q: float, confidence: float = 0.95) -> Estimate:
    """Estimate the q-quantile of all rows; with equal weights it is Spark's `percentile`.

    Where weights differ, a row stands for round(10,000 w) equal rows: F errs by at most 0.005 %.
    A side that the kept rows cannot bound is infinite; NaN over no rows.

    >>> quantile(np.array([1.0, 2.0, 3.0, 10.0]), np.array([1.0, 1.0, 1.0, 5.0]), 0.5).value
    10.0
    """
    if not 0 <= q <= 1:
        raise ValueError(f"q must be in [0, 1], got {q}")
    z = z_score(confidence)
    if values.size == 0:
        return Estimate(value=math.nan, low=-math.inf, high=math.inf)
    order = np.argsort(values, kind="stable")
    values, weights = values[order], weights[order]
    value = _quantile(values, frequencies(weights), q)
    low, high = _woodruff(values, weights, q, value, z)
    return Estimate(value=value, low=min(low, value), high=max(high, value))


def frequencies(weights: Floats) -> Floats:
    """Return the whole numbers of equal rows that stand for weighted ones; 1 if all weigh alike."""
    if (weights == weights[:1]).all():
        return np.ones_like(weights)
    return np.round(weights * FREQUENCY)


def group_counts(groups: Ints, weights: Floats, *, confidence: float = 0.95) -> Estimates:
    """Estimate how many rows every group had; `groups` numbers the group of every kept row."""
    found = group_sums(groups, np.ones_like(weights), weights, confidence=confidence)
    low = np.maximum(found.low, np.bincount(groups))  # as many were kept
    return Estimates(value=found.value, low=low, high=found.high)


def group_sums(
    groups: Ints, values: Floats, weights: Floats, *, confidence: float = 0.95
) -> Estimates:
    """Estimate the sum of every group.

    >>> routes, fares = np.array([0, 1, 1]), np.array([5.0, 1.0, 2.0])
    >>> heavy = group_sums(routes, fares, np.array([1.0, 4.0, 4.0]))
    >>> heavy.value.tolist(), heavy.high.round(1).tolist()
    ([5.0, 12.0], [5.0, 27.2])
    """
    variance = np.bincount(groups, weights * (weights - 1.0) * values**2)
    seen = np.bincount(groups) > 0
    value = np.where(seen, np.bincount(groups, weights * values), np.nan)
    return _intervals(value, variance.astype(np.float64), confidence)


def group_means(
    groups: Ints, values: Floats, weights: Floats, *, confidence: float = 0.95
) -> Estimates:
    """Estimate the mean of every group; one kept row of unknown many says nothing of the error."""
    rows = np.bincount(groups, weights)
    mean = divided(np.bincount(groups, weights * values), rows)
    squares = weights * (weights - 1.0) * np.square(values - mean[groups])
    variance = divided(np.bincount(groups, squares), rows**2)
    lone = (np.bincount(groups) == 1) & (rows > 1.0)
    return _intervals(mean, np.where(lone, np.inf, variance), confidence)


def unseen_rows_max(rate: float, confidence: float = 0.95) -> float:
    """Return how many rows a group may have had of which none was kept: the reach of "missing".

    More rows than this, each kept with probability `rate`, would have left a row with the stated
    confidence.

    >>> round(unseen_rows_max(0.02), 1)
    148.3
    """
    if not 0 < rate <= 1:
        raise ValueError(f"rate must be in (0, 1], got {rate}")
    z_score(confidence)  # refuses what is no probability
    return math.log(1.0 - confidence) / math.log1p(-rate) if rate < 1 else 0.0


def _quantile(values: Floats, repeats: Floats, q: float) -> float:
    """Every value is there as often as it repeats; between two of them, interpolate."""
    ends = np.cumsum(repeats)
    position = q * (float(ends[-1]) - 1.0)
    whole = math.floor(position)
    at, after = np.minimum(np.searchsorted(ends, [whole, whole + 1], "right"), values.size - 1)
    share = position - whole
    return float(values[at] if share == 0 else values[at] + share * (values[after] - values[at]))


def _woodruff(
    values: Floats, weights: Floats, q: float, value: float, z: float
) -> tuple[float, float]:
    """Return where F passes q less and more its own error; rows are in mid-step."""
    if (weights == 1.0).all():
        return value, value
    rows = float(weights.sum())
    variance = float((weights * (weights - 1.0) * ((values <= value) - q) ** 2).sum()) / rows**2
    middles = (np.cumsum(weights) - weights / 2) / rows
    low, high = q - z * variance**0.5, q + z * variance**0.5
    return (
        float(np.interp(low, middles, values, left=-np.inf)),
        float(np.interp(high, middles, values, right=np.inf)),
    )


def _intervals(value: Floats, variance: Floats, confidence: float) -> Estimates:
    """Take the normal interval; a group of which no row was kept is NaN, and could be anything."""
    known = np.isfinite(value) & np.isfinite(variance)
    reach = np.where(known, z_score(confidence) * np.sqrt(variance), np.inf)
    sure = np.where(np.isfinite(value), value, 0.0)
    return Estimates(value=value, low=sure - reach, high=sure + reach)
