"""The keep rate of a row's group, as Spark's SQL; `shedders.keep_table` is its twin in Python.

The table is an array of codes, one for each cell of the sketch, and an array of the rates that the
codes stand for: of fixed sizes, which stand in the text, so a stream's gate is built once. What the
gate observes is Spark's own aggregate: the same cells.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from spillway.kernels.count_min import (
    COLUMN_MASK,
    COLUMNS,
    CONFIDENCE,
    EPSILON,
    ITEM_MASK,
    MULTIPLIERS,
    SEED,
)
from spillway.shedders.keep_table import KeepLookup
from spillway.spark import columns
from spillway.spark.columns import PREFIX
from spillway.spark.cost_sql import ITEM, array_sql
from spillway.spark.uniform import quoted
from spillway.values import Plan

RATE, COUNTED = PREFIX + "rate", PREFIX + "counted"
_LEVELS, _CELLS = "levels", "cells"
_SAMPLE_ROWS = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupColumns:
    """Which columns make the group of a row; what is aggregated, and when it happened."""

    by: tuple[str, ...]
    value: str | None = None
    time: str | None = None

    def check(self, df: DataFrame) -> None:
        """Refuse columns that do not exist, do not hash, or are no points in time."""
        for name in self.by:
            columns.check_key(df, name, argument="by")
        columns.check_arrived(df, self.time, argument="time")

    def table_type(self) -> list[T.StructField]:
        """Return the type of the table as a part of a stream's plan."""
        parts = {_LEVELS: T.DoubleType(), _CELLS: T.ByteType()}
        return [T.StructField(name, T.ArrayType(of, False), False) for name, of in parts.items()]

    def rate_columns(self, fields: Mapping[str, str], *, open_if: str) -> list[str]:
        """Return the columns that lead from a row to its rate, each by those before it.

        `fields` has the parts of the table as SQL. Where `open_if` is true nothing is looked up.
        """
        levels, cells = PREFIX + _LEVELS, PREFIX + _CELLS
        code = f"greatest({', '.join(_codes(cells))})"
        return [
            f"{fields[_LEVELS]} AS {levels}",
            f"{fields[_CELLS]} AS {cells}",
            f"{item_sql(self.by)} AS {ITEM}",
            f"CASE WHEN {open_if} THEN 1.0D ELSE get({levels}, int({code})) END AS {RATE}",
        ]

    def metrics(self, chance: str) -> list[str]:
        """Observe frequencies of the counted rows and, of those of least `chance`, what they hold.

        A row that is not counted costs no more than a look at one column.
        """
        shape = f"{EPSILON!r}D, {CONFIDENCE!r}D, {SEED}"
        held = f"array(double({COUNTED}), {_finite(self.value)}, {_seconds(self.time)})"
        sampled = ", ".join(f"CASE WHEN {COUNTED} IS NOT NULL THEN {x} END" for x in (held, chance))
        return [
            f"count_min_sketch({COUNTED}, {shape}) AS frequencies",
            f"min_by({sampled}, {_SAMPLE_ROWS}) AS groups",
        ]


def table_values(plan: Plan) -> dict[str, object]:
    """Return the plan's table by the names of `table_type`."""
    lookup = KeepLookup.of(plan)
    return {_LEVELS: lookup.levels.tolist(), _CELLS: lookup.cells.tolist()}


def table_sql(plan: Plan, held: str) -> dict[str, str]:
    """Return the plan's table as SQL; of an open one, which nobody looks at, a stub."""
    lookup = KeepLookup.of(plan)
    cells = lookup.cells if plan.sheds else lookup.cells[:1]
    return {
        _LEVELS: array_sql(lookup.levels.tolist(), held=held, of="DOUBLE"),
        _CELLS: array_sql(cells.tolist(), held=held, of="TINYINT"),
    }


def item_sql(by: tuple[str, ...]) -> str:
    """Return the item of a row's group: 31 bits of the hash of its columns.

    Spark's hash passes over a NULL. Of one column that leaves an item of its own; of several, which
    ones are NULL is hashed with them, or (NULL, 'a') and ('a', NULL) would be one group.

    >>> item_sql(("route",))
    '(xxhash64(`route`) & 2147483647)'
    """
    hashed = [quoted(name) for name in by]
    if len(by) > 1:
        missing = (f"int(isnull({name})) * {1 << i}" for i, name in enumerate(hashed))
        hashed = [*hashed, " + ".join(missing)]
    return f"(xxhash64({', '.join(hashed)}) & {ITEM_MASK})"


def _codes(cells: str) -> list[str]:
    """Return the codes of the item's cells."""
    hashes = [f"{ITEM} * {multiplier}L" for multiplier in MULTIPLIERS]
    at = [f"int({hashed} + shiftright({hashed}, 32) & {COLUMN_MASK}L)" for hashed in hashes]
    return [f"get({cells}, {cell} + {row * COLUMNS})" for row, cell in enumerate(at)]


def _finite(value: str | None) -> str:
    if value is None:
        return "double(NULL)"
    number = f"try_cast(({value}) AS DOUBLE)"
    return f"CASE WHEN abs({number}) < double('infinity') THEN {number} END"


def _seconds(time: str | None) -> str:
    """Return the event time in epoch seconds; one that is none is NULL."""
    if time is None:
        return "double(NULL)"
    return f"try_cast(try_cast({quoted(time)} AS TIMESTAMP) AS DOUBLE)"
