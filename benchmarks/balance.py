"""Cost-aware placement: what it costs itself, and what it saves behind a slow operator.

`python -m benchmarks.balance K ROWS REPETITIONS` is one measurement on a session of K slots: an
operator that waits needs a slot, but no core.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import cycle

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession

from benchmarks.measure import Bound, Figure, Tick, Way, differences, interleaved, ratios, seconds
from benchmarks.sketch import cpu_seconds
from benchmarks.stage import Stage, to_noop
from spillway.cost.heavy import HeavySketch
from spillway.cost.items import items_of
from spillway.cost.table import pack
from spillway.placement.greedy import Greedy, Order
from spillway.placement.line import Line
from spillway.spark.balance import Balance, costs_of, instances_of, line_of
from spillway.values import CostTable, PinnedPlan, Plan

KEYS, LEARNT = 4096, 20_000
WARMUPS = 4  # until every Python worker has loaded compiled code
FIXED_NS = 100e6  # what a micro-batch takes without its rows
ROBIN, STEALING = "repartition(k)", "repartition(4k)"
OURS = ("greedy", "longest", "table")
FASTER = Bound(bound=1.2, at_least=True)
OWN = Bound(bound=500)
NEVER_SLOWER = Bound(bound=0.98, at_least=True)
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def run(stage: Stage) -> list[Figure]:
    """Time the placement alone, then behind it an operator that computes or waits."""
    figures = [*_own_cost(stage, "narrow", 0), *_own_cost(stage, "200 characters wide", 200)]
    figures += [*_decision(stage), *_completion(stage, instances=5, over=1.1)]
    rows, repetitions = (
        stage.size(10, 10),
        stage.size(15, 3),
    )  # batches of chance, bounds close to 1
    taken = measured(stage.spark, 2, rows, repetitions, stage.tick, act="computes")
    figures += _speedups(taken, 2, rows, "computes")
    for k in (2, 5, 10) if not stage.quick else (5,):
        for each in (10, 50) if not stage.quick else (10,):
            stage.tick(f"{k} waiting instances, {each} rows each")
            figures += _speedups(_on_slots(k, each, repetitions), k, each, "waits")
    return figures


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows of a batch, and what an operator that has seen many like them knows."""

    keys: Ints
    costs_ns: Floats
    table: CostTable

    @classmethod
    def draw(cls, rows: int, seed: int, *, equal: bool = False) -> Rows:
        """Draw Zipf-1.0 keys that cost 1 to 64 ms, or 32 ms all."""
        rng = np.random.default_rng(seed)
        rank = 1.0 / np.arange(1, KEYS + 1)
        drawn = rng.choice(KEYS, size=LEARNT + rows, p=rank / rank.sum())
        cost_ns = np.full(KEYS, 32e6) if equal else rng.permutation(KEYS) % 64 * 1e6 + 1e6
        known = HeavySketch()
        known.update(items_of(drawn[:LEARNT]), cost_ns[drawn[:LEARNT]].astype(np.int64))
        keys = drawn[LEARNT:]
        return cls(keys=keys, costs_ns=cost_ns[keys], table=pack(known))

    def frame(self, spark: SparkSession) -> DataFrame:
        """Return the rows in two input partitions, in memory."""
        ids = np.arange(self.keys.size)
        table = pa.table({"id": ids, "key": self.keys, "cost_ns": self.costs_ns})
        df = spark.createDataFrame(table).repartition(2).cache()
        df.count()
        return df


def placed(
    df: DataFrame, way: str, k: int, table: CostTable | None, rows: int | None = None
) -> DataFrame:
    """Spread rows in one of the ways, by name; Spark's offset log tells a guard how many come."""
    if way == ROBIN:
        return df.repartition(k)
    if way == STEALING:
        return df.repartition(4 * k)
    balance = Balance(instances=k, key="key", identity=("id",), planner=None, way=way)  # type: ignore[arg-type]
    plan = Plan(rates=(1.0,), costs=table)
    pinned = PinnedPlan(batch_id=0, salt=7, plan=plan, rows_expected=rows)
    return balance.attach_batch(df, pinned)


def _own_cost(stage: Stage, what: str, padding: int) -> list[Figure]:
    """Time the shuffle alone: against Spark's own, and against one whose target is given."""
    k, rows = 10, stage.size(1_000_000, 300_000)
    df = stage.spark.range(0, rows, 1, 2).selectExpr(
        "id",
        f"id * 7919 % {KEYS} AS key",
        f"repeat('x', {padding}) AS text",
        f"int(id % {k}) AS at",
    )
    df = df.cache()
    df.count()
    table = Rows.draw(1, 1).table
    ways: dict[str, Way] = {
        name: (lambda name=name: seconds(lambda: to_noop(placed(df, name, k, table))))
        for name in (ROBIN, *OURS)
    }
    ways["given"] = lambda: seconds(lambda: to_noop(df.repartitionById(k, "at")))
    taken = interleaved(ways, repetitions=stage.size(7, 3), tick=stage.tick)
    df.unpersist()
    return [
        figure
        for way in OURS
        for figure in (
            _figure(
                f"time to spread rows, {what}: {way}", ROBIN, "×", ratios(taken[way], taken[ROBIN])
            ),
            _figure(
                f"placement's own time per row, {what}: {way}",
                "repartitionById by a column that is there",
                "ns",
                tuple(d / rows * 1e9 for d in differences(taken[way], taken["given"])),
            ),
        )
    ]


def _decision(stage: Stage) -> list[Figure]:
    """Time the decision alone, in this process: look the cost up, place the row."""
    drawn = Rows.draw(stage.size(1_000_000, 100_000), 1)
    items, costs = items_of(drawn.keys), costs_of(drawn.table)

    def decide_ns(order: Order) -> float:
        state = Greedy(instances=10, order=order).start()
        parts = np.array_split(items, max(items.size // 10_000, 1))  # as Arrow brings them
        taken_s = cpu_seconds(lambda: [instances_of(state, costs, part) for part in parts])
        return taken_s / items.size * 1e9

    ways: dict[str, Way] = {
        "greedy": lambda: decide_ns("arrival"),
        "longest": lambda: decide_ns("longest"),
    }
    taken = interleaved(ways, repetitions=stage.size(7, 3), tick=stage.tick)
    return [
        _figure(
            f"deciding where a row goes, k = 10, one core: {way}", "none", "ns", tuple(found), OWN
        )
        for way, found in taken.items()
    ]


def measured(
    spark: SparkSession, k: int, rows: int, repetitions: int, tick: Tick, *, act: str
) -> dict[str, dict[str, list[float]]]:
    """Time batches of so many rows per instance, unequal and equal ones, in all ways."""
    operator = {"waits": _wait, "computes": _compute}[act]

    def taken(*, equal: bool) -> dict[str, list[float]]:
        seeds = range(repetitions + WARMUPS)
        batches = [Rows.draw(k * rows, seed, equal=equal) for seed in seeds]
        ways = _ways(spark, k, operator, batches)
        return interleaved(ways, repetitions=repetitions, tick=tick, warmups=WARMUPS)

    return {"unequal": taken(equal=False), "equal": taken(equal=True)}


def _ways(
    spark: SparkSession, k: int, operator: Callable[..., object], batches: list[Rows]
) -> Mapping[str, Way]:
    """Let every way meet the same batches in the same order."""
    frames = [(batch.frame(spark), batch) for batch in batches]

    def way(name: str) -> Way:
        turns = cycle(frames)

        def once() -> float:
            df, batch = next(turns)

            def job() -> None:
                spread = placed(df, name, k, batch.table, batch.keys.size)
                to_noop(spread.mapInArrow(operator, "id bigint"))  # type: ignore[arg-type]

            return seconds(job)

        return once

    return {name: way(name) for name in (ROBIN, STEALING, *OURS)}


def _wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for cost_ns in batch["cost_ns"].to_pylist():
            time.sleep(cost_ns / 1e9)
        yield batch.select(["id"])


def _compute(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Compute by this thread's own clock: a busy neighbour makes it longer, not lighter."""
    for batch in batches:
        for cost_ns in batch["cost_ns"].to_pylist():
            end = time.thread_time_ns() + cost_ns
            while time.thread_time_ns() < end:
                pass
        yield batch.select(["id"])


def _on_slots(k: int, rows: int, repetitions: int) -> dict[str, dict[str, list[float]]]:
    """Measure in a session of its own with one slot for each instance."""
    command = [sys.executable, "-m", "benchmarks.balance", str(k), str(rows), str(repetitions)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, dict[str, list[float]]] = json.loads(done.stdout.splitlines()[-1])
    return found


def _speedups(
    taken: dict[str, dict[str, list[float]]], k: int, rows: int, act: str
) -> list[Figure]:
    return [
        _figure(
            f"batch time, {_described(costs)}, operator {act}, k = {k}, {rows} rows each: {way}",
            ROBIN,
            "× faster",
            ratios(times[ROBIN], times[way]),
            NEVER_SLOWER if way == "longest" else None,
        )
        for costs, times in taken.items()
        for way in (STEALING, *OURS)
    ]


def _described(costs: str) -> str:
    return "all rows 32 ms" if costs == "equal" else "Zipf 1.0, 1 to 64 ms"


def _completion(stage: Stage, *, instances: int, over: float) -> list[Figure]:
    """Virtual time: batches back to back, each of what came in while the last one ran."""
    seeds, rows = range(stage.size(7, 3)), stage.size(20_000, 5_000)
    taken: dict[str, list[float]] = {name: [] for name in (ROBIN, STEALING, *OURS)}
    for seed in seeds:
        drawn = Rows.draw(rows, seed)
        for name, means in taken.items():
            stage.tick(f"virtual time: {name}")
            means.append(_mean_completion_s(drawn, name, instances, over, seed))
    return [
        _figure(
            f"mean completion, virtual time, k = {instances}, {over:.0%} provisioned: {way}",
            ROBIN,
            "× faster",
            ratios(taken[ROBIN], taken[way]),
            FASTER if way in ("greedy", "longest") else None,
        )
        for way in (STEALING, *OURS)
    ]


def _mean_completion_s(drawn: Rows, way: str, k: int, over: float, seed: int) -> float:
    rng, laid = np.random.default_rng(seed), line_of(drawn.table, k)
    arrivals = np.arange(drawn.keys.size) * drawn.costs_ns.mean() / k * over
    now, first, waited = 0.0, 0, 0.0
    while first < arrivals.size:
        now = max(now, arrivals[first])
        last = int(np.searchsorted(arrivals, now, side="right"))
        part = slice(first, last)
        now += FIXED_NS + _longest_ns(drawn, part, way, k, laid, rng)
        waited, first = waited + (now - arrivals[part]).sum(), last
    return float(waited / arrivals.size / 1e9)


def _longest_ns(
    drawn: Rows, part: slice, way: str, k: int, laid: Line, rng: np.random.Generator
) -> float:
    """Return what the slowest instance has to do."""
    keys, costs_ns = drawn.keys[part], drawn.costs_ns[part]
    if way == STEALING:
        tasks = np.bincount(rng.permutation(keys.size) % (4 * k), weights=costs_ns, minlength=4 * k)
        taking = Greedy(instances=k).start()
        taking.place(tasks)
        return float(taking.totals_ns.max())
    if way == ROBIN:
        instances = rng.permutation(keys.size) % k
    elif way == "table":
        instances = laid.place(items_of(keys), rng.random(keys.size))
    else:
        state = Greedy(instances=k, order="longest" if way == "longest" else "arrival").start()
        instances = instances_of(state, costs_of(drawn.table), items_of(keys))
    return float(np.bincount(instances, weights=costs_ns, minlength=k).max())


def _figure(
    what: str, rival: str, unit: str, values: tuple[float, ...], bound: Bound | None = None
) -> Figure:
    return Figure(
        benchmark="balance", what=what, rival=rival, unit=unit, values=values, bound=bound
    )


if __name__ == "__main__":
    from spillway.spark.session import local_session

    slots, each, times = map(int, sys.argv[1:4])
    session = local_session("balance", cores=slots)
    session.sparkContext.setLogLevel("OFF")
    print(json.dumps(measured(session, slots, each, times, lambda _: None, act="waits")))
