"""Admission row by row: the load shedder against the same in Python, and its growth with keys."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from datasketches import count_min_sketch
from numpy.typing import NDArray

from benchmarks.measure import Bound, Figure, interleaved, ratios
from benchmarks.sketch import cpu_seconds
from benchmarks.stage import Stage
from spillway.cost.items import items_of
from spillway.cost.sketch import CostSketch, SketchShape
from spillway.kernels import las
from spillway.shedders.admission import Admission, Aim, LoadShedder
from spillway.sim.workloads import MS, Recipe, Stream

FEW = 50_000
LIMIT_NS = 64 * MS // 10
RATE = Bound(bound=20, at_least=True)
GROWTH = Bound(bound=1.25)
DISTINCT = (1_000, 100_000, 10_000_000)


def run(stage: Stage) -> list[Figure]:
    """Offer the rows of the papers' stream, then rows of more and more keys."""
    rows = stage.size(4_000_000, 500_000)
    stream = Recipe(rows=rows).stream(1, 1).under_provisioned(0.25)
    uniforms = np.random.default_rng(1).random(rows)
    ways: dict[str, Callable[[], float]] = {
        aim.name.lower(): (lambda aim=aim: rows / _offer_s(stream, aim, uniforms) / 1e6)
        for aim in Aim
    }
    ways["loop"] = lambda: FEW / cpu_seconds(lambda: _loop(stream)) / 1e6
    taken = interleaved(ways, repetitions=stage.size(7, 3), tick=stage.tick)
    return [
        Figure(
            benchmark="admission",
            what="admit or refuse a row: estimate, CHECK, update",
            rival="a Python loop over datasketches' count_min_sketch",
            unit="×",
            values=ratios(taken["faithful"], taken["loop"]),
            bound=RATE,
        ),
        *(
            Figure(
                benchmark="admission",
                what=f"admission, aim {aim.name.lower()}, one core",
                rival="none",
                unit="M rows/s",
                values=tuple(taken[aim.name.lower()]),
                bound=RATE if aim == Aim.FAITHFUL else None,
            )
            for aim in Aim
        ),
        *_growth(stage),
    ]


def _offer_s(stream: Stream, aim: Aim, uniforms: NDArray[np.float64]) -> float:
    shedder = _shedder(stream, aim)
    return cpu_seconds(lambda: shedder.offer(stream.keys, stream.arrivals_ns, uniforms=uniforms))


def _shedder(stream: Stream, aim: Aim = Aim.FAITHFUL) -> LoadShedder:
    """Return a shedder that has learnt from the first rows, with the paper's sketch."""
    shape = SketchShape()
    sketch = CostSketch(shape)
    sketch.update(stream.keys[:FEW], stream.costs_ns[:FEW])
    model = las.new_model(shape.rows, shape.columns)
    model.frequency[:], model.work_ns[:] = sketch.frequency, sketch.work_ns
    return LoadShedder(Admission(limit_ns=LIMIT_NS, aim=aim), model, shape.multipliers)


def _loop(stream: Stream) -> int:
    """Do the same in Python, with the library's sketches filled beforehand outside of the loop."""
    frequency, work = _filled
    busy, waited, admitted = 0.0, 0.0, 0
    rows = zip(stream.keys[:FEW].tolist(), stream.arrivals_ns[:FEW].tolist(), strict=True)
    for key, now in rows:
        wait = max(busy - now, 0.0)
        if waited + wait > LIMIT_NS * (admitted + 1):
            continue
        seen = frequency.get_estimate(key)
        waited, admitted = waited + wait, admitted + 1
        busy = max(busy, now) + (work.get_estimate(key) / seen if seen else LIMIT_NS)
    return admitted


def _fill() -> tuple[count_min_sketch, count_min_sketch]:
    stream = Recipe(rows=FEW).stream(1, 1)
    frequency, work = count_min_sketch(4, 54), count_min_sketch(4, 54)
    for key, cost in zip(stream.keys.tolist(), stream.costs_ns.tolist(), strict=True):
        frequency.update(key)
        work.update(key, cost)
    return frequency, work


_filled = _fill()


def _growth(stage: Stage) -> list[Figure]:
    """Time per row by the number of distinct keys."""
    rows = stage.size(4_000_000, 500_000)
    rng = np.random.default_rng(3)
    costs, ways = rng.integers(MS, 6 * MS, size=rows), {}
    for keys in DISTINCT:
        drawn = items_of(rng.integers(0, keys, size=rows))
        empty = Stream(keys=drawn, costs_ns=costs, arrivals_ns=np.zeros(rows, dtype=np.int64))
        stream = empty.under_provisioned(0.25)
        uniforms = np.zeros(rows)
        ways[str(keys)] = lambda s=stream, u=uniforms: _offer_s(s, Aim.FAITHFUL, u)
    taken = interleaved(ways, repetitions=stage.size(5, 3), tick=stage.tick)
    return [
        Figure(
            benchmark="admission",
            what=f"time per row with {keys:,} distinct keys",
            rival=f"with {DISTINCT[0]:,} distinct keys",
            unit="×",
            values=ratios(taken[str(keys)], taken[str(DISTINCT[0])]),
            bound=GROWTH,
        )
        for keys in DISTINCT[1:]
    ]
