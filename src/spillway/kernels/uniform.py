"""The number that decides about a row: the gate's own, one row at a time or many at once.

uniform(row) = the upper 53 bits of xxhash64(salt, identity columns) / 2^53, in [0, 1). It depends
on nothing else: not on the partitioning, the task attempt or the position of the row.
"""

from __future__ import annotations

import struct

import numpy as np
import xxhash
from numpy.typing import NDArray

SPARE_BITS = 11  # 64 - 53: what is left over after a double's mantissa
_SEED = 42  # Spark's, for the first column; each column's hash seeds the next
_MASK = (1 << 64) - 1


def uniform(salt: int, *identity: int | str | bytes | float | None) -> float:
    """Return the number of one row (integers as bigint, floats as double).

    >>> 0.0 <= uniform(7, "taxi", 12) < 1.0
    True
    """
    hashed = _SEED
    for value in (salt, *identity):
        if value is not None:
            hashed = xxhash.xxh64_intdigest(_bytes(value), seed=hashed)
    return ((hashed & _MASK) >> SPARE_BITS) * 2.0**-53


def uniforms(salt: int, numbers: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the numbers of rows whose identity is one bigint, all at once.

    >>> uniforms(7, np.array([12, -3])).tolist() == [uniform(7, 12), uniform(7, -3)]
    True
    """
    from spillway.kernels.xxhash64 import hash_longs  # the gate's workers need no numba

    salted = xxhash.xxh64_intdigest(_bytes(salt), seed=_SEED)
    hashed = np.empty(len(numbers), dtype=np.uint64)
    words = np.ascontiguousarray(numbers, dtype=np.int64).view(np.uint64)
    hash_longs(words, hashed, np.uint64(salted))
    return (hashed >> np.uint64(SPARE_BITS)).astype(np.float64) * 2.0**-53


def salt_of(seed: int, batch_id: int) -> int:
    """Draw the batch's salt from the guard's seed, as a signed 64-bit number."""
    digest = xxhash.xxh64_intdigest(struct.pack("<qq", seed, batch_id))
    return digest - (1 << 64) if digest >> 63 else digest


def _bytes(value: int | str | bytes | float) -> bytes:
    if isinstance(value, bool):
        return struct.pack("<i", value)
    if isinstance(value, int):
        return struct.pack("<q", value)
    if isinstance(value, float):
        return struct.pack("<d", value + 0.0)  # Spark hashes -0.0 as 0.0
    return value.encode() if isinstance(value, str) else value
