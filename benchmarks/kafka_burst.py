"""One burst through one query on Kafka: `python -m benchmarks.kafka_burst WAY OUT [--quick]`."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import spillway as sw
from benchmarks.broker import Topics, broker, connector_jars
from benchmarks.kafka import BURST_S, LIMIT_S
from benchmarks.producer import Producer
from benchmarks.stage import raise_if_failed
from spillway.spark.session import local_session
from spillway.state import offsets
from spillway.workload.rate import parse_rate

CALM, BURST = 50, 500  # rows a second
COST_S = 0.006  # what the operator waits for each row, in each of two tasks: 333 rows a second
TRIGGER_ROWS = 400
GIVE_UP_S = 150.0
_TOPIC = "rides"


@dataclass(frozen=True)
class Done:
    """A batch that came out: when, how many rows, when they had come on average, what waited."""

    at_s: float
    rows: int
    arrived_s: float
    lag_rows: int

    @property
    def latency_s(self) -> float:
        return self.at_s - self.arrived_s


@dataclass
class Notes:
    """What came out, batch by batch."""

    checkpoint: Path
    producer: Producer
    batches: list[Done] = field(default_factory=list)

    def note(self, batch: DataFrame, batch_id: int) -> None:
        total = batch.agg(F.count("*"), F.avg(F.col("timestamp").cast("double"))).collect()[0]
        if total[0]:
            lag = self.producer.sent - consumed(self.checkpoint, batch_id)
            self.batches.append(Done(time.time(), total[0], total[1], lag))


def consumed(checkpoint: Path, batch_id: int) -> int:
    """Return how many rows of the topic all batches up to this one have read."""
    ends: list[Any] = offsets.end_offsets(checkpoint, batch_id) or [{}]
    return sum(at for by_id in ends[0].values() for at in by_id.values())


def slow_row(row: dict[str, Any]) -> dict[str, Any]:
    """Look something up in a service that takes its time."""
    time.sleep(COST_S)
    return {"timestamp": row["timestamp"]}


def slow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        time.sleep(COST_S * batch.num_rows)
        yield batch.select(["timestamp"])


def query_of(way: str, raw: DataFrame, checkpoint: Path) -> DataFrame:
    """Return the results of the operator, behind a guard or not."""
    if way != "guarded":
        return raw.select("timestamp").mapInArrow(slow, "timestamp timestamp")
    objective = sw.Latency(average=f"{LIMIT_S:g} s")
    guard = sw.Guard("kafka", objective=objective, state=checkpoint / "spillway")
    kept = guard.protect(raw, arrived="timestamp")
    return guard.map(kept, slow_row, "timestamp timestamp", arrived="timestamp")


def play(spark: SparkSession, address: str, way: str, folder: Path, burst_s: float) -> Any:
    """Let a calm time, a burst and a calm time pass; return what is asked for."""
    calm_s = 20.0
    rate = f"steps:0={CALM},{calm_s:g}={BURST},{calm_s + burst_s:g}={CALM}"
    schedule = parse_rate(rate, calm_s + burst_s + GIVE_UP_S)
    limit = {"maxOffsetsPerTrigger": str(TRIGGER_ROWS)} if way == "maxOffsetsPerTrigger" else {}
    options = {"kafka.bootstrap.servers": address, "subscribe": _TOPIC, **limit}
    raw = spark.readStream.format("kafka").options(**options, startingOffsets="earliest").load()
    producer = Producer(spark, address, _TOPIC, schedule, partitions=2)
    notes = Notes(folder / "checkpoint", producer)
    writer = query_of(way, raw, notes.checkpoint).writeStream.foreachBatch(notes.note)
    query = writer.option("checkpointLocation", str(notes.checkpoint)).start()
    producer.start()
    begin_s = time.time() + calm_s
    end_s = begin_s + burst_s
    while time.time() < end_s + 10 or not recovered_at_s(notes.batches, end_s):
        raise_if_failed(query)
        if time.time() > end_s + GIVE_UP_S:
            break
        time.sleep(0.5)
    producer.stop()
    query.processAllAvailable()
    query.stop()
    return summary(notes, producer.sent, begin_s, end_s)


def recovered_at_s(batches: list[Done], end_s: float) -> float | None:
    """Return when, after the burst, the first of three batches in a row was on time."""
    after = [batch for batch in batches if batch.at_s > end_s]
    for three in zip(after, after[1:], after[2:], strict=False):
        if all(batch.latency_s <= LIMIT_S for batch in three):
            return three[0].at_s
    return None


def summary(notes: Notes, sent: int, begin_s: float, end_s: float) -> dict[str, Any]:
    """Reduce a run to the lines of the table; a run that never recovered counts as given up."""
    batches = [batch for batch in notes.batches if batch.at_s > begin_s]
    burst = [batch for batch in batches if begin_s <= batch.arrived_s < end_s]
    recovered = recovered_at_s(notes.batches, end_s) or end_s + GIVE_UP_S
    rows = sum(batch.rows for batch in burst)
    return {
        "trace": [[b.at_s - begin_s, b.latency_s, b.lag_rows, b.rows] for b in notes.batches],
        "latency_s": sum(batch.rows * batch.latency_s for batch in burst) / max(rows, 1),
        "latency_s_worst": max(batch.latency_s for batch in batches),
        "latency_s_held": max(batch.latency_s for batch in burst[1:]),
        "lag_rows_max": float(max(batch.lag_rows for batch in batches)),
        "recovery_s": recovered - end_s,
        "kept": 100.0 * sum(batch.rows for batch in notes.batches) / sent,
    }


def main() -> None:
    """Run one way and write what was found."""
    way, out, *size = sys.argv[1:]
    config = {"spark.jars": connector_jars() or ""}
    with tempfile.TemporaryDirectory(prefix="spillway-kafka-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with broker(folder / "broker") as address:
            spark = local_session("spillway-kafka", cores=2, config=config)
            spark.sparkContext.setLogLevel("FATAL")
            topics = Topics(spark, address)
            topics.create(_TOPIC, 2)
            topics.close()
            found = play(spark, address, way, folder, burst_s=15.0 if size else BURST_S)
            spark.stop()
    Path(out).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
