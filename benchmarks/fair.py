"""The fair shedder: time for many batches of many queries, its growth, and a naive version."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.measure import Bound, Figure, interleaved, ratios
from benchmarks.sketch import cpu_seconds
from benchmarks.stage import Stage
from spillway.shedders.fair import Backlog, Fair
from spillway.shedders.water_filling import shares

FEW = (20_000, 1_000)
GROWTH = ((1_000, 10), (10_000, 100), (100_000, 1_000), (1_000_000, 1_000), (100_000, 10_000))
LARGE = (100_000, 1_000)
NAIVE = "algorithm 1 as written: all queries and all batches looked through at every step"


def run(stage: Stage) -> list[Figure]:
    """Shed half of a buffer on one core."""
    return [*_growth(stage), *_against_naive(stage), *_split(stage)]


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
