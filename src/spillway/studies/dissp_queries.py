"""Runs many guarded queries at once on a real Spark, and says what each kept, batch by batch.

All numbers come from the guards' books; the fair share's own records are not asked.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

import spillway as sw
from spillway.spark import burst_source
from spillway.studies import spark_run
from spillway.studies.spark_work import busy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

Floats = NDArray[np.float64]
Split = Literal["fair", "random", "alone", "none"]

SLOWEST = 25.0  # rows a second
RATES, COSTS = 100.0, 50.0  # the greatest over the least
HEAVIEST = 0.45  # no query needs more of the work than this: its rows go through one task
OBJECTIVE_S, TRIGGER_S, WINDOW_S = 10.0, 4.0, 30.0
CORES = 2
_COLD_S = 40.0  # so long queries are run, and forgotten, in a Spark that has just started


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Queries with so many rows a second, each of which takes so many microseconds."""

    rates: Floats
    costs_us: Floats

    @classmethod
    def draw(cls, queries: int, work_per_s: float, seed: int) -> Load:
        """Draw rates 1:100 and costs 1:50, dealt out at random, that need so much work."""
        rates = SLOWEST * np.geomspace(1.0, RATES, queries)
        for number in range(1_000):
            rng = np.random.default_rng((9, seed, number))
            costs = rng.permutation(np.geomspace(1.0, COSTS, queries))
            needs = rates * costs / (rates @ costs)
            if needs.max() <= max(HEAVIEST, 1.5 / queries):
                break
        return cls(rates=rates, costs_us=costs * 1e6 * work_per_s / float(rates @ costs))


@dataclass(frozen=True, slots=True, kw_only=True)
class Batches:
    """The batches of one query, oldest first; `latency_s` is NaN for one of which nothing stayed.

    `began_s` counts from the start of the measurement: what was before it is below 0.
    """

    began_s: Floats
    rows_in: Floats
    rows_kept: Floats
    latency_s: Floats

    def sic(self, from_s: float, to_s: float) -> float:
        """Return the share of the rows that was kept of batches that began in (from, to]."""
        inside = (self.began_s > from_s) & (self.began_s <= to_s)
        came = self.rows_in[inside].sum()
        return float(self.rows_kept[inside].sum() / came) if came else 1.0

    def rows_done(self, seconds: float, *, within_s: float = np.inf) -> float:
        """Return how many rows were kept in so many seconds, at the pace of whole batches.

        A batch's rows count evenly from its beginning to that of the next. What was running at the
        end is not in the books, so the pace is that up to the last beginning. `within_s` counts
        only batches whose rows had at most that latency on average.
        """
        if not self.began_s.size or self.began_s[-1] <= 0:
            return 0.0
        in_time = np.nan_to_num(self.latency_s) <= within_s
        done = np.cumsum(np.where(in_time, self.rows_kept, 0.0)[:-1])
        reached = np.concatenate([[0.0], done])
        measured = reached[-1] - np.interp(0.0, self.began_s, reached)
        return float(measured * seconds / self.began_s[-1])

    def mean_latency_s(self) -> float:
        """Return the mean latency of the rows that were measured, from arrival to end of batch."""
        rows = np.where((self.began_s > 0) & np.isfinite(self.latency_s), self.rows_kept, 0.0)
        total = float(np.nan_to_num(self.latency_s) @ rows)
        return total / float(rows.sum()) if rows.any() else float("nan")


def play(load: Load, split: Split, *, lead_s: float, seconds: float) -> list[Batches]:
    """Run the queries for so long, after a lead that is not measured."""
    with spark_run._folder() as folder, spark_run.interruptible():
        cold = spark_run._spark is None
        spark = spark_run._session(CORES)
        burst_source.register(spark)
        if cold:
            run(spark, load, split, folder / "cold", lead_s=0.0, seconds=_COLD_S)
        return run(spark, load, split, folder / "run", lead_s=lead_s, seconds=seconds)


def run(
    spark: SparkSession, load: Load, split: Split, folder: Path, *, lead_s: float, seconds: float
) -> list[Batches]:
    """Run the queries once in a folder of their own."""
    guards = [_guard(index, split, folder) for index in range(load.rates.size)]
    if split in ("fair", "random"):
        sw.FairShare(guards, state=folder / "fair", window=f"{WINDOW_S:g} s", split=split)
    running: list[StreamingQuery] = []
    try:
        for index, guard in enumerate(guards):
            running.append(_start(spark, guard, load, index, folder))
        begin_s = time.time() + lead_s
        _watch(running, lead_s + seconds)
    finally:
        for query in running:
            query.stop()
        for guard in guards:
            guard.live.leave(spark)  # who still listens would slow the next run down
    return [_batches(guard, begin_s) for guard in guards]


def _guard(index: int, split: Split, folder: Path) -> sw.Guard:
    objective = None if split == "none" else sw.Latency(average=f"{OBJECTIVE_S:g} s")
    checkpoint = folder / f"query-{index}"
    return sw.Guard(
        f"query {index}",
        objective=objective,
        control=sw.FixedRate(1.0) if objective is None else None,
        state=checkpoint / "spillway",
        checkpoint=checkpoint,
    )


def _start(
    spark: SparkSession, guard: sw.Guard, load: Load, index: int, folder: Path
) -> StreamingQuery:
    cost_us = max(round(float(load.costs_us[index])), 1)
    options = {
        "rate": f"{load.rates[index]:.6f}",
        "work_us": f"{cost_us}..{cost_us}",
        "partitions": str(max(2 * CORES // load.rates.size, 1)),
        "seed": str(index),
    }
    rows = spark.readStream.format("spillway-burst").options(**options).load()
    kept = guard.protect(rows, arrived="arrived", identity=["id"])
    done = guard.map(kept.withColumnRenamed("work_us", "cost_us"), busy, spark_run.OUT)
    return (
        done.writeStream.format("noop")
        .option("checkpointLocation", str(folder / f"query-{index}"))
        .trigger(processingTime=f"{TRIGGER_S:g} seconds")
        .start()
    )


def _watch(running: Sequence[StreamingQuery], seconds: float) -> None:
    """Wait; a query that fails raises."""
    deadline, pause = time.monotonic() + seconds, threading.Event()
    while (left_s := deadline - time.monotonic()) > 0:
        for query in running:
            error = query.exception()
            if error is not None:
                raise spark_run.failure(error)
        pause.wait(min(left_s, 1.0))


def _batches(guard: sw.Guard, begin_s: float) -> Batches:
    entries = guard.ledger().entries()
    latency_s = [entry.seen.latency_s_mean for entry in entries]
    return Batches(
        began_s=np.array([entry.started_at_s - begin_s for entry in entries]),
        rows_in=np.array([entry.seen.rows_in for entry in entries], dtype=np.float64),
        rows_kept=np.array([entry.seen.rows_kept for entry in entries], dtype=np.float64),
        latency_s=np.array([np.nan if each is None else each for each in latency_s]),
    )
