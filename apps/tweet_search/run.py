"""The guarded job: tweets arrive at a rate, the guard cuts work or rows, the found are ranked."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import spillway as sw
from apps.tweet_search.board import Board, Line, Report
from spillway.degrade.subtask import Subtasks
from spillway.studies.cs_search import (
    TWEETS,
    WORDS,
    Profiled,
    await_books,
    degraded,
    open_tweets,
    search_subtasks,
    whole,
)
from spillway.workload.rate import parse_rate
from spillway.workload.search_files import Source
from spillway.workload.search_window import Missing, empty

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

Shed = Literal["frontier", "uniform", "semantic", "none"]

_SHEDDERS: dict[Shed, sw.Degrade | sw.Semantic | sw.Uniform] = {
    "frontier": sw.Degrade(),  # and by chance, where the mandatory work alone is too much
    "uniform": sw.Uniform(),
    "semantic": sw.Semantic(utility=WORDS),
    "none": sw.Uniform(),  # nothing asks it
}
REPORT_S = 1.0
_POLL_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What is searched for, how fast tweets come, and what goes when that is too much.

    shed:     frontier (work first, then rows), uniform or semantic (rows), none (nothing).
    effort:   every subtask does its work so many times.
    complete: share of the rows that always runs complete, from which losses are measured.
    keep_s:   how long a tweet stays in the window; for ever if none.
    missing:  what a metric counts whose subtask was off: zero, the mean of the others, or that
              mean and the whole score scaled.
    """

    rate: str
    seconds: float
    latency: sw.Latency
    query: str = "Just in Time"
    shed: Shed = "frontier"
    effort: int = 10
    complete: float = 0.01
    keep_s: float | None = None
    missing: Missing = "scaled"
    data: str | None = None
    seed: int = 1
    instances: int = 1

    def __post_init__(self) -> None:
        """Reject what could not run."""
        search_subtasks(self.query, effort=self.effort)
        empty(keep_s=self.keep_s)
        if not 0 <= self.complete < 1:
            raise ValueError(f"complete must be in [0, 1), got {self.complete}")

    @property
    def rows_total(self) -> int:
        """How many tweets come in all."""
        return parse_rate(self.rate, self.seconds).rows_total

    @property
    def source(self) -> Source:
        """The tweets that come."""
        return Source(data=self.data, tweets=TWEETS, seed=self.seed)

    @property
    def subtasks(self) -> Subtasks:
        """The subtasks of this search."""
        return search_subtasks(self.query, effort=self.effort)


def searched(
    spark: SparkSession, settings: Settings, guard: sw.Guard, profiled: Profiled | None
) -> DataFrame:
    """Return the whole job as a stream."""
    tweets = open_tweets(
        spark,
        settings.source,
        rate=settings.rate,
        seconds=settings.seconds,
        instances=settings.instances,
    )
    if settings.shed != "frontier":
        return whole(tweets, guard, settings.subtasks, gate=settings.shed != "none")
    if profiled is None:
        raise ValueError("profiled must be given to shed by the frontier, got None")
    return degraded(
        tweets,
        guard,
        settings.subtasks,
        profiled,
        effort=settings.effort,
        share=settings.complete,
    )


def guard_of(settings: Settings, folder: Path) -> sw.Guard:
    """Return the guard of the job; its books stand in the query's checkpoint."""
    return sw.Guard(
        "tweet search",
        objective=settings.latency,
        shed=_SHEDDERS[settings.shed],
        state=folder / "checkpoint" / "spillway",
    )


def warm_up(
    spark: SparkSession, settings: Settings, folder: Path, profiled: Profiled | None = None
) -> None:
    """Let Spark compile and start its workers before tweets are waited for."""
    run(spark, replace(settings, rate="100", seconds=2.0), folder, profiled=profiled)


def run(
    spark: SparkSession,
    settings: Settings,
    folder: Path,
    *,
    profiled: Profiled | None = None,
    on_report: Callable[[Report], None] = lambda report: None,
) -> Report:
    """Run until all tweets have come and gone; the window is reported every second."""
    guard = guard_of(settings, folder)
    board = Board(
        subtasks=settings.subtasks, window=empty(keep_s=settings.keep_s, missing=settings.missing)
    )

    def take(batch: DataFrame, batch_id: int) -> None:
        board.take(batch_id, batch.collect())

    writer = searched(spark, settings, guard, profiled).writeStream.foreachBatch(take)
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
    began = time.monotonic()

    def reported() -> Report:
        return _report(guard, board, time.monotonic() - began)

    try:
        _wait(query, settings.rows_total, lambda: on_report(reported()))
        await_books(guard)
    finally:
        query.stop()
    last = reported()
    on_report(last)
    return last


def _wait(query: StreamingQuery, rows: int, tell: Callable[[], None]) -> None:
    """Wait until the last tweet has been searched, and tell every second."""
    pause, due = threading.Event(), time.monotonic() + REPORT_S
    while query.isActive and _rows_read(query) < rows:
        pause.wait(_POLL_S)
        if time.monotonic() >= due:
            tell()
            due += REPORT_S
    query.processAllAvailable()  # a failed query raises its error here


def _rows_read(query: StreamingQuery) -> int:
    report: Any = query.lastProgress
    end = json.loads(report.sources[0].endOffset or "null") if report is not None else None
    return int(end["row"]) if end is not None else 0


def _report(guard: sw.Guard, board: Board, second: float) -> Report:
    entries = guard.ledger().entries()
    return Report(
        second=second,
        ranking=board.window.ranking(),
        lines=tuple(_line(entry.seen) for entry in entries if entry.seen.rows_in),
        found=tuple(board.found),
    )


def _line(seen: sw.Observation) -> Line:
    return Line(
        batch_id=seen.batch_id,
        rows_in=seen.rows_in,
        rows_kept=seen.rows_kept,
        latency_s=seen.latency_s_mean,
        work_s=seen.work_s,
        duration_s=seen.duration_s,
    )
