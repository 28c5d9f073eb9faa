"""Ledgers made up from a seed: a guarded query through calm, burst and calm again."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from pathlib import Path

from spillway.note_values import CostHealth
from spillway.objective import Latency
from spillway.state import files
from spillway.state.ledger import KIND, Entry, Segment
from spillway.telemetry.teller import Teller, Watched
from spillway.values import Budget, Observation, PinnedPlan, Plan, StratumCount
from spillway.work_values import Selection, SubtaskRun, WorkDone, WorkMix

STRATA = ("below", "boundary", "above")
_DIFFERENT, _SEGMENT = 5000, 1000


@dataclass(frozen=True, kw_only=True)
class Story:
    """Batches of a second each; every `period` of them has a burst of 4.2 times the rate."""

    name: str = "rides"
    limit_s: float = 2.0
    period: int = 120
    rate: int = 1000
    started_at_s: float = 1_700_000_000.0
    query_id: str = "q"
    subtasks: bool = False
    late: float = 1.0  # times as long as it should be
    seed: int = 1

    def entries(self, first: int, count: int) -> list[Entry]:
        """Return batches, noted as a recorder notes them."""
        teller = Teller(Watched(guard=self.name, objective=Latency(average=f"{self.limit_s} s")))
        return [self.noted(teller, batch) for batch in range(first, first + count)]

    def noted(self, teller: Teller, batch: int) -> Entry:
        """Return one batch with its note."""
        entry = self.entry(batch)
        cost = CostHealth(error=0.04 + 0.03 * math.sin(batch / 9) ** 2, keys=1024, rows=65_536)
        return teller.noted(entry, spent_s=0.9 * entry.seen.duration_s, cost=cost)

    def entry(self, batch: int) -> Entry:
        """Return one batch; the same one every time."""
        chance = random.Random(self.seed * 1_000_003 + batch)
        place = (batch % self.period) / self.period
        burst = 4.2 if 0.4 <= place < 0.7 else 1.0
        rows_in = round(self.rate * burst * chance.uniform(0.93, 1.07))
        kept = 1.0 if burst == 1.0 else 0.31
        late = self.late * (chance.uniform(0.85, 1.0) if burst > 1 else chance.uniform(0.4, 0.55))
        strata = self._strata(rows_in, kept)
        seen = Observation(
            batch_id=batch,
            rows_in=rows_in,
            rows_kept=sum(stratum.rows_kept for stratum in strata),
            duration_s=0.62 * late * self.limit_s,
            latency_s_mean=late * self.limit_s,
            latency_s_max=1.6 * late * self.limit_s,
            latency_s_p99=1.5 * late * self.limit_s,
            backlog_rows=round(rows_in * late * (2.5 if burst > 1 else 0.4)),
            strata=strata,
            work=self._work(rows_in, burst),
        )
        return Entry(
            query_id=self.query_id,
            run_id="r",
            seen=seen,
            plan=self._plan(batch, kept, burst),
            identity=("id",),
            offsets="[[1,2]]",
            started_at_s=self.started_at_s + batch,
        )

    def _strata(self, rows_in: int, kept: float) -> tuple[StratumCount, ...]:
        sizes = (rows_in // 2, rows_in // 6, rows_in - rows_in // 2 - rows_in // 6)
        rates = (1.0, 1.0, 1.0) if kept == 1.0 else (0.01, 0.25, 0.8)
        return tuple(
            StratumCount(name=name, rows_in=size, rows_kept=round(size * rate))
            for name, size, rate in zip(STRATA, sizes, rates, strict=True)
        )

    def _plan(self, batch: int, kept: float, burst: float) -> PinnedPlan:
        rates = (1.0, 1.0, 1.0) if kept == 1.0 else (0.01, 0.25, 0.8)
        cause = "within limits" if kept == 1.0 else "overload"
        budget = Budget(
            work_s_max=0.55 * self.limit_s, work_s_full=0.4 * burst * self.limit_s, reason=cause
        )
        mix = WorkMix(
            less=Selection(off=("mood",) if burst > 1 else (), accuracy=0.93 if burst > 1 else 1.0),
            more=Selection(),
            fraction=0.25,
        )
        reason = cause if kept == 1.0 else f"{cause}: costliest keys first"
        plan = Plan(
            rates=rates,
            edges=(1.0, 2.0),
            reason=reason,
            budget=budget,
            mix=mix if self.subtasks else None,
        )
        return PinnedPlan(batch_id=batch, version=batch - 1, salt=batch, plan=plan)

    def _work(self, rows_in: int, burst: float) -> WorkDone | None:
        if not self.subtasks:
            return None
        share = 0.25 if burst > 1 else 1.0
        runs = (("parse", 1.0), ("places", 1.0), ("mood", share))
        done = tuple(SubtaskRun(name=name, rows=round(rows_in * part)) for name, part in runs)
        return WorkDone(rows_more=rows_in, subtasks=done)


def write(state: Path, story: Story, *, batches: int, first: int = 0) -> None:
    """Add batches to a ledger at once, in the ledger's own form, without waiting for the disk.

    Beyond some thousand they repeat, at later times: only reading them is the test's business.
    """
    folder = state / "ledger"
    folder.mkdir(parents=True, exist_ok=True)
    made = story.entries(first, min(batches, _DIFFERENT))
    for begin in _begins(first, batches):
        end = min(begin - begin % _SEGMENT + _SEGMENT, first + batches)
        entries = [_at(story, made[(n - first) % len(made)], n) for n in range(begin, end)]
        lines = [b"\n" + files.encode(KIND, entry) + b"\n" for entry in entries]
        with Segment.of(folder, entries[0]).path.open("ab") as file:
            file.writelines(lines)


def _at(story: Story, entry: Entry, batch: int) -> Entry:
    seen = replace(entry.seen, batch_id=batch)
    return replace(entry, seen=seen, started_at_s=story.started_at_s + batch)


def _begins(first: int, batches: int) -> list[int]:
    """Return where each segment's part of the batches begins."""
    rest = range(first - first % _SEGMENT + _SEGMENT, first + batches, _SEGMENT)
    return [first, *rest]
