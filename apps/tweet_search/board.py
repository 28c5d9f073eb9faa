"""What a run has found so far, and what is reported of it every second."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from spillway.degrade.subtask import Subtasks
from spillway.workload.search_window import Ranking, Window

if TYPE_CHECKING:
    from pyspark.sql import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a batch has found: so many tweets, how accurate they are, and what ran for them."""

    batch_id: int
    rows: int
    accuracy: float | None
    on: dict[str, float]  # optional subtask: share of the found for which it ran


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One finished batch, as the books have it."""

    batch_id: int
    rows_in: int
    rows_kept: int
    latency_s: float | None
    work_s: float
    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The window at one second, and the batches that have finished by then."""

    second: float
    ranking: Ranking
    lines: tuple[Line, ...]
    found: tuple[Found, ...]


@dataclass(slots=True, kw_only=True)
class Board:
    """What has been found so far. A window is a value: one thread adds, another may look at it."""

    subtasks: Subtasks
    window: Window
    found: list[Found] = field(default_factory=list)

    def take(self, batch_id: int, rows: Sequence[Row]) -> None:
        """Add what a batch has found; a batch that comes again is known already."""
        if self.found and batch_id <= self.found[-1].batch_id:
            return
        self.window = self.window.with_rows(
            [row["id"] for row in rows],
            [row["arrived"].timestamp() for row in rows],
            [row["metrics"] for row in rows],
            [(row["author"], row["text"]) for row in rows],
        )
        self.found.append(self._found(batch_id, rows))

    def _found(self, batch_id: int, rows: Sequence[Row]) -> Found:
        count = max(len(rows), 1)
        accuracies = [row["_accuracy"] for row in rows if "_accuracy" in row]
        ran = [set(self.subtasks.unmask(row["measured"])) for row in rows]
        return Found(
            batch_id=batch_id,
            rows=len(rows),
            accuracy=sum(accuracies) / len(accuracies) if accuracies else None,
            on={name: sum(name in on for on in ran) / count for name in self.subtasks.optional},
        )
