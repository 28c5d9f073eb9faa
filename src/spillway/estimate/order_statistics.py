"""Which of the sorted sample values bound a value of the whole group, by exact probabilities.

Of n rows, k are drawn without replacement. The drawn rows among the r smallest of the group are
hypergeometric, M(r), and the i-th smallest drawn value is at most the r-th smallest of all exactly
if M(r) >= i. No distribution of the values is assumed.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_ROWS_MIXED = 40
_TAIL_MIN = 1e-15  # for less, more rows are needed than any group has


def rows_for_bounds(q: float, risk: float) -> int:
    """Return how many rows must be drawn of any group for both bounds of a quantile to exist.

    Of an endless group q^k is the chance that all k drawn values are below the quantile: then
    the largest of them is no bound. In smaller groups it is less.

    >>> [rows_for_bounds(q, 0.025) for q in (0.5, 0.9, 0.01)]
    [6, 36, 368]
    """
    tail = max(min(q, 1.0 - q), _TAIL_MIN)
    return math.ceil(math.log(risk) / math.log1p(-tail))


def bounds(rows: Ints, kept: Ints, q: float, risk: float) -> tuple[Floats, Floats]:
    """Return where in the sorted sample the bounds of the group's own quantile are, from 1 on.

    Each side misses with this risk. Places below 1 and beyond `kept` say that there is no bound.
    """
    position = q * (rows - 1.0) + 1.0
    below, above = np.floor(position).astype(np.int64), np.ceil(position).astype(np.int64)
    high = kept + 1 - lower_places(rows, kept, rows + 1 - above, risk)
    return lower_places(rows, kept, below, risk), high


def lower_places(rows: Ints, kept: Ints, ranks: Ints, risk: float) -> Floats:
    """Return the place i in the sorted sample that exceeds the value of that rank with this risk.

    Places and ranks count from 1. A place between two whole ones is where to interpolate their
    values, and 0 says that no drawn value is low enough. One entry per group; by symmetry
    `kept + 1 - lower_places(rows, kept, rows + 1 - ranks, risk)` bounds from above.

    >>> lower_places(np.array([10**9]), np.array([5]), np.array([5 * 10**8]), 0.025)
    array([0.])
    >>> lower_places(np.array([10**9]), np.array([6]), np.array([5 * 10**8]), 0.025).round(2)
    array([1.36])
    """
    if rows.size == 0:
        return np.empty(0)
    firsts = np.cumsum(kept + 1) - (kept + 1)
    chances = _cumulative(rows, kept, ranks, firsts)
    places = np.add.reduceat(chances <= risk, firsts, dtype=np.int64)
    last = np.where(places > 0, chances[np.maximum(firsts + places - 1, 0)], 0.0)
    return places + _beyond(rows, kept, ranks, places, risk - last, chances[firsts + places] - risk)


def _beyond(
    rows: Ints, kept: Ints, ranks: Ints, places: Ints, spare: Floats, excess: Floats
) -> Floats:
    """Return how far from place i towards i + 1 the risk allows (Nyblom's interpolation).

    The whole place risks too little by `spare`, the next too much by `excess`. Risk is convex
    between them: in shares of the risk alone intervals would be too wide. In a small group a drawn
    value is often the very one that is sought: there bounds are drawn values, and hold more often.
    """
    inner = (places > 0) & (places < kept) & (spare > 0) & (rows >= _ROWS_MIXED)
    near = spare * (kept - places) * ranks.astype(np.float64)
    far = excess * places * (rows - ranks).astype(np.float64)
    return np.where(inner, near / np.where(inner, near + far, 1.0), 0.0)


def _cumulative(rows: Ints, kept: Ints, ranks: Ints, firsts: Ints) -> Floats:
    """Return P(M <= i) for i = 0 … kept, one group after the other."""
    lengths = kept + 1
    i = (np.arange(lengths.sum()) - np.repeat(firsts, lengths)).astype(np.float64)
    k, r = np.repeat(kept.astype(np.float64), lengths), np.repeat(ranks.astype(np.float64), lengths)
    rest = np.repeat((rows - ranks - kept).astype(np.float64), lengths)  # n - r - k
    possible = (i <= r) & (rest + i >= 0)
    step = possible & (i > np.maximum(-rest, 0.0))
    ratio = np.divide((r - i + 1) * (k - i + 1), i * (rest + i), out=np.ones_like(i), where=step)
    logs = _since_first(np.cumsum(np.log(ratio)), firsts, lengths)
    logs[~possible] = -np.inf
    weights = np.exp(logs - np.repeat(np.maximum.reduceat(logs, firsts), lengths))
    masses = np.cumsum(weights)
    before = masses[firsts] - weights[firsts]
    totals = masses[firsts + kept] - before
    shares: Floats = (masses - np.repeat(before, lengths)) / np.repeat(totals, lengths)
    return shares


def _since_first(sums: Floats, firsts: Ints, lengths: Ints) -> Floats:
    return sums - np.repeat(sums[firsts], lengths)
