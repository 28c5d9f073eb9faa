"""A stream that bursts on schedule: the Python data source `spillway-burst`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from spillway.workload.content import Content
from spillway.workload.rate import Schedule, parse_rate

SCHEMA = "id bigint, key bigint, value double, work_us bigint, arrived timestamp"
BATCH_ROWS_MAX = 10_000

# Spark checks Python batches against its own schema in UTC, whatever the session's time zone.
_ARROW = pa.schema(
    [
        ("id", pa.int64()),
        ("key", pa.int64()),
        ("value", pa.float64()),
        ("work_us", pa.int64()),
        ("arrived", pa.timestamp("us", tz="UTC")),
    ]
)
_DEFAULTS = {
    "rate": "1000",
    "duration": "3600",
    "keys": "1000",
    "distribution": "zipf:1.1",
    "work_us": "1..64",
    "seed": "0",
    "partitions": "2",
    "maxRowsPerTrigger": "",
    "clock": "",
}
_SPARKS_OWN = frozenset({"path"})

Offset = dict[str, int]
N = TypeVar("N", int, float)


def register(spark: SparkSession) -> None:
    """After this, `spark.readStream.format("spillway-burst")` works in the session."""
    spark.dataSource.register(BurstSource)


class BurstSource(DataSource):
    """Rows that arrive on a schedule, with content by seed, for as long as the query runs.

    Options: `rate` and `duration` (seconds; see `parse_rate`), `keys`, `distribution`, `work_us`
    and `seed` (see `Content`), `partitions`, `maxRowsPerTrigger`, and `clock`: a text file that
    holds the virtual seconds since the start, in place of the real clock.
    """

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "spillway-burst"

    def schema(self) -> str:
        """The columns; Spark asks for them in `load()`, so bad options are refused there."""
        parse_options(self.options)
        return SCHEMA

    def streamReader(self, schema: StructType) -> BurstReader:
        """A reader, unless the user asked for other columns than there are."""
        given = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema)
        if given != SCHEMA:
            raise ValueError(f"schema must be '{SCHEMA}' or left out, got '{given}'")
        return BurstReader(parse_options(self.options))


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """The options of one stream, understood."""

    schedule: Schedule
    content: Content
    partitions: int
    rows_per_trigger_max: int | None
    clock: str

    def __post_init__(self) -> None:
        if self.partitions < 1:
            raise ValueError(f"partitions must be >= 1, got {self.partitions}")
        if self.rows_per_trigger_max is not None and self.rows_per_trigger_max < 1:
            raise ValueError(f"maxRowsPerTrigger must be >= 1, got {self.rows_per_trigger_max}")
        if self.clock:
            _virtual_us(self.clock)


@dataclass(frozen=True, slots=True)
class RowRange(InputPartition):
    """Rows from `first` to before `stop` of the stream that began at `epoch_us`."""

    first: int
    stop: int
    epoch_us: int


class BurstReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are `{"row": rows read so far, "epoch_us": wall-clock start of the schedule}`.

    The start is drawn once and travels in every offset, so a restarted query goes on with the same
    schedule and owes every row of it, however long it was away.
    """

    def __init__(self, burst: Burst) -> None:
        self._burst = burst
        self._epoch_us: int | None = None
        self._frozen_us: int | None = None

    def initialOffset(self) -> Offset:
        """Row 0 of a schedule that starts now."""
        self._epoch_us = _wall_us()
        return {"row": 0, "epoch_us": self._epoch_us}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Rows that have arrived by now, within the limit, and never before `start`."""
        self._epoch_us = start["epoch_us"]
        row = max(start["row"], self._rows_arrived(start["epoch_us"]))
        if isinstance(limit, ReadMaxRows):
            row = min(row, start["row"] + limit.max_rows)
        return {**start, "row": row}

    def reportLatestOffset(self) -> Offset | None:
        """Rows that have arrived by now, read or not: the progress then shows the backlog."""
        if self._epoch_us is None:
            return None
        return {"row": self._rows_arrived(self._epoch_us), "epoch_us": self._epoch_us}

    def getDefaultReadLimit(self) -> ReadLimit:
        """`maxRowsPerTrigger` where it is given."""
        rows_max = self._burst.rows_per_trigger_max
        return ReadAllAvailable() if rows_max is None else ReadMaxRows(rows_max)

    def prepareForTriggerAvailableNow(self) -> None:
        """Time stands still: what arrives from here on is left to the next run."""
        self._frozen_us = self._now_us()

    def partitions(self, start: Offset, end: Offset) -> list[RowRange]:
        """The new rows in even, contiguous ranges, none of them empty."""
        self._epoch_us = end["epoch_us"]
        rows, parts = end["row"] - start["row"], self._burst.partitions
        edges = [start["row"] + rows * part // parts for part in range(parts + 1)]
        return [RowRange(low, high, end["epoch_us"]) for low, high in pairwise(edges) if low < high]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of the range as Arrow batches."""
        assert isinstance(partition, RowRange)
        for first in range(partition.first, partition.stop, BATCH_ROWS_MAX):
            rows = np.arange(first, min(first + BATCH_ROWS_MAX, partition.stop))
            yield _arrow_batch(self._burst, rows, partition.epoch_us)

    def _rows_arrived(self, epoch_us: int) -> int:
        now_us = self._now_us() if self._frozen_us is None else self._frozen_us
        origin_us = 0 if self._burst.clock else epoch_us
        return self._burst.schedule.rows_by((now_us - origin_us) / 1e6)

    def _now_us(self) -> int:
        return _virtual_us(self._burst.clock) if self._burst.clock else _wall_us()


def parse_options(options: Mapping[str, str]) -> Burst:
    """The stream that the options describe; names in any case, as Spark lower-cases them.

    >>> parse_options({"rate": "500", "DURATION": "10"}).schedule.rows_total
    5000
    >>> parse_options({"rates": "500"})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: option must be one of clock, distribution, ..., work_us, got 'rates'
    """
    given = {name.lower(): text for name, text in options.items()}
    _refuse_unknown(given)
    texts = {name: given.get(name.lower(), default) for name, default in _DEFAULTS.items()}
    rows_max = texts["maxRowsPerTrigger"]
    return Burst(
        schedule=parse_rate(texts["rate"], _number(float, "duration", texts)),
        content=Content(
            seed=_number(int, "seed", texts),
            keys=_number(int, "keys", texts),
            distribution=texts["distribution"],
            work_us=texts["work_us"],
        ),
        partitions=_number(int, "partitions", texts),
        rows_per_trigger_max=_number(int, "maxRowsPerTrigger", texts) if rows_max else None,
        clock=texts["clock"],
    )


def _refuse_unknown(given: Mapping[str, str]) -> None:
    unknown = sorted(given.keys() - {name.lower() for name in _DEFAULTS} - _SPARKS_OWN)
    if unknown:
        known = ", ".join(sorted(_DEFAULTS))
        raise ValueError(f"option must be one of {known}, got {unknown[0]!r}")


def _number(kind: Callable[[str], N], name: str, texts: Mapping[str, str]) -> N:
    try:
        return kind(texts[name])
    except ValueError:
        raise ValueError(f"{name} must be a number, got {texts[name]!r}") from None


def _arrow_batch(burst: Burst, rows: NDArray[np.int64], epoch_us: int) -> pa.RecordBatch:
    columns = burst.content.columns(rows)
    # Rounded down, so that no row is from the future.
    arrived_us = epoch_us + np.floor(burst.schedule.arrival_s(rows) * 1e6).astype(np.int64)
    arrays = [rows, columns["key"], columns["value"], columns["work_us"], arrived_us]
    return pa.RecordBatch.from_arrays(
        [pa.array(array, field.type) for array, field in zip(arrays, _ARROW, strict=True)],
        schema=_ARROW,
    )


def _wall_us() -> int:
    return time.time_ns() // 1000


def _virtual_us(clock: str) -> int:
    try:
        return round(float(Path(clock).read_text(encoding="utf-8")) * 1e6)
    except (OSError, ValueError) as error:
        raise ValueError(f"clock must be a file that holds seconds, got {clock!r}") from error
