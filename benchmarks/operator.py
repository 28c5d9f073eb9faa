"""A guarded operator against the same function in plain `mapInArrow`: row, pandas, admission."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, Observation

from benchmarks.measure import Bound, Figure, differences, interleaved, ratios, seconds
from benchmarks.stage import Stage, to_noop
from spillway.cost.heavy import HeavySketch
from spillway.cost.items import item_of
from spillway.shedders.admission import Admission
from spillway.spark.operator import Operator
from spillway.state.memory import Memory
from spillway.values import CostState, LoopState

SCHEMA = "id bigint, made double"
ARROW = pa.schema([("id", pa.int64()), ("made", pa.float64())])
COST_S = 50e-6
BOUND = Bound(bound=1.05)
CORES = 2
FEW, MANY = 10_000, 100_000
KEYS = 1000
REPETITIONS = 11

Batches = Iterator[pa.RecordBatch]
Task = Callable[[Batches], Batches]


def run(stage: Stage) -> list[Figure]:
    """Compare whole jobs on two cores, interleaved; then the time per row as rows grow."""
    return [*_rows(stage), *_frames(stage), *_growth(stage)]


def _rows(stage: Stage) -> list[Figure]:
    """Time a function of 50 µs a row, with what is measured of it."""
    rows, work = stage.size(MANY, 20_000), busy(_size(busy))
    ways = {
        "plain": lambda: _job_s(stage, rows, plain_rows(work)),
        "key": lambda: _guarded_s(stage, rows, fn=work, key="key"),
        "arrived": lambda: _guarded_s(stage, rows, fn=work, key="key", arrived="at"),
        "admit": lambda: _guarded_s(
            stage, rows, fn=work, key="key", arrived="at", admit=Admission(limit_ns=1 << 60)
        ),
    }
    taken = interleaved(ways, repetitions=stage.size(REPETITIONS, 3), tick=stage.tick)
    said = {
        "key": "timed and sketched by key",
        "arrived": "with latencies too",
        "admit": "with admission row by row too",
    }
    return [
        _figure(f"row operator of 50 µs, {text}", taken[name], taken["plain"], BOUND)
        for name, text in said.items()
    ]


def _frames(stage: Stage) -> list[Figure]:
    """Time functions of whole frames: cheap by the row, and as dear as the row operator.

    Those of 50 µs know what keys cost, as all batches of a stream but its first do; one does not.
    """
    few, many = stage.size(MANY, 20_000), stage.size(1_000_000, 200_000)
    loop, known = by_row(looping(_size(looping))), learnt(stage.new_folder())
    figures = []
    for what, fn, rows, state, bound in (
        ("vectorised pandas operator of 1 µs", vectorised, many, None, None),
        ("pandas operator of 50 µs", by_row(busy(_size(busy))), few, known, BOUND),
        ("pandas operator of 50 µs that loops in Python", loop, few, known, BOUND),
        ("the same before costs are known, all in slices", loop, few, None, BOUND),
    ):
        ways = {
            "plain": lambda fn=fn, rows=rows: _job_s(stage, rows, plain_frames(fn)),
            "guarded": lambda fn=fn, rows=rows, state=state: _guarded_s(
                stage, rows, fn=fn, key="key", takes="pandas", state=state
            ),
        }
        taken = interleaved(ways, repetitions=stage.size(REPETITIONS, 3), tick=stage.tick)
        figures.append(_figure(what, taken["guarded"], taken["plain"], bound))
    return figures


def learnt(folder: Path) -> Path:
    """Return a guard's folder with what 100 rows of each of the 1,000 keys took."""
    items, costs = np.array([item_of(key) for key in range(KEYS)]).repeat(100), HeavySketch()
    costs.update(items, np.full(items.size, round(COST_S * 1e9)))
    Memory(folder=folder).save(LoopState(cost=CostState(costs=costs.to_bytes())))
    return folder


def _growth(stage: Stage) -> list[Figure]:
    """Return what the guard adds to a row, from jobs that differ in nothing but their rows."""
    ways = {
        f"{name} {rows}": (lambda rows=rows, way=way: way(rows))
        for rows in (FEW, MANY)
        for name, way in (
            ("plain", lambda rows: _job_s(stage, rows, plain_rows(cheap))),
            ("guarded", lambda rows: _guarded_s(stage, rows, fn=cheap, key="key")),
        )
    }
    taken = interleaved(ways, repetitions=stage.size(REPETITIONS, 3), tick=stage.tick)
    row_us = {
        name: [
            more * CORES * 1e6 / (MANY - FEW)
            for more in differences(taken[f"{name} {MANY}"], taken[f"{name} {FEW}"])
        ]
        for name in ("plain", "guarded")
    }
    return [
        Figure(
            benchmark="operator",
            what=f"time that the guard adds to a row, {FEW:,} to {MANY:,} rows",
            rival="plain mapInArrow",
            unit="µs",
            values=differences(row_us["guarded"], row_us["plain"]),
        )
    ]


def _figure(what: str, guarded: list[float], plain: list[float], bound: Bound | None) -> Figure:
    return Figure(
        benchmark="operator",
        what=what,
        rival="plain mapInArrow",
        unit="×",
        values=ratios(guarded, plain),
        bound=bound,
    )


def _job_s(stage: Stage, rows: int, task: Task) -> float:
    built = _source(stage, rows).mapInArrow(task, SCHEMA)  # a stream is built once
    return seconds(lambda: to_noop(built))


def _guarded_s(stage: Stage, rows: int, **options: Any) -> float:
    operator = Operator(schema=SCHEMA, **options)
    built = operator.attach(_source(stage, rows), Observation(f"bench-{rows}"))
    return seconds(lambda: to_noop(built))


def _source(stage: Stage, rows: int) -> DataFrame:
    """Rows with keys and a number to work on."""
    return stage.spark.range(0, rows, 1, CORES).selectExpr(
        "id", f"pmod(xxhash64(id), {KEYS}) AS key", "rand(1) AS number", "now() AS at"
    )


def plain_rows(fn: Callable[[dict[str, Any]], dict[str, Any]]) -> Task:
    """Return the loop that anyone would write."""

    def task(batches: Batches) -> Batches:
        for batch in batches:
            made = [fn(row) for row in batch.to_pylist()]
            yield pa.RecordBatch.from_pylist(made, schema=ARROW)

    return task


def plain_frames(fn: Callable[[pd.DataFrame], pd.DataFrame]) -> Task:
    def task(batches: Batches) -> Batches:
        for batch in batches:
            yield pa.RecordBatch.from_pandas(fn(batch.to_pandas()), schema=ARROW)

    return task


def busy(size: int) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return a function that digests so many bytes: fixed work, whoever calls it."""
    text = bytes(size)

    def work(row: dict[str, Any]) -> dict[str, Any]:
        digest = sha256(text)
        digest.update(str(row["number"]).encode())
        return {"id": row["id"], "made": float(digest.digest()[0])}

    return work


def looping(turns: int) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return a function that loops in Python; its time depends on how many rows it gets at once."""

    def work(row: dict[str, Any]) -> dict[str, Any]:
        number = row["number"]
        for _ in range(turns):
            number = number * 0.5 + 1.0
        return {"id": row["id"], "made": number}

    return work


def cheap(row: dict[str, Any]) -> dict[str, Any]:
    return {"id": row["id"], "made": row["number"]}


def by_row(
    fn: Callable[[dict[str, Any]], dict[str, Any]],
) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """Return the row operator for frames, as `apply` would run it."""

    def work(frame: pd.DataFrame) -> pd.DataFrame:
        pairs = zip(frame["id"].tolist(), frame["number"].tolist(), strict=True)
        made = [fn({"id": id_, "number": number})["made"] for id_, number in pairs]
        return pd.DataFrame({"id": frame["id"], "made": made})

    return work


def vectorised(frame: pd.DataFrame) -> pd.DataFrame:
    made = frame["number"].to_numpy()
    for _ in range(100):
        made = np.sin(made) + 1.0
    return pd.DataFrame({"id": frame["id"], "made": made})


def _size(make: Callable[[int], Callable[[dict[str, Any]], object]]) -> int:
    """Return how many bytes or turns take 50 µs, by the median of some."""
    size, work = 20_000, make(20_000)
    row = {"id": 1, "number": 0.5}
    taken = []
    for _ in range(200):
        begin = time.perf_counter()
        work(row)
        taken.append(time.perf_counter() - begin)
    return max(round(size * COST_S / median(taken)), 1)
