"""Replay against a plain scan: the shed rows of past batches, found again in the same range."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame

import spillway as sw
from benchmarks.broker import MISSING, Topics, broker, connector_jars
from benchmarks.measure import Bound, Figure, interleaved, ratios, seconds
from benchmarks.stage import Stage, guarded, raise_if_failed, to_noop
from spillway.spark import burst_source
from spillway.spark.retained import Retained
from spillway.state.past import Past

BATCHES = 6
KEEP = 0.3
BOUND = Bound(bound=1.5, goal=1.3)
SCHEMA = "id bigint, key bigint, value double, note string"
SHEDDERS = {
    "Uniform": sw.Uniform(),
    "Semantic": sw.Semantic(utility="value"),
    "ConceptDriven": sw.ConceptDriven(by="key"),
}


@dataclass(frozen=True)
class Ran:
    """A stream that is over: where its state lies, and its source."""

    guard: sw.Guard
    batches: list[int]
    source: Retained


def run(stage: Stage) -> list[Figure]:
    """Time a scan of the batches' range and the same scan with the gate inverted over it."""
    burst_source.register(stage.spark)
    rows = stage.size(1_000_000, 50_000)
    figures = []
    for name, shed in SHEDDERS.items():
        ran = _files(stage, rows, shed)
        figures.append(_compared(stage, ran, f"Parquet, {name}, {BATCHES} x {rows:,} rows"))
    ran = _burst(stage, stage.size(200_000, 20_000))
    figures.append(_compared(stage, ran, "spillway-burst, Uniform"))
    return figures + _on_kafka(stage, stage.size(200_000, 20_000))


def _on_kafka(stage: Stage, rows: int) -> list[Figure]:
    """The same on a real broker, where there is one."""
    if connector_jars() is None:
        print(MISSING, file=sys.stderr)
        return []
    with broker(stage.new_folder()) as address:
        ran = _kafka(stage, address, rows)
        return [_compared(stage, ran, f"Kafka, Uniform, {BATCHES} x {rows:,} rows")]


def _compared(stage: Stage, ran: Ran, what: str) -> Figure:
    ways: dict[str, Callable[[], float]] = {
        "plain scan": lambda: seconds(lambda: to_noop(_scan(stage, ran))),
        "replay": lambda: seconds(lambda: to_noop(_shed(stage, ran))),
    }
    taken = interleaved(ways, repetitions=stage.size(9, 3), warmups=3, tick=stage.tick)
    return Figure(
        benchmark="replay",
        what=f"shed rows again: {what}, {KEEP:.0%} kept",
        rival="a plain scan of the same range",
        unit="×",
        values=ratios(taken["replay"], taken["plain scan"]),
        bound=BOUND,
    )


def _shed(stage: Stage, ran: Ran) -> DataFrame:
    return ran.guard.shed_rows(stage.spark, ran.source, batches=ran.batches, check=False)


def _scan(stage: Stage, ran: Ran) -> DataFrame:
    """Read all rows of the same range, and do nothing with them."""
    if ran.source.format == "parquet":
        return stage.spark.read.schema(SCHEMA).parquet(ran.source.options["path"])
    if ran.source.format == "kafka":
        return stage.spark.read.format("kafka").options(**ran.source.options).load()
    past = Past(state=ran.guard.state, checkpoint=ran.guard.checkpoint)
    found = past.batches(ran.batches)
    return ran.source.rows(stage.spark, found, ran.guard.checkpoint).rows


def _files(stage: Stage, rows: int, shed: sw.Uniform | sw.Semantic | sw.ConceptDriven) -> Ran:
    """Let a stream read one file of 120-byte rows in every batch."""
    text = (
        "id",
        "id * 7919 % 1000 AS key",
        "id % 100000 / 7.0D AS value",
        "concat('note ', id, repeat('x', 80)) AS note",
    )
    path = stage.written(
        f"replay-{rows}",
        lambda spark: spark.range(0, rows * BATCHES, 1, BATCHES).selectExpr(*text),
    )
    options = {"path": path, "maxFilesPerTrigger": "1"}
    reader = stage.spark.readStream.format("parquet").schema(SCHEMA)
    stream = reader.options(**options).load()
    source = Retained(format="parquet", options=options, schema=SCHEMA)
    return _ran(stage, stream, source, shed)


def _burst(stage: Stage, rows: int) -> Ran:
    options = {"rate": str(rows), "duration": "1", "partitions": "2"}
    once = {**options, "maxRowsPerTrigger": str(rows // BATCHES)}
    stream = stage.spark.readStream.format("spillway-burst").options(**once).load()
    source = Retained(format="spillway-burst", options=options)
    return _ran(stage, stream, source, sw.Uniform())


def _kafka(stage: Stage, address: str, rows: int) -> Ran:
    """Let a stream read rows of 100 bytes from a topic of two partitions."""
    topics = Topics(stage.spark, address)
    topics.create("rides", 2)
    topics.close()
    text = ("concat(id, repeat('x', 90)) AS value", "'rides' AS topic", "int(id % 2) AS partition")
    made = stage.spark.range(rows * BATCHES).selectExpr(*text).write.format("kafka")
    made.option("kafka.bootstrap.servers", address).save()
    options = {"kafka.bootstrap.servers": address, "subscribe": "rides"}
    limits = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(rows)}
    stream = stage.spark.readStream.format("kafka").options(**options, **limits).load()
    source = Retained(format="kafka", options=options)
    return _ran(stage, stream, source, sw.Uniform(), identity=None)


def _ran(
    stage: Stage,
    stream: DataFrame,
    source: Retained,
    shed: sw.Uniform | sw.Semantic | sw.ConceptDriven,
    identity: tuple[str, ...] | None = ("id",),
) -> Ran:
    """Run the guarded stream to its end and return what it left behind."""
    checkpoint: Path = stage.new_folder()
    stage.tick("running the stream")
    with guarded(stage, checkpoint, control=sw.FixedRate(KEEP), shed=shed) as guard:
        kept = guard.protect(stream, identity=identity)
        writer = kept.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
        query = writer.start()
        query.processAllAvailable()
        raise_if_failed(query)
        query.stop()
    batches = [e.batch_id for e in guard.ledger().entries() if e.seen.rows_in]
    return Ran(guard, batches, source)
