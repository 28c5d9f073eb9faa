"""On a real Kafka: rows are told apart by their place, sizes are exact, shed rows come back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import spillway as sw
from benchmarks.broker import MISSING, Topics, broker, connector_jars
from spillway.spark.retained import BATCH, Retained
from spillway.state.ledger import Entry
from spillway.state.past import NotRetained
from tests.conftest import wait_until

pytestmark = pytest.mark.skipif(connector_jars() is None, reason=MISSING)

Place = tuple[str, int, int]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One broker for all tests of this file."""
    with broker(tmp_path_factory.mktemp("broker")) as address:
        yield address


@dataclass
class Stream:
    """Topics, and a query over them that notes where the rows it kept came from."""

    spark: SparkSession
    address: str
    folder: Path
    topics: Topics
    kept: dict[int, list[Place]] = field(default_factory=dict)

    def guard(self, rate: float = 0.3) -> sw.Guard:
        state = self.folder / "checkpoint" / "spillway"
        return sw.Guard("rides", state=state, control=sw.FixedRate(rate))

    def source(self, subscribe: str, **options: str) -> Retained:
        common = {"kafka.bootstrap.servers": self.address, "subscribe": subscribe}
        return Retained(format="kafka", options={**common, **options})

    def produce(self, topic: str, rows: int, *, partitions: list[int]) -> None:
        """Write rows, dealt out evenly over these partitions."""
        which = f"array({', '.join(map(str, partitions))})[int(id % {len(partitions)})]"
        made = self.spark.range(rows).selectExpr(
            "CAST(id AS STRING) AS value", f"'{topic}' AS topic", f"{which} AS partition"
        )
        sink = made.write.format("kafka").option("kafka.bootstrap.servers", self.address)
        sink.save()

    def start(self, source: Retained, **options: str) -> StreamingQuery:
        """Start the guarded query; nothing but source and guard is named."""
        given = {**source.options, "startingOffsets": "earliest", **options}
        stream = self.spark.readStream.format("kafka").options(**given).load()

        def note(batch: DataFrame, batch_id: int) -> None:
            self.kept[batch_id] = places(batch)

        writer = self.guard().protect(stream, arrived="timestamp").writeStream.foreachBatch(note)
        return writer.option("checkpointLocation", str(self.folder / "checkpoint")).start()

    def entries(self, batches: int) -> list[Entry]:
        """Return the books once they have so many batches with rows."""

        def booked() -> list[Entry]:
            return [e for e in self.guard().ledger().entries() if e.seen.rows_in]

        wait_until(lambda: len(booked()) >= batches, f"{batches} batches in the ledger")
        return booked()


@pytest.fixture
def kafka(spark: SparkSession, address: str, tmp_path: Path) -> Iterator[Stream]:
    stream = Stream(spark, address, tmp_path, Topics(spark, address))
    yield stream
    for query in spark.streams.active:
        query.stop()
    stream.topics.close()


def places(rows: DataFrame) -> list[Place]:
    chosen = rows.select("topic", "partition", "offset").collect()
    return sorted((row["topic"], row["partition"], row["offset"]) for row in chosen)


def places_of(topic: str, partition: int, offsets: range) -> list[Place]:
    return [(topic, partition, offset) for offset in offsets]


def check_complement(kafka: Stream, shed: DataFrame, truth: list[Place]) -> None:
    kept = [place for placed in kafka.kept.values() for place in placed]
    assert sorted(kept + places(shed)) == sorted(truth)
    assert kept
    assert len(kept) < len(truth)


def test_sizes_are_exact_and_shed_rows_come_back_over_topics_limits_and_added_partitions(
    kafka: Stream,
) -> None:
    """Two topics, at most 400 offsets a batch, a restart, a partition that is added in between."""
    kafka.topics.create("rides", 2)
    kafka.topics.create("fares", 1)
    kafka.produce("rides", 600, partitions=[0, 1])
    kafka.produce("fares", 300, partitions=[0])
    source = kafka.source("rides,fares")
    query = kafka.start(source, maxOffsetsPerTrigger="400")
    query.processAllAvailable()
    entries = kafka.entries(3)
    query.stop()
    assert all(e.seen.rows_in <= 400 for e in entries)
    assert sum(e.seen.rows_in for e in entries) == 900
    kafka.topics.widen("rides", 3)
    kafka.produce("rides", 300, partitions=[0, 2])
    query = kafka.start(source)
    query.processAllAvailable()
    entries = kafka.entries(4)
    query.stop()
    assert {e.identity for e in entries} == {("topic", "partition", "offset")}
    assert sum(e.seen.rows_in for e in entries) == 1200
    # From the offset log, the first batch included, and the added partition from its start.
    assert [e.plan.rows_expected for e in entries if e.plan] == [e.seen.rows_in for e in entries]
    assert all(e.seen.latency_s_mean is not None for e in entries)
    truth = [
        *places_of("rides", 0, range(450)),
        *places_of("rides", 1, range(300)),
        *places_of("rides", 2, range(150)),
        *places_of("fares", 0, range(300)),
    ]
    batches = [e.batch_id for e in entries]
    shed = kafka.guard().shed_rows(kafka.spark, source, batches=batches)
    check_complement(kafka, shed, truth)
    finer = kafka.source("rides,fares", minPartitions="7")
    again = kafka.guard().shed_rows(kafka.spark, finer, batches=batches, check=False)
    assert places(again) == places(shed)
    one = kafka.guard().shed_rows(kafka.spark, source, batches=batches[1:2])
    assert {row[BATCH] for row in one.collect()} == {batches[1]}
    assert one.count() == entries[1].rows_shed


def test_expired_offsets_are_told_and_the_others_still_come_back(kafka: Stream) -> None:
    """Before the stream came to them (`failOnDataLoss=false`) they are in no books; after, told."""
    kafka.topics.create("calls", 1)
    kafka.produce("calls", 100, partitions=[0])
    source = kafka.source("calls")
    query = kafka.start(source, failOnDataLoss="false")
    query.processAllAvailable()
    kafka.entries(1)
    query.stop()
    kafka.produce("calls", 400, partitions=[0])
    kafka.topics.expire("calls", 0, 250)
    query = kafka.start(source, failOnDataLoss="false")
    query.processAllAvailable()
    first, last = kafka.entries(2)
    query.stop()
    assert last.seen.rows_in == 250
    assert last.rows_shed + last.seen.rows_kept == 250
    shed = kafka.guard().shed_rows(kafka.spark, source, batches=[last.batch_id])
    kept = kafka.kept[last.batch_id]
    assert sorted(kept + places(shed)) == places_of("calls", 0, range(250, 500))
    kafka.topics.expire("calls", 0, 300)
    both = [first.batch_id, last.batch_id]
    with pytest.raises(NotRetained, match=r"offsets 0 to 99 of calls/0 have expired"):
        kafka.guard().shed_rows(kafka.spark, source, batches=both)
    left = kafka.guard().shed_rows(kafka.spark, source, batches=both, check=False)
    assert places(left) == [p for p in places_of("calls", 0, range(300, 500)) if p not in kept]
