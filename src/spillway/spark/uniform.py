"""The number that decides about a row, as Spark's SQL; `kernels.uniform` is its twin in Python.

uniform(row) = the upper 53 bits of xxhash64(salt, identity columns) / 2^53, in [0, 1). It depends
on nothing else: not on the partitioning, the task attempt or the position of the row.
"""

from __future__ import annotations

from collections.abc import Sequence

from spillway.kernels.uniform import SPARE_BITS, salt_of, uniform

__all__ = ["hash_sql", "leftover_sql", "quoted", "salt_of", "uniform", "uniform_sql"]


def hash_sql(salt: str, identity: Sequence[str]) -> str:
    """Hash salt and identity; a NULL leaves the hash as it is, so the result is never NULL.

    >>> hash_sql("7L", ["topic", "offset"])
    'xxhash64(7L, `topic`, `offset`)'
    """
    return f"xxhash64({', '.join((salt, *map(quoted, identity)))})"


def uniform_sql(hashed: str) -> str:
    """Return the hash as a number in [0, 1)."""
    return f"(shiftrightunsigned({hashed}, {SPARE_BITS}) * {2.0**-53!r}D)"


def leftover_sql(hashed: str) -> str:
    """Return a second number in [0, 1), from the bits that `uniform_sql` does not use."""
    return f"(({hashed} & {(1 << SPARE_BITS) - 1}) * {2.0**-SPARE_BITS!r}D)"


def quoted(name: str) -> str:
    """Quote a column name for SQL."""
    return "`" + name.replace("`", "``") + "`"
