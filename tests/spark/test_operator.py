"""A guarded operator gives its own results, is timed exactly, and reports once per task."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import TaskContext
from pyspark.errors import PythonException
from pyspark.sql import Observation, SparkSession

from spillway.cost.heavy import HeavySketch
from spillway.cost.items import item_of, item_sql, items_of
from spillway.kernels import las
from spillway.shedders.admission import Admission, Aim, Condition
from spillway.spark import operator_batches, operator_rows
from spillway.spark.observe import task_reports
from spillway.spark.operator import Operator
from spillway.spark.operator_results import REPORT, Results
from spillway.spark.operator_rows import Check, Limit
from spillway.spark.operator_task import ARRIVED, ITEM
from spillway.spark.task_report import decode
from spillway.state.memory import Memory
from spillway.values import CostState, LoopState, TaskReport
from tests.conftest import Driven

US, MS, S = 10**3, 10**6, 10**9
COSTS_NS = {"a": 1 * MS, "b": 5 * MS, "c": 30 * MS}
OUT = pa.schema([("id", pa.int64()), ("twice", pa.int64())])


def rows_of(keys: str, **more: list[Any]) -> pa.RecordBatch:
    """Return rows as Spark hands them over, with the item of the key beside them."""
    columns = {"id": list(range(len(keys))), "key": list(keys), **more}
    batch = pa.RecordBatch.from_pydict(columns)
    return batch.append_column(ITEM, pa.array(items_of(batch.column("key"))))


def arriving(keys: str, arrived_ns: Iterable[int | None], **more: list[Any]) -> pa.RecordBatch:
    at_us = [None if at is None else at // 1000 for at in arrived_ns]
    return rows_of(keys, **more).append_column(ARRIVED, pa.array(at_us, pa.int64()))


def run(
    operator: Operator, *batches: pa.RecordBatch, schema: pa.Schema = OUT
) -> tuple[pa.Table, TaskReport]:
    """Run a task without Spark; return its rows and its report."""
    seen = tuple(n for n in batches[0].schema.names if not n.startswith("_spillway"))
    weighted = "_weight" in seen and "_weight" not in schema.names
    results = Results(fn="work", schema=schema, weighted=weighted)
    made = pa.Table.from_batches(list(operator.run(results, seen)(iter(batches))))
    told = [value for value in made[REPORT].to_pylist() if value is not None]
    assert len(told) == 1
    assert made[REPORT][made.num_rows - 1].as_py() == told[0]
    return made.slice(0, made.num_rows - 1).drop([REPORT]), decode(told[0])


def operator(fn: Callable[[Any], Any], **more: Any) -> Operator:
    return Operator(fn=fn, schema="id bigint, twice bigint", key="key", **more)


def doubled(row: dict[str, Any]) -> dict[str, Any]:
    return {"id": row["id"], "twice": 2 * row["id"]}


def frames(frame: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"twice": 2 * frame["id"], "id": frame["id"]})


def batches(batch: pa.RecordBatch) -> pa.RecordBatch:
    ids = batch.column("id").to_numpy()
    return pa.RecordBatch.from_pydict({"id": ids, "twice": 2 * ids})


@dataclass
class Clock:
    """Stands still unless an operator works, or a look at it is set to take time."""

    now_ns: int = 50 * S
    look_ns: int = 0
    calls: list[int] = field(default_factory=list)

    def look(self) -> int:
        self.now_ns += self.look_ns
        return self.now_ns

    def work(self, keys: Iterable[str]) -> None:
        keys = list(keys)
        self.calls.append(len(keys))
        self.now_ns += sum(COSTS_NS[key] for key in keys)

    def row(self, row: dict[str, Any]) -> dict[str, Any]:
        self.work([row["key"]])
        return doubled(row)

    def frame(self, frame: pd.DataFrame) -> pd.DataFrame:
        self.work(frame["key"])
        return frames(frame)

    def batch(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self.work(batch.column("key").to_pylist())
        yield batches(batch)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    manual = Clock()
    for module in (operator_rows, operator_batches):
        monkeypatch.setattr(module, "perf_counter_ns", manual.look)
        monkeypatch.setattr(module, "wall_offset_ns", lambda: 0)
    return manual


def functions(clock: Clock) -> list[tuple[str, Callable[[Any], Any]]]:
    return [("row", clock.row), ("pandas", clock.frame), ("arrow", clock.batch)]


def estimates_ms(report: TaskReport) -> dict[str, float]:
    sketch = HeavySketch.from_bytes(report.costs)
    return {key: sketch.estimate_ns(np.array([item_of(key)]))[0] / MS for key in COSTS_NS}


# --- results ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("takes", "fn"), [("row", doubled), ("pandas", frames), ("arrow", batches)]
)
def test_the_results_are_the_operators_own_in_their_order(takes: str, fn: Any) -> None:
    pieces = [rows_of("abcab" * 30), rows_of("ca" * 10), rows_of("")]
    made, report = run(operator(fn, takes=takes), *pieces)
    assert made["id"].to_pylist() == [*range(150), *range(20)]
    assert made["twice"].to_pylist() == [2 * n for n in made["id"].to_pylist()]
    assert (report.rows_in, report.rows_refused, report.instance) == (170, 0, 0)
    sketch = HeavySketch.from_bytes(report.costs)
    assert (sketch.rows_seen, sketch.work_total_ns) == (170, report.busy_ns)


def test_nan_stays_in_rows_and_is_missing_in_frames() -> None:
    floats = pa.schema([("x", pa.float64()), ("n", pa.int32())])
    made, _ = run(operator(lambda r: {"x": float("nan"), "n": 3.0}), rows_of("a"), schema=floats)
    assert str(made.to_pylist()) == "[{'x': nan, 'n': 3}]"
    frame = pd.DataFrame({"x": [float("nan")], "n": [float("nan")]})
    made, _ = run(operator(lambda f: frame, takes="pandas"), rows_of("a"), schema=floats)
    assert made.to_pylist() == [{"x": None, "n": None}]


def test_a_row_may_become_none_one_or_many() -> None:
    def spread(row: dict[str, Any]) -> Any:
        if row["id"] == 0:
            return None
        if row["id"] == 1:
            return doubled(row)
        return (doubled({"id": n}) for n in range(row["id"]))

    made, report = run(operator(spread), rows_of("aaaa", _weight=[1.0, 2.0, 3.0, 4.0]))
    assert made["id"].to_pylist() == [1, 0, 1, 0, 1, 2]
    assert made["_weight"].to_pylist() == [2.0, 3.0, 3.0, 4.0, 4.0, 4.0]
    assert report.rows_in == 4


def test_a_batch_may_become_another_number_of_rows() -> None:
    for takes, fn in (
        ("pandas", lambda frame: frames(frame[frame["id"] % 2 == 0])),
        ("arrow", lambda batch: pa.Table.from_batches([batches(batch.slice(0, 1))] * 2)),
        ("arrow", lambda batch: [batches(batch), pa.Table.from_batches([batches(batch)])]),
        ("arrow", lambda batch: []),
    ):
        made, report = run(operator(fn, takes=takes), rows_of("ab" * 8))
        assert set(made["id"].to_pylist()) <= set(range(16))
        assert made.num_rows != 16
        assert report.rows_in == 16


@pytest.mark.parametrize(("takes", "fn"), [("pandas", frames), ("arrow", batches)])
def test_weights_are_carried_along_by_position(takes: str, fn: Any) -> None:
    weights = [float(n) for n in range(100)]
    made, _ = run(operator(fn, takes=takes), rows_of("ab" * 50, _weight=weights))
    assert made["_weight"].to_pylist() == [float(n) for n in made["id"].to_pylist()]


def test_a_weight_that_nobody_knows_is_refused_with_advice() -> None:
    half = operator(lambda frame: frames(frame[:1]), takes="pandas")
    with pytest.raises(ValueError, match=r"fn \(work\) must return as many rows.*put _weight into"):
        run(half, rows_of("abab", _weight=[1.0] * 4))
    own = pa.schema([("id", pa.int64()), ("_weight", pa.float64())])
    filled = operator(lambda f: f[["id", "_weight"]][:1] * 3, takes="pandas")
    made, _ = run(filled, rows_of("a", _weight=[2.0]), schema=own)
    assert made["_weight"].to_pylist() == [6.0]


@pytest.mark.parametrize(
    ("takes", "fn", "told"),
    [
        ("row", lambda r: 7, "return a dict, None or an iterable of dicts; got int"),
        ("row", lambda r: "text", "got str"),
        ("row", lambda r: [1], "got an iterable with int in it"),
        ("row", lambda r: {"id": 1}, r"missing: \['twice'\]"),
        ("row", lambda r: {**doubled(r), "x": 1}, r"not in the schema: \['x'\]"),
        ("row", lambda r: {"id": 1, "two": 1}, r"missing: \['twice'\], not in the schema: \['two'"),
        ("row", lambda r: [doubled(r), {}], r"got \[\]"),
        ("row", lambda r: {"id": "x", "twice": 1}, "column 'id' as int64"),
        ("row", lambda r: {"id": 1.5, "twice": 1}, "column 'id' as int64"),
        ("row", lambda r: {"id": 1 << 70, "twice": 1}, "column 'id' as int64"),
        ("pandas", lambda f: None, "return a pandas DataFrame; got NoneType"),
        ("pandas", lambda f: f["id"], "got Series"),
        ("pandas", lambda f: f[["id"]], r"missing: \['twice'\]"),
        ("pandas", lambda f: frames(f).assign(id="x"), "column 'id' as int64"),
        ("pandas", lambda f: pd.DataFrame([[1, 2, 3]], columns=["id", "twice", "id"]), "than once"),
        ("arrow", lambda b: None, "return a RecordBatch, a Table or an iterable of them; got N"),
        ("arrow", lambda b: [batches(b), 1], "got an iterable with int in it"),
        ("arrow", lambda b: {"id": [1]}, "got dict"),
        ("arrow", lambda b: b.select(["id"]), r"missing: \['twice'\]"),
        ("arrow", lambda b: pa.record_batch({"id": [0.5], "twice": [1]}), "column 'id' as int64"),
    ],
)  # fmt: skip
def test_other_results_are_refused_by_name_and_rule(takes: str, fn: Any, told: str) -> None:
    with pytest.raises(ValueError, match=rf"fn \(work\) must .*{told}"):
        run(operator(fn, takes=takes), rows_of("a"))


def test_what_can_be_cast_without_loss_is() -> None:
    small = lambda b: pa.record_batch({"twice": pa.array([1], pa.int8()), "id": [2.0]})  # noqa: E731
    made, _ = run(operator(small, takes="arrow"), rows_of("a"))
    assert made.to_pylist() == [{"id": 2, "twice": 1}]


@pytest.mark.parametrize("takes", ["row", "pandas", "arrow"])
def test_an_exception_of_the_operator_is_the_users_own(takes: str) -> None:
    """Also one that ours could be mistaken for, raised while its generator is consumed."""

    def raises(given: Any) -> Any:
        raise TypeError("my own")

    def yields(given: Any) -> Any:
        yield doubled({"id": 1}) if takes == "row" else batches(given)
        raise TypeError("my own")

    for fn in (raises,) if takes == "pandas" else (raises, yields):
        with pytest.raises(TypeError, match=r"^my own$"):
            run(operator(fn, takes=takes), rows_of("a"))


# --- time ---------------------------------------------------------------------------------------


def test_rows_are_timed_one_by_one(clock: Clock) -> None:
    _, report = run(operator(clock.row), rows_of("abc" * 7))
    assert report.busy_ns == 7 * sum(COSTS_NS.values())
    assert estimates_ms(report) == {"a": 1.0, "b": 5.0, "c": 30.0}


@pytest.mark.parametrize("takes", ["pandas", "arrow"])
def test_the_time_of_slices_becomes_that_of_keys(clock: Clock, takes: str) -> None:
    """Calls that take a ms make slices of some thirty rows; 5,000 rows suffice for 10 %."""
    clock.look_ns = MS // 2
    keys = "".join(np.random.default_rng(3).choice(list("abc"), size=5000, p=[0.6, 0.3, 0.1]))
    fn = dict(functions(clock))[takes]
    _, report = run(operator(fn, takes=takes), rows_of(keys))
    looks_ns = clock.look_ns * len(clock.calls)
    assert report.busy_ns == sum(COSTS_NS[key] for key in keys) + looks_ns
    assert 10 <= np.quantile(clock.calls, 0.1) <= np.quantile(clock.calls, 0.9) <= 50
    for key, found in estimates_ms(report).items():  # every row bears its part of the looks
        assert found == pytest.approx((COSTS_NS[key] + looks_ns / len(keys)) / MS, rel=0.1)


def test_slices_have_at_most_batch_rows_and_without_a_key_there_are_none(clock: Clock) -> None:
    run(operator(clock.frame, takes="pandas", batch_rows=5), rows_of("a" * 50))
    assert max(clock.calls) <= 5
    clock.calls.clear()
    whole = Operator(fn=clock.frame, schema="id bigint, twice bigint", takes="pandas")
    _, report = run(whole, rows_of("a" * 50), rows_of("a" * 30))
    assert clock.calls == [50, 30]
    assert (report.busy_ns, report.costs) == (80 * MS, b"")


def test_a_task_without_rows_reports_nothing_but_itself() -> None:
    for takes in ("row", "pandas", "arrow"):
        made, report = run(operator(doubled, takes=takes), rows_of(""))
        assert made.num_rows == 0
        assert report == TaskReport(instance=0, rows_in=0)


def state_with(folder: Path, costs: bytes) -> Path:
    Memory(folder=folder).save(LoopState(cost=CostState(costs=costs)))
    return folder


def known_costs(rows: int = 9) -> HeavySketch:
    known = HeavySketch()
    for key, cost_ns in COSTS_NS.items():
        known.update(np.full(rows, item_of(key)), np.full(rows, cost_ns))
    return known


@pytest.mark.parametrize("takes", ["pandas", "arrow"])
def test_where_costs_are_known_and_slices_long_seven_batches_in_eight_come_whole(
    clock: Clock, takes: str, tmp_path: Path
) -> None:
    """Calls that take 2 ms make slices of a hundred; all time counts, and estimates stay."""
    clock.look_ns = MS
    drawn = np.random.default_rng(5).choice(list("abc"), size=(10, 2000), p=[0.6, 0.3, 0.1])
    given = ["".join(keys) for keys in drawn]
    work = operator(
        dict(functions(clock))[takes],
        takes=takes,
        state=state_with(tmp_path, known_costs(20_000).to_bytes()),
    )
    _, report = run(work, *(rows_of(keys) for keys in given))
    assert clock.calls.count(2000) == 8
    first = clock.calls.index(2000)
    assert sum(clock.calls[:first]) == 2000
    assert clock.calls[first : first + 7] == [2000] * 7
    assert sum(clock.calls[first + 7 : -1]) == 2000
    assert (report.rows_in, clock.calls[-1]) == (20_000, 2000)
    looks_ns = clock.look_ns * len(clock.calls)
    assert report.busy_ns == sum(COSTS_NS[key] for keys in given for key in keys) + looks_ns
    for key, found in estimates_ms(report).items():
        assert found == pytest.approx(COSTS_NS[key] / MS, rel=0.1, abs=0.2)


def test_before_costs_are_known_every_batch_is_cut(clock: Clock, tmp_path: Path) -> None:
    clock.look_ns = 5 * MS
    state = state_with(tmp_path, known_costs(9).to_bytes())
    run(operator(clock.frame, takes="pandas", state=state), *[rows_of("a" * 5000)] * 3)
    assert max(clock.calls) < 5000


def test_whole_batches_have_at_most_batch_rows_too(clock: Clock, tmp_path: Path) -> None:
    clock.look_ns = 5 * MS
    state = state_with(tmp_path, known_costs(20_000).to_bytes())
    work = operator(clock.frame, takes="pandas", state=state, batch_rows=2000)
    run(work, *[rows_of("a" * 5000)] * 2)
    assert clock.calls[-3:] == [2000, 2000, 1000]


@pytest.mark.parametrize(
    ("takes", "fn"), [("row", doubled), ("pandas", frames), ("arrow", lambda rows: batches(rows))]
)
def test_the_cheapest_rows_in_hand_come_first_and_weights_go_with_them(
    takes: str, fn: Callable[[Any], Any], tmp_path: Path
) -> None:
    """Two Arrow batches; rows of one key keep their order; all rows are counted as ever."""
    first = rows_of("cabca", _weight=[3.0, 1.0, 2.0, 3.0, 1.0])
    second = rows_of("cb", _weight=[3.0, 2.0])
    state = state_with(tmp_path, known_costs().to_bytes())
    made, report = run(operator(fn, takes=takes, order="cheapest", state=state), first, second)
    assert made["id"].to_pylist() == [1, 4, 2, 0, 3, 1, 0]
    assert made["_weight"].to_pylist() == [1.0, 1.0, 2.0, 3.0, 3.0, 2.0, 3.0]
    assert report.rows_in == 7


@pytest.mark.parametrize("costs", [b"", b"nonsense"])
def test_where_nothing_is_known_rows_keep_their_order(costs: bytes, tmp_path: Path) -> None:
    state = state_with(tmp_path, costs)
    made, _ = run(operator(doubled, order="cheapest", state=state), rows_of("cab"))
    assert made["id"].to_pylist() == [0, 1, 2]


def test_rows_wait_less_on_average_with_the_cheapest_first(clock: Clock, tmp_path: Path) -> None:
    """Ten rows of 30 ms before ten of 1 ms: the mean wait is that of the sorted rows, exactly."""
    state, waits = state_with(tmp_path, known_costs().to_bytes()), {}
    for order in ("arrival", "cheapest"):
        fn = operator(clock.row, order=order, state=state, arrived="at")
        _, report = run(fn, arriving("c" * 10 + "a" * 10, [clock.now_ns] * 20))
        waits[order] = report.latency_ns_sum / MS
    assert waits == {
        "arrival": sum(30 * i for i in range(10)) + sum(300 + i for i in range(10)),
        "cheapest": sum(i for i in range(10)) + sum(10 + 30 * i for i in range(10)),
    }


def test_a_task_begins_with_what_the_driver_knows(clock: Clock, tmp_path: Path) -> None:
    """One slice mixes all keys: only who knew them before can tell them apart."""
    known, told = known_costs(), {}
    for name, costs in (("known", known.to_bytes()), ("damaged", b"nonsense"), ("none", b"")):
        state = state_with(tmp_path / name, costs)
        fn = operator(clock.batch, takes="arrow", state=state)
        told[name] = estimates_ms(run(fn, rows_of("abc"))[1])
    assert told["known"] == pytest.approx({"a": 1.0, "b": 5.0, "c": 30.0}, rel=1e-6)
    assert told["damaged"] == told["none"]
    assert told["none"]["c"] < 20.0


@pytest.mark.parametrize("takes", ["row", "pandas", "arrow"])
def test_waits_run_from_arrival_to_start(clock: Clock, takes: str) -> None:
    """A row from the future has not waited, nor one whose arrival is unknown."""
    now = clock.now_ns
    given = arriving("aaaa", [now - 7 * MS, None, now + S, now - 2 * MS])
    fn = dict(functions(clock))[takes]
    _, report = run(operator(fn, takes=takes, arrived="at", batch_rows=1), given)
    assert report.latency_ns_sum == 7 * MS + (2 + 3) * MS  # 3 rows of 1 ms before the last
    assert report.latency_ns_max == 7 * MS
    assert report.rows_in == 4


# --- admission ----------------------------------------------------------------------------------


@given(
    waits_ns=st.lists(st.floats(-1e3, 1e3), max_size=60),
    limit_ns=st.floats(1.0, 500.0),
    each=st.booleans(),
)
def test_the_check_is_the_load_shedders(waits_ns: list[float], limit_ns: float, each: bool) -> None:
    check, total, rows = Check(Limit(limit_ns=limit_ns, each=each)), 0.0, 0.0
    condition = las.EACH if each else las.AVERAGE
    for wait_ns in waits_ns:
        waited = max(wait_ns, 0.0)
        breaks = las.breaks.py_func(waited, total, rows, limit_ns, condition)
        assert check.refuses(wait_ns) == breaks
        total, rows = (total, rows) if breaks else (total + waited, rows + 1)


@pytest.mark.parametrize("takes", ["row", "pandas", "arrow"])
@pytest.mark.parametrize("condition", [Condition.AVERAGE, Condition.EACH])
def test_the_wait_stays_within_the_limit_under_four_times_the_load(
    clock: Clock, takes: str, condition: Condition
) -> None:
    rng = np.random.default_rng(5)
    keys = "".join(rng.choice(list("abc"), size=3000, p=[0.6, 0.3, 0.1]))
    needed_ns = sum(COSTS_NS[key] for key in keys)
    clock.now_ns = 100 * S
    arrived = np.linspace(clock.now_ns, clock.now_ns + needed_ns / 4, len(keys)).astype(int)
    limit = Admission(limit_ns=100 * MS, condition=condition)
    waiting = Waiting(clock, dict(zip(range(len(keys)), arrived.tolist(), strict=True)))
    fn = operator(waiting.of(takes), takes=takes, arrived="at", admit=limit)
    weights = [1.0] * len(keys)
    given = arriving(keys, arrived.tolist(), _weight=weights)
    made, report = run(fn, *(given.slice(at, 500) for at in range(0, 3000, 500)))
    taken = report.rows_taken
    assert made.num_rows == taken == report.rows_in - report.rows_refused
    assert made["_weight"].null_count == 0
    share = report.busy_ns / needed_ns
    assert 0.2 < share < 0.32  # all the time there is, and no more
    if condition == Condition.EACH:
        assert report.latency_ns_max <= 1.05 * limit.limit_ns
    else:
        assert 0.5 * limit.limit_ns < report.latency_ns_sum / taken <= 1.05 * limit.limit_ns


@dataclass
class Waiting:
    """An operator that is idle until a row has come."""

    clock: Clock
    arrived_ns: dict[int, int]

    def of(self, takes: str) -> Callable[[Any], Any]:
        inner = dict(functions(self.clock))[takes]

        def waiting(given: Any) -> Any:
            first = given["id"] if takes == "row" else int(given["id"][0])
            self.clock.now_ns = max(self.clock.now_ns, self.arrived_ns[first])
            return inner(given)

        return waiting


def test_rows_without_arrival_are_never_refused(clock: Clock) -> None:
    limit = Admission(limit_ns=MS, condition=Condition.EACH)
    for takes, fn in functions(clock):
        late = [None if n % 2 else 0 for n in range(40)]
        made, report = run(
            operator(fn, takes=takes, arrived="at", admit=limit), arriving("a" * 40, late)
        )
        assert made["id"].to_pylist() == list(range(1, 40, 2))
        assert (report.rows_refused, report.latency_ns_sum) == (20, 0)


def test_a_row_of_unknown_or_future_arrival_does_not_keep_others_out(clock: Clock) -> None:
    clock.look_ns = MS // 10
    limit = Admission(limit_ns=200 * MS, condition=Condition.EACH)
    for takes, fn in functions(clock):
        now = clock.now_ns
        given = arriving("a" * 40, [None, now + 3600 * S, now, now] * 10)
        _, report = run(operator(fn, takes=takes, arrived="at", admit=limit), given)
        assert report.rows_refused == 0


# --- on Spark -----------------------------------------------------------------------------------


def told(observed: Observation) -> list[TaskReport]:
    return sorted(task_reports(observed.get), key=lambda report: report.instance)


def test_any_key_that_spark_hashes_is_the_gates_key(spark: SparkSession) -> None:
    """Dates and decimals too, and a number of seconds is an arrival."""
    rows = spark.range(6).selectExpr(
        "id", "date_add(date'2026-01-01', int(id)) AS day", f"{time.time()} - 60D AS at"
    )
    observed = Observation("days")
    keyed = Operator(
        fn=frames, schema="twice long, id long", takes="pandas", key="day", arrived="at"
    )
    made = keyed.attach(rows, observed)
    assert sorted(row["twice"] for row in made.collect()) == list(range(0, 12, 2))
    found = [HeavySketch.from_bytes(r.costs).heavy_keys.tolist() for r in told(observed) if r.costs]
    items = [row[0] for row in rows.selectExpr(item_sql("day")).collect()]
    assert sorted(n for each in found for n in each) == sorted(items)
    longest = max(report.latency_ns_max for report in told(observed))
    assert 60 * S <= longest < 300 * S


def test_a_stream_reports_in_its_progress_and_inside_foreach_batch(driven: Driven) -> None:
    """The control rows reach no sink; all partitions report, also those without rows."""
    inner: list[TaskReport] = []
    sunk: list[int] = []
    done = threading.Event()

    def each(batch: Any, batch_id: int) -> None:
        observed = Observation("inner")
        again = Operator(fn=doubled, schema="id long, twice long").attach(batch, observed)
        sunk.extend(row["id"] for row in again.collect())
        if sunk:
            inner.extend(told(observed))
            done.set()

    ids = Operator(fn=lambda row: {"id": row["id"]}, schema="id long", key="key")
    query = driven.start_batches(ids.attach(driven.stream(), "outer"), each)
    driven.advance(query, to_s=1.0)
    assert done.wait(60)
    heard = [json.loads(p.json) for p in query.recentProgress]
    query.stop()
    outer = [r for p in heard for r in task_reports(p["observedMetrics"].get("outer", {}))]
    assert sorted(sunk) == list(range(1000))
    assert sum(r.rows_in for r in outer) == sum(r.rows_in for r in inner) == 1000
    assert sum(HeavySketch.from_bytes(r.costs).rows_seen for r in outer if r.costs) == 1000


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"takes": "rows"}, "takes must be one of row, pandas, arrow, got 'rows'"),
        ({"fn": 3}, "fn must be callable, got 3"),
        ({"batch_rows": 0}, "batch_rows must be >= 1, got 0"),
        ({"order": "any"}, "order must be one of arrival, cheapest, got 'any'"),
        ({"order": "cheapest", "key": None}, "key must name a column where order is 'cheapest'"),
        ({"key": "nokey"}, r"key must be one of the columns .*'nokey'"),
        ({"key": "map"}, "key must be a column that hashes"),
        ({"arrived": "never"}, "arrived must be one of the columns"),
        ({"arrived": "key"}, "arrived must be a timestamp"),
        ({"schema": " "}, "schema must have at least one column"),
        ({"schema": "id long, ID long"}, "schema must name every column once"),
        ({"schema": "_spillway_x long"}, r"schema must not name columns _spillway_\*"),
        ({"admit": Admission(limit_ns=1)}, "arrived must name a column where admit is given"),
        (
            {"admit": Admission(limit_ns=1, condition=Condition.WINDOW), "arrived": "at"},
            "condition AVERAGE or EACH, got WINDOW",
        ),
        (
            {"admit": Admission(limit_ns=1, aim=Aim.FEWEST), "arrived": "at"},
            "admit must have the aim FAITHFUL",
        ),
    ],
)
def test_what_cannot_be_run_is_refused_before_any_data(
    spark: SparkSession, options: dict[str, Any], rule: str
) -> None:
    rows = spark.range(1).selectExpr("id", "'k' AS key", "map(1, 2) AS map", "now() AS at")
    given = {"fn": doubled, "schema": "id long, twice long", **options}
    with pytest.raises(ValueError, match=rule):
        Operator(**given).attach(rows, Observation("never"))


# Those that end Python workers come last: new ones have to load everything again.


def test_a_failed_task_and_a_killed_worker_report_once(spark: SparkSession, tmp_path: Path) -> None:
    """Of 3 tasks one raises after its last row and one loses its worker; both are run again."""

    def fails_once(row: dict[str, Any]) -> dict[str, Any]:
        part = TaskContext.get().partitionId()
        mark = tmp_path / str(part)
        if row["id"] % 100 == 99 and part and not mark.exists():
            mark.touch()
            if part == 1:
                raise RuntimeError("fails once")
            os.kill(os.getpid(), signal.SIGKILL)
        return doubled(row)

    rows = spark.range(0, 300, 1, 3).selectExpr("id", "string(id % 7) AS key", "3.0D AS _weight")
    observed = Observation("retried")
    made = operator(fails_once).attach(rows, observed).collect()
    assert sorted(row["id"] for row in made) == list(range(300))
    assert {row["_weight"] for row in made} == {3.0}
    reports = told(observed)
    assert [(r.instance, r.rows_in) for r in reports] == [(0, 100), (1, 100), (2, 100)]
    sketch = HeavySketch.from_bytes(reports[1].costs)
    assert (sketch.rows_seen, sketch.work_total_ns) == (100, reports[1].busy_ns)
    assert sorted(sketch.heavy_keys) == sorted(item_of(str(n)) for n in range(7))
    assert len(list(tmp_path.iterdir())) == 2


class OwnTrouble(Exception):
    """A user's exception."""


def test_on_spark_too_an_exception_is_the_users_own(spark: SparkSession) -> None:
    def raises(row: dict[str, Any]) -> dict[str, Any]:
        raise OwnTrouble("the database is away")

    made = Operator(fn=raises, schema="id long").attach(spark.range(1), Observation("raises"))
    with pytest.raises(PythonException) as caught:
        made.collect()
    text = str(caught.value)
    assert "OwnTrouble: the database is away" in text
    assert "in raises" in text
    assert "ValueError" not in text


def test_an_operator_may_return_the_same_frame_again_and_again() -> None:
    """As with plain `mapInArrow`, what it returned first is not what it writes into it later."""
    reused = pd.DataFrame({"id": np.zeros(1, dtype=np.int64), "twice": np.zeros(1, dtype=np.int64)})

    def fills(frame: pd.DataFrame) -> pd.DataFrame:
        reused["id"].to_numpy()[:] = frame["id"].to_numpy()
        reused["twice"].to_numpy()[:] = 2 * frame["id"].to_numpy()
        return reused

    made, _ = run(operator(fills, takes="pandas", batch_rows=1), rows_of("abc"))
    assert made["twice"].to_pylist() == [2 * id_ for id_ in made["id"].to_pylist()]
    assert len(set(made["id"].to_pylist())) == 3
