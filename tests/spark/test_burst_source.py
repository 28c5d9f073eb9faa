"""The burst source loses no row, doubles none, and goes on where it was."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from spillway.spark.burst_source import BurstReader, RowRange, parse_options, register
from spillway.workload.content import Content
from spillway.workload.rate import parse_rate

RATE = "steps:0=10,2=400,4=10"
DURATION_S = 6.0
SCHEDULE = parse_rate(RATE, DURATION_S)


class Run:
    """A stream under a virtual clock; collects what every batch delivered."""

    def __init__(self, spark: SparkSession, folder: Path, **options: str) -> None:
        register(spark)
        self.spark, self.folder, self.options = spark, folder, options
        self.columns, self.fails = ["*"], False
        self.batches: list[list[Row]] = []
        self.set_clock(0.0)

    def set_clock(self, t_s: float) -> None:
        (self.folder / "next").write_text(str(t_s))
        os.replace(self.folder / "next", self.folder / "clock")

    def stream(self) -> DataFrame:
        given = {"rate": RATE, "duration": str(DURATION_S), "clock": str(self.folder / "clock")}
        reader = self.spark.readStream.format("spillway-burst").options(**given | self.options)
        return reader.load().selectExpr(*self.columns)

    def start(self, **trigger: bool) -> StreamingQuery:
        writer = self.stream().writeStream.foreachBatch(self._collect)
        writer = writer.option("checkpointLocation", str(self.folder / "checkpoint"))
        return (writer.trigger(**trigger) if trigger else writer).start()

    @contextmanager
    def running(self) -> Iterator[StreamingQuery]:
        query = self.start()
        try:
            yield query
        finally:
            query.stop()

    def advance(self, query: StreamingQuery, *times_s: float) -> None:
        for t_s in times_s:
            self.set_clock(t_s)
            query.processAllAvailable()

    @property
    def rows(self) -> list[Row]:
        return [row for batch in self.batches for row in batch]

    @property
    def ids(self) -> list[int]:
        return sorted(row.id for row in self.rows)

    def _collect(self, batch: DataFrame, batch_id: int) -> None:
        self.batches.append(sorted(batch.collect()))
        if self.fails:
            raise RuntimeError("this batch fails, as asked")


def contents(rows: list[Row]) -> list[tuple[int, int, float, int]]:
    return sorted((row.id, row.key, row.value, row.work_us) for row in rows)


def test_every_row_comes_once_however_slow_the_triggers(
    spark: SparkSession, tmp_path: Path
) -> None:
    run = Run(spark, tmp_path)
    times_s = [0.5, 1.9, 2.0, 2.01, 3.7, 3.7, 5.0, 60.0]
    with run.running() as query:
        for t_s in times_s:
            run.advance(query, t_s)
            assert run.ids == list(range(SCHEDULE.rows_by(t_s)))
    assert run.ids == list(range(SCHEDULE.rows_total))


def test_a_restart_goes_on_with_the_same_start_and_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    run = Run(spark, tmp_path, seed="4")
    with run.running() as query:
        run.advance(query, 1.0, 2.5)
        before = offsets(query)
    with run.running() as query:
        run.advance(query, 5.5)
        after = offsets(query)
    assert run.ids == list(range(SCHEDULE.rows_by(5.5)))
    assert before["epoch_us"] == after["epoch_us"]
    assert arrivals_s(run.rows, before["epoch_us"]) == pytest.approx(
        SCHEDULE.arrival_s(np.arange(len(run.rows))), abs=2e-6
    )


def test_a_failed_batch_is_replayed_with_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    """Though more has arrived by then: the batch was promised in the offset log."""
    run = Run(spark, tmp_path)
    run.fails = True
    run.set_clock(2.5)
    with pytest.raises(StreamingQueryException):
        run.start().awaitTermination(60)
    run.fails = False
    with run.running() as query:
        run.advance(query, 5.0)
    failed, replayed, rest = run.batches
    assert failed == replayed
    assert len(replayed) == SCHEDULE.rows_by(2.5)
    assert len(replayed) + len(rest) == SCHEDULE.rows_by(5.0)


def test_a_clock_that_jumps_back_gives_no_row_twice(spark: SparkSession, tmp_path: Path) -> None:
    run = Run(spark, tmp_path)
    with run.running() as query:
        run.advance(query, 3.0, 1.0, 0.0, 3.1)
    assert run.ids == list(range(SCHEDULE.rows_by(3.1)))


def test_content_is_that_of_the_seed_in_any_partitioning(
    spark: SparkSession, tmp_path: Path
) -> None:
    found = []
    for partitions in ("1", "5"):
        (tmp_path / partitions).mkdir()
        run = Run(spark, tmp_path / partitions, seed="9", keys="7", partitions=partitions)
        with run.running() as query:
            run.advance(query, 2.4)
        found.append(contents(run.rows))
    ids = np.arange(SCHEDULE.rows_by(2.4))
    columns = Content(seed=9, keys=7).columns(ids)
    expected = [tuple(row) for row in zip(ids, *columns.values(), strict=True)]
    assert found[0] == found[1] == expected


def test_no_batch_exceeds_max_rows_per_trigger(spark: SparkSession, tmp_path: Path) -> None:
    run = Run(spark, tmp_path, maxRowsPerTrigger="150")
    with run.running() as query:
        run.advance(query, 3.0)
        backlogs = [backlog(progress) for progress in query.recentProgress]
    assert [len(batch) for batch in run.batches if batch] == [150, 150, 120]
    assert run.ids == list(range(420))
    assert 270 in backlogs, "the progress does not show the rows that wait"


def test_available_now_ends_at_what_had_arrived(spark: SparkSession, tmp_path: Path) -> None:
    run = Run(spark, tmp_path, maxRowsPerTrigger="300")
    run.set_clock(3.0)
    assert run.start(availableNow=True).awaitTermination(60)
    assert [len(batch) for batch in run.batches if batch] == [300, 120]
    run.set_clock(99.0)
    assert run.start(availableNow=True).awaitTermination(60)
    assert run.ids == list(range(SCHEDULE.rows_total))


@contextmanager
def session_time_zone(spark: SparkSession, zone: str) -> Iterator[None]:
    before = str(spark.conf.get("spark.sql.session.timeZone"))
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        yield
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


@pytest.mark.parametrize("zone", ["Pacific/Chatham", "America/New_York"])
def test_arrivals_are_the_right_instants_in_any_zone(
    spark: SparkSession, tmp_path: Path, zone: str
) -> None:
    """As microseconds since 1970, and as wall-clock text of the session's zone."""
    run = Run(spark, tmp_path)
    run.columns = ["id", "unix_micros(arrived) AS us", "CAST(arrived AS string) AS text"]
    with session_time_zone(spark, zone), run.running() as query:
        run.advance(query, 2.2)
        epoch_us = offsets(query)["epoch_us"]
    rows = sorted(run.rows, key=lambda row: int(row.id))
    expected_us = epoch_us + np.floor(SCHEDULE.arrival_s(np.arange(len(rows))) * 1e6)
    assert [row.us for row in rows] == expected_us.astype(int).tolist()
    assert datetime.fromisoformat(rows[0].text) == local_time(rows[0].us, zone)
    assert abs(datetime.now(UTC).timestamp() * 1e6 - epoch_us) < 600e6


def local_time(us: int, zone: str) -> datetime:
    whole = datetime.fromtimestamp(us // 10**6, ZoneInfo(zone)).replace(tzinfo=None)
    return whole.replace(microsecond=us % 10**6)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("rows", "5", "option must be one of clock, .*, work_us, got 'rows'"),
        ("rate", "fast", "must be a finite number, got 'fast'"),
        ("duration", "-1", "duration_s must be positive and finite, got -1"),
        ("keys", "many", "keys must be a number, got 'many'"),
        ("partitions", "0", "partitions must be >= 1, got 0"),
        ("maxRowsPerTrigger", "0", "maxRowsPerTrigger must be >= 1, got 0"),
        (
            "clock",
            "/no/such/clock",
            "clock must be a file that holds seconds, got '/no/such/clock'",
        ),
    ],
)
def test_bad_options_are_refused(option: str, value: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_options({option.lower(): value})


def test_bad_options_are_refused_in_load(spark: SparkSession) -> None:
    register(spark)
    with pytest.raises(Exception, match=r"option must be one of .* got 'rates'"):
        spark.readStream.format("spillway-burst").option("rates", "5").load()


def test_a_foreign_schema_is_refused_before_data_is_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    register(spark)
    reader = spark.readStream.format("spillway-burst").schema("id int")
    with pytest.raises(Exception, match=r"schema must be .* or left out, got 'id int'"):
        start_noop(reader.load(), tmp_path).awaitTermination(60)


def test_the_path_that_load_adds_is_ignored() -> None:
    assert parse_options({"path": "x", "rate": "5", "duration": "2"}).schedule.rows_total == 10


def test_ranges_are_even_contiguous_and_not_empty() -> None:
    reader = BurstReader(parse_options({"partitions": "4"}))
    start, end = {"row": 10, "epoch_us": 1}, {"row": 20, "epoch_us": 1}
    ranges = [(part.first, part.stop) for part in reader.partitions(start, end)]
    assert ranges == [(10, 12), (12, 15), (15, 17), (17, 20)]
    assert [(p.first, p.stop) for p in reader.partitions(start, start | {"row": 11})] == [(10, 11)]
    assert reader.partitions(start, start) == []


def test_batches_hold_at_most_10_000_rows() -> None:
    reader = BurstReader(parse_options({"rate": "30000", "duration": "1"}))
    batches = list(reader.read(RowRange(5, 25_006, 0)))
    assert [batch.num_rows for batch in batches] == [10_000, 10_000, 5001]


def test_without_a_clock_file_the_real_clock_counts() -> None:
    """An epoch long ago owes every row; one in the future owes none."""
    reader = BurstReader(parse_options({"rate": "10", "duration": "5"}))
    assert reader.reportLatestOffset() is None
    first = reader.initialOffset()
    long_ago, future = first["epoch_us"] - 10**9, first["epoch_us"] + 10**12
    assert reader.latestOffset({"row": 0, "epoch_us": long_ago}, ReadAllAvailable())["row"] == 50
    assert reader.reportLatestOffset() == {"row": 50, "epoch_us": long_ago}
    assert reader.latestOffset({"row": 7, "epoch_us": long_ago}, ReadMaxRows(2))["row"] == 9
    assert reader.latestOffset({"row": 7, "epoch_us": future}, ReadAllAvailable())["row"] == 7


def start_noop(stream: DataFrame, folder: Path) -> StreamingQuery:
    writer = stream.writeStream.format("noop")
    return writer.option("checkpointLocation", str(folder / "checkpoint")).start()


def offsets(query: StreamingQuery) -> dict[str, int]:
    progress = query.lastProgress
    assert progress is not None
    return parsed(progress.sources[0].endOffset)


def backlog(progress: StreamingQueryProgress) -> int:
    source = progress.sources[0]
    return parsed(source.latestOffset)["row"] - parsed(source.endOffset)["row"]


def parsed(offset: str) -> dict[str, int]:
    found: dict[str, int] = json.loads(offset)
    return found


def arrivals_s(rows: list[Row], epoch_us: int) -> list[float]:
    """Naive local time to seconds since the start."""
    return sorted(row.arrived.timestamp() - epoch_us / 1e6 for row in rows)
