"""The frozen values of optional work: what subtasks did, which of them run, what is remembered."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SubtaskRun:
    """What one subtask did: its time over the rows that it was selected for.

    Over `judged` rows it was also tried what leaving it out loses: `lost` is their sum.
    """

    name: str
    rows: int = 0
    busy_ns: int = 0
    judged: int = 0
    lost: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkDone:
    """What became of the rows of a pipeline of subtasks.

    They took the lesser or the greater selection of the plan's mix, or belonged to the share that
    always runs complete. `done` is the share of the complete work that was done, where the
    subtasks are not timed one by one.
    """

    rows_less: int = 0
    rows_more: int = 0
    rows_complete: int = 0
    subtasks: tuple[SubtaskRun, ...] = ()
    done: float | None = None

    @property
    def rows(self) -> int:
        """All rows that came in."""
        return self.rows_less + self.rows_more + self.rows_complete


def total_work(parts: tuple[WorkDone, ...]) -> WorkDone:
    """Add the tasks of a pipeline up."""
    runs: dict[str, list[SubtaskRun]] = {}
    for part in parts:
        for run in part.subtasks:
            runs.setdefault(run.name, []).append(run)
    return WorkDone(
        rows_less=sum(part.rows_less for part in parts),
        rows_more=sum(part.rows_more for part in parts),
        rows_complete=sum(part.rows_complete for part in parts),
        subtasks=tuple(_total_run(name, each) for name, each in runs.items()),
    )


def _total_run(name: str, runs: list[SubtaskRun]) -> SubtaskRun:
    return SubtaskRun(
        name=name,
        rows=sum(run.rows for run in runs),
        busy_ns=sum(run.busy_ns for run in runs),
        judged=sum(run.judged for run in runs),
        lost=sum(run.lost for run in runs),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """One selection of subtasks: those that are off, the accuracy that is left, and the work.

    `work` is its share of the complete work on a row.
    """

    off: tuple[str, ...] = ()
    accuracy: float = 1.0
    work: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkMix:
    """Two selections over the rows of a batch: `fraction` of the rows take `more`.

    The share `complete` of the rows runs all subtasks, whatever is selected for the others.
    """

    less: Selection
    more: Selection
    fraction: float
    complete: float = 0.0

    @property
    def accuracy(self) -> float:
        """Expected accuracy, as the mean over rows."""
        mixed = self.less.accuracy + self.fraction * (self.more.accuracy - self.less.accuracy)
        return self.complete + (1.0 - self.complete) * mixed


@dataclass(frozen=True, slots=True, kw_only=True)
class SubtaskState:
    """What is remembered of one subtask: what it is, what the plan was built from, what is new.

    `duration_s` (a row) and `lost` are those of the plan in use; `durations_s` and `losses` the
    latest measurements, oldest first. A loss there includes that of all that needs the subtask.
    """

    name: str
    optional: bool = False
    inputs: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    duration_s: float = 0.0
    lost: float = 0.0
    durations_s: tuple[float, ...] = ()
    losses: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkState:
    """What is remembered of a pipeline of subtasks; empty until they are known.

    `together` has what pairs lose beyond the sum; `complete` is the share of rows that always runs
    complete; `rebuilt` counts how often the plan was built anew. `pending` are measurements over
    too few rows so far: what later batches measure is added to them.
    """

    subtasks: tuple[SubtaskState, ...] = ()
    together: tuple[tuple[str, str, float], ...] = ()
    complete: float = 0.0
    rebuilt: int = 0
    pending: tuple[SubtaskRun, ...] = ()
