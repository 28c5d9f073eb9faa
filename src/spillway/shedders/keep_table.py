"""Keep rates by group as a table that a gate can look up without leaving Spark.

One byte for each cell of the sketch says which of at most 64 levels it is kept at; a row is kept at
the greatest level of its cells. Whatever the levels are, a row's weight is 1 / its own level, so
that rounding rates to levels biases nothing.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spillway.concept_values import KeepTable
from spillway.kernels import count_min
from spillway.values import Plan

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Codes = NDArray[np.int8]

_CELLS = count_min.ROWS * count_min.COLUMNS
_LEVELS = 64


def pack(rates: Floats, counts: Floats) -> KeepTable:
    """Round the cells' rates to levels: each level is the mean over its rows, which `counts` has.

    So the cells keep together what they would have kept. Rates of 1 stay 1.
    """
    codes = _codes(rates)
    used, codes = np.unique(np.append(codes, _LEVELS - 1), return_inverse=True)
    codes = codes[:-1]
    weights = counts + 1e-12 * max(counts.sum(), 1.0)  # so that cells without rows have a mean too
    spent = np.bincount(codes, weights=weights * rates, minlength=used.size)
    levels = spent / np.maximum(np.bincount(codes, weights=weights, minlength=used.size), 1e-300)
    levels = np.clip(levels, rates.min(), 1.0)  # a mean may be rounded out of its bounds
    levels[-1] = 1.0
    cells = zlib.compress(codes.astype(np.uint8).tobytes(), level=6)
    return KeepTable(levels=tuple(levels.tolist()), cells=cells)


@dataclass(frozen=True, slots=True)
class KeepLookup:
    """A table ready for use: the levels, and for each cell which."""

    levels: Floats
    cells: Codes

    @classmethod
    def of(cls, plan: Plan) -> KeepLookup:
        """Unpack a plan's table; without a sound one all rows are kept at the last rate."""
        table = plan.keep if plan.rates[-1] < 1.0 else None
        cells = _unpacked(table) if table else None
        if table is None or cells is None:
            return cls(np.array([plan.rates[-1]]), np.zeros(_CELLS, dtype=np.int8))
        return cls(np.array(table.levels), cells)

    def rates(self, items: Ints) -> Floats:
        """Return the keep rate of every item: the twin of the gate's expression."""
        codes = self.cells[count_min.cells_of(items)].max(axis=0)
        return np.asarray(self.levels[codes])


def _codes(rates: Floats) -> Ints:
    """Return the level of every rate: equal steps of the logarithm below 1, and 1 itself."""
    least = min(float(rates.min()), 0.5)
    steps = np.log(np.maximum(rates, least) / least) / -np.log(least) * (_LEVELS - 1)
    thinned = np.clip(np.floor(steps), 0, _LEVELS - 2).astype(np.int64)
    return np.where(rates >= 1.0, _LEVELS - 1, thinned)


def _unpacked(table: KeepTable) -> Codes | None:
    try:
        cells = np.frombuffer(zlib.decompress(table.cells), dtype=np.uint8)
    except zlib.error:
        return None
    whole = cells.size == _CELLS and 0 < len(table.levels) <= _LEVELS
    return cells.astype(np.int8) if whole and cells.max() < len(table.levels) else None
