"""The guarded job: rides arrive fast, windows are sampled, the first routes of each come out."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

import spillway as sw
from apps.taxi_routes.rides import Choice, load
from apps.taxi_routes.top import SCHEMA, TopRoutes
from spillway.spark import burst_source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming import StreamingQuery

READ = "id bigint, pickup timestamp, route bigint, fare double"
_ARROW = pa.schema(
    [
        ("id", pa.int64()),
        ("pickup", pa.timestamp("us", tz="UTC")),
        ("route", pa.int64()),
        ("fare", pa.float64()),
    ]
)
_POLL_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Which rides, how fast they come, the windows, and what share of them is shed."""

    choice: Choice = field(default_factory=Choice)
    rate: int = 20_000
    shed: float = 0.98
    size_min: int = 30
    slide_min: int = 10
    top: TopRoutes = field(default_factory=TopRoutes)
    allocation: Literal["proportional", "congress", "neyman", "cvopt"] = "cvopt"

    def __post_init__(self) -> None:
        if not 0 <= self.shed < 1:
            raise ValueError(f"shed must be in [0, 1), got {self.shed}")
        if not 1 <= self.slide_min <= self.size_min:
            raise ValueError(f"slide must be 1 to {self.size_min} minutes, got {self.slide_min}")


def first_routes(spark: SparkSession, settings: Settings, guard: sw.Guard) -> DataFrame:
    """Return the whole job as a stream."""
    return guard.window(
        read(spark, settings),
        time="pickup",
        size=f"{settings.size_min} minutes",
        slide=f"{settings.slide_min} minutes",
        by="route",
        apply=settings.top,
        schema=SCHEMA,
        values=["fare"],
        late="1 minute",
        allocation=settings.allocation,
        identity=["id"],
    )


def read(spark: SparkSession, settings: Settings) -> DataFrame:
    """Return the stream of rides: arrivals from the clock, contents by their number."""
    burst_source.register(spark)
    rows = load(settings.choice).fare.size
    options = {"rate": str(settings.rate), "duration": f"{rows / settings.rate:.6f}"}
    clock = spark.readStream.format("spillway-burst").options(**options).load()
    return clock.mapInArrow(Reader(settings.choice), READ)


@dataclass(frozen=True, slots=True)
class Reader:
    """Puts the ride of its number in the place of every row."""

    choice: Choice

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read the rides of a task."""
        rides = load(self.choice)
        for batch in batches:
            ids = batch.column("id").to_numpy()
            ids = ids[ids < rides.fare.size]
            pickup_us = np.floor(rides.pickup_s[ids] * 1e6).astype(np.int64)
            columns = (ids, pickup_us, rides.route[ids], rides.fare[ids])
            arrays = [pa.array(c, field.type) for c, field in zip(columns, _ARROW, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=_ARROW)


def run(
    spark: SparkSession,
    settings: Settings,
    folder: Path,
    *,
    on_window: Callable[[list[Row]], None],
) -> None:
    """Run until all rides have come and gone; every finished window is told, earliest first."""
    guard = sw.Guard(
        "taxi routes",
        control=sw.FixedRate(1.0 - settings.shed),
        state=folder / "checkpoint" / "spillway",
    )

    def tell(batch: DataFrame, batch_id: int) -> None:
        for window in _windows(batch.collect()):
            on_window(window)

    writer = first_routes(spark, settings, guard).writeStream.foreachBatch(tell)
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
    try:
        _wait(query, load(settings.choice).fare.size)
    finally:
        query.stop()


def _windows(rows: list[Row]) -> list[list[Row]]:
    """Sort the results by window and rank."""
    windows: dict[Any, list[Row]] = {}
    for row in sorted(rows, key=lambda row: (row["window"]["start"], row["rank"])):
        windows.setdefault(row["window"]["start"], []).append(row)
    return list(windows.values())


def _wait(query: StreamingQuery, rows: int) -> None:
    """Wait until the last ride has been read and the windows it ended are told."""
    pause = threading.Event()
    while query.isActive and _rows_read(query) < rows:
        pause.wait(_POLL_S)
    query.processAllAvailable()  # a failed query raises its error here


def _rows_read(query: StreamingQuery) -> int:
    report: Any = query.lastProgress
    end = json.loads(report.sources[0].endOffset or "null") if report is not None else None
    return int(end["row"]) if end is not None else 0
