"""The guarded job: tweets arrive at a rate, the guard cuts them, the operator enriches the rest."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

import spillway as sw
from apps.tweet_enrichment.enrich import SCHEMA, Enrich
from apps.tweet_enrichment.tweets import Tweet, load, name_of
from spillway.spark import burst_source
from spillway.workload.rate import parse_rate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

READ = (
    "id bigint, author string, text string, mentions array<string>, media int, politicians int, "
    "others int, kinds string, arrived timestamp"
)
_POLL_S = 1
TWEETS = 20_000  # so many are loaded, once by every worker; then they come again


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What to run: tweets per second for so many seconds, and what the guard is to hold.

    `place` is where rows are given up: at the gate, in the operator, or both. `spread` is how they
    get to several operators side by side: each as much work, or each as many tweets.
    """

    rate: str
    seconds: float
    latency: sw.Latency
    aim: Literal["faithful", "fewest", "unbiased"] = "fewest"
    place: Literal["gate", "operator", "both"] = "gate"
    work: Literal["busy", "waiting"] = "busy"
    data: str | None = None
    seed: int = 1
    instances: int = 1
    spread: Literal["work", "tweets"] = "work"

    @property
    def rows_total(self) -> int:
        """How many tweets come in all."""
        return parse_rate(self.rate, self.seconds).rows_total


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One finished batch, as the books have it."""

    batch_id: int
    rows_in: int
    rows_kept: int
    latency_s: float | None
    work_s: float
    duration_s: float


def enriched(spark: SparkSession, settings: Settings, guard: sw.Guard) -> DataFrame:
    """Return the whole job as a stream."""
    tweets = read(spark, settings)
    if settings.place != "operator":
        tweets = guard.protect(tweets, arrived="arrived", identity=["id"])
    return guard.map(
        spread(tweets, settings, guard),
        Enrich(work=settings.work),
        SCHEMA,
        key="kinds",
        arrived="arrived",
        admit=None if settings.place == "gate" else settings.latency,
    )


def spread(tweets: DataFrame, settings: Settings, guard: sw.Guard) -> DataFrame:
    """Spread the tweets over the operators: by what they cost, or dealt out one by one."""
    if settings.instances == 1:
        return tweets
    if settings.spread == "tweets":
        return tweets.repartition(settings.instances)
    return guard.balance(tweets, instances=settings.instances, key="kinds", identity=["id"])


def read(spark: SparkSession, settings: Settings) -> DataFrame:
    """Return the stream of tweets: arrivals from the clock, contents by their number."""
    burst_source.register(spark)
    options = {"rate": settings.rate, "duration": f"{settings.seconds:g}"}
    clock = spark.readStream.format("spillway-burst").options(**options, partitions="1").load()
    return clock.mapInArrow(Reader(settings.data, TWEETS, settings.seed), READ)


@dataclass(frozen=True, slots=True)
class Reader:
    """Puts the tweet of its number in the place of every row."""

    data: str | None
    tweets: int
    seed: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read the tweets of a task."""
        tweets = load(self.data, self.tweets, self.seed)
        for batch in batches:
            numbers = batch.column("id").to_pylist()
            found = [tweets.tweets[number % len(tweets.tweets)] for number in numbers]
            kinds = [tweets.kinds(tweet) for tweet in found]
            yield _arrow(batch, found, kinds)


def _arrow(
    batch: pa.RecordBatch, tweets: list[Tweet], kinds: list[tuple[int, int, int]]
) -> pa.RecordBatch:
    counts = [pa.array([each[kind] for each in kinds], pa.int32()) for kind in range(3)]
    return pa.RecordBatch.from_arrays(
        [
            batch.column("id"),
            pa.array([tweet.author for tweet in tweets], pa.string()),
            pa.array([tweet.text for tweet in tweets], pa.string()),
            pa.array([list(tweet.mentions) for tweet in tweets], pa.list_(pa.string())),
            *counts,
            pa.array([name_of(each) for each in kinds], pa.string()),
            batch.column("arrived"),
        ],
        names=[column.split()[0] for column in READ.split(", ")],
    )


def guard_of(settings: Settings, folder: Path) -> sw.Guard:
    """Return the guard of the job; its books stand in the query's checkpoint."""
    return sw.Guard(
        "tweet enrichment",
        objective=settings.latency,
        shed=sw.LoadAware(key="kinds", aim=settings.aim),
        state=folder / "checkpoint" / "spillway",
    )


def warm_up(spark: SparkSession, settings: Settings, folder: Path) -> None:
    """Let Spark compile and start its workers before tweets are waited for."""
    run(spark, replace(settings, rate="20", seconds=2.0), folder)


def run(
    spark: SparkSession,
    settings: Settings,
    folder: Path,
    *,
    out: Path | None = None,
    on_batch: Callable[[Line], None] = lambda line: None,
) -> list[Line]:
    """Run until all tweets have come and gone; every finished batch is told."""
    guard = guard_of(settings, folder)
    writer = enriched(spark, settings, guard).writeStream
    sink = (
        writer.format("noop") if out is None else writer.format("parquet").option("path", str(out))
    )
    query = sink.option("checkpointLocation", str(folder / "checkpoint")).start()
    told: list[Line] = []
    try:
        while not _over(query, settings):
            _tell(guard, told, on_batch)
            query.awaitTermination(_POLL_S)
        _last_batches(guard, told, on_batch, query, settings.rows_total)
    finally:
        query.stop()
    return told


def _over(query: StreamingQuery, settings: Settings) -> bool:
    """Say whether the last row has been read; a failed query raises its error."""
    report: Any = query.lastProgress
    end = json.loads(report.sources[0].endOffset or "null") if report is not None else None
    return end is not None and end["row"] >= settings.rows_total


def _last_batches(
    guard: sw.Guard,
    told: list[Line],
    on_batch: Callable[[Line], None],
    query: StreamingQuery,
    rows: int,
) -> None:
    """Tell the rest: the books are written a moment after a batch is done."""
    deadline = time.monotonic() + 5.0
    while sum(line.rows_in for line in told) < rows and time.monotonic() < deadline:
        _tell(guard, told, on_batch)
        query.awaitTermination(_POLL_S)


def _tell(guard: sw.Guard, told: list[Line], on_batch: Callable[[Line], None]) -> None:
    """Tell the batches that have come into the books since the last look."""
    last = told[-1].batch_id if told else -1
    for entry in guard.ledger().entries():
        if entry.batch_id > last and entry.seen.rows_in:
            told.append(_line(entry.seen))
            on_batch(told[-1])


def _line(seen: sw.Observation) -> Line:
    return Line(
        batch_id=seen.batch_id,
        rows_in=seen.rows_in,
        rows_kept=seen.rows_kept,
        latency_s=seen.latency_s_mean,
        work_s=seen.work_s,
        duration_s=seen.duration_s,
    )
