"""Queries that share: they start, stop, idle, fail and come again, in one driver and in two."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import spillway as sw
from spillway.state.fair_log import FairLog, Member
from spillway.state.ledger import Entry
from tests.conftest import Driven, wait_until

CORES = 0.014  # far less than any of these queries needs, however slow the machine is
LONG_S = 3_600.0
SCHEMA = "id bigint, key bigint"
Row = dict[str, Any]


def waits(us: int) -> Callable[[Row], Row]:
    """An operator that takes so long for a row, waiting: a busy machine stretches work more."""

    def work(row: Row) -> Row:
        time.sleep(us / 1e6)
        return {"id": row["id"], "key": row["key"]}

    return work


@dataclass
class Running:
    """A guarded query that is driven batch by batch."""

    driven: Driven
    guard: sw.Guard
    log: FairLog
    query: StreamingQuery | None = None

    def start(self, fn: Callable[[Row], Row], *, always: str | None = None) -> None:
        """Protect and map the stream; rows come when `go` lets them, some are `always` kept."""
        stream = self.driven.stream(partitions="1")
        kept = self.guard.protect(stream, identity=["id"], protect=always)
        self.query = self.driven.start(self.guard.map(kept, fn, SCHEMA, key="key"))

    def go(self, batches: int = 1) -> None:
        """Let rows of a second come, and wait until their batch is told to the others.

        From then on the member seems alive until it is made `silent`, however slow the machine is.
        """
        assert self.query is not None
        for _ in range(batches):
            more = len(self.entries) + 1
            self.driven.advance(self.query, to_s=self.driven.now_s + 1.0)
            wait_until(partial(self.has_told, more), "the batch's record")
            self.silent(seconds=-LONG_S)

    @property
    def entries(self) -> list[Entry]:
        """The batches with rows, as they stand in the books."""
        return [entry for entry in self.guard.ledger().entries() if entry.seen.rows_in]

    @property
    def rate(self) -> float:
        """The keep rate that the last batch was planned with."""
        plan = self.entries[-1].plan
        assert plan is not None
        return plan.plan.rates[0]

    @property
    def told(self) -> Member:
        """The member's record."""
        found = self.log.read(self.guard.name)
        assert found is not None
        return found

    def silent(self, seconds: float) -> None:
        """Make it so that the member has not been heard of for so long."""
        self.log.publish(replace(self.told, at_s=time.time() - seconds))

    def has_told(self, batches: int) -> bool:
        """Say whether so many batches are in the books, and the last in its record."""
        if len(self.entries) < batches:
            return False
        found = self.log.read(self.guard.name)
        return found is not None and found.batch_id >= self.entries[-1].batch_id


@pytest.fixture
def queries(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[..., list[Running]]]:
    """Make guarded queries that share; those that a failed test leaves behind are stopped."""

    def make(*names: str, rows_per_s: int = 300, **arguments: Any) -> list[Running]:
        log = FairLog(folder=tmp_path / "fair")
        made = []
        for name in names:
            folder = tmp_path / f"{len(list(tmp_path.iterdir()))}"
            folder.mkdir()
            driven = Driven(spark, folder, rows_per_s=rows_per_s)
            guard = sw.Guard(name, control=sw.FixedRate(1.0), state=driven.state)
            made.append(Running(driven=driven, guard=guard, log=log))
        given = {"cores": CORES, "window": "10 min", **arguments}
        sw.FairShare([each.guard for each in made], state=log.folder, **given)
        return made

    yield make
    for query in spark.streams.active:
        query.stop()


def sic(one: Running) -> float:
    """Return the SIC over all batches."""
    seen = [entry.seen for entry in one.entries]
    return sum(s.rows_kept for s in seen) / sum(s.rows_in for s in seen)


Make = Callable[..., list[Running]]


def test_queries_of_unequal_cost_come_to_the_same_sic_and_one_that_is_added_joins_them(
    queries: Make,
) -> None:
    """Scatter: 150 rows of a batch, kept at a third, are 0.04 of it, and a batch is a fourth."""
    share = {"cores": 0.28, "rows_per_s": 150}
    light, heavy = queries("light", "heavy", **share)
    light.start(waits(1_000))
    heavy.start(waits(5_000))
    for _ in range(2):
        light.go()
        heavy.go()
    (late,) = queries("late", **share)
    late.start(waits(2_000))
    for _ in range(4):
        for each in (light, heavy, late):
            each.go()
    assert late.entries[0].seen.share == 1.0  # nothing is known of it yet
    assert late.rate < 0.7
    found = [sic(each) for each in (light, heavy, late)]
    assert max(found) < 0.8
    assert max(found) - min(found) < 0.12
    assert all(each.guard.faults == 0 for each in (light, heavy, late))


def test_a_query_that_stops_fails_or_idles_leaves_its_time_and_takes_it_again(
    queries: Make,
) -> None:
    """The one that stays has 100 ms of work, and of 14 ms a second its part."""

    def fails_late(row: Row) -> Row:
        if row["id"] >= 900:
            raise RuntimeError("fails")
        return waits(3_000)(row)

    stays, other = queries("stays", "other")
    stays.start(waits(300))
    other.start(fails_late, always="id = 900")
    for _ in range(3):
        other.go()
        stays.go()
    shared = stays.rate
    with pytest.raises(StreamingQueryException, match="fails"):
        other.go()  # dead; its record is still young
    other.silent(LONG_S)
    stays.go(2)
    alone = stays.rate
    assert alone > 2 * shared
    stays.silent(LONG_S)  # an idle query looks like a dead one
    stays.go()  # and counts again from the batch on with which it comes back
    assert stays.rate < 1.0


def test_a_weight_of_zero_keeps_next_to_nothing_under_overload(queries: Make) -> None:
    paid, free = queries("paid", "free", weights={"free": 0})
    paid.start(waits(300))
    free.start(waits(300))
    for _ in range(3):
        paid.go()
        free.go()
    limits = free.guard.loop.limits  # a share that is not known in time may rise by one step
    assert free.rate <= limits.keep_min * limits.rise_max
    assert paid.rate > free.rate


def test_a_second_guard_of_a_name_is_told_so_and_leaves_the_first_ones_record(
    queries: Make,
) -> None:
    (first,) = queries("same")
    (second,) = queries("same")
    first.start(waits(300))
    first.go()
    owner = first.told.owner
    second.start(waits(300))
    assert second.query is not None
    second.driven.advance(second.query, to_s=1.0)
    wait_until(lambda: second.guard.faults > 0, "a fault")
    assert first.told.owner == owner
    assert first.guard.faults == 0


_SECOND_DRIVER = """
import sys
from pathlib import Path
import spillway as sw
from spillway.spark import burst_source
from tests.conftest import QUICK_START, Driven
from tests.spark.test_fair_share import CORES, Running, waits
from spillway.state.fair_log import FairLog

folder, fair, python = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
quick = {"spark.driver.extraJavaOptions": QUICK_START}
spark = sw.local_session("second", cores=1, config=quick)
spark.sparkContext.pythonExec = python
burst_source.register(spark)
sys.stdin.readline()
driven = Driven(spark, folder, rows_per_s=200)
guard = sw.Guard("second", control=sw.FixedRate(1.0), state=driven.state)
sw.FairShare([guard], state=fair, cores=CORES, window="10 min")
running = Running(driven=driven, guard=guard, log=FairLog(folder=fair))
running.start(waits(3_000))
running.go(2)
print("rate", running.rate, "app", running.told.app)
spark.stop()
"""


def test_two_drivers_share_one_budget(queries: Make, spark: SparkSession, tmp_path: Path) -> None:
    """A second process, with a Spark of its own, names the same folder."""
    second, fair, python = tmp_path / "second", tmp_path / "fair", spark.sparkContext.pythonExec
    second.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", _SECOND_DRIVER, str(second), str(fair), python],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as driver:
        (first,) = queries("first")  # while the other Spark starts
        first.start(waits(300))
        first.go()
        try:
            printed, failed = driver.communicate("go\n", timeout=200)
        except subprocess.TimeoutExpired:
            driver.kill()
            raise
    assert driver.returncode == 0, failed[-2_000:]
    _, rate, _, app = printed.split()
    assert float(rate) < 1.0
    record = first.log.read("second")
    assert record is not None
    assert app == record.app != first.told.app
    # However slowly its batches came here: it asks for a hundred times what the first one does.
    paced = replace(record, rows_per_s=20_000.0, batch_s=1.0, spread=0.0)
    first.log.publish(paced)
    first.go(2)  # one that came for long, and one as usual
    shared = first.rate
    first.log.publish(replace(paced, at_s=time.time() - LONG_S))
    first.go(2)
    assert first.rate > 1.5 * shared


def test_inside_foreach_batch_a_member_shares_too(queries: Make) -> None:
    one, other = queries("one", "other")
    other.start(waits(1_000))

    def each(batch: DataFrame, batch_id: int) -> None:
        kept = one.guard.protect(batch, identity=["id"], batch_id=batch_id)
        one.guard.map(kept, waits(300), SCHEMA, key="key", batch_id=batch_id).collect()

    one.query = one.driven.start_batches(one.driven.stream(partitions="1"), each)
    for _ in range(3):
        other.go()
        one.go()
    assert one.rate < 0.5
    assert other.rate < 0.5
    assert one.guard.faults == 0
