"""Checks a stream that has been through faults: its source, sink, plans and ledger must agree."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import spillway as sw
from faults.job import CHECKPOINT, SINK
from spillway.kernels.uniform import uniforms
from spillway.state import offsets
from spillway.state.files import BadStateFile
from spillway.state.plan_log import PlanLog
from spillway.values import PinnedPlan


@dataclass
class Findings:
    """What the books say. The second part must be zero."""

    batches: int = 0
    rows: int = 0
    rows_kept: int = 0
    rows_shed: int = 0
    attempts: int = 0
    replayed: int = 0
    opened: int = 0
    gaps: int = 0

    rows_unaccounted: int = 0
    decisions_flipped: int = 0
    wrong_plans: int = 0
    books_wrong: int = 0
    unnamed_gaps: int = 0
    details: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Whether every promise was kept."""
        return not self.details

    def wrong(self, kind: str, count: int, detail: str) -> None:
        """Note what must not be."""
        if count:
            setattr(self, kind, getattr(self, kind) + count)
            self.details.append(f"{kind}: {detail}")

    def add(self, other: Findings) -> None:
        """Take another stream's in."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


def check(folder: Path) -> Findings:
    """Compare, batch by batch, the rows of the source with plan, sink, attempts and ledger."""
    books = _Books(folder)
    found = Findings(batches=len(books.ranges), gaps=len(books.gaps))
    for batch_id, rows in books.ranges.items():
        books.check_batch(found, batch_id, rows)
    unnamed = [b for b in books.shedding if b not in books.entries and b not in books.gaps]
    found.wrong("unnamed_gaps", len(unnamed), f"batches {unnamed} of {folder}")
    return found


class _Books:
    """Everything that was written down about a stream, read back."""

    def __init__(self, folder: Path) -> None:
        self.checkpoint = folder / CHECKPOINT
        self.sink = folder / SINK
        guard = sw.Guard("faults", state=self.checkpoint / "spillway", control=sw.FixedRate(0.5))
        query_id = offsets.query_id(self.checkpoint)
        self.log = PlanLog.of(guard.state, query_id)
        self.entries = {entry.batch_id: entry for entry in guard.ledger().entries(query_id)}
        self.gaps = set(guard.gaps())
        self.ranges = self._ranges()
        self.attempts = _by_batch(folder / "attempts.log")
        self.tasks = _by_batch(folder / "tasks.log")
        self.shedding: list[int] = []

    def _ranges(self) -> dict[int, range]:
        ends = {-1: 0}
        for batch_id in range(offsets.last_committed(self.checkpoint) + 1):
            (end,) = offsets.end_offsets(self.checkpoint, batch_id) or [None]
            assert isinstance(end, dict), f"batch {batch_id} is not in the offset log"
            ends[batch_id] = end["row"]
        return {b: range(ends[b - 1], end) for b, end in ends.items() if b >= 0}

    def plan(self, batch_id: int) -> PinnedPlan | None:
        """Return the plan of a batch, from the log or from the ledger."""
        try:
            pinned = self.log.read(batch_id)
        except BadStateFile:
            pinned = None
        entry = self.entries.get(batch_id)
        return pinned or (entry.plan if entry else None)

    def check_batch(self, found: Findings, batch_id: int, rows: range) -> None:
        """Compare one batch."""
        stored = json.loads((self.sink / f"{batch_id}.json").read_text())
        kept = [id_ for id_, _ in stored]
        found.rows, found.rows_kept = found.rows + len(rows), found.rows_kept + len(kept)
        found.rows_shed += len(rows) - len(kept)
        self.shedding += [batch_id] if len(kept) < len(rows) else []
        self._check_rows(found, batch_id, rows, kept)
        self._check_attempts(found, batch_id, rows, kept)
        self._check_entry(found, batch_id, rows, kept)

    def _check_rows(self, found: Findings, batch_id: int, rows: range, kept: list[int]) -> None:
        """Every row is in the sink or shed by the batch's plan; an open gate shed none."""
        strange = len(kept) - len(set(kept)) + len(set(kept) - set(rows))
        found.wrong("rows_unaccounted", strange, f"batch {batch_id}: {strange} rows not its own")
        if len(kept) == len(rows):
            return
        pinned, numbers = self.plan(batch_id), np.arange(rows.start, rows.stop)
        if pinned is None:
            found.wrong("rows_unaccounted", len(rows) - len(kept), f"batch {batch_id}: no plan")
            return
        planned = numbers[uniforms(pinned.salt, numbers) < pinned.plan.rates[0]].tolist()
        found.wrong("wrong_plans", int(planned != kept), f"batch {batch_id}: not as pinned")

    def _check_attempts(self, found: Findings, batch_id: int, rows: range, kept: list[int]) -> None:
        """Attempts that shed, shed the same rows; an attempt may have been open, and counted."""
        attempts = self.attempts[batch_id]
        found.attempts += len(attempts)
        found.replayed += len(attempts) > 1
        shedding = {tuple(ids) for ids in attempts if len(ids) < len(rows)}
        found.opened += len(shedding) > 0 and any(len(ids) == len(rows) for ids in attempts)
        found.wrong("decisions_flipped", max(len(shedding) - 1, 0), f"batch {batch_id}: attempts")
        other = sum(not set(ids) <= set(kept) for ids in self.tasks[batch_id])
        found.wrong("decisions_flipped", other, f"batch {batch_id}: tasks kept other rows")

    def _check_entry(self, found: Findings, batch_id: int, rows: range, kept: list[int]) -> None:
        entry = self.entries.get(batch_id)
        if entry is None:
            return
        told = (entry.seen.rows_in, entry.seen.rows_kept, entry.rows_shed)
        truth = (len(rows), len(kept), len(rows) - len(kept))
        found.wrong("books_wrong", int(told != truth), f"batch {batch_id}: {told}, not {truth}")


def _by_batch(path: Path) -> defaultdict[int, list[list[int]]]:
    """Read a log of attempts: the ids that each kept, by batch; half a line counts as none."""
    found: dict[int, list[list[int]]] = {}
    for line in path.read_bytes().splitlines() if path.exists() else []:
        try:
            attempt = json.loads(line)
        except ValueError:
            continue
        found.setdefault(attempt["batch"], []).append(sorted(attempt["ids"]))
    return defaultdict(list, found)


def injected(folder: Path) -> Counter[str]:
    """Count the faults that were injected, by kind and place."""
    path = folder / "injected.log"
    lines = path.read_text().splitlines() if path.exists() else []
    notes = [json.loads(line) for line in lines]
    return Counter(f"{note['kind']}: {note['where']}" for note in notes)
