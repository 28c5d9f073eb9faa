"""POSG's figures 11 and 12 on Spark: does placing rows by their cost finish them sooner?

The operator waits, as for a database, so that k instances work at once on any machine; Spark runs
with k cores. Streams, costs and changes are the paper's; rows come at a pace that the instances can
do 115 % of, the upper end of the paper's, since the engine takes its part of every batch. A last
figure has a real computation, on two cores. Completion is measured by the operator: from a row's
arrival to the end of its processing. "Cheapest first" is the usual placement, or round robin, with
the rows of every instance done in the order of what they cost; all others do them as they came.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import spillway as sw
from spillway.sim.workloads import MS, Recipe, Stream
from spillway.studies import spark_run
from spillway.studies.posg_on_spark_claims import (
    CHEAPEST,
    DEALT,
    GREEDY,
    LONGEST,
    MAIN,
    NAMES,
    ROUND_ROBIN,
    STEALING,
    TABLE,
    claims_11,
    claims_12,
    claims_cpu,
    label,
)
from spillway.studies.spark_work import Operator, Waiting, busy
from spillway.studies.study import Claim, Figure, Panel, Point, Results, Series, Study
from spillway.workload.tweets import draw_tweets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from spillway.spark.operator_order import Order

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BEFORE = (1.05, 1.025, 1.0, 0.975, 0.95)  # how much longer each instance takes
AFTER = (0.90, 0.95, 1.0, 1.05, 1.10)
_WINDOWS = 30
_TWEET_MS = 9.7
_INSTANCES = (1, 2, 5, 10)
_OTHER_WAYS = (5,)  # the instances for which the other ways of placement are played too
_PROVISION = 1.15
_KEYS = 128  # about as many rows of a key as in the paper's stream, which is 30 times as long


def paced(keys: Ints, costs_ns: Ints, instances: int) -> tuple[Stream, int]:
    """Let rows come as fast as the instances can keep up, after a prelude at half that pace."""
    gap_ns = _PROVISION * float(costs_ns.mean()) / instances
    arrivals = (np.arange(keys.size) * gap_ns).astype(np.int64)
    stream = Stream(keys=keys, costs_ns=costs_ns, arrivals_ns=arrivals)
    return spark_run.with_prelude(stream, gap_ns=2 * gap_ns)


def place(rows: DataFrame, folder: Path, *, name: str, k: int, work: Operator) -> DataFrame:
    """Place the rows on k instances in the way of this name, and let the operator do them."""
    guard = sw.Guard(
        "posg",
        objective=sw.Latency(average="1 h"),  # nothing is shed
        state=folder / "checkpoint" / "spillway",
    )
    placed = {
        ROUND_ROBIN: lambda: rows.repartition(k),
        DEALT: lambda: rows.repartition(k),
        STEALING: lambda: rows.repartition(4 * k),
        CHEAPEST: lambda: guard.balance(rows, instances=k, key="key", way="longest"),
        LONGEST: lambda: guard.balance(rows, instances=k, key="key", way="longest"),
        GREEDY: lambda: guard.balance(rows, instances=k, key="key", way="greedy"),
        TABLE: lambda: guard.balance(rows, instances=k, key="key", way="table", identity=["id"]),
    }[name]()
    seen = placed.selectExpr("*", "spark_partition_id() AS instance")
    order: Order = "cheapest" if name in (CHEAPEST, DEALT) else "arrival"
    done = guard.map(seen, work, spark_run.OUT, key="key", arrived="arrived", order=order)
    return done.select("id", "started_us", "ended_us")


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSeries:
    """Figure 11: the instances' speeds change half-way."""

    id: str = "11"
    title: str = "Completion times on Spark while the instances' speeds change, k = 5"
    runs: int = 1
    quick_runs: int = 1
    rows: int = 5_000
    quick_rows: int = 2_000
    instances: int = 5

    def points(self) -> Sequence[Point]:
        """Return a point for every way."""
        return [Point(name, {"rows": self.rows}) for name in NAMES]

    def quick_points(self) -> Sequence[Point]:
        """Return the same with fewer rows."""
        return [Point(name, {"rows": self.quick_rows}) for name in NAMES]

    def compute(self, point: Point, runs: range, seed: int) -> dict[str, list[float]]:
        """Play the stream."""
        rows = int(point.params["rows"])
        recipe = Recipe(rows=rows, keys=_KEYS, cost_ns_min=MS, cost_ns_max=64 * MS)
        made = recipe.stream(seed, seed)
        stream, first = paced(made.keys, made.costs_ns, self.instances)
        work = Waiting(before=BEFORE, after=AFTER, change=first + rows // 2)
        policy = partial(place, name=point.label, k=self.instances, work=work)
        played = _played(stream, policy, cores=self.instances, warm_rows=first)
        return played.numbers(first)

    def draw(self, results: Results) -> Figure:
        """Draw one line per way."""
        rows = results[ROUND_ROBIN]["completed_s"].size
        edges = np.linspace(0, rows, _WINDOWS + 1).astype(int)
        series = tuple(_over_rows(name, results[name]["completed_s"], edges) for name in NAMES)
        borders = (("speeds change", float(rows // 2)),)
        panel = Panel("completion time (s)", series, "rows", borders=borders)
        return Figure(self.id, self.title, (panel,))

    def claims(self, results: Results) -> list[Claim]:
        """Check that the change is got over."""
        return claims_11(results)


def _over_rows(name: str, completed_s: Floats, edges: Ints) -> Series:
    windows = np.split(completed_s, edges[1:-1])
    x = tuple(float(edge) for edge in edges[1:])
    return Series(name, x, tuple(float(window.mean()) for window in windows))


@dataclass(frozen=True, slots=True, kw_only=True)
class ByInstances:
    """Figure 12: tweets on 1 to 10 instances."""

    id: str = "12"
    title: str = "Completion and batch times of tweets on Spark, by the number of instances"
    runs: int = 1
    quick_runs: int = 1
    seconds: float = 30.0
    quick_seconds: float = 5.0

    def points(self) -> Sequence[Point]:
        """Return a point for every k and way."""
        return _points(_INSTANCES, self.seconds)

    def quick_points(self) -> Sequence[Point]:
        """Return a few of them, shorter."""
        return _points((1, 2, 5), self.quick_seconds)

    def compute(self, point: Point, runs: range, seed: int) -> dict[str, list[float]]:
        """Play the tweets."""
        k, seconds = int(point.params["instances"]), float(point.params["seconds"])
        way = str(point.params["way"])
        return _play_tweets(way, k=k, seconds=seconds, work=Waiting(), seed=seed)

    def draw(self, results: Results) -> Figure:
        """Draw both times over k."""
        panels = tuple(
            Panel(title, tuple(_over_k(name, results, key) for name in NAMES), "k")
            for title, key in (
                ("mean completion time (s)", "completed_s"),
                ("mean batch time (s)", "batch_s"),
            )
        )
        return Figure(self.id, self.title, panels)

    def claims(self, results: Results) -> list[Claim]:
        """Compare with round robin and with stealing."""
        return claims_12(results)


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuBound:
    """Figure 12 again with an operator that computes, on two cores."""

    id: str = "12-cpu"
    title: str = "Completion times of tweets on Spark, two instances that compute"
    runs: int = 1
    quick_runs: int = 1
    seconds: float = 30.0
    quick_seconds: float = 5.0
    instances: int = 2

    def points(self) -> Sequence[Point]:
        """Return a point for every rival and for the usual placement."""
        return [Point(name, {"seconds": self.seconds}) for name in MAIN]

    def quick_points(self) -> Sequence[Point]:
        """Return the same, shorter."""
        return [Point(name, {"seconds": self.quick_seconds}) for name in MAIN]

    def compute(self, point: Point, runs: range, seed: int) -> dict[str, list[float]]:
        """Play the tweets."""
        seconds = float(point.params["seconds"])
        return _play_tweets(point.label, k=self.instances, seconds=seconds, work=busy, seed=seed)

    def draw(self, results: Results) -> Figure:
        """Draw one line per way."""
        edges = np.linspace(0, results[ROUND_ROBIN]["completed_s"].size, _WINDOWS + 1).astype(int)
        series = tuple(_over_rows(name, results[name]["completed_s"], edges) for name in MAIN)
        return Figure(self.id, self.title, (Panel("completion time (s)", series, "rows"),))

    def claims(self, results: Results) -> list[Claim]:
        """Compare with round robin and with stealing."""
        return claims_cpu(results)


_played = partial(spark_run.play, config=spark_run.PLAIN_FILES)


def _play_tweets(
    way: str, *, k: int, seconds: float, work: Operator, seed: int
) -> dict[str, list[float]]:
    tweets = draw_tweets(round(seconds * 1e3 * k / _TWEET_MS / _PROVISION), seed=seed)
    stream, first = paced(tweets.keys, tweets.work_ms * MS, k)
    policy = partial(place, name=way, k=k, work=work)
    return _played(stream, policy, cores=k, warm_rows=first).numbers(first)


def _points(instances: Sequence[int], seconds: float) -> list[Point]:
    return [
        Point(label(name, k), {"way": name, "instances": k, "seconds": seconds})
        for k in instances
        for name in (NAMES if k in _OTHER_WAYS else MAIN)
    ]


def _over_k(name: str, results: Results, key: str) -> Series:
    found = {k: results[label(name, k)][key] for k in range(1, 11) if label(name, k) in results}
    return Series(
        name,
        tuple(float(k) for k in found),
        tuple(float(np.nanmean(values)) for values in found.values()),
    )


STUDY = Study(
    name="posg-on-spark",
    title="Proactive Online Shuffle Grouping, on Spark",
    figures=(TimeSeries(), ByInstances(), CpuBound()),
)
