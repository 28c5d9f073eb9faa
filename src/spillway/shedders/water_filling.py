"""Splits a node's time over its queries so that their projected SIC are equal, or as weights say.

NumPy alone: what a Python worker loads must load fast.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

_WEIGHT_MIN = 1e-12  # of the largest weight; what is less counts as 0


def shares(
    demands: ArrayLike,
    capacity: float,
    weights: ArrayLike = 1.0,
    *,
    before: ArrayLike = 0.0,
    gains: ArrayLike = 1.0,
) -> Floats:
    """Return what share of its rows each query keeps, so that all levels are equal; exact.

    demands:  seconds of work in the coming interval if every row were kept (rate · cost · length).
    capacity: seconds of work that can be done in it.
    weights:  what queries deserve, relative to each other; one of weight 0 gets what is left when
              all others are whole. Negative ones are refused.
    before:   SIC that a query would reach in its source time window if all rows to come were shed.
    gains:    what they add to it if all are kept.

    The level of a query is its projected SIC over its weight, (before + gains · share) / weight.
    The least level is raised first and all levels rise together, until the capacity is used or all
    queries are whole: share = clip((λ · weight - before) / gains, 0, 1) with Σ demand · share =
    capacity. A query without demand is whole. O(n log n) for n queries.

    >>> shares([1.0, 3.0], 2.0).tolist()
    [0.5, 0.5]
    >>> shares([1.0, 3.0], 2.0, weights=[3.0, 1.0]).round(3).tolist()
    [1.0, 0.333]
    """
    if not capacity >= 0:  # also rejects NaN
        raise ValueError(f"capacity must be >= 0, got {capacity}")
    demand, weight, had, gain = _checked(demands, weights, before, gains)
    weight = weight / (weight.max(initial=0.0) or 1.0)
    first = weight >= _WEIGHT_MIN
    left = capacity - float(demand[first].sum())
    share = np.where(first & (left >= 0), 1.0, 0.0)
    if left < 0:
        share[first] = _filled(demand[first], weight[first], had[first], gain[first], capacity)
    else:
        rest, same = ~first, np.ones(demand.size)
        share[rest] = _filled(demand[rest], same[rest], had[rest], gain[rest], left)
    share[demand == 0] = 1.0
    return share


def _filled(demand: Floats, weight: Floats, had: Floats, gain: Floats, capacity: float) -> Floats:
    """Return the shares at the level that spends the capacity; ones if that is all.

    What is spent grows with the level along a broken line. Its knots are where queries begin to
    gain and where they are whole; the segment is found by bisection over the knots, and on it the
    level by one division.
    """
    if demand.sum() <= capacity:
        return np.ones(demand.size)
    begins, ends = had / weight, (had + gain) / weight

    def spent(level: float) -> float:
        return float(demand @ _share(level, weight, had, gain))

    knots = np.unique(np.concatenate((begins, ends)))
    low, high = 0, knots.size - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if spent(knots[middle]) <= capacity else (low, middle)
    rising = (begins <= knots[low]) & (ends >= knots[high])
    slope = float((demand * weight / gain)[rising].sum())
    level = knots[low] + max(capacity - spent(knots[low]), 0.0) / slope
    return _share(min(level, float(knots[high])), weight, had, gain)


def _share(level: float, weight: Floats, had: Floats, gain: Floats) -> Floats:
    return np.clip((level * weight - had) / gain, 0.0, 1.0)


def _checked(*given: ArrayLike) -> list[Floats]:
    names = ("demands", "weights", "before", "gains")
    arrays = [np.asarray(values, dtype=np.float64) for values in given]
    if arrays[0].ndim != 1:
        raise ValueError(f"demands must be a list with one number per query, got {given[0]!r}")
    for name, array in zip(names, arrays, strict=True):
        wrong = ~(np.isfinite(array) & ((array > 0) if name == "gains" else (array >= 0)))
        if wrong.any():
            rule = "> 0" if name == "gains" else ">= 0"
            value = array[wrong].flat[0]
            raise ValueError(f"{name} must be finite and {rule}, got {value}")
        if array.ndim and array.shape != arrays[0].shape:
            raise ValueError(
                f"{name} must have one value per query, {arrays[0].size}, got {array.shape}"
            )
    return [np.broadcast_to(array, arrays[0].shape) for array in arrays]
