"""The fair shedder: time for many batches of many queries, its growth, and a naive version.

And late deserialisation: the same gate before and behind the parser of a stream.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import spillway as sw
from benchmarks import overhead
from benchmarks.measure import Bound, Figure, interleaved, ratios
from benchmarks.sketch import cpu_seconds
from benchmarks.stage import Stage, guarded, wait_for_batch
from spillway.shedders.fair import Backlog, Fair
from spillway.shedders.water_filling import shares

FEW = (20_000, 1_000)
GROWTH = ((1_000, 10), (10_000, 100), (100_000, 1_000), (1_000_000, 1_000), (100_000, 10_000))
LARGE = (100_000, 1_000)
KEPT = (0.5, 0.1)
NAIVE = "algorithm 1 as written: all queries and all batches looked through at every step"


def run(stage: Stage) -> list[Figure]:
    """Shed half of a buffer on one core; shed before and after parsing."""
    return [*_growth(stage), *_against_naive(stage), *_split(stage), *_late(stage)]


def backlog(batches: int, queries: int) -> tuple[Backlog, float]:
    """Draw batches of unequal size, and half of what they take."""
    rng = np.random.default_rng((batches, queries))
    query = rng.integers(0, queries, size=batches)
    rows = rng.integers(1, 200, size=batches).astype(np.float64)
    totals = np.bincount(query, weights=rows, minlength=queries)
    costs = rng.permutation(np.geomspace(1e-6, 5e-5, queries))
    waiting = Backlog(
        queries=query,
        sizes=rows * costs[query],
        sic=0.025 * rows / totals[query],
        projected=rng.random(queries) * 0.02,
    )
    return waiting, float(waiting.sizes.sum()) / 2


def _growth(stage: Stage) -> list[Figure]:
    ways: dict[str, Callable[[], float]] = {}
    for size in GROWTH:
        waiting, capacity = backlog(*size)
        ways[_words(size)] = _timed(waiting, capacity)
    taken = interleaved(ways, repetitions=stage.size(15, 3), tick=stage.tick)
    figures = [
        Figure(
            benchmark="fair",
            what=f"shed half of {_words(size)}, one core",
            rival="none",
            unit="ms",
            values=tuple(1e3 * value for value in taken[_words(size)]),
            bound=Bound(bound=100) if size == LARGE else None,
        )
        for size in GROWTH
    ]
    per_batch = [
        Figure(
            benchmark="fair",
            what=f"time per batch with {_words(size)}",
            rival=f"with {_words(GROWTH[0])}",
            unit="×",
            values=tuple(
                value / size[0] * GROWTH[0][0]
                for value in ratios(taken[_words(size)], taken[_words(GROWTH[0])])
            ),
        )
        for size in GROWTH[1:]
    ]
    return figures + per_batch


def _against_naive(stage: Stage) -> list[Figure]:
    waiting, capacity = backlog(*FEW)
    ways = {
        "ours": _timed(waiting, capacity),
        "naive": lambda: cpu_seconds(lambda: _naive(waiting, capacity)),
    }
    taken = interleaved(ways, repetitions=stage.size(5, 3), tick=stage.tick)
    return [
        Figure(
            benchmark="fair",
            what=f"shed half of {_words(FEW)}",
            rival=NAIVE,
            unit="× faster",
            values=ratios(taken["naive"], taken["ours"]),
            bound=Bound(bound=20, at_least=True),
        )
    ]


def _split(stage: Stage) -> list[Figure]:
    """Time the split of seconds over queries, which a coordinator does once in a batch."""
    rng = np.random.default_rng(1)
    figures = []
    for queries in (10, 1_000, 100_000):
        demands, weights = rng.random((2, queries)) + 0.01

        def way(demands: np.ndarray = demands, weights: np.ndarray = weights) -> float:
            capacity = demands.sum() / 2
            return 1e3 * cpu_seconds(lambda: shares(demands, capacity, weights))

        taken = interleaved({"split": way}, repetitions=stage.size(15, 3), tick=stage.tick)
        figures.append(
            Figure(
                benchmark="fair",
                what=f"split a node's time over {queries:,} queries (water-filling)",
                rival="none",
                unit="ms",
                values=tuple(taken["split"]),
            )
        )
    return figures


def _late(stage: Stage) -> list[Figure]:
    """Time micro-batches of JSON with the gate before the parser and behind it."""
    rows = stage.size(400_000, 100_000)
    ways: dict[str, Callable[[], float]] = {}
    for keep in KEPT:
        ways[f"before {keep}"] = lambda keep=keep: _batch_s(stage, keep, rows, early=True)
        ways[f"behind {keep}"] = lambda keep=keep: _batch_s(stage, keep, rows, early=False)
    taken = interleaved(ways, repetitions=stage.size(4, 3), tick=stage.tick)
    return [
        Figure(
            benchmark="fair",
            what=f"batch of {rows:,} rows of JSON, 300 bytes each, {keep:.0%} kept: gate first",
            rival="the same gate behind the parser",
            unit="× faster",
            values=ratios(taken[f"behind {keep}"], taken[f"before {keep}"]),
            bound=Bound(bound=1.2, at_least=True) if keep == min(KEPT) else None,
        )
        for keep in KEPT
    ]


def _batch_s(stage: Stage, keep: float, rows: int, *, early: bool) -> float:
    """Return what a micro-batch takes: the median of some, the first left out."""
    checkpoint = stage.new_folder()
    raw = overhead._kafka(stage.spark, rows, padding=250)
    with guarded(stage, checkpoint, control=sw.FixedRate(keep)) as guard:
        kept = guard.protect(raw if early else _parsed(raw), identity=["partition", "offset"])
        done = _parsed(kept) if early else kept
        totals = done.groupBy("event.key").agg(F.sum("event.value"), F.max(F.length("event.note")))
        writer = totals.writeStream.format("noop").outputMode("update")
        query = writer.option("checkpointLocation", str(checkpoint)).start()
        try:
            wait_for_batch(query, overhead.BATCHES)
            progress = [p for p in query.recentProgress if p["batchId"] > 0]
        finally:
            query.stop()
    return median(p["durationMs"]["triggerExecution"] for p in progress) / 1e3


def _parsed(raw: DataFrame) -> DataFrame:
    event = F.from_json(F.col("value").cast("string"), "key bigint, value double, note string")
    return raw.withColumn("event", event).drop("value")


def _timed(waiting: Backlog, capacity: float) -> Callable[[], float]:
    return lambda: cpu_seconds(lambda: Fair().keep(waiting, capacity))


def _naive(waiting: Backlog, capacity: float) -> list[float]:
    """Do it as the pseudo-code reads, in Python."""
    queries, sizes, sic = (x.tolist() for x in (waiting.queries, waiting.sizes, waiting.sic))
    level = waiting.projected.tolist()
    left: dict[int, set[int]] = {}
    for batch, query in enumerate(queries):
        left.setdefault(query, set()).add(batch)
    kept, spent = [0.0] * len(queries), 0.0
    while left and spent < capacity:
        query = min(left, key=lambda q: (level[q], q))
        batch = min(left[query], key=lambda b: (-sic[b], b))
        left[query].remove(batch)
        if not left[query]:
            del left[query]
        kept[batch] = min(1.0, (capacity - spent) / sizes[batch])
        spent += kept[batch] * sizes[batch]
        level[query] += kept[batch] * sic[batch]
    return kept


def _words(size: tuple[int, int]) -> str:
    return f"{size[0]:,} batches of {size[1]:,} queries"
