"""One Spark session for all tests of a worker, and a stream that is driven batch by batch."""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from benchmarks.broker import connector_jars
from spillway.spark import burst_source
from spillway.spark.session import local_session
from spillway.state.ledger import Ledger
from tests.forked_python import forked_python

# Many short jobs: what the second compiler and its collector would save costs more.
QUICK_START = "-Xss8m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

settings.register_profile("same-every-time", derandomize=True, deadline=None)
settings.load_profile("same-every-time")


_STARTS_SPARK = {"spark", "faults", "apps", "demo", "test_java.py"}
# What takes longest comes first, so that the cores are done at about the same time.
_LONGEST = (
    "test_fair_share.py",
    "test_campaign.py",
    "test_window.py",
    "test_guard_map.py",
    "test_guard_run.py",
    "test_replay.py",
    "test_guard_stream.py",
    "test_cluster.py",
    "test_connect.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what starts Spark (`-m "not spark"` leaves it out), and begin with it."""
    for item in items:
        wants = "spark" in getattr(item, "fixturenames", ())
        if wants or _STARTS_SPARK & set(item.path.relative_to(item.config.rootpath).parts[1:]):
            item.add_marker("spark")
    with_spark = {item.path for item in items if item.get_closest_marker("spark")}
    items.sort(key=lambda item: _turn(item.path, starts_spark=item.path in with_spark))


def _turn(path: Path, *, starts_spark: bool) -> int:
    """Say when a file's turn is; files of the same number keep their order."""
    if starts_spark and path.name in _LONGEST:
        return _LONGEST.index(path.name)
    return len(_LONGEST) + (not starts_spark)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A local session that tries a failed task again, as a cluster does."""
    jars = connector_jars()  # a session takes jars only when it starts
    config = {
        "spark.master": "local[2,3]",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.extraJavaOptions": QUICK_START,
        # An idle stream asks its source, a Python process, so often.
        "spark.sql.streaming.pollingDelay": "50ms",
        # Without checksums half as many files, and for each file Hadoop starts a chmod.
        "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
        "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
    }
    session = local_session("tests", config={**config, **({"spark.jars": jars} if jars else {})})
    session.sparkContext.setLogLevel("OFF")
    with forked_python() as python:
        session.sparkContext.pythonExec = str(python)
        burst_source.register(session)
        yield session
        session.stop()


@dataclass
class Driven:
    """A burst stream on a clock of its own: `advance` lets rows arrive and waits for the batch."""

    spark: SparkSession
    folder: Path
    rows_per_s: int = 1000
    kept: dict[int, list[tuple[int, float]]] = field(default_factory=dict)

    @property
    def checkpoint(self) -> Path:
        """Where Spark keeps the query's progress."""
        return self.folder / "checkpoint"

    @property
    def state(self) -> Path:
        """Where the guard keeps its own."""
        return self.checkpoint / "spillway"

    def stream(self, **options: str) -> DataFrame:
        """Open the source; its content depends on the row number and the seed alone."""
        self.set_clock(self.now_s)
        given = {"rate": str(self.rows_per_s), "clock": str(self._clock), "keys": "50", **options}
        return self.spark.readStream.format("spillway-burst").options(**given).load()

    def start(self, rows: DataFrame, **options: str) -> StreamingQuery:
        """Start a query that notes the id and weight of the rows of every batch."""

        def note(batch: DataFrame, batch_id: int) -> None:
            pairs = batch.select("id", "_weight").collect()
            self.kept[batch_id] = sorted((row["id"], row["_weight"]) for row in pairs)

        return self.start_batches(rows, note, **options)

    def start_batches(
        self, rows: DataFrame, each: Callable[[DataFrame, int], None], **options: str
    ) -> StreamingQuery:
        """Start a query with a function of the test's own for every batch."""
        writer = rows.writeStream.foreachBatch(each).options(**options)
        return writer.option("checkpointLocation", str(self.checkpoint)).start()

    def advance(self, query: StreamingQuery, *, to_s: float) -> None:
        """Let the clock run to `to_s` and wait until the rows of that time have been processed."""
        self.set_clock(to_s)
        query.processAllAvailable()

    def set_clock(self, now_s: float) -> None:
        """Set the virtual time at once."""
        beside = self._clock.with_suffix(".new")
        beside.write_text(str(now_s))
        os.replace(beside, self._clock)

    @property
    def now_s(self) -> float:
        """The virtual time."""
        return float(self._clock.read_text()) if self._clock.exists() else 0.0

    def kept_ids(self) -> dict[int, list[int]]:
        """Return the kept rows' ids by batch."""
        return {batch: [id_ for id_, _ in pairs] for batch, pairs in self.kept.items()}

    def booked(self, batches: int) -> Ledger:
        """Return the ledger once it has this many batches with rows; fail if they do not come."""
        ledger = Ledger(self.state / "ledger")
        wait_until(lambda: rows_batches(ledger) >= batches, f"{batches} batches in the ledger")
        return ledger

    @property
    def _clock(self) -> Path:
        return self.folder / "clock"


def rows_batches(ledger: Ledger) -> int:
    """Count the batches in the ledger that had rows."""
    return sum(1 for entry in ledger.entries() if entry.seen.rows_in)


def wait_until(holds: Callable[[], bool], what: str, *, timeout_s: float = 60.0) -> None:
    """Wait for an event of another thread that nothing else announces."""
    import threading
    import time

    deadline = time.monotonic() + timeout_s
    pause = threading.Event()
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {timeout_s:g} s")
        pause.wait(0.02)


@pytest.fixture
def driven(spark: SparkSession, tmp_path: Path) -> Iterator[Driven]:
    """A driven stream; queries that a failed test leaves behind are stopped."""
    yield Driven(spark, tmp_path)
    for query in spark.streams.active:
        query.stop()


def read_offsets(checkpoint: Path, batch_id: int) -> Any:
    """Return the last line of Spark's offset log for a batch."""
    return json.loads((checkpoint / "offsets" / str(batch_id)).read_text().splitlines()[-1])
