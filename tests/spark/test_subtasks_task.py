"""The task that runs subtasks, without Spark: times, losses, drops and refusals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.degrade.remembered import OWN
from spillway.degrade.subtask import Subtask, Subtasks
from spillway.kernels.uniform import uniform
from spillway.spark.operator_results import REPORT, Results
from spillway.spark.operator_task import ITEM, Layout
from spillway.spark.subtasks_choice import (
    ACCURACY,
    ROW,
    SELECTION,
    complete_salt,
    mix_salt,
    uniforms_of,
)
from spillway.spark.subtasks_judge import SameColumns
from spillway.spark.subtasks_task import Pipeline, run_subtasks
from spillway.spark.task_report import decode
from spillway.values import PinnedPlan, Plan, TaskReport
from spillway.work_values import Selection, SubtaskRun, WorkMix

LONGS = st.integers(-(2**63), 2**63 - 1)
Row = dict[str, Any]


def member(name: str, does: Any, **rest: Any) -> Subtask:
    return Subtask(name, does=does, **rest)


def ran(
    members: Sequence[Subtask],
    *,
    rows: int = 100,
    columns: Sequence[str] = ("id", "x"),
    mix: WorkMix | None = None,
    complete: float = 0.0,
    batch_id: int = 0,
    keyed: bool = False,
) -> tuple[list[Row], TaskReport]:
    """Run subtasks over rows with the ids 0, 1, ...; return the results and the report."""
    made = pa.schema([(name, pa.int64()) for name in columns])
    told = [(ACCURACY, pa.float64()), (SELECTION, pa.list_(pa.string()))]
    full = pa.schema([*made, *(pa.field(*one) for one in told)])
    pinned = PinnedPlan(batch_id=batch_id, salt=5, plan=Plan(rates=(1.0,), mix=mix))
    pipeline = Pipeline(
        subtasks=Subtasks(members),
        native=frozenset(),
        made=Results(fn="subtasks", schema=made),
        layout=Layout(columns=("id",), results=Results(fn="subtasks", schema=full), keyed=keyed),
        complete=complete,
        measure=SameColumns(columns=tuple(columns[1:])),
        plan=lambda: pinned,
    )
    ids = np.arange(rows)
    beside = {ITEM: ids % 7} if keyed else {}
    batch = pa.record_batch({"id": ids, ROW: ids * 1_000_003, **beside})
    *batches, control = run_subtasks(pipeline, [batch, batch.slice(0, 0)])
    found = [row for one in batches for row in one.drop_columns([REPORT]).to_pylist()]
    return found, decode(control.column(REPORT)[0].as_py())


def runs_of(report: TaskReport) -> dict[str, SubtaskRun]:
    assert report.work is not None
    return {run.name: run for run in report.work.subtasks}


@given(salt=LONGS, numbers=st.lists(LONGS, max_size=5))
def test_the_number_of_a_row_is_that_of_the_gates_own_hash(salt: int, numbers: list[int]) -> None:
    found = uniforms_of(salt, np.array(numbers, dtype=np.int64)).tolist()
    assert found == [uniform(salt, number) for number in numbers]


def test_the_rows_that_a_gate_keeps_are_mixed_as_all_others_are() -> None:
    """Of 4,000 rows a gate keeps those below 0.3; by its own salt all of them would take more."""
    pinned = PinnedPlan(batch_id=0, salt=5, plan=Plan(rates=(0.3,)))
    ids = np.arange(4000)
    kept = np.array([uniform(pinned.salt, int(one)) for one in ids]) < 0.3
    for salt in (mix_salt(pinned), complete_salt(pinned)):
        taken = uniforms_of(salt, ids[kept]) < 0.4
        assert taken.mean() == pytest.approx(0.4, abs=5 * (0.24 / kept.sum()) ** 0.5)  # 5 sigma


def test_the_times_of_the_subtasks_and_the_operators_own_add_up_to_its_busy_time() -> None:
    x = member("x", lambda row: {"x": row["id"]})
    for keyed in (False, True):
        _, report = ran([x], keyed=keyed)
        runs = runs_of(report)
        assert {name: run.rows for name, run in runs.items()} == {OWN: 100, "x": 100}
        total_ns = sum(run.busy_ns for run in runs.values())
        assert report.busy_ns == pytest.approx(total_ns, abs=100)  # 1 ns a row by division
        assert bool(report.costs) is keyed


def test_a_mandatory_subtask_may_drop_a_row_and_later_ones_do_not_see_it() -> None:
    seen: list[int] = []
    members = [
        member("even", lambda row: {} if row["id"] % 2 == 0 else None),
        member("x", lambda row: seen.append(row["id"]) or {"x": 1}),
    ]
    found, report = ran(members)
    assert [row["id"] for row in found] == seen == list(range(0, 100, 2))
    assert report.rows_in == 100
    assert runs_of(report)["x"].rows == 100  # its time is that of a row that comes in


@pytest.mark.parametrize(
    ("made", "optional", "message"),
    [
        (None, True, "subtask 'x' must return a dict of new columns; got NoneType"),
        (5, False, "subtask 'x' must return a dict of new columns, or None to drop the row; got"),
        ({"y": 1}, False, r"schema must name columns that subtasks return, got \['x'\] besides"),
        ({"x": "no number"}, False, "must return column 'x' as int64"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(made: object, optional: bool, message: str) -> None:
    members = [member("x", lambda row: made, optional=optional), member("z", lambda row: {})]
    with pytest.raises(ValueError, match=message):
        ran(members)


def test_the_losses_of_optional_subtasks_are_tried_in_turn() -> None:
    """Without a the result is 1 of 4 (and b is off with it), without b it is 3 of 4."""
    members = [
        member("m", lambda row: {"base": 1}),
        member("a", lambda row: {"a": 2}, optional=True),
        member("b", lambda row: {"b": row["a"] - 1}, optional=True, inputs=("a",)),
        member(
            "x",
            lambda row: {"x": row["base"] + row.get("a", 0) + row.get("b", 0)},
            after=("a", "b"),
        ),
    ]
    lost = {}
    for batch_id in (0, 1):
        found, report = ran(members, complete=0.5, batch_id=batch_id)
        assert report.work is not None
        for run in report.work.subtasks:
            if run.judged:
                assert run.judged == report.work.rows_complete
                lost[run.name] = run.lost / run.judged
        assert all(row["x"] == 4 for row in found)
    assert lost == pytest.approx({"a": 0.75, "b": 0.25})


def test_what_others_cannot_do_without_loses_everything_and_harms_no_row() -> None:
    """x takes a for granted without naming it; without overload nobody notices."""
    members = [
        member("a", lambda row: {"a": 1}, optional=True),
        member("x", lambda row: {"x": row["a"]}),
    ]
    found, report = ran(members, complete=0.5)
    assert len(found) == 100
    judged = runs_of(report)["a"]
    assert judged.lost == judged.judged > 0


def test_only_rows_of_the_share_run_complete_while_others_are_cut() -> None:
    members = [
        member("x", lambda row: {"x": 0}),
        member("a", lambda row: {"x": 1}, optional=True),
    ]
    less = Selection(off=("a",), accuracy=0.25)
    mix = WorkMix(less=less, more=less, fraction=0.0, complete=0.1)
    found, report = ran(members, rows=2000, mix=mix)
    assert report.work is not None
    assert sum(row["x"] for row in found) == report.work.rows_complete == runs_of(report)["a"].rows
    assert {(row["x"], row[ACCURACY]) for row in found} == {(0, 0.25), (1, 1.0)}
    assert 0.06 < report.work.rows_complete / 2000 < 0.14  # 6 standard deviations
    assert report.work.rows_less + report.work.rows_complete == 2000


def test_a_plan_of_another_application_leaves_nothing_out_that_it_does_not_name() -> None:
    mix = WorkMix(less=Selection(off=("gone", "x")), more=Selection(off=("gone",)), fraction=0.0)
    found, _ = ran([member("x", lambda row: {"x": 1})], mix=mix)
    assert all(row["x"] == 1 and row[SELECTION] == ["x"] for row in found)
