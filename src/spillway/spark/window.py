"""A sampled window (CoD): Spark's own streaming aggregate holds a sample, the function sees that.

For every window and group Spark's state keeps the rows of least hash (`min_by` with a number: a
simple random sample, mergeable and deterministic), the number of rows and the moments of the
values. Watermarks, late rows and sliding windows are Spark's. When the watermark has passed the
end of a window all its groups come out in one batch: a task reads the concept from them, decides
how many rows of each group to use, cuts the samples down to that and runs the function. Named
functions that use all they can get need no such task: see `window_native`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from spillway.spark import columns
from spillway.spark.metrics import TASKS
from spillway.spark.operator_results import REPORT, Results
from spillway.spark.uniform import hash_sql, quoted
from spillway.spark.window_span import SPAN, Span, check_number
from spillway.spark.window_task import (
    COUNT,
    END,
    MEAN,
    PARENT,
    PRESENT,
    ROWS,
    SAMPLE,
    START,
    VARIANCE,
    WindowTask,
    run_windows,
)

_HASH, _ROW, _VALUE, _STRATUM = (
    f"{columns.PREFIX}{name}" for name in ("hash", "row", "value", "stratum")
)
TASKS_AT_ONCE = 2  # windows that end in the same batch are shared out


@dataclass(frozen=True, kw_only=True)
class SampledWindow:
    """A window over event time, what Spark's state holds of its groups, and what a task does then.

    `sample_rows` is the most that is held of a group; None holds all its rows. `seed` chooses the
    sample. With `strata` each combination of these columns in a group is held by itself.
    """

    span: Span
    identity: Sequence[str] | None = None
    strata: tuple[str, ...] = ()
    sample_rows: int | None
    seed: int = 0
    task: WindowTask

    def attach(self, df: DataFrame, observed: Observation | str) -> DataFrame:
        """Return the function's results, window by window; the tasks report under `observed`."""
        self._check(df)
        schema = self._schema(df)
        results = Results(fn=self.task.apply.name, schema=to_arrow_schema(schema, timezone="UTC"))
        mapped = (
            self._held(df)
            .repartition(TASKS_AT_ONCE, START)
            .mapInArrow(run_windows(self.task, results), with_report(schema))
        )
        counted = mapped.observe(observed, F.expr(f"collect_list({REPORT}) AS {TASKS}"))
        names = [quoted(name) for name in schema.names if name not in (START, END)]
        span = f"named_struct('start', {START}, 'end', {END}) AS window"
        return counted.where(f"{REPORT} IS NULL").selectExpr(span, *names)

    def _check(self, df: DataFrame) -> None:
        self.task.apply.check_groups(self.task.by)
        self.span.check(df, (*self.task.by, *self.strata))
        self.task.apply.check(df.schema)
        for name in self.task.values:
            check_number(df, name)

    def _held(self, df: DataFrame) -> DataFrame:
        """Aggregate: what the state holds of every window and group, or stratum of a group."""
        strata = [f"{_STRATUM}_{i}" for i in range(len(self.strata))]
        narrowed = self._narrowed(self.span.watermarked(df))
        groups = self.span.grouped(narrowed, (*self.task.by, *strata))
        held = with_bounds(groups.agg(*map(F.expr, self._aggregates())), self.span)
        if not strata:
            return held
        group = f"xxhash64({', '.join(('0', *map(quoted, self.task.by)))})"
        return held.withColumn(PARENT, F.expr(group)).drop(*strata)

    def _narrowed(self, df: DataFrame) -> DataFrame:
        """Leave what is needed: time, groups, hash, values, and what the function sees as one."""
        shown = self.task.apply.shown(df.columns, self.task.by)
        row = [f"{row_sql(shown)} AS {_ROW}"] if self.task.apply.samples else []
        hashed = hash_sql(f"{self.seed}L", columns.identity_of(df, self.identity))
        values = [
            f"CAST({quoted(name)} AS DOUBLE) AS {_VALUE}_{i}"
            for i, name in enumerate(self.task.values)
        ]
        strata = [f"{quoted(name)} AS {_STRATUM}_{i}" for i, name in enumerate(self.strata)]
        keys = self.span.keys(self.task.by)
        return df.selectExpr(*keys, f"{hashed} AS {_HASH}", *row, *values, *strata)

    def _aggregates(self) -> list[str]:
        found = [f"count(1) AS {ROWS}"]
        for i in range(len(self.task.values)):
            value = f"{_VALUE}_{i}"
            found += [f"count({value}) AS {COUNT}{i}", f"avg({value}) AS {MEAN}{i}"]
            found.append(f"var_samp({value}) AS {VARIANCE}{i}")
        return [*found, self._sampled()] if self.task.apply.samples else found

    def _sampled(self) -> str:
        """Hold the rows of least hash; of a named function only those that have a value."""
        usable = f"{_VALUE}_0 IS NOT NULL" if self.task.apply.column else "true"
        if self.sample_rows is not None:
            chance = f"CASE WHEN {usable} THEN {_HASH} END"
            return f"min_by({_ROW}, {chance}, {self.sample_rows}) AS {SAMPLE}"
        pair = f"CASE WHEN {usable} THEN struct({_HASH} AS h, {_ROW} AS row) END"
        by_hash = "(a, b) -> CASE WHEN a.h < b.h THEN -1 WHEN a.h > b.h THEN 1 ELSE 0 END"
        found = f"array_sort(collect_list({pair}), {by_hash})"
        return f"transform({found}, pair -> pair.row) AS {SAMPLE}"

    def _schema(self, df: DataFrame) -> T.StructType:
        """Return what a task returns: the bounds of the window, then the function's columns."""
        bounds = [T.StructField(name, T.TimestampType()) for name in (START, END)]
        groups = [T.StructField(name, df.schema[name].dataType) for name in self.task.by]
        return T.StructType([*bounds, *self.task.apply.fields(groups)])


def row_sql(names: Sequence[str]) -> str:
    """Put columns together as one; a row without any is still a row."""
    return f"struct({', '.join(map(quoted, names)) or f'true AS {PRESENT}'})"


def with_bounds(held: DataFrame, span: Span) -> DataFrame:
    """Put the bounds of the window in its place."""
    kept = [quoted(name) for name in held.columns if name != SPAN]
    start, end = span.bounds
    return held.selectExpr(f"{start} AS {START}", f"{end} AS {END}", *kept)


def with_report(schema: T.StructType) -> T.StructType:
    """Return the columns of a task, which may all be empty, and the one for its report."""
    fields = [T.StructField(field.name, field.dataType, True) for field in schema]
    return T.StructType([*fields, T.StructField(REPORT, T.BinaryType(), True)])
