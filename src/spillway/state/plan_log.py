"""The plan log: every batch's plan, pinned under its batch id before its first use.

Recent plans are files of their own; older ones lie a thousand to a zip file, as checked as before,
with only what finding the shed rows again needs. Beyond `history` batches they are forgotten.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from spillway.state import files
from spillway.values import PinnedPlan

_KIND = "plan"
_HISTORY = 10_000
_LOOSE = 1000  # so many recent plans lie loose: Spark may run those batches again
_SEGMENT_BATCHES = 1000

Brief = Callable[[PinnedPlan], PinnedPlan]


def brief(pinned: PinnedPlan, *, keyed: bool = True) -> PinnedPlan:
    """Return what telling kept rows from shed ones needs of a plan.

    An open gate looked nothing up; costs are looked up only where rows are shed by their key.
    """
    plan = pinned.plan
    if not plan.sheds:
        return replace(pinned, plan=replace(plan, costs=None, keep=None))
    return pinned if keyed else replace(pinned, plan=replace(plan, costs=None))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanLog:
    """Pinned plans of one query. The first writer wins; everybody else reads what it wrote."""

    folder: Path
    history: int = _HISTORY

    @classmethod
    def of(cls, state: Path, query_id: str, *, history: int = _HISTORY) -> PlanLog:
        """Open the log of a query; another checkpoint is another query and another log."""
        name = re.sub(r"[^A-Za-z0-9-]", "_", query_id or "query")
        return cls(folder=state / "plans" / name, history=history)

    def read(self, batch_id: int) -> PinnedPlan | None:
        """Return the batch's pinned plan, None if there is none; raise if it is damaged."""
        plan = files.read(self._path(batch_id), _KIND, PinnedPlan) or self._folded(batch_id)
        if plan is not None and plan.batch_id != batch_id:
            raise files.BadStateFile(f"{self._path(batch_id)}: it is batch {plan.batch_id}'s")
        return plan

    def pin(self, plan: PinnedPlan) -> PinnedPlan:
        """Pin the plan and return the one that is now pinned, which may be another's."""
        folded = self._folded(plan.batch_id)
        if folded is not None:
            return folded
        if files.write_new(self._path(plan.batch_id), _KIND, plan):
            return plan
        return self.read(plan.batch_id) or plan

    def prune(self, batch_id: int, *, shorten: Brief = brief) -> None:
        """Fold plans that are old, shortened; forget those `history` batches before `batch_id`."""
        oldest = batch_id - self.history
        for batch in self._loose():
            if batch < oldest:
                self._path(batch).unlink(missing_ok=True)
        for segment in self._segments():
            if (segment + 1) * _SEGMENT_BATCHES <= oldest:
                self._segment(segment).unlink(missing_ok=True)
        for segment in sorted({batch // _SEGMENT_BATCHES for batch in self._loose()}):
            if (segment + 1) * _SEGMENT_BATCHES <= batch_id - _LOOSE:
                self._fold(segment, shorten)

    def batch_ids(self) -> list[int]:
        """Return the batches whose plans are in the log, ascending."""
        from spillway.state import plan_archive

        folded = (plan_archive.names(self._segment(segment)) for segment in self._segments())
        return sorted({*self._loose(), *(batch for names in folded for batch in names)})

    def _fold(self, segment: int, shorten: Brief) -> None:
        """Put the loose plans of a segment into its archive; a crash in between does no harm."""
        from spillway.state import plan_archive

        loose = [batch for batch in self._loose() if batch // _SEGMENT_BATCHES == segment]
        plans = {batch: _shortened(self._path(batch), shorten) for batch in loose}
        plan_archive.add(self._segment(segment), plans)
        for batch in loose:
            self._path(batch).unlink(missing_ok=True)

    def _folded(self, batch_id: int) -> PinnedPlan | None:
        path = self._segment(batch_id // _SEGMENT_BATCHES)
        if not path.exists():
            return None
        from spillway.state import plan_archive  # a task that pins a new plan needs no archive

        data = plan_archive.read(path, batch_id)
        return files.decode(data, _KIND, PinnedPlan) if data is not None else None

    def _loose(self) -> list[int]:
        return [int(path.stem) for path in self.folder.glob("*.json") if path.stem.isdigit()]

    def _segments(self) -> list[int]:
        return [int(path.stem) for path in self.folder.glob("*.zip") if path.stem.isdigit()]

    def _segment(self, segment: int) -> Path:
        return self.folder / f"{segment:08d}.zip"

    def _path(self, batch_id: int) -> Path:
        return self.folder / f"{batch_id}.json"


def _shortened(path: Path, shorten: Brief) -> bytes:
    """Return a plan's file, shortened; one that is damaged stays as it is, to be noticed later."""
    try:
        pinned = files.read(path, _KIND, PinnedPlan)
    except files.BadStateFile:
        pinned = None
    return path.read_bytes() if pinned is None else files.encode(_KIND, shorten(pinned))
