"""A sampled window (CoD): Spark's own streaming aggregate holds a sample, the function sees that.

For every window and group Spark's state keeps the rows of least hash (`min_by` with a number: a
simple random sample, mergeable and deterministic), the number of rows and the moments of the
values. Watermarks, late rows and sliding windows are Spark's. When the watermark has passed the
end of a window all its groups come out in one batch: a task reads the concept from them, decides
how many rows of each group to use, cuts the samples down to that and runs the function.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from spillway.objective import seconds
from spillway.spark import columns
from spillway.spark.metrics import TASKS
from spillway.spark.operator_results import REPORT, Results
from spillway.spark.uniform import hash_sql, quoted
from spillway.spark.window_task import (
    COUNT,
    END,
    MEAN,
    ROWS,
    SAMPLE,
    START,
    VARIANCE,
    WindowTask,
    run_windows,
)

SAMPLE_ROWS_MAX = 100_000  # the most that Spark's `min_by` takes
_PREFIX = columns.PREFIX
_SPAN, _HASH, _ROW, _VALUE = (f"{_PREFIX}{name}" for name in ("window", "hash", "row", "value"))
TASKS_AT_ONCE = 2  # windows that end in the same batch are shared out
_RESULTS = ("window", "value", "low", "high", "rows", "kept")


@dataclass(frozen=True, kw_only=True)
class SampledWindow:
    """A window over event time, what Spark's state holds of its groups, and what a task does then.

    `sample_rows` is the most that is held of a group; None holds all its rows. `late` is the delay
    of the watermark; None leaves the one that the stream has. `seed` chooses the sample.
    """

    time: str
    size: str
    slide: str | None = None
    late: str | None = None
    identity: Sequence[str] | None = None
    sample_rows: int | None = 64
    seed: int = 0
    task: WindowTask

    def __post_init__(self) -> None:
        """Reject what is no window, whatever the data."""
        check_durations(size=self.size, slide=self.slide, late=self.late)
        rows = self.sample_rows
        if rows is not None and not 2 <= rows <= SAMPLE_ROWS_MAX:
            raise ValueError(f"sample_rows must be in [2, {SAMPLE_ROWS_MAX}] or None, got {rows}")

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
        columns.check_columns(df)
        check_time(df, self.time)
        for name in self.task.by:
            columns.check_key(df, name)
        own = [name for name in self.task.by if name.lower() in _RESULTS]
        if own:
            raise ValueError(f"by must not name one of the results {_RESULTS}, got {own}")
        self.task.apply.check(df.schema)
        for name in self.task.values:
            check_number(df, name)

    def _held(self, df: DataFrame) -> DataFrame:
        """Aggregate: what the state holds of every window and group."""
        span = span_of(self.time, self.size, self.slide).alias(_SPAN)
        rows = self._narrowed(watermarked(df, self.time, self.late))
        groups = rows.groupBy(span, *map(quoted, self.task.by))
        held = groups.agg(*map(F.expr, self._aggregates()))
        kept = [quoted(name) for name in held.columns if name != _SPAN]
        return held.selectExpr(f"{_SPAN}.start AS {START}", f"{_SPAN}.end AS {END}", *kept)

    def _narrowed(self, df: DataFrame) -> DataFrame:
        """Leave what is needed: time, groups, hash, values, and what the function sees as one."""
        shown = self.task.apply.shown(df.columns)
        row = [f"struct({', '.join(map(quoted, shown))}) AS {_ROW}"] if shown else []
        hashed = hash_sql(f"{self.seed}L", columns.identity_of(df, self.identity))
        values = [
            f"CAST({quoted(name)} AS DOUBLE) AS {_VALUE}_{i}"
            for i, name in enumerate(self.task.values)
        ]
        groups = map(quoted, dict.fromkeys((self.time, *self.task.by)))
        return df.selectExpr(*groups, f"{hashed} AS {_HASH}", *row, *values)

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


def check_durations(**given: str | None) -> None:
    """Refuse what is no duration; only lateness may be 0."""
    for name, duration in given.items():
        if duration is None:
            continue
        try:
            length_s = seconds(duration)
        except ValueError as error:
            raise ValueError(f"{name} must be a duration: {error}") from None
        if length_s <= 0 and name != "late":
            raise ValueError(f"{name} must be longer than 0, got {duration!r}")


def span_of(time: str, size: str, slide: str | None) -> Column:
    """Return the windows of a row, as Spark computes them."""
    return F.window(quoted(time), *(_interval(each) for each in (size, slide) if each is not None))


def watermarked(df: DataFrame, time: str, late: str | None) -> DataFrame:
    """Let rows be so late; None leaves the watermark that the stream has."""
    return df.withWatermark(time, _interval(late)) if late is not None else df


def _interval(duration: str) -> str:
    """Write a duration as Spark reads it."""
    return f"{round(seconds(duration) * 1e6)} microseconds"


def check_time(df: DataFrame, time: str) -> None:
    """Refuse a column that holds no event times."""
    if time not in df.columns:
        raise ValueError(f"time must be one of the columns {df.columns}, got {time!r}")
    kind = df.schema[time].dataType
    if not isinstance(kind, T.TimestampType):
        raise ValueError(
            f"time must be a timestamp, got column {time!r} of type {kind.simpleString()}"
        )


def check_number(df: DataFrame, name: str) -> None:
    """Refuse a value that is no number."""
    if name not in df.columns:
        raise ValueError(f"values must be among the columns {df.columns}, got {name!r}")
    kind = df.schema[name].dataType
    if not isinstance(kind, T.NumericType):
        raise ValueError(
            f"values must be numbers, got column {name!r} of type {kind.simpleString()}"
        )


def with_report(schema: T.StructType) -> T.StructType:
    """Return the columns of a task, which may all be empty, and the one for its report."""
    fields = [T.StructField(field.name, field.dataType, True) for field in schema]
    return T.StructType([*fields, T.StructField(REPORT, T.BinaryType(), True)])
