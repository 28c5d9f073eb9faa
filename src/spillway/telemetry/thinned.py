"""A history of any length in bounded memory: least, greatest and mean of every stretch of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_BUCKETS = 512  # at most; halved when they are full


class Thinned:
    """Rows of numbers (NaN for none), thinned to at most 512 buckets of as many rows each.

    >>> thinned = Thinned(columns=1, buckets=4)
    >>> for value in range(9):
    ...     thinned.add([float(value)])
    >>> thinned.means().ravel().tolist()  # four rows each, the last one not full yet
    [1.5, 5.5, 8.0]
    """

    def __init__(self, *, columns: int, buckets: int = _BUCKETS) -> None:
        """Start empty; `buckets` must be even, because two become one."""
        if buckets < 2 or buckets % 2:
            raise ValueError(f"buckets must be even and >= 2, got {buckets}")
        self.rows_each = 1
        self._full = 0
        self._pending: list[Sequence[float]] = []
        # Least, greatest, sum and count, by bucket and column.
        self._parts = np.full((4, buckets, columns), np.nan)

    def add(self, row: Sequence[float]) -> None:
        """Add one row at the end."""
        self._pending.append(row)
        if len(self._pending) < self.rows_each:
            return
        self._parts[:, self._full] = _reduced(self._pending)
        self._pending = []
        self._full += 1
        if self._full == self._parts.shape[1]:
            self._halve()

    def means(self) -> Floats:
        """Return the mean of every bucket and column, oldest first; NaN where there was none."""
        _, _, sums, counts = self._all()
        none = np.full(sums.shape, np.nan)
        return np.asarray(np.divide(sums, counts, out=none, where=counts > 0))

    def least(self) -> Floats:
        """Return the least of every bucket and column."""
        return np.asarray(self._all()[0])

    def greatest(self) -> Floats:
        """Return the greatest of every bucket and column."""
        return np.asarray(self._all()[1])

    def _all(self) -> Floats:
        full = self._parts[:, : self._full]
        if not self._pending:
            return full
        return np.concatenate([full, _reduced(self._pending)[:, None]], axis=1)

    def _halve(self) -> None:
        """Make one bucket of every two."""
        pairs = self._parts.reshape(4, -1, 2, self._parts.shape[2])
        half = pairs.shape[1]
        self._parts[:, :half] = _merged(pairs)
        self._full, self.rows_each = half, 2 * self.rows_each


def _reduced(rows: list[Sequence[float]]) -> Floats:
    values = np.asarray(rows, dtype=np.float64)
    known = ~np.isnan(values)
    sums = np.where(known, values, 0.0).sum(axis=0)
    ends = np.fmin.reduce(values), np.fmax.reduce(values)  # they pass over NaN
    return np.stack([*ends, sums, known.sum(axis=0).astype(np.float64)])


def _merged(pairs: Floats) -> Floats:
    least, greatest, sums, counts = pairs
    ends = np.fmin.reduce(least, axis=1), np.fmax.reduce(greatest, axis=1)
    return np.stack([*ends, sums.sum(axis=1), counts.sum(axis=1)])
