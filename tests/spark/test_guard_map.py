"""A guarded operator keeps its cost model and the books exact, whatever happens to its tasks."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

import spillway as sw
from spillway.cost.by_key import read_costs
from spillway.cost.heavy import HeavySketch
from spillway.cost.items import items_of
from spillway.state.ledger import REFUSED
from spillway.state.memory import Memory
from spillway.values import TaskReport
from tests.conftest import Driven, wait_until

SCHEMA = "id bigint, key bigint"
Row = dict[str, Any]


def guard(driven: Driven, **arguments: object) -> sw.Guard:
    arguments.setdefault("control", sw.FixedRate(0.5))
    return sw.Guard("rides", state=driven.state, **arguments)  # type: ignore[arg-type]


def same(row: Row) -> Row:
    return {"id": row["id"], "key": row["key"]}


def start(
    driven: Driven, fn: Callable[..., Any] = same, **options: Any
) -> tuple[sw.Guard, Callable[[float], None], Callable[[], None]]:
    """Start a protected and mapped stream; return the guard, how to go on, how to stop."""
    watched = guard(driven)
    kept = watched.protect(driven.stream(), identity=["id"])
    query = driven.start(watched.map(kept, fn, SCHEMA, key="key", **options))
    return watched, lambda to_s: driven.advance(query, to_s=to_s), query.stop


def model(driven: Driven) -> HeavySketch:
    """Return what the loop has learnt of the operator's costs."""
    costs = read_costs(Memory(folder=driven.state).load()[0].cost.costs)
    assert costs is not None
    return costs


def learnt(driven: Driven, rows: int) -> HeavySketch:
    wait_until(lambda: _rows_learnt(driven) >= rows, f"a model of {rows} rows")
    return model(driven)


def _rows_learnt(driven: Driven) -> int:
    costs = Memory(folder=driven.state).load()[0].cost.costs
    return model(driven).rows_seen if costs else 0


def booked_tasks(driven: Driven, batches: int) -> list[TaskReport]:
    entries = driven.booked(batches).entries()
    return [task for entry in entries if entry.seen.rows_in for task in entry.seen.tasks]


def test_every_row_that_the_gate_kept_is_measured_once(driven: Driven) -> None:
    """Batch 0 compiles and teaches nothing about durations, but the costs of its keys count."""
    _, advance, stop = start(driven)
    advance(2.0)
    driven.booked(1)
    advance(5.0)
    entries = [e for e in driven.booked(2).entries() if e.seen.rows_in]
    tasks = booked_tasks(driven, 2)
    stop()
    assert [task.rows_in for task in tasks] == [e.seen.rows_kept for e in entries]
    assert [e.seen.rows_kept for e in entries] == [len(ids) for ids in driven.kept.values() if ids]
    assert all(task.costs == b"" and task.busy_ns > 0 for task in tasks)


def test_the_model_knows_the_keys_that_cost_more(driven: Driven) -> None:
    """Keys below 10 take 200 µs, others next to nothing."""

    def slow_below_ten(row: Row) -> Row:
        import time

        until = time.perf_counter_ns() + (200_000 if row["key"] < 10 else 0)
        while time.perf_counter_ns() < until:
            pass
        return same(row)

    _, advance, stop = start(driven, slow_below_ten)
    for batches, to_s in enumerate((1.0, 2.0, 3.0), start=1):
        advance(to_s)
        driven.booked(batches)
    found = learnt(driven, 400)  # one batch: if costs seemed to change, it replaced the model
    stop()
    costs_ns = found.estimate_ns(items_of(np.arange(50)))
    assert min(costs_ns[:10]) >= 200_000
    assert sorted(costs_ns[10:])[20] < 100_000  # the median: a few may have been interrupted


def test_weights_pass_through_an_operator(driven: Driven) -> None:
    _, advance, stop = start(driven)
    advance(2.0)
    stop()
    assert {weight for pairs in driven.kept.values() for _, weight in pairs} == {2.0}


@pytest.mark.parametrize("fault", ["raises", "killed"])
def test_a_failed_task_leaves_books_and_model_exact(
    driven: Driven, tmp_path: Path, fault: str
) -> None:
    """In the middle of its rows the first task raises, or its Python worker is killed."""
    mark = tmp_path / "failed"

    def fails_once(row: Row) -> Row:
        if row["id"] % 1000 == 777 and not mark.exists():
            mark.touch()
            if fault == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError("fails once")
        return same(row)

    watched = guard(driven, control=sw.FixedRate(1.0))
    query = driven.start(
        watched.map(
            watched.protect(driven.stream(), identity=["id"]), fails_once, SCHEMA, key="key"
        )
    )
    for batches, to_s in enumerate((2.0, 4.0), start=1):
        driven.advance(query, to_s=to_s)
        driven.booked(batches)
    found = learnt(driven, 2000)
    tasks = booked_tasks(driven, 2)
    query.stop()
    assert mark.exists()
    assert [task.rows_in for task in tasks] == [2000, 2000]
    assert found.rows_seen in (2000, 4000)  # the first batch of a start may be kept out
    assert sorted(i for ids in driven.kept_ids().values() for i in ids) == list(range(4000))


def test_a_replayed_batch_teaches_nothing_twice(driven: Driven) -> None:
    _, advance, stop = start(driven)
    for batches, to_s in enumerate((1.0, 3.0), start=1):
        advance(to_s)
        driven.booked(batches)
    wait_until(lambda: _rows_learnt(driven) > 0, "a model")  # a batch is booked before it teaches
    stop()
    before = Memory(folder=driven.state).load()[0]
    last = max(b for b, ids in driven.kept.items() if ids)
    for stale in [
        *driven.checkpoint.glob(f"commits/{last}"),
        *driven.checkpoint.glob(f"commits/.{last}.crc"),
    ]:
        stale.unlink()  # as if the driver had died before the commit
    first = driven.kept.pop(last)
    _, advance, stop = start(driven)
    advance(3.0)
    wait_until(lambda: last in driven.kept, "the replay")
    stop()
    assert driven.kept[last] == first
    assert Memory(folder=driven.state).load()[0].cost.costs == before.cost.costs


def test_the_users_own_exception_reaches_the_user(driven: Driven) -> None:
    def divides(row: Row) -> Row:
        return {"id": 1 // (row["id"] - row["id"]), "key": 0}

    _, advance, stop = start(driven, divides)
    with pytest.raises(StreamingQueryException, match="ZeroDivisionError: integer"):
        advance(1.0)
    stop()


def test_refused_rows_stand_in_the_books(driven: Driven) -> None:
    """Rows of the past cannot be started in a microsecond: all go, none is lost."""
    watched = guard(driven, control=sw.FixedRate(1.0))
    kept = watched.protect(driven.stream(), identity=["id"], arrived="arrived")
    query = driven.start(
        watched.map(kept, same, SCHEMA, arrived="arrived", admit=sw.Latency(each="1 us"))
    )
    driven.advance(query, to_s=2.0)
    totals = driven.booked(1).totals()
    query.stop()
    reached = sum(len(ids) for ids in driven.kept.values())
    assert totals.rows_in == 2000 == totals.rows_kept + totals.rows_shed
    assert totals.rows_kept == reached
    assert totals.shed.get(REFUSED, 0) == totals.rows_shed > 0


@pytest.mark.parametrize("protected", [True, False])
def test_inside_foreach_batch_the_operator_is_measured_too(driven: Driven, protected: bool) -> None:
    """With a gate in front, and on its own."""
    watched = guard(driven)

    def each(batch: DataFrame, batch_id: int) -> None:
        rows = watched.protect(batch, identity=["id"], batch_id=batch_id) if protected else batch
        mapped = watched.map(rows, same, SCHEMA, key="key", batch_id=batch_id)
        driven.kept[batch_id] = [(row["id"], 1.0) for row in mapped.collect()]

    query = driven.start_batches(driven.stream(), each)
    for batches, to_s in enumerate((1.0, 3.0), start=1):
        driven.advance(query, to_s=to_s)
        driven.booked(batches)
    tasks = booked_tasks(driven, 2)
    entries = [e for e in driven.booked(2).entries() if e.seen.rows_in]
    query.stop()
    assert [task.rows_in for task in tasks] == [len(ids) for ids in driven.kept.values() if ids]
    assert [e.seen.rows_in for e in entries] == [1000, 2000]
    assert learnt(driven, 1).rows_seen == sum(task.rows_in for task in tasks[1:])


def test_an_operator_without_a_gate_is_measured_in_a_stream(driven: Driven) -> None:
    watched = guard(driven)
    query = driven.start_batches(
        watched.map(driven.stream(), same, SCHEMA, key="key"),
        lambda batch, batch_id: batch.write.format("noop").mode("append").save(),
    )
    for batches, to_s in enumerate((1.0, 3.0), start=1):
        driven.advance(query, to_s=to_s)
        driven.booked(batches)
    totals = driven.booked(2).totals()
    query.stop()
    assert (totals.rows_in, totals.rows_kept, totals.rows_shed) == (3000, 3000, 0)
    assert learnt(driven, 2000).rows_seen == 2000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"key": "nowhere"}, "key must be one of the columns"),
        ({"takes": "table"}, "takes must be one of row, pandas, arrow, got 'table'"),
        ({"admit": sw.Latency(p99="1 s"), "arrived": "arrived"}, "admit must be Latency"),
        ({"admit": sw.Latency(average="1 s")}, "arrived must name a column where admit is given"),
        ({"batch_id": 3}, "batch_id belongs inside foreachBatch"),
    ],
)
def test_a_wrong_argument_is_refused_before_any_data(
    driven: Driven, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        guard(driven).map(driven.stream(), same, SCHEMA, **arguments)


def test_the_gate_gives_up_the_costliest_keys_once_they_are_known(driven: Driven) -> None:
    """Keys below 10 take 300 µs. Half of the work: at first any rows, then mostly those."""

    def slow_below_ten(row: Row) -> Row:
        import time

        until = time.perf_counter_ns() + (300_000 if row["key"] < 10 else 0)
        while time.perf_counter_ns() < until:
            pass
        return same(row)

    watched = guard(driven, shed=sw.LoadAware(key="key", aim="fewest"))
    kept = watched.protect(driven.stream(distribution="uniform"), identity=["id"])
    query = driven.start(watched.map(kept, slow_below_ten, "id bigint, key bigint", key="key"))
    for batches, to_s in enumerate((1.0, 2.0, 3.0, 4.0), start=1):
        driven.advance(query, to_s=to_s)
        driven.booked(batches)
    entries = [e for e in driven.booked(4).entries() if e.seen.rows_in]
    query.stop()
    first, last = entries[0].seen, entries[-1].seen
    assert first.share == pytest.approx(0.5, abs=0.1)  # 6 standard deviations
    assert last.share > 0.8  # a fifth of the rows, nearly all of the work: half of them is enough
    assert entries[-1].plan is not None
    assert entries[-1].plan.plan.costs is not None
