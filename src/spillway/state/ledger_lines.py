"""The ledger as it grows: lines that came since the last look, read as far as a watcher needs.

A line is read into less than an `Entry`: the tables of its plan, which are long, are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from spillway.note_values import Note
from spillway.state import files
from spillway.state.ledger import KIND, REFUSED, UNSAMPLED, Segment, segments_of, why
from spillway.state.ledger_sums import Sums, SumsFile
from spillway.values import Budget, StratumCount
from spillway.work_values import WorkDone, WorkMix

_LATEST_BYTES = 256 << 10  # from the end of a file, for a first look


class TaskLine(msgspec.Struct, frozen=True):
    """All tasks of a batch as one."""

    windows: bool = False


class SeenLine(msgspec.Struct, frozen=True):
    """What a batch showed."""

    batch_id: int
    rows_in: int
    rows_kept: int
    duration_s: float
    latency_s_mean: float | None = None
    latency_s_p99: float | None = None
    latency_s_max: float | None = None
    backlog_rows: float | None = None
    strata: tuple[StratumCount, ...] = ()
    rows_refused: int = 0
    tasks: tuple[TaskLine, ...] = ()
    work: WorkDone | None = None


class PlanLine(msgspec.Struct, frozen=True):
    """A plan without its tables."""

    rates: tuple[float, ...]
    reason: str = ""
    mix: WorkMix | None = None
    budget: Budget | None = None


class PinnedLine(msgspec.Struct, frozen=True):
    """A plan bound to its batch."""

    plan: PlanLine
    version: int = -1
    faults: int = 0


class Line(msgspec.Struct, frozen=True):
    """One batch in the books, in brief; the fields are those of an `Entry`."""

    query_id: str
    run_id: str
    seen: SeenLine
    plan: PinnedLine | None
    started_at_s: float
    note: Note = msgspec.field(default_factory=Note)

    @property
    def batch_id(self) -> int:
        """The batch."""
        return self.seen.batch_id

    @property
    def reason(self) -> str:
        """Why rows were shed or kept."""
        planned = self.plan.plan.reason if self.plan else None
        return why(planned, gated=bool(self.seen.strata), rows_in=self.seen.rows_in)

    @property
    def refusal(self) -> tuple[str, str]:
        """Stratum and reason of the rows that were given up behind the gate."""
        windowed = any(task.windows for task in self.seen.tasks)
        return UNSAMPLED if windowed else REFUSED


class Tail:
    """Follows a ledger: every line once, in the order of time; damaged ones are passed over."""

    def __init__(self, folder: Path) -> None:
        """Follow the ledger in a folder, which need not exist yet."""
        self.folder = folder
        self.damaged_lines = 0
        self._read_to: dict[Path, int] = {}

    def folded(self) -> Sums:
        """Return what the batches add up to that are lines no more; call it before `new`."""
        try:
            folded = SumsFile(folder=self.folder).read()
        except (files.BadStateFile, OSError):
            return Sums()
        for segment in segments_of(self.folder):
            if segment.number < folded.until.get(segment.tag, 0):
                self._read_to[segment.path] = segment.path.stat().st_size
        return folded.of(None)

    def latest(self) -> list[Line]:
        """Return some of the last lines, at once; `new` will return them again."""
        found = segments_of(self.folder)
        if not found:
            return []
        path = max(found, key=Segment.written_at_ns).path
        start = max(path.stat().st_size - _LATEST_BYTES, 0)
        lines = [_line(text) for text, _ in files.lines_from(path, start)]
        return [line for line in lines if line is not None]

    def new(self) -> Iterator[Line]:
        """Yield the lines that were not read yet."""
        for segment in self._grown():
            for text, end in files.lines_from(segment.path, self._read_to.get(segment.path, 0)):
                self._read_to[segment.path] = end
                line = _line(text)
                self.damaged_lines += line is None
                if line is not None:
                    yield line

    def _grown(self) -> list[Segment]:
        """Return the segments with something new, those that begin first at the front."""
        found = segments_of(self.folder)
        self._read_to = {each.path: self._read_to.get(each.path, 0) for each in found}
        grown = [each for each in found if each.path.stat().st_size > self._read_to[each.path]]
        return sorted(grown, key=_begun_at_s) if len(grown) > 1 else grown


def _begun_at_s(segment: Segment) -> tuple[float, int]:
    lines = (_line(text) for text, _ in files.lines_from(segment.path, 0))
    first = next((line for line in lines if line is not None), None)
    return (first.started_at_s if first else 0.0), segment.number


def _line(text: bytes) -> Line | None:
    try:
        return files.decode(text, KIND, Line)
    except files.BadStateFile:
        return None
