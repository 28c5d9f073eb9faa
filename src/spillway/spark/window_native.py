"""The named functions of a window, all in Spark: no Python and no exchange when a window ends.

A quantile is read from the sorted sample that Spark's state holds of a group. Its bounds are places
in that sample, which depend on the number of the group's rows alone (see `quantile_places`): the
plan has them as a table. To use fewer rows than are held would save nothing here, so there is
nothing to allocate. Means, sums and counts need no sample at all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.internal import InternalFunction

from spillway.estimate.quantile_places import QuantilePlaces
from spillway.spark import columns
from spillway.spark.metrics import WINDOW_ROWS, WINDOW_USED
from spillway.spark.quantile_sql import (
    ENTRY,
    SORTED,
    entry_sql,
    high_side,
    low_side,
    value_sql,
)
from spillway.spark.uniform import hash_sql, quoted
from spillway.spark.window_apply import Named
from spillway.spark.window_span import SPAN, Span, check_number

_HASH, _VALUE = columns.PREFIX + "hash", columns.PREFIX + "value"
RESERVED_MAX = 32  # rows of a sample for which places are reserved, 16 bytes each: the fastest
_EXACT = {
    "count": "CAST(count(1) AS DOUBLE)",
    "mean": f"avg({_VALUE})",
    "sum": f"sum({_VALUE})",
}


@dataclass(frozen=True, kw_only=True)
class NativeWindow:
    """A named function of every window and group; see `SampledWindow` for the fields."""

    span: Span
    by: tuple[str, ...]
    function: Named
    identity: Sequence[str] | None = None
    sample_rows: int | None
    seed: int = 0

    def attach(self, df: DataFrame, observed: Observation | str) -> DataFrame:
        """Return a line for every window and group; rows are counted under `observed`."""
        self.function.check_groups(self.by)
        self.span.check(df, self.by)
        self.function.check(df.schema)
        if self.function.column is not None:
            check_number(df, self.function.column)
        found = self._found(self._narrowed(self.span.watermarked(df)))
        start, end = self.span.bounds
        span = f"named_struct('start', {start}, 'end', {end}) AS window"
        results = ("value", "low", "high", "rows", "kept")
        rows, used = F.sum("rows").alias(WINDOW_ROWS), F.sum("kept").alias(WINDOW_USED)
        return found.selectExpr(span, *map(quoted, self.by), *results).observe(observed, rows, used)

    def _narrowed(self, df: DataFrame) -> DataFrame:
        """Leave what is needed: time, groups, value and, for a sample, the hash."""
        found = self.span.keys(self.by)
        if self.function.column is not None:
            found.append(f"CAST({quoted(self.function.column)} AS DOUBLE) AS {_VALUE}")
        if self.function.samples:
            hashed = hash_sql(f"{self.seed}L", columns.identity_of(df, self.identity))
            found.append(f"{hashed} AS {_HASH}")
        return df.selectExpr(*found)

    def _found(self, rows: DataFrame) -> DataFrame:
        groups = self.span.grouped(rows, self.by)
        counted = F.count(F.lit(1) if self.function.column is None else _VALUE).alias("rows")
        if self.function.samples:
            return self._quantile(groups.agg(counted, self._sampled().alias(SORTED)))
        exact = groups.agg(counted, F.expr(_EXACT[self.function.name]).alias("value"))
        value = F.coalesce("value", F.lit(math.nan))
        return exact.withColumns(
            {"value": value, "low": value, "high": value, "kept": F.col("rows")}
        )

    def _sampled(self) -> Column:
        """Hold the values of least hash, of rows that have one; or all values.

        `min_by` is the faster one, but it reserves places for all of a group's sample from its
        first row on. What pandas on Spark sorts by holds those that are there; and Spark is told
        that there is no NULL among them, which lets it sort a sample as plain numbers.
        """
        if self.sample_rows is None:
            return F.collect_list(_VALUE)
        if self.sample_rows <= RESERVED_MAX:
            return F.expr(f"min_by({_VALUE}, nvl2({_VALUE}, {_HASH}, NULL), {self.sample_rows})")
        held = f"coalesce({_VALUE}, 0D) AS {_VALUE}"
        pair = F.expr(f"nvl2({_VALUE}, struct({_HASH}, {held}), NULL)")
        return InternalFunction.collect_top_k(pair, self.sample_rows, True)[_VALUE]

    def _quantile(self, held: DataFrame) -> DataFrame:
        """Read value and bounds off the sorted samples; NaN where a group has no value.

        Each step refers to the columns of the one before, so that nothing is computed twice.
        """
        names = [*map(quoted, self.by), SPAN, "rows"]
        value = f"coalesce({value_sql(self.function.q)}, double('NaN')) AS value"
        ordered = f"sort_array({SORTED}) AS {SORTED}"
        table = self._table()
        if table is None:
            whole = held.selectExpr(*names, "rows AS kept", ordered)
            found = whole.selectExpr(*names, "kept", value)
            return found.selectExpr("*", "value AS low", "value AS high")
        kept, entry = f"least(rows, {table.kept}) AS kept", f"{entry_sql(table)} AS {ENTRY}"
        placed = held.selectExpr(*names, kept, ordered, entry)
        sides = low_side(table), high_side(table)
        places = (column for side in sides for column in side.columns())
        valued = placed.selectExpr(*names, "kept", SORTED, value, *places)
        return valued.selectExpr(*names, "kept", "value", *(side.sql() for side in sides))

    def _table(self) -> QuantilePlaces | None:
        """Return where the bounds are; a group that is held whole needs none."""
        if self.sample_rows is None:
            return None
        return QuantilePlaces.of(
            self.function.q, kept=self.sample_rows, confidence=self.function.confidence
        )
