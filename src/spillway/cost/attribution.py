"""What single rows of a batch operator took, when only the time of slices of rows is known.

Equal shares do not converge: a key that is one row in n gets 1 / n of its own cost and the rest of
its neighbours', for ever. Shares by the estimates so far hardly do better: a slice that took too
long makes all its keys dearer by the same factor, the guilty and the others. What tells keys apart
is that slices hold them in different numbers: a regression. Here it is a Kalman filter of one step
per slice that leaves correlations out, see `kernels.attribution.learn_slice`: what a slice took
more than foreseen goes to its keys by how many rows they have in it and how little is known.
"""

from __future__ import annotations

from collections import deque
from statistics import median

import numpy as np
from numpy.typing import NDArray

from spillway.cost.heavy import HeavySketch
from spillway.cost.sketch import Floats, Ints, as_ints
from spillway.kernels import attribution as kernel

CELLS = 1 << 16
_LEAST = 0.02  # of the mean: no row is free, and a key may come back from there
_FADES = 0.99  # weight of a slice for the one after it: some 100 slices count
_LATEST = 15  # slices from which our own time of a call is taken: the median, as the first is slow
_SETTLED = 4.0
_SURE = 2.0  # standard errors


class Attribution:
    """Estimates of what rows cost by item, from the time of slices.

    It begins with what a sketch knows and is bounded: 65,536 cells, whatever the number of keys.

    >>> learnt = Attribution()
    >>> for items, taken_ns in [([1, 1, 2], 700), ([1, 2, 2], 500), ([1, 1, 1], 900)] * 20:
    ...     learnt.learn(np.array(items), taken_ns)
    >>> learnt.estimate_ns(np.array([1, 2])).round().tolist()
    [300.0, 100.0]
    >>> learnt.shares_ns(np.array([1, 2, 1]), 1400).tolist()
    [600, 200, 600]
    """

    def __init__(self, known: HeavySketch | None = None) -> None:
        """Start from what is known, which is not changed."""
        self._known = known if known is not None and known.rows_seen else None
        self._costs_ns = np.full(CELLS, np.nan)
        self._doubts = np.ones(CELLS)
        self._counts = np.zeros(CELLS, dtype=np.int64)
        self._rows, self._taken_ns = 0, 0

    @property
    def mean_ns(self) -> float:
        """Mean cost of the rows learnt from, else of those known before; 0 without any."""
        if self._rows:
            return self._taken_ns / self._rows
        return self._known.mean_ns if self._known else 0.0

    def learn(self, items: Ints, taken_ns: int) -> None:
        """Take in one slice: the items of its rows and how long they took together."""
        items = as_ints("items", items)
        if not items.size:
            return
        self._rows, self._taken_ns = self._rows + items.size, self._taken_ns + taken_ns
        cells = self._met(items)
        least_ns = max(_LEAST * self.mean_ns, 1.0)
        kernel.learn_slice(self._costs_ns, self._doubts, self._counts, cells, taken_ns, least_ns)

    def estimate_ns(self, items: Ints) -> Floats:
        """Estimate the cost of every item; the mean, or what was known, where it is new."""
        estimates: Floats = self._costs_ns[self._met(as_ints("items", items))]
        return estimates

    def shares_ns(self, items: Ints, total_ns: int) -> Ints:
        """Divide a time among rows by what they are estimated to cost; it adds up exactly."""
        return shared(self.estimate_ns(items), total_ns)

    def _met(self, items: Ints) -> Ints:
        cells: Ints = kernel.cells_of(items, CELLS)
        kernel.meet(self._costs_ns, self._doubts, cells, self._prior_ns(items))
        return cells

    def _prior_ns(self, items: Ints) -> Floats:
        if self._known is None:
            return np.full(items.size, max(self.mean_ns, 1.0))
        return np.maximum(self._known.estimate_ns(items), 1.0)


def shared(weights: Floats, total: int) -> Ints:
    """Divide a whole number in proportion to weights, into whole numbers that add up to it.

    >>> shared(np.array([1.0, 1.0, 1.0]), 100).tolist()
    [33, 33, 34]
    """
    if not weights.size:
        return np.zeros(0, dtype=np.int64)
    ends = np.cumsum(weights)
    marks = np.floor(ends / ends[-1] * total).astype(np.int64)
    marks[-1] = total
    parts: Ints = np.diff(marks, prepend=0)
    return parts


class Pace:
    """How many rows a slice gets: as few as can be afforded, for few rows tell keys apart best.

    A call has a fixed time, ours and the operator's own. It may be `share` of the call, so
    rows = fixed / (share · time per row). The operator's own is the intercept of the time over the
    rows, as far as it is certain; the sizes alternate, or there would be no line.

    >>> pace = Pace(rows=16, rows_max=10_000)
    >>> for _ in range(50):
    ...     rows = pace.next_rows(10_000)
    ...     pace.took(rows, taken_ns=50_000 * rows, own_ns=150_000)
    >>> pace.next_rows(10_000) + pace.next_rows(10_000)  # 30 ms and half of that, at 50 µs a row
    900
    """

    def __init__(self, *, rows: int, rows_max: int, share: float = 0.005) -> None:
        """Begin with a size; at most four times as many rows follow in the next slice."""
        self._rows, self._rows_max, self._share = float(rows), rows_max, share
        self._half = False
        self._own_ns: deque[int] = deque(maxlen=_LATEST)
        self._sums: NDArray[np.float64] = np.zeros(6)  # 1, n, n², t, n t, t²

    @property
    def rows(self) -> int:
        """How many rows a slice would get now, if there were enough."""
        return round(self._rows)

    def next_rows(self, left: int) -> int:
        """Return the size of the next slice of so many rows: in turn the whole and half of it."""
        self._half = not self._half and self._rows < self._rows_max
        rows = max(round(self._rows / 2 if self._half else self._rows), 1)
        return rows if left > 1.5 * rows else min(left, self._rows_max)  # no crumbs

    def took(self, rows: int, *, taken_ns: int, own_ns: int) -> None:
        """Take note of a slice: what the operator took, and what calling it took."""
        n, t = float(rows), float(taken_ns)
        self._sums = _FADES * self._sums + np.array([1.0, n, n * n, t, n * t, t * t])
        self._own_ns.append(own_ns)
        fixed_ns = self._fixed_ns()
        row_ns = max((self._sums[3] - fixed_ns * self._sums[0]) / self._sums[1], 1.0)
        wanted = (median(self._own_ns) + fixed_ns) / (self._share * row_ns)
        self._rows = min(max(wanted, 1.0), 4.0 * self._rows, float(self._rows_max))

    def _fixed_ns(self) -> float:
        """Return the intercept less two standard errors; 0 if that is less than nothing."""
        slices, n, nn, t, nt, tt = self._sums.tolist()
        spread = slices * nn - n * n
        if slices < _SETTLED or spread <= 1e-9 * slices * nn:
            return 0.0
        slope = (slices * nt - n * t) / spread
        intercept = (t - slope * n) / slices
        unexplained = max(tt - intercept * t - slope * nt, 0.0) / (slices - 2.0)
        return float(max(intercept - _SURE * (unexplained * nn / spread) ** 0.5, 0.0))
