"""Feeds windows to Spark file by file, and reads from its reports when each result was there.

A slide of the stream is one file, one batch. Then come two ticks of one row each: the first moves
the watermark past the end of a window, the second is the batch in which Spark, knowing that, lets
the window out. How long that batch takes is the latency from watermark to result.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
from numpy.typing import NDArray

from spillway.studies import spark_run
from spillway.studies.cod_windows import Rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Floats = NDArray[np.float64]

SCHEMA = "id bigint, pickup timestamp, route bigint, fare double"
TICK_ROUTE = -1
_ARROW = pa.schema(
    [
        ("id", pa.int64()),
        ("pickup", pa.timestamp("us", tz="UTC")),
        ("route", pa.int64()),
        ("fare", pa.float64()),
    ]
)
# The state is held in memory: with Java's usual gigabyte all ways would wait for its collector. The
# heap has its size from the beginning: while it grew, after a way that needed little, the collector
# marked all the time, and took up to half of a core from whoever came next.
# Spark keeps the 100 pieces of code that it compiled last: as if alone, each way keeps its own.
_SESSION = {
    **spark_run.PLAIN_FILES,
    "spark.driver.memory": "4g",
    "spark.driver.extraJavaOptions": "-Xss8m -Xms4g",
    "spark.sql.codegen.cache.maxEntries": "10000",
}
_FILES_A_SLIDE = 3
_TICK_S = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """A stream in order of time, and its windows; the first `warm` full ones are not measured."""

    rows: Rows
    size_s: float
    slide_s: float
    grouped: bool = True
    warm: int = 2

    @property
    def edges_s(self) -> Floats:
        """The borders of the slides: multiples of the slide, as Spark's."""
        first, last = (float(self.rows.time_s[i]) // self.slide_s for i in (0, -1))
        return self.slide_s * np.arange(first, last + 2)

    @property
    def measured(self) -> list[int]:
        """The batches in which full windows come out."""
        slides = range(round(self.size_s / self.slide_s) - 1 + self.warm, self.edges_s.size - 1)
        return [_FILES_A_SLIDE * slide + _FILES_A_SLIDE - 1 for slide in slides]

    def write(self, folder: Path) -> None:
        """Write the files; Spark reads them by their age."""
        folder.mkdir(parents=True)
        edges, number = self.edges_s, 0
        for first_s, last_s in pairwise(edges.tolist()):
            parts = [self.rows.between(first_s, last_s), _tick(last_s, 1), _tick(last_s, 2)]
            for part in parts:
                path = folder / f"{number:06}.parquet"
                parquet.write_table(_table(part, number), path)
                os.utime(path, (1e9 + number, 1e9 + number))
                number += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Fed:
    """What Spark reports, in seconds and megabytes: of windows that came out, and of slides."""

    latency_s: Floats
    taking_in_s: Floats
    state_mb: Floats

    def numbers(self) -> dict[str, list[float]]:
        """Return what a study keeps of it."""
        return {name: getattr(self, name).tolist() for name in self.__dataclass_fields__}


Way = Callable[["DataFrame", Feed, float, Path], "DataFrame"]


def play(feed: Feed, way: Way, shed: float, *, cores: int) -> Fed:
    """Feed the windows to a way of working on them, on so many cores."""
    with spark_run._folder() as folder, spark_run.interruptible():
        spark = spark_run._session(cores, _SESSION)
        _forget(spark)
        return run(spark, feed, way, shed, folder)


def _forget(spark: SparkSession) -> None:
    """Leave nothing of the queries before.

    Spark would write the states of ended ones out once more, within a minute, and Java would
    collect them: while somebody else is measured.
    """
    java: Any = spark._jvm
    java.org.apache.spark.sql.execution.streaming.state.StateStore.stop()
    java.System.gc()


def run(spark: SparkSession, feed: Feed, way: Way, shed: float, folder: Path) -> Fed:
    """Feed the windows to a way of working on them, in a folder of its own."""
    feed.write(folder / "rides")
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", "1")
    results = way(reader.parquet(str(folder / "rides")), feed, shed, folder)
    query = (
        results.writeStream.format("noop")
        .trigger(availableNow=True)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )
    try:
        query.awaitTermination()
        reports = [json.loads(report.json) for report in query.recentProgress]
    finally:
        query.stop()
    return _fed(feed, {report["batchId"]: report for report in reports})


def _fed(feed: Feed, reports: dict[int, dict[str, Any]]) -> Fed:
    out = [reports[batch] for batch in feed.measured]
    silent = [report["batchId"] for report in out if not _removed(report)]
    if silent:
        raise RuntimeError(f"no window came out in the batches {silent}")
    taken = [reports[batch - _FILES_A_SLIDE + 1] for batch in feed.measured]
    return Fed(
        latency_s=_seconds(out),
        taking_in_s=_seconds(taken),
        state_mb=np.array([_state_mb(report) for report in taken]),
    )


def _seconds(reports: list[dict[str, Any]]) -> Floats:
    return np.array([report["durationMs"]["triggerExecution"] / 1e3 for report in reports])


def _removed(report: dict[str, Any]) -> int:
    return sum(state["numRowsRemoved"] for state in report["stateOperators"])


def _state_mb(report: dict[str, Any]) -> float:
    return float(sum(state["memoryUsedBytes"] for state in report["stateOperators"])) / 1e6


def _tick(edge_s: float, nth: int) -> Rows:
    return Rows(
        time_s=np.array([edge_s + nth * _TICK_S]),
        group=np.array([TICK_ROUTE]),
        value=np.array([1.0]),
    )


def _table(rows: Rows, number: int) -> pa.Table:
    """A file's rows; ids do not repeat from file to file."""
    ids = np.arange(rows.value.size, dtype=np.int64) + number * 10_000_000
    pickup_us = np.floor(rows.time_s * 1e6).astype(np.int64)
    columns = (ids, pickup_us, rows.group, rows.value)
    arrays = [pa.array(c, field.type) for c, field in zip(columns, _ARROW, strict=True)]
    return pa.Table.from_arrays(arrays, schema=_ARROW)
