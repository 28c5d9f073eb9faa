"""Spark's count-min sketch in NumPy: the cells of an item, and how a sketch is read and written.

For a gate, whose workers must not wait for compiled code: one fixed shape, that of the aggregate
`count_min_sketch(item, EPSILON, CONFIDENCE, SEED)`. Items have 31 bits: no product overflows.
"""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

ROWS, COLUMNS = 2, 4096
SHAPE = (ROWS, COLUMNS)
EPSILON, CONFIDENCE, SEED = 2.0 / COLUMNS, 0.7, 0  # Spark: ⌈2 / ε⌉ columns, ⌈-log₂(1 - c)⌉ rows
MULTIPLIERS = (1_569_741_360, 1_785_505_948)  # what Spark draws from the seed
ITEM_MASK = (1 << 31) - 1
COLUMN_MASK = COLUMNS - 1  # a power of two: the remainder is in the lowest bits

_HEADER = struct.Struct(">iqii")  # version, total count, rows, columns
_VERSION = 1


def cells_of(items: Ints) -> Ints:
    """Return where each item is counted: for each row of the sketch, the place of its cell.

    Places go through the sketch row by row, so that they index it when it lies flat.

    >>> cells_of(np.array([7])).tolist() == [[place] for place in count(np.array([7])).nonzero()[0]]
    True
    """
    hashed = items[None, :] * np.array(MULTIPLIERS, dtype=np.int64)[:, None]
    columns = (hashed + (hashed >> 32)) & COLUMN_MASK
    return np.asarray(columns + np.arange(ROWS)[:, None] * COLUMNS)


def count(items: Ints) -> Ints:
    """Return how many of the items fall into each cell, flat."""
    return np.bincount(cells_of(items).ravel(), minlength=ROWS * COLUMNS)


def write(counts: Ints) -> bytes:
    """Return counts as Spark's aggregate returns them."""
    table = counts.reshape(SHAPE)
    header = _HEADER.pack(_VERSION, int(table[0].sum()), *SHAPE)
    return header + np.array(MULTIPLIERS, dtype=">i8").tobytes() + table.astype(">i8").tobytes()


def read(data: bytes) -> Ints | None:
    """Return the counts of what Spark's aggregate returned, flat; None if it is anything else."""
    if len(data) != _HEADER.size + 8 * ROWS * (1 + COLUMNS):
        return None
    version, total, *shape = _HEADER.unpack_from(data)
    numbers = np.frombuffer(data, dtype=">i8", offset=_HEADER.size).astype(np.int64)
    counts = numbers[ROWS:].reshape(SHAPE)
    known = (version, tuple(shape), tuple(numbers[:ROWS].tolist())) == (
        _VERSION,
        SHAPE,
        MULTIPLIERS,
    )
    if not known or (counts < 0).any() or (counts > total).any():
        return None
    return counts.ravel() if (counts.sum(axis=1) == total).all() else None
