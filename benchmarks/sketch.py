"""The cost sketches: rows per second, growth with the number of keys, merging, and the error."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from datasketches import count_min_sketch
from numpy.typing import NDArray

from benchmarks.measure import Bound, Figure, interleaved, ratios
from benchmarks.stage import Stage
from spillway.cost.heavy import HeavySketch
from spillway.cost.items import items_of
from spillway.cost.sketch import CostSketch, SketchShape
from spillway.sim.workloads import Recipe

DISTINCT = (1_000, 100_000, 10_000_000)
SKEWS = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0)
LOOP = "a Python loop over datasketches' count_min_sketch"
PAIR = "a pair of datasketches' count_min_sketch of the same size"
RATE = Bound(bound=20, at_least=True)
MERGED = 64
STREAMS_PER_VALUE = 4  # errors of so many streams are averaged: one alone may be 0

Ints = NDArray[np.int64]


def run(stage: Stage) -> list[Figure]:
    """Measure speed on one core, then accuracy on the papers' streams."""
    return [*_rates(stage), *_growth(stage), *_merging(stage), *_errors(stage), *_heavy(stage)]


def _rates(stage: Stage) -> list[Figure]:
    """Rows per second over Zipf 1.0, where many rows in a row meet the same cells."""
    rows = stage.size(4_000_000, 1_000_000)
    stream = Recipe(rows=rows).stream(0, 0)
    sketch, heavy, few = CostSketch(), HeavySketch(), 50_000
    ways: dict[str, Callable[[], object]] = {
        "update": lambda: sketch.update(stream.keys, stream.costs_ns),
        "estimate": lambda: sketch.estimate_ns(stream.keys),
        "update with the heavy part": lambda: heavy.update(stream.keys, stream.costs_ns),
        "estimate with the heavy part": lambda: heavy.estimate_ns(stream.keys),
    }
    timed = {name: _rate(act, rows) for name, act in ways.items()}
    timed["loop"] = _rate(lambda: _loop(stream.keys[:few], stream.costs_ns[:few]), few)
    taken = interleaved(timed, repetitions=stage.size(9, 3), tick=stage.tick)
    bounds = {"update": RATE, "estimate": RATE}
    return [
        Figure(
            benchmark="sketch",
            what="update F and W, 4 x 54",
            rival=LOOP,
            unit="×",
            values=ratios(taken["update"], taken["loop"]),
            bound=RATE,
        ),
        *(
            Figure(
                benchmark="sketch",
                what=f"{name}, 4 x 54, one core",
                rival="none",
                unit="M rows/s",
                values=tuple(taken[name]),
                bound=bounds.get(name),
            )
            for name in ways
        ),
    ]


def _rate(act: Callable[[], object], rows: int) -> Callable[[], float]:
    return lambda: rows / cpu_seconds(act) / 1e6


def cpu_seconds(act: Callable[[], object]) -> float:
    """Return how long this thread computes: a neighbour on the core is not the sketch's cost."""
    start = time.thread_time()
    act()
    return time.thread_time() - start


def _loop(keys: Ints, costs_ns: Ints) -> None:
    """Do the same with the library: two sketches, row by row from Python."""
    frequency, work = count_min_sketch(4, 54), count_min_sketch(4, 54)
    for key, cost in zip(keys.tolist(), costs_ns.tolist(), strict=True):
        frequency.update(key)
        work.update(key, cost)


def _growth(stage: Stage) -> list[Figure]:
    """Time per row by the number of distinct keys; memory is the same by construction."""
    rows = stage.size(10_000_000, 2_000_000)
    rng, sketch = np.random.default_rng(3), CostSketch()
    costs_ns = rng.integers(1, 10**6, size=rows)
    drawn = {keys: items_of(rng.integers(0, keys, size=rows)) for keys in DISTINCT}
    ways = {
        str(keys): (lambda items=items: cpu_seconds(lambda: sketch.update(items, costs_ns)))
        for keys, items in drawn.items()
    }
    taken = interleaved(ways, repetitions=stage.size(7, 3), tick=stage.tick)
    return [
        Figure(
            benchmark="sketch",
            what=f"time per row with {keys:,} distinct keys",
            rival=f"with {DISTINCT[0]:,} distinct keys",
            unit="×",
            values=ratios(taken[str(keys)], taken[str(DISTINCT[0])]),
            bound=Bound(bound=1.25),
        )
        for keys in DISTINCT[1:]
    ]


def _merging(stage: Stage) -> list[Figure]:
    """Merge the sketches of 64 tasks; the library merges its pairs, each side in its own calls."""
    streams = [Recipe(rows=4_096).stream(0, order) for order in range(MERGED)]
    ours = [_filled(CostSketch(), stream.keys, stream.costs_ns) for stream in streams]
    theirs = [_pair(stream.keys, stream.costs_ns) for stream in streams]

    def merge_ours() -> None:
        total = CostSketch()
        for sketch in ours:
            total.merge(sketch)

    def merge_theirs() -> None:
        total = count_min_sketch(4, 54, 0), count_min_sketch(4, 54, 0)
        for pair in theirs:
            for mine, other in zip(total, pair, strict=True):
                mine.merge(other)

    taken = interleaved(
        {
            "ours": lambda: cpu_seconds(lambda: _times(200, merge_ours)),
            "theirs": lambda: cpu_seconds(lambda: _times(200, merge_theirs)),
        },
        repetitions=stage.size(9, 3),
        tick=stage.tick,
    )
    per_merge_us = tuple(value / 200 / MERGED * 1e6 for value in taken["ours"])
    what = f"merge of {MERGED} sketches"
    return [
        Figure(
            benchmark="sketch",
            what=f"time of a {what}",
            rival=PAIR,
            unit="×",
            values=ratios(taken["ours"], taken["theirs"]),
        ),
        Figure(
            benchmark="sketch",
            what=f"{what}, each",
            rival="none",
            unit="µs",
            values=per_merge_us,
        ),
    ]


def _times(count: int, act: Callable[[], None]) -> None:
    for _ in range(count):
        act()


def _filled(sketch: Any, keys: Ints, costs_ns: Ints) -> Any:
    sketch.update(keys, costs_ns)
    return sketch


def _pair(keys: Ints, costs_ns: Ints, seed: int = 0) -> tuple[Any, Any]:
    """Count in the library's sketches; updates are linear, so each key comes once."""
    frequency, work = count_min_sketch(4, 54, seed), count_min_sketch(4, 54, seed)
    distinct, at = np.unique(keys, return_inverse=True)
    counts, sums = np.bincount(at), np.bincount(at, weights=costs_ns)
    for key, count, total in zip(distinct.tolist(), counts.tolist(), sums.tolist(), strict=True):
        frequency.update(key, count)
        work.update(key, total)
    return frequency, work


def _errors(stage: Stage) -> list[Figure]:
    """Compare the error of the estimates with the library's, at the same memory (4 x 54 x 2)."""
    figures: list[Figure] = []
    for zipf in SKEWS:
        stage.tick(f"errors at Zipf {zipf}")
        ours = _averaged(stage, lambda seed, zipf=zipf: _our_error(zipf, seed, CostSketch))
        theirs = _averaged(stage, lambda seed, zipf=zipf: _their_error(zipf, seed))
        figures += [
            _error_figure(f"weighted cost error, Zipf {zipf}", "exact costs", "%", ours),
            _error_figure(
                f"weighted cost error, Zipf {zipf}", PAIR, "×", list(ratios(ours, theirs))
            ),
        ]
    return figures


def _error_figure(what: str, rival: str, unit: str, values: list[float]) -> Figure:
    scale = 100.0 if unit == "%" else 1.0
    return Figure(
        benchmark="sketch",
        what=what,
        rival=rival,
        unit=unit,
        values=tuple(scale * value for value in values),
    )


def _averaged(stage: Stage, error: Callable[[int], float]) -> list[float]:
    count = stage.size(10, 3)
    seeds = np.arange(count * STREAMS_PER_VALUE).reshape(count, STREAMS_PER_VALUE)
    return [float(np.mean([error(int(seed)) for seed in group])) for group in seeds]


def _stream(zipf: float, seed: int) -> tuple[Ints, Ints, Ints, Ints]:
    """Return the items of all keys, their costs and counts, and the items of all rows."""
    recipe = Recipe(zipf=zipf)
    keys = recipe.draw_keys(seed)
    items = items_of(np.arange(recipe.keys))
    counts = np.bincount(keys, minlength=recipe.keys)
    return items, recipe.cost_by_key(seed), counts, keys


def _our_error(zipf: float, seed: int, make: Callable[[SketchShape], Any], **shape: int) -> float:
    items, costs, counts, keys = _stream(zipf, seed)
    sketch = make(SketchShape(**{"seed": seed, **shape}))
    sketch.update(items[keys], costs[keys])
    return _weighted_error(sketch.estimate_ns(items), costs, counts)


def _their_error(zipf: float, seed: int) -> float:
    items, costs, counts, keys = _stream(zipf, seed)
    frequency, work = _pair(items[keys], costs[keys], seed)
    seen = np.flatnonzero(counts)
    estimates = costs.astype(np.float64)
    for at in seen:
        item = int(items[at])
        estimates[at] = work.get_estimate(item) / frequency.get_estimate(item)
    return _weighted_error(estimates, costs, counts)


def _weighted_error(estimates: NDArray[np.float64], costs: Ints, counts: Ints) -> float:
    """Return Σ f |est - w| / Σ f w: by how much the estimate of a row's cost is off."""
    return float((counts * np.abs(estimates - costs)).sum() / (counts * costs).sum())


def _heavy(stage: Stage) -> list[Figure]:
    """Compare sketches with and without the exact part, and with one that may be as large."""
    table_columns = 1024 * 4 // (4 * 2)  # 1,024 places of 4 numbers, in cells of 2 x 4 rows
    stage.tick("errors with the heavy part")
    with_heavy = _averaged(stage, lambda seed: _our_error(1.0, seed, HeavySketch))
    rivals = {
        "the sketch alone": _averaged(stage, lambda seed: _our_error(1.0, seed, CostSketch)),
        f"a sketch of equal memory, 4 x {54 + table_columns}": _averaged(
            stage, lambda seed: _our_error(1.0, seed, CostSketch, columns=54 + table_columns)
        ),
    }
    return [
        Figure(
            benchmark="sketch",
            what="error without : with 1,024 heavy keys, 4 x 54, Zipf 1.0",
            rival=rival,
            unit="×",
            values=ratios(errors, with_heavy),
            bound=Bound(bound=3, at_least=True) if rival == "the sketch alone" else None,
        )
        for rival, errors in rivals.items()
    ]
