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

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.internal import InternalFunction

from spillway.estimate.quantile_places import QuantilePlaces
from spillway.spark import columns
from spillway.spark.metrics import WINDOW_ROWS, WINDOW_USED
from spillway.spark.uniform import hash_sql, quoted
from spillway.spark.window_apply import Named
from spillway.spark.window_span import SPAN, Span, check_number, check_sample_rows

_HASH, _VALUE, _SORTED, _ENTRY, _PLACE = (
    f"{columns.PREFIX}{name}" for name in ("hash", "value", "sorted", "entry", "place")
)
_RESERVED_MAX = 32  # rows of a sample for which places are reserved, 16 bytes each
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
    sample_rows: int | None = 64
    seed: int = 0

    def __post_init__(self) -> None:
        """Reject a sample that Spark cannot hold."""
        check_sample_rows(self.sample_rows)

    def attach(self, df: DataFrame, observed: Observation | str) -> DataFrame:
        """Return a line for every window and group; rows are counted under `observed`."""
        self.function.check_groups(self.by)
        self.span.check(df, self.by)
        self.function.check(df.schema)
        if self.function.column is not None:
            check_number(df, self.function.column)
        found = self._found(self._narrowed(self.span.watermarked(df)))
        span = f"named_struct('start', {SPAN}.start, 'end', {SPAN}.end) AS window"
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
            return self._quantile(groups.agg(counted, self._sampled().alias(_SORTED)))
        exact = groups.agg(counted, F.expr(_EXACT[self.function.name]).alias("value"))
        value = F.coalesce("value", F.lit(math.nan))
        return exact.withColumns(
            {"value": value, "low": value, "high": value, "kept": F.col("rows")}
        )

    def _sampled(self) -> Column:
        """Hold the values of least hash, of rows that have one; or all values.

        `min_by` is the faster one, but it reserves places for all of a group's sample from its
        first row on. What pandas on Spark sorts by holds those that are there.
        """
        if self.sample_rows is None:
            return F.collect_list(_VALUE)
        if self.sample_rows <= _RESERVED_MAX:
            return F.expr(f"min_by({_VALUE}, nvl2({_VALUE}, {_HASH}, NULL), {self.sample_rows})")
        pair = F.expr(f"nvl2({_VALUE}, struct({_HASH}, {_VALUE}), NULL)")
        return InternalFunction.collect_top_k(pair, self.sample_rows, True)[_VALUE]

    def _quantile(self, held: DataFrame) -> DataFrame:
        """Read value and bounds off the sorted samples; NaN where a group has no value.

        Each step refers to the columns of the one before, so that nothing is computed twice, and
        all is compiled: what Spark calls for each element of an array it would interpret.
        """
        names = [*map(quoted, self.by), SPAN, "rows"]
        table = self._table()
        most = "rows" if table is None else f"least(rows, {table.kept})"
        entry = "" if table is None else f"IF(rows > {table.kept}, {_entry_sql(table)}, NULL)"
        placed = held.selectExpr(
            *names,
            f"{most} AS kept",
            f"sort_array({_SORTED}) AS {_SORTED}",
            *([f"{entry} AS {_ENTRY}"] if entry else []),
        )
        middle = _at(f"({self.function.q}D * (kept - 1))")
        valued = placed.selectExpr(
            *names, "kept", _SORTED, f"coalesce({middle}, double('NaN')) AS value", *_places(table)
        )
        bounds = (f"{_bound(side, table)} AS {side}" for side in ("low", "high"))
        return valued.selectExpr(*names, "kept", "value", *bounds)

    def _table(self) -> QuantilePlaces | None:
        """Return where the bounds are; a group that is held whole needs none."""
        if self.sample_rows is None:
            return None
        return QuantilePlaces.of(
            self.function.q, kept=self.sample_rows, confidence=self.function.confidence
        )


def _places(table: QuantilePlaces | None) -> list[str]:
    """Write where low and high stand in a sample, from 0 on: -1 and `kept` if outside of it."""
    if table is None:
        return []
    low = np.where(table.low < 1, -1.0, table.low - 1)
    high = np.where(table.high > table.kept, table.kept, table.high - 1)
    sides = {"low": low, "high": high}
    return [f"get({_constant(at)}, {_ENTRY}) AS {_PLACE}_{side}" for side, at in sides.items()]


def _constant(numbers: NDArray[np.float64]) -> str:
    """Write an array as one text: as many literals would be looked through in every batch."""
    return f"CAST(split('{','.join(f'{number:.6f}' for number in numbers)}', ',') AS ARRAY<DOUBLE>)"


def _bound(side: str, table: QuantilePlaces | None) -> str:
    """Read a bound: the value itself if a group is whole, endless outside of a sample."""
    if table is None:
        return "value"
    endless = {"low": "-Infinity", "high": "Infinity"}[side]
    found = f"coalesce({_at(f'{_PLACE}_{side}')}, double('{endless}'))"
    return f"IF(rows > {table.kept}, {found}, value)"


def _entry_sql(table: QuantilePlaces) -> str:
    """Find a group's entry, see `QuantilePlaces.entries`; below 0 if the group is held whole."""
    more, singly, last = f"(rows - {table.kept})", table.singly, table.low.size - 1
    steps = f"ceil(ln({more} / {singly}) * {1 / math.log(table.growth)!r}D)"
    return f"int(least(least({more}, {singly}) - 1 + greatest({steps}, 0), {last}))"


def _at(place: str) -> str:
    """Interpolate a group's sorted values at a place; endless ones are only met as they are."""
    whole = f"int({place})"
    before, after = f"get({_SORTED}, {whole})", f"get({_SORTED}, {whole} + 1)"
    between = f"{before} + ({place} - {whole}) * ({after} - {before})"
    return f"IF({place} > {whole}, {between}, {before})"
