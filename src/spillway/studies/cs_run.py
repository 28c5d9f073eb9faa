"""Plays tweets at a rate through one load handler on a real Spark, and says what came of it.

Every tweet is searched for by the subtasks of `cs_search`, each of which repeats its work so often
that a core can just do all of them for `RATE` tweets a second: load 1. A calm prelude lets the
guard learn; only what arrives after it counts. Times are those of the clock at which a batch's
results were in hand, so that nothing of what is measured passes through what is tested.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import spillway as sw
from spillway.degrade import classifiers
from spillway.degrade.accuracy import Footrule
from spillway.studies import cs_search, spark_run
from spillway.studies.cs_claims import CS_A, CS_B, CS_C, CS_D, EMPTY, FRONTIER, LIMIT_S, LS_R, LS_S
from spillway.values import BatchAhead, LoopState
from spillway.workload.rate import Schedule, parse_rate
from spillway.workload.search_files import Source
from spillway.workload.search_window import Window, empty
from spillway.workload.search_work import METRICS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from spillway.state.ledger import Entry

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

QUERY = "Just in Time"
RATE = 2_000
CALM, PRELUDE_S = 0.3, 3.0
_SAMPLE = 4_000
_CORES = 2  # one for the operator, one for Spark
_COLD_TIMES = 3  # how often the warm-up is played in a new process
_POLL_S = 0.1
_STALL_S = 120.0
_OPTIONAL = cs_search.search_subtasks(QUERY).optional

SHED: dict[str, sw.Degrade | sw.Semantic | sw.Uniform] = {
    EMPTY: sw.Uniform(),  # nothing asks it
    LS_R: sw.Uniform(),
    LS_S: sw.Semantic(utility=cs_search.WORDS),
    CS_D: sw.Degrade(classifier=classifiers.duration),
    CS_A: sw.Degrade(classifier=classifiers.accuracy),
    CS_C: sw.Degrade(classifier=classifiers.cost),
    CS_B: sw.Degrade(classifier=classifiers.binary),
    FRONTIER: sw.Degrade(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """One run: a handler, so many times the work that a core can do, for so long."""

    handler: str
    load: float
    seconds: float
    source: Source

    @property
    def rate(self) -> str:
        """The prelude, and then the rate."""
        return f"steps:0={CALM * RATE:g},{PRELUDE_S:g}={self.load * RATE:g}"

    @property
    def span_s(self) -> float:
        """How long tweets come."""
        return PRELUDE_S + self.seconds

    @property
    def schedule(self) -> Schedule:
        """When they come."""
        return parse_rate(self.rate, self.span_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """The results of a batch, and the second at which they were in hand."""

    batch_id: int
    at_s: float
    ids: Ints
    metrics: Floats
    measured: Ints
    accuracy: Floats | None

    @classmethod
    def of(cls, batch: DataFrame, batch_id: int) -> Results:
        """Fetch them."""
        names = [
            name for name in ("id", "metrics", "measured", "_accuracy") if name in batch.columns
        ]
        table = batch.select(*names).toArrow().combine_chunks()
        metrics = table["metrics"].combine_chunks().flatten().to_numpy()
        return cls(
            batch_id=batch_id,
            at_s=time.time(),
            ids=table["id"].to_numpy(),
            metrics=metrics.reshape(table.num_rows, len(METRICS)),
            measured=table["measured"].to_numpy().astype(np.int64),
            accuracy=table["_accuracy"].to_numpy() if "_accuracy" in names else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What came of a run: of every batch its results, its rows and its line in the books.

    `ends` are the first rows after each batch, `epoch_s` the moment at which the first tweet could
    come.
    """

    play: Play
    results: list[Results]
    ends: dict[int, int]
    epoch_s: float
    entries: list[Entry] = field(default_factory=list)
    decided_s: float = 0.0

    def numbers(self) -> dict[str, list[float]]:
        """Return what a study keeps of it."""
        waited_s, ended_s = self._waits()
        rows, first_s = waited_s.size, PRELUDE_S
        whole, seen = self._windows()
        kept, early = self._books()
        late = [(one, one.ids >= self._first) for one in self.results]
        told = [one.accuracy[these] for one, these in late if one.accuracy is not None]
        found = np.concatenate([one.measured[these] for one, these in late])
        return {
            "latency_s": [float(waited_s.mean())],
            "latency_s_p95": [float(np.quantile(waited_s, 0.95))],
            "queue_rows": [float(waited_s.sum() / (ended_s - first_s))],
            "duration_s": [ended_s - first_s],
            "rows": [float(rows)],
            "kept": [kept if self.play.handler != EMPTY else float(rows)],
            "shed_early": [float(early)],
            "valid": [float(np.isin(seen.ids, whole.ids).sum())],
            "ideal": [float(len(whole))],
            "right": [accuracy(whole, seen)],
            "told": [float(np.concatenate(told).mean()) if told else 1.0],
            "decided_s": [self.decided_s],
            **dict(self._checkpoints(whole, seen)),
            **{f"on/{name}": [_on(found, bit)] for bit, name in enumerate(_OPTIONAL)},
        }

    @property
    def _first(self) -> int:
        """The first tweet after the prelude."""
        arrived_s = self.play.schedule.arrival_s(np.arange(self.play.schedule.rows_total))
        return int(np.searchsorted(arrived_s, PRELUDE_S, side="right"))

    def _waits(self) -> tuple[Floats, float]:
        """Return how long each tweet waited for the end of its batch, and when the last ended."""
        arrived_s = self.play.schedule.arrival_s(np.arange(self.play.schedule.rows_total))
        at_s, begin = np.full(arrived_s.size, np.nan), 0
        for one in self.results:
            at_s[begin : self.ends[one.batch_id]] = one.at_s - self.epoch_s
            begin = self.ends[one.batch_id]
        return (at_s - arrived_s)[self._first :], float(at_s[-1])

    def _windows(self) -> tuple[Window, Window]:
        """Return all that should have been found, and what was: each by the second it was there."""
        numbers = np.arange(self._first, self.play.schedule.rows_total)
        blank = empty(rows_max=max(numbers.size, 1))
        arrived_s = self.play.schedule.arrival_s(numbers)
        whole = cs_search.ideal(self.play.source, QUERY, numbers, arrived_s, blank)
        for one in self.results:
            late = one.ids >= self._first
            blank = blank.with_rows(
                one.ids[late].tolist(),
                [one.at_s - self.epoch_s] * int(late.sum()),
                one.metrics[late].tolist(),
                [None] * int(late.sum()),
            )
        return whole, blank

    def _checkpoints(self, whole: Window, seen: Window) -> Iterator[tuple[str, list[float]]]:
        """Compare the rankings every second: all that must be there by then, and what is."""
        seconds = np.arange(PRELUDE_S + LIMIT_S + 1.0, self.play.span_s + LIMIT_S + 0.5, 1.0)
        pairs = [self._due(whole, seen, second) for second in seconds.tolist()]
        yield "displaced", [1.0 - accuracy(due, there) for due, there in pairs]
        yield "there", [len(there) / max(len(due), 1) for due, there in pairs]

    def _due(self, whole: Window, seen: Window, second: float) -> tuple[Window, Window]:
        """Return what must be there at a second, and which of that is."""
        due = whole.only(whole.arrived_s <= second - LIMIT_S)
        return due, seen.only((seen.arrived_s <= second) & np.isin(seen.ids, due.ids))

    def _books(self) -> tuple[float, int]:
        """Return the rows that were kept, and how many went while optional work was still done."""
        kept, early, begin = 0.0, 0, 0
        for entry in self.entries:
            end = self.ends.get(entry.seen.batch_id, begin)
            late = max(end - max(begin, self._first), 0) / max(end - begin, 1)
            kept, begin = kept + late * entry.seen.rows_kept, end
            mix = entry.plan.plan.mix if entry.plan is not None else None
            if late and mix and (mix.fraction or len(mix.less.off) < len(_OPTIONAL)):
                early += entry.seen.rows_in - entry.seen.rows_kept
        return kept, early


def play(wanted: Play) -> Played:
    """Run it, after a warm-up if Spark has just started."""
    with spark_run._folder() as folder, spark_run.interruptible():
        cold = spark_run._spark is None
        spark = spark_run._session(_CORES)
        for turn in range(_COLD_TIMES if cold else 0):
            warm = Play(handler=FRONTIER, load=CALM, seconds=1.0, source=wanted.source)
            replay(spark, warm, folder / f"warm-{turn}")
        return replay(spark, wanted, folder / "run")


def replay(spark: SparkSession, wanted: Play, folder: Path) -> Played:
    """Play tweets once through a handler, in a folder that does not exist yet."""
    guard = sw.Guard(
        "tweet search",
        objective=sw.Latency(average=f"{LIMIT_S:g} s"),
        shed=SHED[wanted.handler],
        state=folder / "checkpoint" / "spillway",
    )
    results: list[Results] = []
    query = (
        _handled(spark, wanted, guard)
        .writeStream.foreachBatch(lambda batch, number: results.append(Results.of(batch, number)))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )
    try:
        _wait(query, wanted.schedule)
        reports = [json.loads(report.json) for report in query.recentProgress]
        cs_search.await_books(guard)
    finally:
        query.stop()
    ends = {report["batchId"]: spark_run._end(report) for report in reports}
    return Played(
        play=wanted,
        results=results,
        ends={batch: end["row"] for batch, end in ends.items()},
        epoch_s=max(end["epoch_us"] for end in ends.values()) / 1e6,
        entries=list(guard.ledger().entries()),
        decided_s=0.0 if wanted.handler == EMPTY else decision_s(guard),
    )


def _handled(spark: SparkSession, wanted: Play, guard: sw.Guard) -> DataFrame:
    """Search the tweets in the way of the handler."""
    tweets = cs_search.open_tweets(spark, wanted.source, rate=wanted.rate, seconds=wanted.span_s)
    profiled, effort = measured(wanted.source)
    subtasks = cs_search.search_subtasks(QUERY, effort=effort)
    if not isinstance(SHED[wanted.handler], sw.Degrade):
        return cs_search.whole(tweets, guard, subtasks, gate=wanted.handler != EMPTY)
    return cs_search.degraded(tweets, guard, subtasks, profiled, effort=effort)


@lru_cache(maxsize=2)
def measured(source: Source) -> tuple[cs_search.Profiled, int]:
    """Return the profile, and how often subtasks must repeat their work for load 1 at `RATE`."""
    profiled = cs_search.profile(cs_search.search_subtasks(QUERY), source.load()[:_SAMPLE])
    whole_s = sum(profiled.profile.duration_s.values())
    return profiled, max(round(1.0 / RATE / whole_s), 1)


def decision_s(guard: sw.Guard) -> float:
    """Return how long the guard takes to decide on a batch: the books, gone through once more."""
    state, loop, taken_s = LoopState(), guard.loop, []
    for entry in guard.ledger().entries():
        state = loop.learn(state, entry.seen)
        ahead = BatchAhead(batch_id=entry.seen.batch_id + 1, rows=float(entry.seen.rows_in))
        times_s = []
        for _ in range(5):
            began_s = time.perf_counter()
            loop.decide(state, ahead)
            times_s.append(time.perf_counter() - began_s)
        taken_s.append(min(times_s))
    return float(np.mean(taken_s)) if taken_s else 0.0


def _wait(query: StreamingQuery, schedule: Schedule) -> None:
    """Wait until the batch of the last tweet has ended; a query that fails or stalls raises."""
    rows, pause = schedule.rows_total, threading.Event()
    deadline = time.monotonic() + _STALL_S + 20 * schedule.duration_s
    while query.isActive and spark_run._rows_read(query) < rows:
        if time.monotonic() > deadline:
            raise RuntimeError(f"the query read {spark_run._rows_read(query)} of {rows} rows only")
        pause.wait(_POLL_S)
    query.processAllAvailable()  # a failed query raises its error here


def accuracy(whole: Window, seen: Window) -> float:
    """Return what is left of the order: 1 - F / F_max, by Spearman's footrule.

    Those that are missing share the places after the last one. In their ideal order, as `Footrule`
    puts them there, nothing at all would be a perfect ranking.
    """
    ideal, ranks = whole.ranking().by_id(), seen.ranking().by_id()
    shared = (len(ranks) + 1 + len(ideal)) / 2
    return Footrule().accuracy(ideal, {item: ranks.get(item, shared) for item in ideal})


def _on(measured: Ints, bit: int) -> float:
    """Return for which share of the found an optional subtask ran."""
    return float((measured >> bit & 1).mean()) if measured.size else 0.0
