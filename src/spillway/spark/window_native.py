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
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.internal import InternalFunction

from spillway.estimate.quantile_places import Floats, QuantilePlaces
from spillway.spark import columns
from spillway.spark.metrics import WINDOW_ROWS, WINDOW_USED
from spillway.spark.uniform import hash_sql, quoted
from spillway.spark.window_apply import Named
from spillway.spark.window_span import SPAN, Span, check_number, check_sample_rows

_HASH, _VALUE, _SORTED, _ENTRY, _PLACE, _BELOW, _ABOVE = (
    f"{columns.PREFIX}{name}"
    for name in ("hash", "value", "sorted", "entry", "place", "below", "above")
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

        Spark plans every batch anew, so each expression here takes time in each of them: places are
        columns of their own, and the rows that are held follow from the rows that came.
        """
        names = [*map(quoted, self.by), SPAN, "rows"]
        most = "rows" if self.sample_rows is None else f"least(rows, {self.sample_rows})"
        held = held.selectExpr(*names, f"sort_array({_SORTED}) AS {_SORTED}", f"{most} AS kept")
        held = held.selectExpr("*", f"{self.function.q}D * (kept - 1) AS {_PLACE}")
        nothing = f"CAST('{math.nan}' AS DOUBLE)"
        if self.sample_rows is None:
            value = held.selectExpr(*names, "kept", f"coalesce({_at(_PLACE)}, {nothing}) AS value")
            return value.selectExpr("*", "value AS low", "value AS high")
        held = self._bounded(held, self.sample_rows)
        return held.selectExpr(
            *names,
            "kept",
            f"coalesce({_at(_PLACE)}, {nothing}) AS value",
            f"coalesce({_at(_BELOW)}, IF(rows > 0, {_endless('-')}, {nothing})) AS low",
            f"coalesce({_at(_ABOVE)}, IF(rows > 0, {_endless('')}, {nothing})) AS high",
        )

    def _bounded(self, held: DataFrame, sample_rows: int) -> DataFrame:
        """Add the places of the bounds: that of the value itself in groups that are held whole."""
        table = QuantilePlaces.of(
            self.function.q, kept=sample_rows, confidence=self.function.confidence
        )
        low = np.where(table.low < 1, -1.0, table.low - 1)  # a place outside of the sample is NULL
        high = np.where(table.high > sample_rows, float(sample_rows), table.high - 1)
        held = held.selectExpr("*", f"{_entry_sql(table)} AS {_ENTRY}")
        sides = {_BELOW: low, _ABOVE: high}
        return held.selectExpr(
            "*",
            *(f"coalesce({_get_sql(side)}, {_PLACE}) AS {name}" for name, side in sides.items()),
        )


def _entry_sql(table: QuantilePlaces) -> str:
    """Find a group's entry, see `QuantilePlaces.entries`; below 0 if the group is held whole."""
    more, singly, last = f"(rows - {table.kept})", table.singly, table.low.size - 1
    steps = f"ceil(ln({more} / {singly}) * {1 / math.log(table.growth)!r}D)"
    return f"int(least(least({more}, {singly}) - 1 + greatest({steps}, 0), {last}))"


def _get_sql(places: Floats) -> str:
    """Look an entry up in a constant; as many literals would be looked through in every batch."""
    text = " ".join(f"{place:.6f}" for place in places)
    return f"get(CAST(split('{text}', ' ') AS ARRAY<DOUBLE>), {_ENTRY})"


def _at(place: str) -> str:
    """Interpolate a group's sorted values at a place from 0 on; NULL if there is none."""
    whole = f"int({place})"
    before, after = f"get({_SORTED}, {whole})", f"get({_SORTED}, {whole} + 1)"
    between = f"{before} + ({place} - {whole}) * ({after} - {before})"
    return f"IF({place} > {whole}, {between}, {before})"


def _endless(sign: str) -> str:
    return f"CAST('{sign}Infinity' AS DOUBLE)"
