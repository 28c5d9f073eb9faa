"""The number that decides about a row, natively in Spark and equally in Python.

uniform(row) = the upper 53 bits of xxhash64(salt, identity columns) / 2^53, in [0, 1). It depends
on nothing else: not on the partitioning, the task attempt or the position of the row.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import xxhash

_SEED = 42  # Spark's, for the first column; each column's hash seeds the next
_MASK = (1 << 64) - 1
_BITS = 11  # 64 - 53: what is left over after a double's mantissa


def hash_sql(salt: str, identity: Sequence[str]) -> str:
    """Hash salt and identity; a NULL leaves the hash as it is, so the result is never NULL.

    >>> hash_sql("7L", ["topic", "offset"])
    'xxhash64(7L, `topic`, `offset`)'
    """
    return f"xxhash64({', '.join((salt, *map(quoted, identity)))})"


def uniform_sql(hashed: str) -> str:
    """Return the hash as a number in [0, 1)."""
    return f"(shiftrightunsigned({hashed}, {_BITS}) * {2.0**-53!r}D)"


def leftover_sql(hashed: str) -> str:
    """Return a second number in [0, 1), from the bits that `uniform_sql` does not use."""
    return f"(({hashed} & {(1 << _BITS) - 1}) * {2.0**-_BITS!r}D)"


def uniform(salt: int, *identity: int | str | bytes | float | None) -> float:
    """Return the same number in Python (integers as bigint, floats as double).

    >>> 0.0 <= uniform(7, "taxi", 12) < 1.0
    True
    """
    hashed = _SEED
    for value in (salt, *identity):
        if value is not None:
            hashed = xxhash.xxh64_intdigest(_bytes(value), seed=hashed)
    return ((hashed & _MASK) >> _BITS) * 2.0**-53


def salt_of(seed: int, batch_id: int) -> int:
    """Draw the batch's salt from the guard's seed, as a signed 64-bit number."""
    digest = xxhash.xxh64_intdigest(struct.pack("<qq", seed, batch_id))
    return digest - (1 << 64) if digest >> 63 else digest


def quoted(name: str) -> str:
    """Quote a column name for SQL."""
    return "`" + name.replace("`", "``") + "`"


def _bytes(value: int | str | bytes | float) -> bytes:
    if isinstance(value, bool):
        return struct.pack("<i", value)
    if isinstance(value, int):
        return struct.pack("<q", value)
    if isinstance(value, float):
        return struct.pack("<d", value + 0.0)  # Spark hashes -0.0 as 0.0
    return value.encode() if isinstance(value, str) else value
