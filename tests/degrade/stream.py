"""A stream of subtasks on virtual time: the shipped loop decides, the truth is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from spillway.degrade.remembered import OWN
from spillway.loop import Loop
from spillway.state import files
from spillway.values import BatchAhead, LoopState, Observation, Plan, StratumCount, TaskReport
from spillway.work_values import SubtaskRun, WorkDone

Times = Callable[[int], Mapping[str, float]]
FIXED_S = 0.1


@dataclass(frozen=True, kw_only=True)
class Step:
    """One batch: its plan, what came of it, what the loop knew afterwards."""

    plan: Plan
    seen: Observation
    state: LoopState


@dataclass(kw_only=True)
class Stream:
    """Back-to-back batches: each takes the rows that came while the one before it ran.

    `times_s` says what every subtask takes for a row in a batch, and `lost` what a complete row
    would lose without it; the operator's own time is among the former.
    """

    loop: Loop
    rows_per_s: float
    times_s: Times
    lost: Mapping[str, float] = field(default_factory=dict)
    state: LoopState = field(default_factory=LoopState)
    batch_id: int = 0
    duration_s: float = 1.0

    def run(self, batches: int) -> list[Step]:
        """Run so many batches."""
        return [self.step() for _ in range(batches)]

    def step(self) -> Step:
        """Run one batch and let the loop learn from it."""
        rows = round(self.rows_per_s * self.duration_s)
        plan, _ = self.loop.decide(self.state, BatchAhead(batch_id=self.batch_id, rows=rows))
        seen = self._seen(plan, rows)
        self.state = self.loop.learn(self.state, seen, query_id="q", run_id="r")
        self.duration_s, self.batch_id = seen.duration_s, self.batch_id + 1
        return Step(plan=plan, seen=seen, state=self.state)

    def restart(self) -> None:
        """Go on from what is on disk."""
        written = files.encode("loop state", self.state)
        self.state = files.decode(written, "loop state", LoopState)

    def _seen(self, plan: Plan, rows: int) -> Observation:
        kept = round(rows * plan.rates[0])
        work = self._work(plan, kept)
        busy_ns = sum(run.busy_ns for run in work.subtasks)
        duration_s = FIXED_S + busy_ns / 1e9
        report = TaskReport(instance=0, rows_in=kept, busy_ns=busy_ns, ended_at_ns=busy_ns)
        return Observation(
            batch_id=self.batch_id,
            rows_in=rows,
            rows_kept=kept,
            duration_s=duration_s,
            latency_s_mean=0.5 * self.duration_s + duration_s,
            strata=(StratumCount(name="all", rows_in=rows, rows_kept=kept),),
            tasks=(report,),
            work=work,
        )

    def _work(self, plan: Plan, kept: int) -> WorkDone:
        """Say what the operator would: counts are exact shares, nothing is drawn."""
        mix = plan.mix
        complete = round(kept * mix.complete) if mix else 0
        more = round((kept - complete) * mix.fraction) if mix else kept
        less = kept - complete - more
        off = (mix.less.off, mix.more.off) if mix else ((), ())
        times_s = self.times_s(self.batch_id)
        runs = []
        for name, row_s in times_s.items():
            ran = complete + less * (name not in off[0]) + more * (name not in off[1])
            judged = complete if self._turn(times_s) == name else 0
            runs.append(
                SubtaskRun(
                    name=name,
                    rows=ran,
                    busy_ns=round(ran * row_s * 1e9),
                    judged=judged,
                    lost=judged * self.lost.get(name, 0.0),
                )
            )
        return WorkDone(
            rows_less=less, rows_more=more, rows_complete=complete, subtasks=tuple(runs)
        )

    def _turn(self, times_s: Mapping[str, float]) -> str | None:
        optional = [name for name in times_s if name in self.lost and name != OWN]
        return optional[self.batch_id % len(optional)] if optional else None
