"""Runs subtasks over a sample of rows, in this process: what a `Profiler` measures.

Subtask by subtask over all rows, as the operator on Spark does it, so that the clock is read
seldom. It counts the time of this thread: what other programs do meanwhile is not a subtask's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from time import thread_time_ns
from typing import Any, Generic, TypeVar, cast

from spillway.degrade.profile import Run
from spillway.degrade.subtask import Subtasks

Row = dict[str, Any]
Does = Callable[[Row], Row | None]
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample(Generic[Result]):
    """Rows, the subtasks that work on them, and what the finished rows are together.

    result: makes of the rows that are left what a `Measure` compares: a ranking, a total.
    adds:   the subtask whose time that counts to, such as one that ranks; none if it is no work
            of the application.

    >>> from spillway.degrade.subtask import Subtask
    >>> work = Subtasks([Subtask("twice", does=lambda row: {"n": 2 * row["n"]})])
    >>> sample = Sample(
    ...     subtasks=work, rows=[{"n": 1}, {"n": 4}], result=lambda rows: [row["n"] for row in rows]
    ... )
    >>> sample.run(frozenset()).result
    [2, 8]
    """

    subtasks: Subtasks
    rows: Sequence[Row]
    result: Callable[[list[Row]], Result]
    adds: str | None = None
    clock_ns: Callable[[], int] = thread_time_ns

    def __post_init__(self) -> None:
        """Reject a subtask that is none of them."""
        if self.adds is not None and self.adds not in self.subtasks.names:
            raise ValueError(f"adds must be one of {self.subtasks.names}, got {self.adds!r}")

    def run(self, off: frozenset[str]) -> Run[Result]:
        """Return the result without some subtasks, and what each of the others took."""
        rows, busy_ns = self.finished(off)
        began_ns = self.clock_ns()
        result = self.result(rows)
        if self.adds is not None:
            busy_ns[self.adds] += self.clock_ns() - began_ns
        busy_s = {name: taken_ns / 1e9 for name, taken_ns in busy_ns.items()}
        return Run(result=result, rows=len(self.rows), busy_s=busy_s)

    def finished(self, off: Iterable[str] = ()) -> tuple[list[Row], dict[str, int]]:
        """Return the rows that are left, and how long each subtask took for all of them."""
        rows = [dict(row) for row in self.rows]
        busy_ns: dict[str, int] = {}
        for subtask in self.subtasks.selected(off):
            began_ns = self.clock_ns()
            rows = _worked(cast("Does", subtask.does), rows)
            busy_ns[subtask.name] = self.clock_ns() - began_ns
        return rows, busy_ns


@dataclass(frozen=True, slots=True)
class Complete:
    """All subtasks, one after the other: the operator of a job that cannot leave any out."""

    subtasks: Subtasks
    columns: tuple[str, ...]

    def __call__(self, row: Row) -> Row | None:
        """Return the columns of a finished row; None if a subtask drops it."""
        for subtask in self.subtasks:
            made = cast("Does", subtask.does)(row)
            if made is None:
                return None
            row |= made
        return {name: row[name] for name in self.columns}


def _worked(does: Does, rows: Iterable[Row]) -> list[Row]:
    """Add to the rows what a subtask makes of them; without those that it drops."""
    kept = []
    for row in rows:
        made = does(row)
        if made is not None:
            row.update(made)
            kept.append(row)
    return kept
