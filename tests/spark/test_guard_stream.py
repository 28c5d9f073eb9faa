"""A guarded stream keeps exact books, decides alike in every replay, and opens on any failure."""

import json
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import spillway as sw
from spillway.spark.uniform import uniform
from spillway.state import files
from spillway.state.memory import Memory
from spillway.values import Budget, CostState, LoopState, Observation, Plan
from tests.conftest import Driven, wait_until


def guard(driven: Driven, **arguments: object) -> sw.Guard:
    arguments.setdefault("control", sw.FixedRate(0.3))
    return sw.Guard("rides", state=driven.state, **arguments)  # type: ignore[arg-type]


def test_the_books_are_exact_over_batches_and_restarts(driven: Driven) -> None:
    """Rows in = kept + shed for every batch, and the kept ones are those that reached the sink."""
    times = [(1.0, 2.5), (4.0,), (4.2, 9.0)]
    for run in times:
        rows = guard(driven).protect(driven.stream(), identity=["id"], arrived="arrived")
        query = driven.start(rows)
        for at_s in run:
            driven.advance(query, to_s=at_s)
        driven.booked(len([t for r in times for t in r if t <= run[-1]]))
        query.stop()
    entries = [e for e in guard(driven).ledger().entries() if e.seen.rows_in]
    totals = guard(driven).ledger().totals()
    assert totals.rows_in == 9000
    assert totals.rows_in == totals.rows_kept + totals.rows_shed
    assert totals.shed == {("all", "fixed rate"): totals.rows_shed}
    assert [e.seen.rows_in for e in entries] == [1000, 1500, 1500, 200, 4800]
    by_batch = {batch: ids for batch, ids in driven.kept_ids().items() if ids}
    assert {e.batch_id: e.seen.rows_kept for e in entries} == {
        b: len(i) for b, i in by_batch.items()
    }
    ids = [id_ for ids in by_batch.values() for id_ in ids]
    assert len(ids) == len(set(ids))
    assert guard(driven).gaps() == []


def test_every_entry_suffices_to_tell_kept_from_shed_again(driven: Driven) -> None:
    """Offsets, plan, salt and identity in the ledger reproduce the decisions on 10,000 rows."""
    query = driven.start(guard(driven).protect(driven.stream(), identity=["id"]))
    for at_s in (3.0, 10.0):
        driven.advance(query, to_s=at_s)
    entries = driven.booked(2).entries()
    again: list[int] = []
    for entry in entries:
        (start, end), *_ = json.loads(entry.offsets)
        rows = range((start or {"row": 0})["row"], end["row"])
        assert entry.plan is not None
        salt, rate = entry.plan.salt, entry.plan.plan.rates[0]
        again += [row for row in rows if uniform(salt, row) < rate]
    kept = sorted(id_ for ids in driven.kept_ids().values() for id_ in ids)
    assert sorted(again) == kept
    assert len(kept) < 10_000


def test_a_replayed_batch_keeps_the_same_rows(driven: Driven) -> None:
    """Not committed, then run again with other partitions, other costs and another policy."""
    query = driven.start(guard(driven).protect(driven.stream(), identity=["id"]))
    for at_s in (1.0, 11.0):
        driven.advance(query, to_s=at_s)
    driven.booked(2)
    query.stop()
    first = dict(driven.kept)
    last = max(b for b, ids in first.items() if ids)
    for stale in driven.checkpoint.glob(f"commits/*{last}*"):
        stale.unlink()  # as if the driver had died before the commit
    for stale in driven.checkpoint.glob(f"commits/.{last}.crc"):
        stale.unlink()
    driven.kept.clear()
    other = guard(driven, control=sw.FixedRate(0.9))
    stream = driven.stream(partitions="5").repartition(3)
    query = driven.start(other.protect(stream, identity=["id"]))
    driven.advance(query, to_s=11.0)
    wait_until(lambda: last in driven.kept, "the replay")
    query.stop()
    assert len(first[last]) > 2000
    assert driven.kept[last] == first[last]


def test_a_failed_task_and_its_retry_count_once(driven: Driven, tmp_path: Path) -> None:
    """Each task fails after it has consumed all its rows, and is tried again."""
    marks = tmp_path / "marks"
    marks.mkdir()

    def fail_once(batches):  # type: ignore[no-untyped-def]
        from pyspark import TaskContext

        mark = marks / str(TaskContext.get().partitionId())
        yield from batches
        if not mark.exists():
            mark.touch()
            raise RuntimeError("fails once")

    rows = guard(driven).protect(driven.stream(), identity=["id"])
    query = driven.start(rows.mapInArrow(fail_once, rows.schema))
    driven.advance(query, to_s=5.0)
    entry = next(e for e in driven.booked(1).entries() if e.seen.rows_in)
    query.stop()
    assert len(list(marks.iterdir())) == 2
    assert entry.seen.rows_in == 5000
    assert entry.seen.rows_kept == len(driven.kept[entry.batch_id])


def test_batch_sizes_are_known_exactly_before_the_batch_runs(driven: Driven) -> None:
    query = driven.start(guard(driven).protect(driven.stream(), identity=["id"]))
    for at_s in (1.0, 1.5, 2.0, 7.0, 7.1):
        driven.advance(query, to_s=at_s)
    entries = [e for e in driven.booked(5).entries() if e.seen.rows_in]
    query.stop()
    expected = [e.plan.rows_expected for e in entries if e.plan]
    assert expected[1:] == [e.seen.rows_in for e in entries][1:] == [500, 500, 5000, 100]


def test_a_hundredfold_batch_is_met_in_that_very_batch(driven: Driven) -> None:
    """Known cost, objective 10 s: the surprise is cut to what fits, the next batch is whole."""
    seed_state(driven, cost_s=1e-2, rows=100.0)
    watched = guard(driven, objective=sw.Latency(average="10 s"), control=None)
    query = driven.start(watched.protect(driven.stream(), identity=["id"]))
    for batches, at_s in enumerate((0.1, 0.2, 20.0, 20.1), start=1):
        driven.advance(query, to_s=at_s)
        driven.booked(batches)
    entries = [e for e in driven.booked(4).entries() if e.seen.rows_in]
    query.stop()
    assert [e.seen.rows_in for e in entries] == [100, 100, 19_800, 100]
    shares = [e.seen.share for e in entries]
    assert shares[:2] == [1.0, 1.0]
    assert shares[2] < 0.08
    assert entries[2].reason == "overload"


def seed_state(driven: Driven, *, cost_s: float, rows: float) -> None:
    """Write a state as an earlier run would have left it."""
    samples = tuple((rows * k, 0.05 + rows * k * cost_s) for k in (1.0, 2.0, 3.0) * 13)
    Memory(folder=driven.state).save(LoopState(cost=CostState(samples=samples)))


def test_without_overload_nothing_changes(driven: Driven) -> None:
    """Below the objective the output equals that of the query without the guard."""
    watched = guard(driven, objective=sw.Latency(p99="1 h"), control=None)
    stream = driven.stream()
    rows = watched.protect(stream, identity=["id"], arrived="arrived")
    got: list[DataFrame] = []

    def collect(batch: DataFrame, batch_id: int) -> None:
        got.append(batch.collect())  # type: ignore[arg-type]

    query = driven.start_batches(rows, collect)
    for at_s in (0.5, 3.0):
        driven.advance(query, to_s=at_s)
    totals = driven.booked(2).totals()
    query.stop()
    kept = [row for batch in got for row in batch]
    assert totals.rows_shed == 0
    assert {row["_weight"] for row in kept} == {1.0}
    plain = plain_rows(driven, stream.columns)
    assert sorted(tuple(row)[:-2] for row in kept) == plain


def plain_rows(driven: Driven, columns: list[str]) -> list[tuple[object, ...]]:
    """Return what the stream delivers without a guard, but for the arrival time of this start."""
    other = Driven(driven.spark, driven.folder / "plain")
    other.folder.mkdir()
    got: list[tuple[object, ...]] = []
    query = other.start_batches(
        other.stream().drop("arrived"), lambda batch, _: got.extend(map(tuple, batch.collect()))
    )
    other.advance(query, to_s=3.0)
    query.stop()
    return sorted(got)


@dataclass(frozen=True)
class Broken:
    """A user's policy that does not do its work."""

    how: str

    score = None
    strata = ("all",)
    quantiles = ()

    def plan(self, seen: Observation | None, budget: Budget) -> Plan:
        """Raise, hang, or answer nonsense."""
        if self.how == "raises":
            raise ZeroDivisionError("oops")
        if self.how == "hangs":
            time.sleep(30)
        if self.how == "nothing":
            return None  # type: ignore[return-value]
        return Plan(rates=(float("nan"),) if self.how == "nan" else (0.5, 0.5), reason="?")


@pytest.mark.parametrize("how", ["raises", "hangs", "nothing", "nan", "wrong length"])
def test_a_broken_policy_opens_the_gate_and_is_counted(driven: Driven, how: str) -> None:
    watched = guard(driven, shed=Broken(how), limits=sw.Limits(timeout_s=0.3))
    query = driven.start(watched.protect(driven.stream(), identity=["id"]))
    driven.advance(query, to_s=1.0)
    totals = driven.booked(1).totals()
    query.stop()
    assert (totals.rows_in, totals.rows_shed) == (1000, 0)
    assert watched.faults >= 1


def test_a_state_folder_that_cannot_be_written_opens_the_gate(driven: Driven) -> None:
    """A file stands where the folder should be: nothing can be pinned, so all is kept."""
    driven.checkpoint.mkdir(parents=True)
    driven.state.write_text("not a folder")
    watched = guard(driven)
    query = driven.start(watched.protect(driven.stream(), identity=["id"]))
    driven.advance(query, to_s=1.0)
    wait_until(lambda: watched.faults > 0, "a counted fault")
    query.stop()
    assert len(driven.kept_ids()[max(driven.kept)]) == 1000


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "future"])
def test_a_damaged_state_file_falls_back_and_never_stops_the_query(
    driven: Driven, damage: str
) -> None:
    watched = guard(driven)
    query = driven.start(watched.protect(driven.stream(), identity=["id"]))
    for at_s in (1.0, 2.0):
        driven.advance(query, to_s=at_s)
    learnt = driven.booked(2).entries()[-1].batch_id
    memory = Memory(folder=driven.state)
    wait_until(lambda: memory.load()[0].batch_id >= learnt, "the state after the last batch")
    query.stop()
    path = driven.state / "state.json"
    data = path.read_bytes()
    path.write_bytes(
        {
            "truncated": data[: len(data) // 2],
            "flipped": data[:-20] + bytes([data[-20] ^ 1]) + data[-19:],
            "empty": b"",
            "future": data.replace(b'"spillway":1', b'"spillway":9'),
        }[damage]
    )
    with pytest.raises(files.BadStateFile):
        files.read(path, "loop state", LoopState)
    watched = guard(driven)
    query = driven.start(watched.protect(driven.stream(), identity=["id"]))
    driven.advance(query, to_s=3.0)
    totals = driven.booked(3).totals()
    query.stop()
    assert watched.faults >= 1
    assert totals.rows_in == 3000
    assert 0 < totals.rows_shed < 3000


def test_another_checkpoint_is_another_stream(driven: Driven) -> None:
    """State kept, checkpoint deleted: batch 0 gets a new plan, not the old batch 0's."""
    query = driven.start(guard(driven, control=sw.FixedRate(0.1)).protect(driven.stream()))
    driven.advance(query, to_s=1.0)
    driven.booked(1)
    query.stop()
    for name in ("offsets", "commits", "metadata", "sources"):
        target = driven.checkpoint / name
        shutil.rmtree(target) if target.is_dir() else target.unlink(missing_ok=True)
    (driven.checkpoint / ".metadata.crc").unlink(missing_ok=True)
    again = guard(driven, control=sw.FixedRate(1.0))
    driven.kept.clear()
    query = driven.start(again.protect(driven.stream()))
    driven.advance(query, to_s=2.0)
    wait_until(lambda: len(driven.kept) > 0, "a batch")
    query.stop()
    assert sum(len(ids) for ids in driven.kept.values()) >= 1000
    assert again.ledger().totals().rows_shed < 1000


def test_semantic_shedding_gives_up_the_lowest_utility_first(driven: Driven) -> None:
    shed = sw.Semantic(utility="value")
    watched = guard(driven, shed=shed, control=sw.FixedRate(0.4))
    rows = watched.protect(driven.stream(), identity=["id"])
    values: dict[int, list[float]] = {}

    def collect(batch: DataFrame, batch_id: int) -> None:
        values[batch_id] = [row["value"] for row in batch.select("value").collect()]

    query = driven.start_batches(rows, collect)
    driven.advance(query, to_s=4.0)
    driven.booked(1)  # the quantiles of this batch are known now
    driven.advance(query, to_s=12.0)
    entry = [e for e in driven.booked(2).entries() if e.seen.rows_in][-1]
    query.stop()
    assert entry.plan is not None
    lower, upper = entry.plan.plan.edges
    below, boundary, above = entry.seen.strata[:3]
    assert entry.seen.share == pytest.approx(0.4, abs=0.03)
    assert above.rows_kept == above.rows_in > 0
    assert below.rows_kept <= 0.01 * below.rows_in
    assert boundary.rows_in < 0.03 * entry.seen.rows_in
    assert sum(value < lower for value in values[entry.batch_id]) == below.rows_kept
    assert sum(value >= upper for value in values[entry.batch_id]) == above.rows_kept


def test_what_cannot_be_protected_is_refused_before_data_is_read(
    driven: Driven, spark: SparkSession
) -> None:
    stream = driven.stream()
    with pytest.raises(ValueError, match="foreachBatch"):
        guard(driven).protect(spark.range(3))
    with pytest.raises(ValueError, match="batch_id belongs inside foreachBatch"):
        guard(driven).protect(stream, batch_id=3)
    with pytest.raises(ValueError, match="arrived must be one of the columns"):
        guard(driven).protect(stream, arrived="when")
    writer = guard(driven).protect(stream).writeStream.format("noop")
    with pytest.raises(Exception, match="Continuous processing does not support"):
        writer.option("checkpointLocation", str(driven.checkpoint)).trigger(
            continuous="1 second"
        ).start()
    assert not (driven.state / "plans").exists()


def test_a_utility_column_that_vanished_is_refused_before_data_is_read(driven: Driven) -> None:
    watched = guard(driven, shed=sw.Semantic(utility="importance"))
    with pytest.raises(Exception, match="importance"):
        watched.protect(driven.stream())


def test_a_watermark_and_a_window_work_behind_the_gate(driven: Driven) -> None:
    """Estimators in a streaming aggregation with event time: the totals add up to the estimate."""
    stream = driven.stream().withWatermark("arrived", "1 second")
    kept = guard(driven, control=sw.FixedRate(0.5)).protect(stream, identity=["id"])
    fares = kept.groupBy(F.window("arrived", "10 minutes"), "key").agg(
        sw.count(confidence=0.95), sw.sum("value"), sw.mean("value", confidence=0.9)
    )
    last: list[float] = []

    def note(batch: DataFrame, batch_id: int) -> None:
        last.append(batch.agg(F.sum("count.value")).collect()[0][0])

    writer = fares.writeStream.outputMode("complete").foreachBatch(note)
    query = writer.option("checkpointLocation", str(driven.checkpoint)).start()
    for at_s in (2.0, 5.0):
        driven.advance(query, to_s=at_s)
    totals = driven.booked(2).totals()
    query.stop()
    assert last[-1] == pytest.approx(2.0 * totals.rows_kept)


def test_a_user_error_in_the_query_is_the_users_own(driven: Driven) -> None:
    rows = guard(driven).protect(driven.stream(), identity=["id"])
    query = driven.start(rows.withColumn("boom", F.raise_error(F.lit("their own"))).drop("boom"))
    query.stop()
    bad = rows.where(F.expr("assert_true(id < 0, 'their own') IS NULL"))
    query = driven.start(bad)
    with pytest.raises(StreamingQueryException, match="their own"):
        driven.advance(query, to_s=1.0)


def test_a_guard_of_a_running_query_is_not_lent_to_another(driven: Driven) -> None:
    watched = guard(driven)
    query = driven.start(watched.protect(driven.stream(), identity=["id"]))
    driven.advance(query, to_s=1.0)
    driven.booked(1)
    with pytest.raises(ValueError, match="'rides' protects a running query already"):
        watched.protect(driven.stream())
    query.stop()
    query = driven.start(watched.protect(driven.stream(), identity=["id"]))  # a restart is fine
    driven.advance(query, to_s=2.0)
    driven.booked(2)
    query.stop()


def test_a_guard_that_stands_twice_in_a_query_says_so(driven: Driven) -> None:
    watched = guard(driven)
    first = watched.protect(driven.stream(), identity=["id"])
    second = watched.protect(first.drop("_weight"), identity=["id"])
    query = driven.start(second)
    driven.advance(query, to_s=1.0)
    wait_until(lambda: watched.faults > 0, "a counted fault")
    query.stop()


def test_guards_of_the_same_name_do_not_hear_each_other(driven: Driven, tmp_path: Path) -> None:
    other = sw.Guard("rides", control=sw.FixedRate(0.5), state=tmp_path / "other")
    other.protect(driven.stream())
    query = driven.start(guard(driven).protect(driven.stream(), identity=["id"]))
    driven.advance(query, to_s=1.0)
    driven.booked(1)
    query.stop()
    assert other.ledger().entries() == []
    assert other.faults == 0
