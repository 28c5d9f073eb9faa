"""Runs the selected subtasks over the rows of a task, and times each of them.

Subtask by subtask over a whole Arrow batch, so that one reading of the clock serves thousands of
rows. What is not spent in subtasks is the operator's own time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from time import perf_counter_ns
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spillway.degrade.accuracy import Measure
from spillway.degrade.remembered import OWN
from spillway.degrade.subtask import Subtask, Subtasks
from spillway.spark.operator_results import Results
from spillway.spark.operator_task import Layout, Tally
from spillway.spark.subtasks_choice import COMPLETE, LESS, MORE, ROW, SELECTION, Chosen, Group
from spillway.spark.subtasks_judge import Row
from spillway.values import PinnedPlan
from spillway.work_values import SubtaskRun, WorkDone

Ints = NDArray[np.int64]
Rows = list[Row] | dict[int, Row]


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """What a task needs to know to run subtasks.

    subtasks: with their functions; those of `native` Spark has done, and their columns are there.
    made:     the user's columns; `layout.results` has those that the guard adds as well.
    plan:     returns the plan of the running batch.
    """

    subtasks: Subtasks
    native: frozenset[str]
    made: Results
    layout: Layout
    complete: float
    measure: Measure[Sequence[Row]]
    plan: Callable[[], PinnedPlan]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The user's columns."""
        return tuple(self.made.schema.names)

    @cached_property
    def judged_min(self) -> int:
        """So many rows must be compared, or the measure says nothing."""
        return max(int(getattr(self.measure, "rows_min", 1)), 1)

    def result(self, row: Row) -> Row:
        """Return the columns of a finished row; what was left out is None."""
        return {name: row.get(name) for name in self.names}


@dataclass(slots=True)
class Counted:
    """What a task has done so far."""

    rows: dict[str, int] = field(default_factory=dict)
    runs: dict[str, list[float]] = field(default_factory=dict)

    def took(self, name: str, rows: int, busy_ns: int) -> None:
        """Add the time of a subtask over the rows that it was selected for."""
        self._of(name, rows, busy_ns, 0, 0.0)

    def judged(self, name: str, rows: int, lost: float) -> None:
        """Add what rows lost without a subtask, on average."""
        self._of(name, 0, 0, rows, rows * lost)

    def chosen(self, groups: Iterable[Group]) -> None:
        """Count the rows by the selection that they took."""
        for group in groups:
            self.rows[group.kind] = self.rows.get(group.kind, 0) + len(group.places)

    def total(self) -> WorkDone:
        """Return it as a value."""
        runs = (
            SubtaskRun(name=name, rows=int(rows), busy_ns=int(ns), judged=int(judged), lost=lost)
            for name, (rows, ns, judged, lost) in self.runs.items()
        )
        less, more, complete = (self.rows.get(kind, 0) for kind in (LESS, MORE, COMPLETE))
        return WorkDone(
            rows_less=less, rows_more=more, rows_complete=complete, subtasks=tuple(runs)
        )

    def _of(self, name: str, *amounts: float) -> None:
        before = self.runs.get(name, [0, 0, 0, 0.0])
        self.runs[name] = [was + more for was, more in zip(before, amounts, strict=True)]


def run_subtasks(pipeline: Pipeline, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield what the selected subtasks make of the rows, and at the end the task's report."""
    tally, counted = Tally(keyed=pipeline.layout.keyed), Counted()
    chosen: Chosen | None = None
    for batch in batches:
        if not batch.num_rows:
            continue
        tally.begin()
        chosen = chosen or Chosen.of(pipeline.plan(), pipeline.subtasks, pipeline.complete)
        yield _run_batch(pipeline, chosen, tally, counted, batch)
    yield pipeline.layout.results.control_row(tally.report(counted.total()))


def _run_batch(
    pipeline: Pipeline, chosen: Chosen, tally: Tally, counted: Counted, batch: pa.RecordBatch
) -> pa.RecordBatch:
    begin_ns, layout = perf_counter_ns(), pipeline.layout
    rows = layout.seen(batch).to_pylist()
    groups = list(chosen.groups(batch.column(ROW).to_numpy()))
    costs_ns = np.zeros(len(rows), dtype=np.int64) if layout.keyed else None
    copies = _copies(rows, groups)
    busy_ns = _run_all(pipeline, rows, groups, counted, costs_ns)
    made = _finished(pipeline, rows, groups, layout.weights(batch))
    group, turn = _complete(groups), chosen.turn(pipeline.subtasks)
    if group and turn and len(group.alive) >= pipeline.judged_min:
        _judge(pipeline, turn, counted, copies, {at: rows[at] for at in group.alive})
    counted.chosen(groups)
    own_ns = perf_counter_ns() - begin_ns - busy_ns
    counted.took(OWN, len(rows), own_ns)
    tally.came(len(rows))
    if costs_ns is None:
        tally.worked(np.array([busy_ns + own_ns]), None)
    else:
        tally.worked(costs_ns + own_ns // len(rows), layout.items(batch))
    return made


def _run_all(
    pipeline: Pipeline,
    rows: Rows,
    groups: Sequence[Group],
    counted: Counted | None,
    costs_ns: Ints | None = None,
) -> int:
    """Run every subtask on the rows that it is selected for; return the time of all of them."""
    _forget(pipeline, rows, groups)
    total_ns = 0
    for subtask in pipeline.subtasks:
        on = [group for group in groups if subtask.name not in group.off]
        busy_ns = 0
        if subtask.name not in pipeline.native:
            busy_ns = sum(_run_one(subtask, rows, group, costs_ns) for group in on)
        if counted is not None:
            counted.took(subtask.name, sum(len(group.places) for group in on), busy_ns)
        total_ns += busy_ns
    return total_ns


def _run_one(subtask: Subtask, rows: Rows, group: Group, costs_ns: Ints | None) -> int:
    """Run one subtask on the rows of a group that are left; return the time it took."""
    fn: Any = subtask.does
    kept: list[int] = []
    keep, ends_ns = kept.append, [perf_counter_ns()]
    mark = ends_ns.append if costs_ns is not None else None
    for place in group.alive:
        row = rows[place]
        made = fn(row)
        if made is not None:
            row.update(made if type(made) is dict else _columns(subtask, made))
            keep(place)
        elif subtask.optional:
            raise _refused(subtask, made)
        if mark is not None:
            mark(perf_counter_ns())
    if costs_ns is not None:
        marks_ns = np.array(ends_ns, dtype=np.int64)
        costs_ns[group.alive] += marks_ns[1:] - marks_ns[:-1]
    group.alive = kept
    return (ends_ns[-1] if mark is not None else perf_counter_ns()) - ends_ns[0]


def _columns(subtask: Subtask, made: object) -> Row:
    if not isinstance(made, Mapping):
        raise _refused(subtask, made)
    return dict(made)


def _refused(subtask: Subtask, made: object) -> ValueError:
    also = "" if subtask.optional else ", or None to drop the row"
    return ValueError(
        f"subtask {subtask.name!r} must return a dict of new columns{also}; "
        f"got {type(made).__name__}"
    )


def _forget(pipeline: Pipeline, rows: Rows, groups: Sequence[Group]) -> None:
    """Take the columns of native subtasks that are off out of the rows."""
    for group in groups:
        for name in pipeline.native & group.off:
            for place in group.places:
                rows[place].pop(name, None)


def _finished(
    pipeline: Pipeline, rows: list[Row], groups: Sequence[Group], weights: pa.Array | None
) -> pa.RecordBatch:
    """Turn the rows that are left into a batch, each with accuracy and selection."""
    which = np.full(len(rows), -1)
    for number, group in enumerate(groups):
        _check_columns(pipeline, rows, group)
        which[group.alive] = number
    origin = np.flatnonzero(which >= 0)
    made = pipeline.made.of_rows([pipeline.result(rows[at]) for at in origin.tolist()])
    told = [*made.columns, *_told(pipeline, groups, which[origin])]
    results = pipeline.layout.results
    return results.finished(pa.record_batch(told, names=results.schema.names), weights, origin)


def _told(pipeline: Pipeline, groups: Sequence[Group], which: Ints) -> tuple[pa.Array, pa.Array]:
    """Return accuracy and selection of rows, by the numbers of their groups."""
    accuracies = np.array([group.accuracy for group in groups])
    ran = [[name for name in pipeline.subtasks.names if name not in g.off] for g in groups]
    kind = pipeline.layout.results.schema.field(SELECTION).type
    return pa.array(accuracies[which]), pa.array(ran, kind).take(pa.array(which))


def _check_columns(pipeline: Pipeline, rows: list[Row], group: Group) -> None:
    """Refuse a schema with columns that all subtasks together do not make."""
    if group.off or not group.alive:
        return
    row = rows[group.alive[0]]
    missing = [name for name in pipeline.names if name not in row]
    if missing:
        raise ValueError(f"schema must name columns that subtasks return, got {missing} besides")


def _complete(groups: Sequence[Group]) -> Group | None:
    return next((group for group in groups if group.kind == COMPLETE), None)


def _copies(rows: list[Row], groups: Sequence[Group]) -> dict[int, Row]:
    """Copy the rows of the always-complete share before subtasks change them."""
    group = _complete(groups)
    return {place: dict(rows[place]) for place in group.places} if group else {}


def _judge(
    pipeline: Pipeline,
    name: str,
    counted: Counted,
    copies: dict[int, Row],
    ideal: dict[int, Row],
) -> None:
    """Run the complete rows once more without a subtask, and compare.

    One that the others cannot do without, though they do not name it, loses everything.
    """
    group = Group(LESS, pipeline.subtasks.closed([name]), 0.0, list(copies))
    try:
        _run_all(pipeline, copies, [group], None)
    except Exception:
        counted.judged(name, len(ideal), 1.0)
        return
    left = set(group.alive)
    seen = [pipeline.result(copies[at]) if at in left else {} for at in ideal]
    accuracy = pipeline.measure.accuracy([pipeline.result(row) for row in ideal.values()], seen)
    counted.judged(name, len(ideal), 1.0 - accuracy)
