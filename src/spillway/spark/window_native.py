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

from spillway.estimate.quantile_places import Floats, QuantilePlaces
from spillway.spark import columns
from spillway.spark.metrics import WINDOW_ROWS, WINDOW_USED
from spillway.spark.uniform import hash_sql, quoted
from spillway.spark.window_apply import Named
from spillway.spark.window_span import SPAN, Span, check_number, check_sample_rows

_HASH, _VALUE, _SORTED, _BELOW, _ABOVE = (
    f"{columns.PREFIX}{name}" for name in ("hash", "value", "sorted", "below", "above")
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
        counted = found.observe(observed, rows, used)
        return counted.selectExpr(span, *map(quoted, self.by), *results)

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
        """Read value and bounds off the sorted samples; NaN where a group has no value."""
        nothing = F.expr("CAST(array() AS ARRAY<DOUBLE>)")
        held = held.withColumn(_SORTED, F.sort_array(F.coalesce(_SORTED, nothing)))
        held = held.withColumn("kept", F.size(_SORTED).cast("long"))
        held = held.withColumns(self._places())
        q = self.function.q
        value = F.coalesce(_at(F.lit(q) * (F.col("kept") - 1) + 1), F.lit(math.nan))
        part = F.col("kept") < F.col("rows")
        low = F.when(F.col(_BELOW) < 1, -math.inf).otherwise(_at(F.col(_BELOW)))
        high = F.when(F.col(_ABOVE) > F.col("kept"), math.inf).otherwise(_at(F.col(_ABOVE)))
        held = held.withColumn("value", value)
        value = F.col("value")
        return held.withColumns(
            {"low": F.when(part, low).otherwise(value), "high": F.when(part, high).otherwise(value)}
        )

    def _places(self) -> dict[str, Column]:
        """Return the places of the bounds, for groups that are not held whole."""
        if self.sample_rows is None:
            return dict.fromkeys((_BELOW, _ABOVE), F.lit(None).cast("double"))
        table = QuantilePlaces.of(
            self.function.q, kept=self.sample_rows, confidence=self.function.confidence
        )
        more = F.col("rows") - table.kept
        steps = F.ceil(F.log(F.greatest(more, F.lit(1)) / table.singly) / math.log(table.growth))
        far = F.least(table.singly - 1 + steps, F.lit(table.low.size - 1))
        entry = F.when(more <= table.singly, more - 1).otherwise(far).cast("int")
        sides = {_BELOW: table.low, _ABOVE: table.high}
        return {name: F.get(_table(places), entry) for name, places in sides.items()}


def _at(place: Column) -> Column:
    """Interpolate a group's sorted values at a place from 1 on."""
    whole = F.floor(place)
    before = F.get(_SORTED, (whole - 1).cast("int"))
    after = F.get(_SORTED, whole.cast("int"))
    share = place - whole
    return F.when(share > 0, before + share * (after - before)).otherwise(before)


def _table(numbers: Floats) -> Column:
    """Return numbers as one constant: as many literals would be looked through in every batch."""
    text = " ".join(f"{number:.6f}" for number in numbers)
    return F.split(F.lit(text), " ").cast("array<double>")
