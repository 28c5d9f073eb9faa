"""Runs the scenario through a query, with or without a guard, and notes what each batch did."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from spillway.demo.scenario import Scenario
from spillway.estimate.totals import Estimate
from spillway.guard import Guard
from spillway.spark import burst_source, estimators
from spillway.spark.listener import Report, ReportListener

if TYPE_CHECKING:
    import pyarrow as pa

_DONE = "processed"
_QUANTILES = [i / 50 for i in range(51)]
_POLL_S = 0.2
_STALL_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One batch of a run; times in seconds since the first arrival.

    `latencies_s` are 51 evenly spaced quantiles of its processed rows' latency, worst first.
    """

    batch_id: int
    start_s: float
    end_s: float
    rows_in: int
    rows_kept: int
    backlog_rows: int
    latencies_s: tuple[float, ...]
    latency_s_mean: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """All batches of one run, and its answers by name."""

    points: tuple[Point, ...]
    answers: dict[str, Estimate]


class DemoFailed(RuntimeError):
    """The demo could not be played to its end; the message says why."""


def play(
    spark: SparkSession,
    scenario: Scenario,
    folder: Path,
    *,
    guard: Guard | None,
    on_batch: Callable[[Point], None] = lambda point: None,
) -> Run:
    """Play the whole scenario, until every row has been processed or shed."""
    burst_source.register(spark)
    answers = _answers_query(spark, scenario, guard)
    notes = _Notes(scenario, guard, on_batch)
    spark.streams.addListener(notes)  # after the guard's own, which then hears of a batch first
    try:
        table = f"answers_{folder.name}"
        query = _start(answers, folder, table)
        try:
            _wait(query, notes, scenario)
        finally:
            query.stop()
        return Run(points=tuple(notes.points), answers=_answers(spark, table))
    finally:
        spark.streams.removeListener(notes)


def _answers_query(spark: SparkSession, scenario: Scenario, guard: Guard | None) -> DataFrame:
    stream = spark.readStream.format("spillway-burst").options(**scenario.options()).load()
    if guard is not None:
        stream = guard.protect(stream, arrived="arrived", identity=["id"])
    enriched = stream.mapInArrow(_enrich, stream.schema)
    return _aggregate(enriched.observe(_DONE, *_processed()), guarded=guard is not None)


def _start(answers: DataFrame, folder: Path, table: str) -> StreamingQuery:
    return (
        answers.writeStream.format("memory")
        .queryName(table)
        .outputMode("complete")
        .option("checkpointLocation", str(folder))
        .start()
    )


def _enrich(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Stand for an operator that asks a slow service about every row."""
    for batch in batches:
        time.sleep(sum(batch.column("work_us").to_pylist()) / 1e6)
        yield batch


def _processed() -> list[F.Column]:
    at_s = F.col("arrived").cast("double")
    quantiles = F.percentile_approx(at_s, F.array(*map(F.lit, _QUANTILES)), F.lit(1000))
    return [F.count(F.lit(1)).alias("rows"), F.avg(at_s).alias("mean"), quantiles.alias("at_s")]


def _aggregate(rows: DataFrame, *, guarded: bool) -> DataFrame:
    if guarded:
        return rows.agg(
            estimators.count(confidence=0.95).alias("count"),
            estimators.sum("value", confidence=0.95).alias("sum"),
            estimators.mean("value", confidence=0.95).alias("mean"),
        )
    exact = {"count": F.count(F.lit(1)), "sum": F.sum("value"), "mean": F.avg("value")}
    columns = [c.cast("double").alias(name) for name, c in exact.items()]
    aggregated = rows.agg(*columns)
    return aggregated.select(*(_exact(name) for name in exact))


def _exact(name: str) -> F.Column:
    return F.struct(*(F.col(name).alias(field) for field in ("value", "low", "high"))).alias(name)


def _answers(spark: SparkSession, table: str) -> dict[str, Estimate]:
    rows = spark.table(table).collect()
    return {name: Estimate(**rows[0][name].asDict()) for name in rows[0].asDict()} if rows else {}


def _wait(query: StreamingQuery, notes: _Notes, scenario: Scenario) -> None:
    """Wait until the last row has left; a query that fails or stalls ends the wait."""
    while not notes.finished.wait(_POLL_S):
        error = query.exception()
        if error is not None:
            raise DemoFailed(f"the demo's query failed: {str(error).splitlines()[0]}")
        if time.monotonic() - notes.heard_at > _STALL_S + scenario.duration_s:
            raise DemoFailed(f"the demo's query made no progress for {_STALL_S:g} s")


class _Notes(ReportListener):
    """Notes a point per batch and when the last row has been seen."""

    def __init__(
        self, scenario: Scenario, guard: Guard | None, on_batch: Callable[[Point], None]
    ) -> None:
        super().__init__(self._note)
        self.points: list[Point] = []
        self.finished = threading.Event()
        self.heard_at = time.monotonic()
        self._schedule = scenario.schedule
        self._metric = guard.metric if guard else _DONE
        self._on_batch = on_batch

    def _note(self, report: Report) -> None:
        gate, done = (report["observedMetrics"].get(name) for name in (self._metric, _DONE))
        if gate is None or done is None:
            return
        self.heard_at = time.monotonic()
        end = report["sources"][0]["endOffset"]
        point = self._point(report, end, gate, done)
        self.points.append(point)
        self._on_batch(point)
        if end["row"] >= self._schedule.rows_total:
            self.finished.set()

    def _point(
        self,
        report: Report,
        end: dict[str, int],
        gate: Report,
        done: Report,
    ) -> Point:
        epoch_s = end["epoch_us"] / 1e6
        start_s = datetime.fromisoformat(report["timestamp"]).timestamp() - epoch_s
        end_s = start_s + report["batchDuration"] / 1e3
        came = [rows for name, rows in gate.items() if name.startswith("rows_in")]
        return Point(
            batch_id=report["batchId"],
            start_s=start_s,
            end_s=end_s,
            rows_in=sum(came) if came else done["rows"],
            rows_kept=done["rows"],
            backlog_rows=max(self._schedule.rows_by(max(end_s, 0.0)) - end["row"], 0),
            latencies_s=tuple(end_s + epoch_s - at_s for at_s in done["at_s"] or ()),
            latency_s_mean=end_s + epoch_s - done["mean"] if done["rows"] else None,
        )
