"""The concept of a window in bounded space: the rows and the values of groups, by cell of a sketch.

Counts are those of Spark's count-min sketch, scaled up where only a share of the rows was counted.
The values come from a sample, so that fewer cells must do: their moments are kept by `FOLDED`
columns, into which the sketch's are folded. A group's own cell is the one of its least count.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike, NDArray

from spillway.concept_values import Concept
from spillway.kernels import count_min

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Sample = tuple[tuple[float, float | None, float | None], ...]

CELLS = count_min.ROWS * count_min.COLUMNS
FOLDED = 512
_MOMENTS = (3, count_min.ROWS * FOLDED)
_VALUE_MAX = 1e30  # beyond it a value is none: its square must stay a number
_COUNT_MAX = float((1 << 32) - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """Counts of rows by cell, and of sampled values by folded cell: rows, mean, deviation."""

    counts: Floats
    moments: Floats

    @classmethod
    def empty(cls) -> Cells:
        """Return cells that nothing was counted in."""
        return cls(counts=np.zeros(CELLS), moments=np.zeros(_MOMENTS))

    @classmethod
    def of(cls, concept: Concept | None) -> Cells:
        """Unpack a concept; what is missing or damaged is empty."""
        empty = cls.empty()
        if concept is None:
            return empty
        counts = unpacked(concept.counts, "<u4", CELLS)
        moments = unpacked(concept.moments, "<f4", empty.moments.size)
        return cls(
            counts=empty.counts if counts is None else counts,
            moments=empty.moments if moments is None else moments.reshape(_MOMENTS),
        )

    def packed(self, *, window: int | None, rows: float) -> Concept:
        """Pack into what a state holds; a concept of no values has no moments."""
        counts = np.minimum(np.rint(self.counts), _COUNT_MAX)
        moments = packed(self.moments, "<f4") if self.moments[0].any() else b""
        return Concept(window=window, rows=rows, counts=packed(counts, "<u4"), moments=moments)

    def plus(self, other: Cells, *, share: float = 1.0) -> Cells:
        """Add other cells, of which only a share counts."""
        return Cells(
            counts=self.counts + share * other.counts,
            moments=_merged(self.moments, other.moments, share),
        )


def cells_seen(counts: Ints, rows: float, sample: Sample) -> Cells:
    """Return what a batch of so many rows showed: counts of some of them, values of a few."""
    return Cells(
        counts=counts * (rows * count_min.ROWS / max(counts.sum(), 1)), moments=_moments(sample)
    )


def items_in(sample: Sample) -> Ints:
    """Return the items of the sampled rows."""
    return np.array([item for item, _, _ in sample], dtype=np.int64)


def folded(cells: Ints) -> Ints:
    """Return the folded cells of cells: the row stays, the lowest bits of the column too."""
    row, column = cells // count_min.COLUMNS, cells % count_min.COLUMNS
    return np.asarray(row * FOLDED + column % FOLDED)


def packed(numbers: NDArray[np.generic], kind: DTypeLike) -> bytes:
    """Compress an array."""
    return zlib.compress(numbers.astype(kind).tobytes(), level=1)


def unpacked(data: bytes, kind: DTypeLike, size: int | None = None) -> Floats | None:
    """Return an array of the given size; None if there is none, or it is damaged."""
    try:
        numbers = np.frombuffer(zlib.decompress(data), dtype=kind).astype(np.float64)
    except (zlib.error, ValueError):
        return None
    return numbers if size in (None, numbers.size) and np.isfinite(numbers).all() else None


def _moments(sample: Sample) -> Floats:
    """Return rows, mean and deviation of the usable values by folded cell."""
    usable = [(item, v) for item, v, _ in sample if v is not None and abs(v) < _VALUE_MAX]
    if not usable:
        return np.zeros(_MOMENTS)
    items, values = np.asarray(usable, dtype=np.float64).T
    at = folded(count_min.cells_of(items.astype(np.int64))).ravel()
    values = np.tile(values, count_min.ROWS)
    rows = _summed(at, np.ones(at.size))
    mean = _summed(at, values) / np.maximum(rows, 1.0)
    squares = _summed(at, np.square(values - mean[at]))
    return np.stack([rows, mean, np.sqrt(squares / np.maximum(rows, 1.0))])


def _summed(at: Ints, values: Floats) -> Floats:
    return np.asarray(np.bincount(at, weights=values, minlength=_MOMENTS[1]), dtype=np.float64)


def _merged(ours: Floats, theirs: Floats, share: float) -> Floats:
    """Merge moments of two samples (Chan's formula), a share of the second's rows."""
    (rows, mean, deviation), (more, other, spread) = ours, theirs
    more = share * more
    total = np.maximum(rows + more, 1e-300)
    apart = rows * more / total * np.square(other - mean)
    squares = rows * np.square(deviation) + more * np.square(spread) + apart
    merged = mean + (other - mean) * more / total
    return np.stack([rows + more, merged, np.sqrt(squares / total)])
