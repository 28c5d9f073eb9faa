"""What a row costs by its key, as Spark's SQL; `kernels.table` is its twin in Python.

A table is an array of BIGINT (`cost.table.gate_array`) of the usual sizes, which stand in the text:
a stream's gate is built once, and only the array changes from batch to batch. Nothing overflows:
items and multipliers have 31 bits.
"""

from __future__ import annotations

from collections.abc import Iterable

from spillway.cost.table import (
    BUCKET_MULTIPLIER,
    BUCKETS,
    COLUMNS,
    COST_BITS,
    COST_MASK,
    MULTIPLIERS,
    PLACES,
    PRIME,
    UNIT_NS,
)
from spillway.spark.columns import PREFIX
from spillway.spark.uniform import quoted

ITEM, TABLE, COST = PREFIX + "item", PREFIX + "table", PREFIX + "cost"
_PLACES = [f"{PREFIX}place_{place}" for place in range(PLACES)]


def cost_columns(key: str) -> list[str]:
    """Return the columns that lead from a key column to its cost in ns, each by those before it.

    They follow the column `TABLE`, which holds the array. A column is computed once, however often
    the later ones refer to it.
    """
    from spillway.cost.items import item_sql  # the gate's workers need no numba

    item, places = item_sql(quoted(key)), (f"{sql} AS {place}" for place, sql in _places())
    return [f"{item} AS {ITEM}", *places, f"{_cost_sql()} AS {COST}"]


def _places() -> list[tuple[str, str]]:
    """Return where an item may have a place of its own."""
    first = f"{_cell_sql(BUCKET_MULTIPLIER, BUCKETS)} * {PLACES}"
    return [(name, f"get({TABLE}, {first} + {place})") for place, name in enumerate(_PLACES)]


def _cost_sql() -> str:
    """Return the cost of the item's own place, else of its least cell."""
    cases = " ".join(
        f"WHEN shiftright({place}, {COST_BITS}) = {ITEM} AND {place} <> 0L THEN {place}"
        for place in _PLACES
    )
    return f"double((CASE {cases} ELSE {_least_sql()} END) & {COST_MASK}) * {UNIT_NS}.0D"


def array_sql(numbers: Iterable[object], *, held: str, of: str = "BIGINT") -> str:
    """Return a constant array that leaves the generated code the same in every batch.

    Spark folds the text into one value, which the code refers to. `held` is a number of the row
    that is never negative, which Spark does not know: so it does not copy the array to every place
    that refers to it, which would cost more than the lookups of a small batch.
    """
    array = f"CAST(split('{','.join(map(str, numbers))}', ',') AS ARRAY<{of}>)"
    return f"(CASE WHEN {held} >= 0 THEN {array} END)"


def _least_sql() -> str:
    found = [
        f"get({TABLE}, {_cell_sql(multiplier, COLUMNS)} + {BUCKETS * PLACES + row * COLUMNS})"
        for row, multiplier in enumerate(MULTIPLIERS)
    ]
    return f"least({', '.join(found)})"


def _cell_sql(multiplier: int, columns: int) -> str:
    hashed = f"{ITEM} * {multiplier}L"
    return f"int(({hashed} + shiftright({hashed}, 32) & {PRIME}L) % {columns}L)"
