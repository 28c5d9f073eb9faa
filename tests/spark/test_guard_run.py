"""Only the selected subtasks run, every row says which, and the books are exact."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

import spillway as sw
from spillway.degrade.profile import Profile
from spillway.degrade.remembered import OWN, built
from spillway.kernels.uniform import uniform
from spillway.spark.subtasks import SubtaskOperator
from spillway.spark.subtasks_choice import mix_salt
from spillway.spark.subtasks_native import NativeSubtasks, mix_values
from spillway.spark.subtasks_pipeline import pipeline_of
from spillway.state.memory import Memory
from spillway.values import PinnedPlan, Plan
from spillway.work_values import Selection, WorkMix
from tests.conftest import Driven, wait_until

Row = dict[str, Any]
SCHEMA = "id bigint, once bigint, a bigint, b bigint"
PROFILE = Profile(duration_s={"once": 0.002, "a": 0.001, "b": 0.001}, lost={"a": 0.1, "b": 0.3})
MIX = WorkMix(
    less=Selection(off=("a", "b"), accuracy=0.6, work=0.5),
    more=Selection(off=("a",), accuracy=0.9, work=0.75),
    fraction=0.4,
)
PINNED = PinnedPlan(batch_id=3, salt=99, plan=Plan(rates=(1.0,), mix=MIX))


def subtasks(a: Callable[[Row], Row] | None = None) -> sw.Subtasks:
    return sw.Subtasks(
        [
            sw.Subtask("once", does=lambda row: {"once": row["id"] + 1}),
            sw.Subtask("a", does=a or (lambda row: {"a": row["once"] * 2}), optional=True),
            sw.Subtask("b", does=lambda row: {"b": row["once"] * 3}, optional=True),
        ]
    )


def native() -> sw.Subtasks:
    return sw.Subtasks(
        [
            sw.Subtask("once", does="id + 1"),
            sw.Subtask("a", does="once * 2 + length(sha2(string(id), 224)) * 0", optional=True),
            sw.Subtask("b", does=F.col("once") * 3, optional=True),
        ]
    )


def guard(driven: Driven, share: float, **arguments: Any) -> sw.Guard:
    arguments.setdefault("shed", sw.Degrade())
    return sw.Guard("tweets", state=driven.state, control=sw.FixedRate(share), **arguments)


class Noted:
    """The rows of every batch, by id."""

    def __init__(self) -> None:
        self.batches: dict[int, dict[int, Row]] = {}

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        rows = {row["id"]: row.asDict() for row in batch.collect()}
        if rows:
            self.batches[batch_id] = rows

    def all(self) -> list[Row]:
        return [row for rows in self.batches.values() for row in rows.values()]


def plain(row: Row) -> Row:
    """What the pipeline makes of a row without a guard."""
    return {"id": row["id"], "once": row["id"] + 1, "a": row["id"] * 2 + 2, "b": row["id"] * 3 + 3}


def check_selected(rows: list[Row]) -> None:
    """What is not selected is NULL, what is selected is what it is without a guard."""
    for row in rows:
        whole = plain(row)
        for name in ("once", "a", "b"):
            assert row[name] == (whole[name] if name in row["_selection"] else None)


# In a stream ---------------------------------------------------------------------------------


def test_a_stream_runs_what_is_selected_and_a_replay_selects_alike(driven: Driven) -> None:
    """At 70 % of the work some rows go without a, others without a and b; 5 % run complete."""

    def start(partitions: str) -> tuple[sw.Guard, Any]:
        watched = guard(driven, 0.7)
        done = watched.run(
            driven.stream(partitions=partitions),
            subtasks(),
            schema=SCHEMA,
            profile=PROFILE,
            complete=0.05,
            identity=["id"],
        )
        return watched, driven.start_batches(done, noted)

    noted = Noted()
    watched, query = start("2")
    for batches, to_s in enumerate((2.0, 4.0), start=1):
        driven.advance(query, to_s=to_s)
        driven.booked(batches)
    query.stop()
    entries = [entry for entry in watched.ledger().entries() if entry.seen.rows_in]

    check_selected(noted.all())
    assert [entry.seen.rows_kept for entry in entries] == [2000, 2000]
    assert all(entry.rows_shed == 0 for entry in entries)
    for entry in entries:
        assert entry.plan is not None
        mix, work = entry.plan.plan.mix, entry.seen.work
        assert mix is not None
        assert work is not None
        rows = list(noted.batches[entry.batch_id].values())
        told = [sorted({"a", "b"} - set(row["_selection"])) for row in rows]
        complete = sum(row["_accuracy"] == 1.0 for row in rows)
        assert complete == work.rows_complete == told.count([])
        assert told.count(list(mix.less.off)) == work.rows_less
        assert told.count(list(mix.more.off)) == work.rows_more
        ran = {run.name: run.rows for run in work.subtasks}
        assert ran == {
            OWN: 2000,
            **{name: sum(name in row["_selection"] for row in rows) for name in ("once", "a", "b")},
        }
        # 6 standard deviations of a binomial share each
        assert work.rows_complete / 2000 == pytest.approx(0.05, abs=0.03)
        assert work.rows_more / (2000 - complete) == pytest.approx(mix.fraction, abs=0.07)
        assert f"accuracy {mix.accuracy:.3f}" in entry.reason

    last = max(noted.batches)
    for stale in driven.checkpoint.glob(f"commits/*{last}*"):
        stale.unlink()  # as if the driver had died before the commit
    first = noted.batches.pop(last)
    _, query = start("3")
    driven.advance(query, to_s=4.0)
    wait_until(lambda: last in noted.batches, "the replay")
    query.stop()
    assert noted.batches[last] == first


def test_a_subtask_that_raises_gives_the_users_own_exception(driven: Driven) -> None:
    work = subtasks(a=lambda row: {"a": 1 // (row["id"] - row["id"])})
    done = guard(driven, 1.0).run(driven.stream(), work, schema=SCHEMA, identity=["id"])
    query = driven.start_batches(done, Noted())
    with pytest.raises(StreamingQueryException, match="ZeroDivisionError: integer"):
        driven.advance(query, to_s=1.0)


def test_a_native_stream_stays_native_and_its_books_are_exact(driven: Driven) -> None:
    watched = guard(driven, 0.7)
    done = watched.run(driven.stream(), native(), profile=PROFILE, identity=["id"])
    noted = Noted()
    query = driven.start_batches(done.select("id", "once", "a", "b", "_selection"), noted)
    for batches, to_s in enumerate((1.0, 2.0), start=1):
        driven.advance(query, to_s=to_s)
        driven.booked(batches)
    entries = [entry for entry in watched.ledger().entries() if entry.seen.rows_in]
    query.stop()
    check_selected(noted.all())
    for entry in entries:
        assert entry.seen.work is not None
        assert entry.seen.rows_kept == entry.seen.work.rows == 1000
        assert entry.seen.work.done == pytest.approx(0.7, abs=0.05)
        assert 0 < entry.seen.work.rows_more < 1000


# Inside foreachBatch -------------------------------------------------------------------------


def test_beyond_the_mandatory_work_the_next_shedder_takes_rows(driven: Driven) -> None:
    """A quarter of the work, of which the mandatory part is half: every second row goes."""
    watched = guard(driven, 0.25, shed=[sw.Degrade(), sw.Uniform()])
    noted = Noted()

    def each(batch: DataFrame, batch_id: int) -> None:
        rows = watched.protect(batch, identity=["id"], batch_id=batch_id)
        done = watched.run(
            rows,
            subtasks(),
            schema=SCHEMA,
            profile=PROFILE,
            complete=0.0,
            identity=["id"],
            batch_id=batch_id,
        )
        noted(done, batch_id)

    query = driven.start_batches(driven.stream(), each)
    for batches, to_s in enumerate((1.0, 3.0), start=1):
        driven.advance(query, to_s=to_s)
        driven.booked(batches)
    entries = [entry for entry in watched.ledger().entries() if entry.seen.rows_in]
    totals = watched.ledger().totals()
    query.stop()
    assert totals.rows_in == 3000 == totals.rows_kept + totals.rows_shed
    assert totals.rows_kept == len(noted.all())
    last = entries[-1].seen
    assert last.work is not None
    assert last.work.rows == last.rows_kept
    assert last.share == pytest.approx(0.5, abs=0.07)  # 6 standard deviations
    final = noted.batches[entries[-1].batch_id].values()
    assert all(row["_selection"] == ["once"] for row in final)
    assert {row["_weight"] for row in final} == {2.0}


def test_the_online_profile_follows_a_subtask_that_gets_slower(
    driven: Driven, tmp_path: Path
) -> None:
    """From next to nothing to 2 ms a row, within three batches; no profile was given."""
    slow = tmp_path / "slow"
    driven.rows_per_s = 200

    def a(row: Row) -> Row:
        until = time.perf_counter_ns() + (2_000_000 if slow.exists() else 0)
        while time.perf_counter_ns() < until:
            pass
        return {"a": row["once"] * 2}

    watched, noted, schema = guard(driven, 1.0), Noted(), "id bigint, once bigint, a bigint"

    def each(batch: DataFrame, batch_id: int) -> None:
        done = watched.run(
            batch, subtasks(a), schema=schema, complete=0.4, identity=["id"], batch_id=batch_id
        )
        noted(done, batch_id)

    def known_s() -> float:
        work = Memory(folder=driven.state).load()[0].work
        return built(work).duration_s["a"] if work.subtasks else 0.0

    query = driven.start_batches(driven.stream(), each)
    for batches in (1, 2, 3):
        driven.advance(query, to_s=float(batches))
        driven.booked(batches)
    wait_until(lambda: known_s() > 0, "a profile")
    before_s = known_s()
    slow.touch()
    for batches in (4, 5, 6):
        driven.advance(query, to_s=float(batches))
        driven.booked(batches)
    wait_until(lambda: Memory(folder=driven.state).load()[0].batch_id >= 5, "the sixth batch")
    after_s, lost = known_s(), built(Memory(folder=driven.state).load()[0].work).lost
    query.stop()
    assert before_s < 0.001 < 0.002 <= after_s
    assert noted.all() == [
        {
            **{name: plain(row)[name] for name in ("id", "once", "a")},
            "_weight": 1.0,
            "_accuracy": 1.0,
            "_selection": ["once", "a", "b"],
        }
        for row in noted.all()
    ]
    # Of the two new columns one is lost without a, none without b; a guess was 1/3 each.
    assert lost == pytest.approx({"a": 0.5, "b": 0.0})


# The plan of a batch -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    return spark.range(0, 3000, 1, 2)


def attached(
    rows: DataFrame, work: sw.Subtasks, pinned: PinnedPlan, **options: Any
) -> tuple[DataFrame, Observation]:
    pipeline = pipeline_of(
        work,
        schema=None if work["once"].does == "id + 1" else SCHEMA,
        complete=options.get("complete", 0.0),
        measure=None,
        key=options.get("key"),
        identity=("id",),
        seed=lambda: 7,
    )
    observed = Observation(f"run {time.perf_counter_ns()}")
    return pipeline.attach_batch(rows, observed, pinned), observed


def as_rows(df: DataFrame) -> dict[int, Row]:
    return {row["id"]: row.asDict() for row in df.collect()}


def test_native_and_python_subtasks_select_alike_by_the_rows_own_hash(rows: DataFrame) -> None:
    in_python = as_rows(attached(rows, subtasks(), PINNED)[0])
    in_spark = as_rows(attached(rows, native(), PINNED)[0])
    assert in_python == in_spark
    check_selected(list(in_python.values()))
    salt = mix_salt(PINNED)
    assert salt != PINNED.salt
    some = in_spark[5]
    assert (uniform(salt, _hash(7, 5)) < 0.4) == (some["_selection"] == ["once", "b"])
    assert some["_accuracy"] == (0.9 if "b" in some["_selection"] else 0.6)


def test_a_stream_of_native_subtasks_selects_as_a_batch_does(
    spark: SparkSession, rows: DataFrame
) -> None:
    values = mix_values(PINNED, native())
    mix = F.struct(*(F.lit(value).alias(name) for name, value in values.items()))
    pipeline = NativeSubtasks(subtasks=native(), identity=("id",), seed=lambda: 7)
    in_stream = as_rows(pipeline.by_column(rows, "native stream", mix))
    assert in_stream == as_rows(attached(rows, native(), PINNED)[0])


def test_what_both_selections_leave_out_is_not_in_the_plan(rows: DataFrame) -> None:
    """a needs sha2, which no plan without a has; and no Python runs."""
    done, _ = attached(rows, native(), PINNED)
    plan = done._jdf.queryExecution().executedPlan().toString()  # type: ignore[operator]
    assert "sha2" not in plan
    assert "* 3" in plan
    assert "Python" not in plan
    assert "Arrow" not in plan
    whole, _ = attached(rows, native(), PinnedPlan(batch_id=3, salt=9, plan=Plan(rates=(1.0,))))
    assert "sha2" in whole._jdf.queryExecution().executedPlan().toString()  # type: ignore[operator]


@pytest.mark.parametrize("work", [subtasks, native])
def test_without_a_mix_the_output_is_that_of_the_pipeline_without_a_guard(
    rows: DataFrame, work: Callable[[], sw.Subtasks]
) -> None:
    opened = PinnedPlan(batch_id=3, salt=0, plan=Plan(rates=(1.0,)))
    found = as_rows(attached(rows, work(), opened, complete=0.1)[0])
    added = {"_accuracy": 1.0, "_selection": ["once", "a", "b"]}
    assert found == {at: {**plain({"id": at}), **added} for at in range(3000)}


def test_native_subtasks_beside_python_ones_are_left_out_of_the_rows(rows: DataFrame) -> None:
    """c is Python, sees b where b is on, and drops the rows that are not even."""

    def c(row: Row) -> Row | None:
        return {"c": row.get("b")} if row["id"] % 2 == 0 else None

    work = sw.Subtasks(
        [
            sw.Subtask("b", does="id * 3", optional=True),
            sw.Subtask("c", does=c, after=("b",)),
        ]
    )
    pipeline = SubtaskOperator(
        subtasks=work,
        schema=StructType.fromDDL("id bigint, c bigint"),
        identity=("id",),
        seed=lambda: 7,
    )
    mix = WorkMix(less=Selection(off=("b",)), more=Selection(), fraction=0.5)
    pinned = PinnedPlan(batch_id=3, salt=9, plan=Plan(rates=(1.0,), mix=mix))
    found = as_rows(pipeline.attach_batch(rows, Observation("beside"), pinned))
    assert sorted(found) == list(range(0, 3000, 2))
    for at, row in found.items():
        assert row["c"] == (at * 3 if "b" in row["_selection"] else None)
    assert {len(row["_selection"]) for row in found.values()} == {1, 2}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "schema must have at least one column, got None"),
        ({"schema": "id bigint, _accuracy double"}, r"schema must not name \['_accuracy'\]"),
        ({"schema": SCHEMA, "complete": 1.0}, r"complete must be in \[0, 1\), got 1.0"),
        ({"schema": SCHEMA, "key": "nowhere"}, "key must be one of the columns"),
        ({"subtasks": sw.Subtasks([sw.Subtask("x")])}, "does of 'x' must be a function, SQL"),
        ({"subtasks": [sw.Subtask("x")]}, r"subtasks must be Subtasks\(\[...\]\), got list"),
        ({"subtasks": native}, "profile must be given where all subtasks are native"),
        ({"subtasks": native, "schema": SCHEMA}, "schema belongs to Python subtasks"),
        (
            {"subtasks": sw.Subtasks([sw.Subtask("id", does="1")]), "profile": PROFILE},
            "duration_s must be known of id",
        ),
    ],
)
def test_a_wrong_argument_is_refused_before_any_data(
    driven: Driven, arguments: dict[str, Any], message: str
) -> None:
    given = {"subtasks": subtasks, **arguments}
    work = given.pop("subtasks")
    with pytest.raises(ValueError, match=message):
        guard(driven, 1.0).run(driven.stream(), work() if callable(work) else work, **given)


def _hash(seed: int, number: int) -> int:
    """Return Spark's xxhash64(seed, number)."""
    import struct

    import xxhash

    first = xxhash.xxh64_intdigest(struct.pack("<q", seed), seed=42)
    found = xxhash.xxh64_intdigest(struct.pack("<q", number), seed=first)
    return found - (1 << 64) if found >> 63 else found
