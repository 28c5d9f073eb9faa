"""A gate that sheds nothing against no gate, on a stream that parses JSON and aggregates."""

from __future__ import annotations

from contextlib import ExitStack

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import spillway as sw
from benchmarks.measure import Bound, Figure, interleaved, ratios
from benchmarks.stage import Stage, guarded, raise_if_failed

BATCHES = 2
FILES_PER_BATCH = 2
BOUND = Bound(bound=1.10, goal=1.05)
SHEDDERS: dict[str, sw.Uniform | sw.Semantic] = {
    "Uniform, 1 stratum": sw.Uniform(),
    "Semantic, 4 strata, 139 quantiles": sw.Semantic(utility="offset % 1000"),
}
_EVENT = "key bigint, value double, note string"


def run(stage: Stage) -> list[Figure]:
    """Time whole streams over files that are ready beforehand, on short and on long rows."""
    return [
        *_compare(stage, "rows of 60 bytes", rows=stage.size(4_000_000, 400_000), padding=10),
        *_compare(stage, "rows of 1,000 bytes", rows=stage.size(1_200_000, 100_000), padding=950),
    ]


def _compare(stage: Stage, what: str, *, rows: int, padding: int) -> list[Figure]:
    path = stage.written(f"kafka-{rows}-{padding}", lambda spark: _kafka(spark, rows, padding))
    ways = {"no gate": lambda: _stream_s(stage, path, None)}
    for name, shed in SHEDDERS.items():
        ways[name] = lambda shed=shed: _stream_s(stage, path, shed)
    taken = interleaved(ways, repetitions=stage.size(5, 3), tick=stage.tick)
    return [
        Figure(
            benchmark="overhead",
            what=f"gate open: {name}, {what}",
            rival="no gate",
            unit="×",
            values=ratios(taken[name], taken["no gate"]),
            bound=BOUND if isinstance(shed, sw.Uniform) else None,
        )
        for name, shed in SHEDDERS.items()
    ]


def _stream_s(stage: Stage, path: str, shed: sw.Uniform | sw.Semantic | None) -> float:
    """Return what all micro-batches take together, without the start of the query."""
    checkpoint = stage.new_folder()
    raw = stage.spark.read.parquet(path)
    stream = (
        stage.spark.readStream.schema(raw.schema)
        .option("maxFilesPerTrigger", FILES_PER_BATCH)
        .parquet(path)
    )
    with ExitStack() as cleanup:
        if shed is not None:
            control = sw.FixedRate(1.0)
            guard = cleanup.enter_context(guarded(stage, checkpoint, control=control, shed=shed))
            stream = guard.protect(stream)
        writer = _parsed_and_aggregated(stream).writeStream.format("noop").outputMode("complete")
        query = (
            writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        )
        query.awaitTermination()
        raise_if_failed(query)
        progress = [p for p in query.recentProgress if p["numInputRows"]]
    if len(progress) != BATCHES:
        raise RuntimeError(f"the stream must run in {BATCHES} batches, got {len(progress)}")
    return float(sum(p["durationMs"]["triggerExecution"] for p in progress)) / 1e3


def _parsed_and_aggregated(raw: DataFrame) -> DataFrame:
    event = raw.select(F.from_json(F.col("value").cast("string"), _EVENT).alias("event"))
    grouped = event.select("event.*").groupBy("key")
    return grouped.agg(F.sum("value"), F.count("*"), F.max(F.length("note")))


def _kafka(spark: SparkSession, rows: int, padding: int) -> DataFrame:
    """Rows as Kafka delivers them, in files of equal size."""
    json = (
        "to_json(named_struct('key', pmod(xxhash64(id), 1000), "
        f"'value', pmod(xxhash64(id, 1), 100000) / 1e5D, 'note', repeat('x', {padding})))"
    )
    return spark.range(0, rows, 1, BATCHES * FILES_PER_BATCH).selectExpr(
        f"CAST({json} AS binary) AS value",
        "'rides' AS topic",
        "int(id % 2) AS partition",
        "id AS offset",
        "timestamp_micros(id) AS timestamp",
    )
