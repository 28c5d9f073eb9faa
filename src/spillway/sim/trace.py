"""What a simulated run did: its batches, and how often they broke or overdid the objective."""

from __future__ import annotations

from dataclasses import dataclass

from spillway.objective import Latency
from spillway.values import Observation, PinnedPlan, Plan

Latencies = tuple[float | None, float | None, float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One finished batch: the plan it followed, what it showed, what it left waiting.

    Its rows were taken at `planned_s`; `start_s` is later if it had to be played again after a
    restart, and `run` counts the starts of the query. `seen` has rows, strata, duration, latencies.
    `whole_duration_s` and `whole_latency_s` (mean, 99th percentile, worst) say how it would have
    gone with every row kept. `backlog_rows` had come by its end and were in no batch yet.
    """

    run: int
    planned_s: float
    start_s: float
    end_s: float
    first_row: int
    pinned: PinnedPlan
    seen: Observation
    whole_duration_s: float
    whole_latency_s: Latencies
    backlog_rows: int

    @property
    def batch_id(self) -> int:
        """The batch's number, from 0."""
        return self.seen.batch_id

    @property
    def rows_shed(self) -> int:
        """Rows that the gate gave up."""
        return self.seen.rows_in - self.seen.rows_kept

    @property
    def plan(self) -> Plan:
        """The plan that the gate followed."""
        return self.pinned.plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A whole run."""

    seed: int
    batches: tuple[Batch, ...]

    @property
    def rows_in(self) -> int:
        """All rows that came."""
        return sum(batch.seen.rows_in for batch in self.batches)

    @property
    def rows_kept(self) -> int:
        """All rows that were kept."""
        return sum(batch.seen.rows_kept for batch in self.batches)

    def late(self, objective: Latency) -> list[Batch]:
        """Return the batches whose kept rows broke the objective."""
        return [b for b in self.batches if (objective.of(b.seen) or 0.0) > objective.limit_s]

    def needless(self, objective: Latency) -> list[Batch]:
        """Return the batches that shed though all their rows would have met the objective."""
        index = ("average", "p99", "each").index(objective.kind)
        return [
            batch
            for batch in self.batches
            if batch.rows_shed and (batch.whole_latency_s[index] or 0.0) <= objective.limit_s
        ]
