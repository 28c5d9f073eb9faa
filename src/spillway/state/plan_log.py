"""The plan log: every batch's plan, pinned under its batch id before its first use."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from spillway.state import files
from spillway.values import PinnedPlan

_KIND = "plan"
_HISTORY = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanLog:
    """Pinned plans of one query. The first writer wins; everybody else reads what it wrote."""

    folder: Path
    history: int = _HISTORY

    @classmethod
    def of(cls, state: Path, query_id: str) -> PlanLog:
        """Open the log of a query; another checkpoint is another query and another log."""
        return cls(folder=state / "plans" / re.sub(r"[^A-Za-z0-9-]", "_", query_id or "query"))

    def read(self, batch_id: int) -> PinnedPlan | None:
        """Return the batch's pinned plan, None if there is none; raise if it is damaged."""
        plan = files.read(self._path(batch_id), _KIND, PinnedPlan)
        if plan is not None and plan.batch_id != batch_id:
            raise files.BadStateFile(f"{self._path(batch_id)}: it is batch {plan.batch_id}'s")
        return plan

    def pin(self, plan: PinnedPlan) -> PinnedPlan:
        """Pin the plan and return the one that is now pinned, which may be another's."""
        if files.write_new(self._path(plan.batch_id), _KIND, plan):
            return plan
        return self.read(plan.batch_id) or plan

    def prune(self, batch_id: int) -> None:
        """Forget plans that are more than `history` batches older than `batch_id`."""
        for path in self.folder.glob("*.json"):
            if path.stem.isdigit() and int(path.stem) < batch_id - self.history:
                path.unlink(missing_ok=True)

    def batch_ids(self) -> list[int]:
        """Return the batches whose plans are in the log, ascending."""
        return sorted(int(path.stem) for path in self.folder.glob("*.json") if path.stem.isdigit())

    def _path(self, batch_id: int) -> Path:
        return self.folder / f"{batch_id}.json"
