"""A gate that sheds nothing against no gate, on a stream that parses JSON and aggregates."""

from __future__ import annotations

from contextlib import ExitStack
from statistics import median

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import spillway as sw
from benchmarks.measure import Bound, Figure, interleaved, ratios
from benchmarks.stage import Stage, guarded, wait_for_batch

BATCHES = 3
BOUND = Bound(bound=1.10, goal=1.05)
SHEDDERS: dict[str, sw.Uniform | sw.Semantic] = {
    "Uniform, 1 stratum": sw.Uniform(),
    "Semantic, 4 strata, 139 quantiles": sw.Semantic(utility="offset % 1000"),
}
_EVENT = "key bigint, value double, note string"


def run(stage: Stage) -> list[Figure]:
    """Time the micro-batches of whole streams, on short and on long rows."""
    return [
        *_compare(stage, "rows of 60 bytes", rows=stage.size(1_000_000, 300_000), padding=10),
        *_compare(stage, "rows of 1,000 bytes", rows=stage.size(250_000, 80_000), padding=950),
    ]


def _compare(stage: Stage, what: str, *, rows: int, padding: int) -> list[Figure]:
    ways = {"no gate": lambda: _batch_s(stage, None, rows, padding)}
    for name, shed in SHEDDERS.items():
        ways[name] = lambda shed=shed: _batch_s(stage, shed, rows, padding)
    taken = interleaved(ways, repetitions=stage.size(4, 3), tick=stage.tick)
    return [
        Figure(
            benchmark="overhead",
            what=f"gate open: {name}, batches of {rows:,} {what}",
            rival="no gate",
            unit="×",
            values=ratios(taken[name], taken["no gate"]),
            bound=BOUND if isinstance(shed, sw.Uniform) else None,
        )
        for name, shed in SHEDDERS.items()
    ]


def _batch_s(stage: Stage, shed: sw.Uniform | sw.Semantic | None, rows: int, padding: int) -> float:
    """Return what a micro-batch takes: the median of some, the first left out."""
    checkpoint = stage.new_folder()
    stream = kafka_rows(stage.spark, rows, padding)
    with ExitStack() as cleanup:
        if shed is not None:
            control = sw.FixedRate(1.0)
            guard = cleanup.enter_context(guarded(stage, checkpoint, control=control, shed=shed))
            stream = guard.protect(stream)
        writer = parsed_and_aggregated(stream).writeStream.format("noop").outputMode("complete")
        query = writer.option("checkpointLocation", str(checkpoint)).start()
        try:
            wait_for_batch(query, BATCHES)
            progress = [p for p in query.recentProgress if 0 < p["batchId"] <= BATCHES]
        finally:
            query.stop()
    return median(p["durationMs"]["triggerExecution"] for p in progress) / 1e3


def parsed_and_aggregated(raw: DataFrame) -> DataFrame:
    event = raw.select(F.from_json(F.col("value").cast("string"), _EVENT).alias("event"))
    grouped = event.select("event.*").groupBy("key")
    return grouped.agg(F.sum("value"), F.count("*"), F.max(F.length("note")))


def kafka_rows(spark: SparkSession, rows: int, padding: int) -> DataFrame:
    """Rows as Kafka delivers them: in memory, with their place in the topic, not yet parsed.

    Files would favour the query without a gate: it would not read the columns of the place.
    """
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows)
    json = (
        """concat('{"key": ', value * 7919 % 1000, ', "value": 0.', value % 100000, """
        f"""', "note": "', repeat('x', {padding}), '"}}')"""
    )
    return (
        source.option("numPartitions", 2)
        .load()
        .selectExpr(
            f"CAST({json} AS binary) AS value",
            "'rides' AS topic",
            "int(value % 2) AS partition",
            "value AS offset",
            "timestamp",
        )
    )
