"""The events of a batch: what was observed, allowed, planned, why, and what is alarming.

They are written to the ledger, one line for each batch, and told to hooks. Everything that shows
what a guard does reads them here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spillway.note_values import CostHealth
from spillway.values import StratumCount
from spillway.work_values import WorkDone, WorkMix

if TYPE_CHECKING:
    from spillway.state.ledger import Entry
    from spillway.state.ledger_lines import Line


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something about one batch of one guard; `at_s` is when the batch ended."""

    guard: str
    query_id: str
    run_id: str
    batch_id: int
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed(Event):
    """What the finished batch showed. Latencies are of the kept rows; rates in rows a second."""

    rows_in: int
    rows_kept: int
    rows_refused: int
    duration_s: float
    rate: float | None
    latency_s_mean: float | None
    latency_s_p99: float | None
    latency_s_max: float | None
    objective: str
    limit_s: float | None
    backlog_rows: float | None
    spent_s: float | None
    sic: float | None
    cost: CostHealth | None
    strata: tuple[StratumCount, ...]
    work: WorkDone | None
    refusal: tuple[str, str]  # stratum and reason of the refused rows

    @property
    def rows_shed(self) -> int:
        """Rows that the gate or the operator gave up."""
        return self.rows_in - self.rows_kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgeted(Event):
    """What the batch was allowed to spend on its rows, beside what all of them would need."""

    work_s_max: float
    work_s_full: float
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned(Event):
    """The plan that the gate followed: keep rates by stratum, and which subtasks ran."""

    rates: tuple[float, ...]
    mix: WorkMix | None
    decided_after: int
    faults: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reasoned(Event):
    """Why, in words."""

    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarmed(Event):
    """Something that a person should look at; see `note_values.Alarm` for the kinds."""

    kind: str
    text: str


def events_of(entry: Entry | Line) -> tuple[Event, ...]:
    """Return the events that a line of the ledger holds, in the order in which they are told."""
    whose: dict[str, Any] = {
        "guard": entry.note.guard,
        "query_id": entry.query_id,
        "run_id": entry.run_id,
        "batch_id": entry.batch_id,
        "at_s": entry.started_at_s + entry.seen.duration_s,
    }
    alarms = (Alarmed(**whose, kind=a.kind, text=a.text) for a in entry.note.alarms)
    reasoned = Reasoned(**whose, words=entry.note.words or entry.reason)
    return (_observed(entry, whose), *_decided(entry, whose), reasoned, *alarms)


def _observed(entry: Entry | Line, whose: dict[str, Any]) -> Observed:
    seen, note = entry.seen, entry.note
    return Observed(
        **whose,
        rows_in=seen.rows_in,
        rows_kept=seen.rows_kept,
        rows_refused=seen.rows_refused,
        duration_s=seen.duration_s,
        rate=note.rate,
        latency_s_mean=seen.latency_s_mean,
        latency_s_p99=seen.latency_s_p99,
        latency_s_max=seen.latency_s_max,
        objective=note.objective,
        limit_s=note.limit_s,
        backlog_rows=seen.backlog_rows,
        spent_s=note.spent_s,
        sic=note.sic,
        cost=note.cost,
        strata=seen.strata,
        work=seen.work,
        refusal=entry.refusal,
    )


def _decided(entry: Entry | Line, whose: dict[str, Any]) -> tuple[Event, ...]:
    """Return the budget and the plan; older books have no budget, and without a gate no plan."""
    if entry.plan is None:
        return ()
    plan, budget = entry.plan.plan, entry.plan.plan.budget
    planned = Planned(
        **whose,
        rates=plan.rates,
        mix=plan.mix,
        decided_after=entry.plan.version,
        faults=entry.plan.faults,
    )
    if budget is None:
        return (planned,)
    allowed = Budgeted(
        **whose,
        work_s_max=budget.work_s_max,
        work_s_full=budget.work_s_full,
        cause=budget.reason,
    )
    return (allowed, planned)
