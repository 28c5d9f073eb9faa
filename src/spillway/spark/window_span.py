"""Windows of event time as Spark computes them, and which columns they may be made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, GroupedData
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spillway.objective import seconds
from spillway.spark import columns
from spillway.spark.uniform import quoted

SPAN = f"{columns.PREFIX}window"  # its end
_BEGUN, _NUMBER = columns.PREFIX + "begun", columns.PREFIX + "number"
_LATE = "spark.watermarkDelayMs"  # by which Spark knows a column that has a watermark
SAMPLE_ROWS_MAX = 100_000  # the most that Spark's `min_by` takes


@dataclass(frozen=True, kw_only=True)
class Span:
    """How long windows are, how far apart, and by how much rows may be late.

    `late` is the delay of the watermark; None leaves the one that the stream has.
    """

    time: str
    size: str
    slide: str | None = None
    late: str | None = None

    def __post_init__(self) -> None:
        """Refuse what is no duration; only lateness may be 0."""
        for name in ("size", "slide", "late"):
            duration = getattr(self, name)
            if duration is not None and _length_s(name, duration) <= 0 and name != "late":
                raise ValueError(f"{name} must be longer than 0, got {duration!r}")
        if self.slide is not None and _micros(self.slide) > _micros(self.size):
            raise ValueError(f"slide must be at most size, {self.size!r}, got {self.slide!r}")

    def check(self, df: DataFrame, by: Sequence[str]) -> None:
        """Refuse columns that hold no event times or make no groups."""
        columns.check_columns(df)
        check_time(df, self.time)
        for name in by:
            columns.check_key(df, name)

    def watermarked(self, df: DataFrame) -> DataFrame:
        """Let rows be so late."""
        return df.withWatermark(self.time, _interval(self.late)) if self.late is not None else df

    def keys(self, by: Sequence[str]) -> list[str]:
        """Return the columns, quoted, by which rows come to windows and groups."""
        return list(map(quoted, dict.fromkeys((self.time, *by))))

    @property
    def bounds(self) -> tuple[str, str]:
        """Return start and end of an aggregate's window, as SQL."""
        return f"timestamp_micros(unix_micros({SPAN}) - {_micros(self.size)}L)", SPAN

    def grouped(self, df: DataFrame, by: Sequence[str]) -> GroupedData:
        """Group rows by group and window: Spark sorts them by the first, of which few are alike.

        By the window first it would compare whole keys, and nearly all of a batch have the same. A
        window stands for itself by its end: start and end would be a key twice as long, and Spark
        looks through all keys of its state whenever time goes on.
        """
        late = {key: value for key, value in df.schema[self.time].metadata.items() if key == _LATE}
        ended = F.col(SPAN).alias(SPAN, metadata=late)
        kept = [name for name in df.columns if name != self.time or name in by]
        rows = self._in_windows(df).select(*map(quoted, kept), ended)
        return rows.groupBy(*map(quoted, by), SPAN)

    def _in_windows(self, df: DataFrame) -> DataFrame:
        """Repeat a row for every window that it is in, and say when that ends.

        These are the windows of Spark's own `window`, which makes a start beside each end, and in
        every batch the code for that: here the ends alone, from the last start before the row.
        """
        time, size, slide = quoted(self.time), _micros(self.size), _micros(self.slide or self.size)
        begun = f"unix_micros({time}) - pmod(unix_micros({time}), {slide}L) AS {_BEGUN}"
        rows = df.where(f"{time} IS NOT NULL").selectExpr("*", begun)
        ends = (f"timestamp_micros({_BEGUN} + {size - i}L)" for i in range(0, size, slide))
        kept = tuple(F.col(quoted(name)) for name in df.columns)
        repeated = rows.unpivot(kept, tuple(map(F.expr, ends)), _NUMBER, SPAN)
        return repeated if size % slide == 0 else repeated.where(f"{time} < {SPAN}")


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


def check_sample_rows(rows: int) -> None:
    """Refuse a sample that Spark cannot hold."""
    if not hasattr(rows, "__index__") or not 2 <= rows <= SAMPLE_ROWS_MAX:
        raise ValueError(
            f"sample_rows must be a whole number in [2, {SAMPLE_ROWS_MAX}] (of a window also None "
            f"or 'auto'), got {rows!r}"
        )


def _length_s(name: str, duration: str) -> float:
    try:
        return seconds(duration)
    except ValueError as error:
        raise ValueError(f"{name} must be a duration: {error}") from None


def _micros(duration: str) -> int:
    return round(seconds(duration) * 1e6)


def _interval(duration: str) -> str:
    """Write a duration as Spark reads it."""
    return f"{_micros(duration)} microseconds"
