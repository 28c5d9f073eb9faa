"""The concept-driven gate over 10, 10^4 and 10^6 groups, against Uniform and against sampleBy.

Spark's `sampleBy` takes one fraction for each group from the driver. It neither weighs nor counts;
here it is counted as the gate is.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from itertools import count
from statistics import median

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

import spillway as sw
from benchmarks.measure import Bound, Figure, interleaved, ratios, seconds
from benchmarks.stage import Stage, guarded, to_noop, wait_for_batch

SHARE = 0.1
GROUPS = (10, 10_000, 1_000_000)
FRACTIONS = (10, 10_000, 100_000)
BATCHES = 4
INDEPENDENT = Bound(bound=1.25)

Source = Callable[[], DataFrame]
Shed = Callable[[DataFrame], DataFrame]


def run(stage: Stage) -> list[Figure]:
    """Time the gate on rows from memory, inside foreachBatch and in a stream."""
    rows = stage.size(12_000_000, 1_000_000)
    return [*_in_batches(stage, rows), *_against_fractions(stage, rows // 4), *_in_stream(stage)]


def _in_batches(stage: Stage, rows: int) -> list[Figure]:
    """Compare with Uniform on the same rows, and with itself on few groups."""
    with ExitStack() as cleanup:
        ways: dict[str, Callable[[], float]] = {}
        for groups in GROUPS:
            for share in (SHARE, 1.0):
                for name, shed in _shedders(value=groups == GROUPS[-1]).items():
                    gate = _gate(stage, cleanup, shed, share)
                    way = _timed(gate, lambda groups=groups: _rides(stage.spark, rows, groups))
                    ways[f"{name} {share} {groups}"] = way
        taken = interleaved(ways, repetitions=stage.size(5, 3), tick=stage.tick, warmups=2)
    return [*_against_uniform(taken), *_by_groups(taken)]


def _against_uniform(taken: dict[str, list[float]]) -> list[Figure]:
    return [
        _figure(
            f"{'gate open' if share == 1.0 else 'shedding 90 %'}: {name}, {groups:,} groups",
            "Uniform gate",
            "×",
            ratios(taken[f"{name} {share} {groups}"], taken[f"Uniform {share} {groups}"]),
        )
        for share in (SHARE, 1.0)
        for groups in GROUPS
        for name in _shedders(value=groups == GROUPS[-1])
        if name != "Uniform"
    ]


def _by_groups(taken: dict[str, list[float]]) -> list[Figure]:
    few = taken[f"concept {SHARE} {GROUPS[0]}"]
    return [
        _figure(
            f"time per row with {groups:,} groups",
            f"with {GROUPS[0]} groups",
            "×",
            ratios(taken[f"concept {SHARE} {groups}"], few),
            INDEPENDENT,
        )
        for groups in GROUPS[1:]
    ]


def _against_fractions(stage: Stage, rows: int) -> list[Figure]:
    """Compare with `sampleBy`: to describe the batch, and to describe and run it."""
    figures = []
    for groups in FRACTIONS[: stage.size(3, 2)]:
        fractions = dict.fromkeys(range(groups), SHARE)
        with ExitStack() as cleanup:
            gate = _gate(stage, cleanup, sw.ConceptDriven(by="route"), SHARE)
            rides = lambda groups=groups: _rides(stage.spark, rows, groups)  # noqa: E731
            rival = lambda df, fractions=fractions: _sampled(df, fractions)  # noqa: E731
            ways = {"gate": _timed(gate, rides), "sampleBy": _timed(rival, rides)}
            taken = interleaved(ways, repetitions=3, tick=stage.tick)
        faster = ratios(taken["sampleBy"], taken["gate"])
        what = f"shedding 90 %: {groups:,} groups, {rows:,} rows"
        figures.append(_figure(what, f"sampleBy with {groups:,} fractions", "× faster", faster))
    return figures


def _in_stream(stage: Stage) -> list[Figure]:
    """Compare with Uniform in a streaming plan, where the table travels with the plan."""
    rows = stage.size(3_000_000, 300_000)
    ways = {
        name: lambda shed=shed: _batch_s(stage, shed, rows)
        for name, shed in _shedders(value=False).items()
    }
    taken = interleaved(ways, repetitions=stage.size(4, 3), tick=stage.tick)
    what = f"in a stream, shedding 90 %: batches of {rows:,} rows, {GROUPS[-1]:,} groups"
    return [_figure(what, "Uniform gate", "×", ratios(taken["concept"], taken["Uniform"]))]


def _shedders(*, value: bool) -> dict[str, sw.Uniform | sw.ConceptDriven]:
    with_value = {"concept with a value": sw.ConceptDriven(by="route", value="fare")}
    plain: dict[str, sw.Uniform | sw.ConceptDriven] = {
        "Uniform": sw.Uniform(),
        "concept": sw.ConceptDriven(by="route"),
    }
    return plain | (with_value if value else {})


def _gate(
    stage: Stage, cleanup: ExitStack, shed: sw.Uniform | sw.ConceptDriven, share: float
) -> Shed:
    control = sw.FixedRate(share)
    guard = cleanup.enter_context(guarded(stage, stage.new_folder(), control=control, shed=shed))
    batches = count()
    return lambda df: guard.protect(df, batch_id=next(batches), identity=["id"])


def _timed(shed: Shed, source: Source) -> Callable[[], float]:
    return lambda: seconds(lambda: to_noop(shed(source())))


def _sampled(df: DataFrame, fractions: dict[int, float]) -> DataFrame:
    came = df.observe(Observation(), F.count(F.lit(1)).alias("rows"))
    kept = came.sampleBy("route", fractions, seed=7)
    return kept.observe(Observation(), F.count(F.lit(1)).alias("rows"))


def _batch_s(stage: Stage, shed: sw.Uniform | sw.ConceptDriven, rows: int) -> float:
    """Return what a micro-batch takes: the median of some, the first left out."""
    checkpoint = stage.new_folder()
    source = stage.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows)
    stream = source.option("numPartitions", 2).load()
    rides = stream.selectExpr("value AS id", _route("value", GROUPS[-1]), "value * 0.5D AS fare")
    with guarded(stage, checkpoint, control=sw.FixedRate(SHARE), shed=shed) as guard:
        writer = guard.protect(rides, identity=["id"]).writeStream.format("noop")
        query = writer.option("checkpointLocation", str(checkpoint)).start()
        try:
            wait_for_batch(query, BATCHES)
            progress = [p for p in query.recentProgress if 0 < p["batchId"] <= BATCHES]
        finally:
            query.stop()
    return median(p["durationMs"]["triggerExecution"] for p in progress) / 1e3


def _rides(spark: SparkSession, rows: int, groups: int) -> DataFrame:
    """Three numbers that cost next to nothing to make; every group is as frequent as any other."""
    made = spark.range(0, rows, 1, 2)
    return made.selectExpr("id", _route("id", groups), "id * 0.5D AS fare")


def _route(number: str, groups: int) -> str:
    return f"{number} * 2654435761 % {groups} AS route"


def _figure(
    what: str, rival: str, unit: str, values: tuple[float, ...], bound: Bound | None = None
) -> Figure:
    return Figure(
        benchmark="concept", what=what, rival=rival, unit=unit, values=values, bound=bound
    )
