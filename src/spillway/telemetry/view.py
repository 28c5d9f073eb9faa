"""What is shown of one guard: a fold over its events, in bounded memory."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from spillway.telemetry.events import Alarmed, Budgeted, Event, Observed, Planned, Reasoned
from spillway.telemetry.thinned import Thinned
from spillway.values import StratumCount

COLUMNS = (
    "at_s",
    "rate",
    "kept",
    "latency_mean",
    "latency_p99",
    "latency_max",
    "limit",
    "backlog",
    "allowed",
    "needed",
    "spent",
    "duration",
    "share",
    "sic",
    "cost_error",
    "accuracy",
)
PARTS_MAX = 8  # strata and subtasks that have a line of their own; the others are one
OTHER = "other"
_RECENT = 600
_SERIES_MAX = 100
_ALARMS_MAX = 20
_UNKNOWN = "unknown"  # older books do not tell budgets
_NAN = math.nan

E = TypeVar("E", bound=Event)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One batch: the numbers of `COLUMNS` and then the shares of the parts; NaN for none."""

    seq: int
    batch: tuple[str, int]
    numbers: tuple[float, ...]


@dataclass(slots=True, kw_only=True)
class Counted:
    """What all batches add up to; `shed` by stratum and cause, with the rarest under one name."""

    batches: int = 0
    rows_in: int = 0
    rows_kept: int = 0
    shed: dict[tuple[str, str], int] = field(default_factory=dict)
    alarms: dict[str, int] = field(default_factory=dict)

    def add(self, seen: Observed, cause: str, sign: int = 1) -> None:
        """Add a batch, or take one back that was written a second time."""
        self.batches += sign
        self.rows_in += sign * seen.rows_in
        self.rows_kept += sign * seen.rows_kept
        for stratum in seen.strata:
            self.shed_rows(stratum.name, cause, sign * stratum.rows_shed)
        self.shed_rows(*seen.refusal, sign * seen.rows_refused)

    def shed_rows(self, stratum: str, cause: str, rows: int) -> None:
        """Count shed rows under at most so many names."""
        if rows:
            known = (stratum, cause) in self.shed or len(self.shed) < _SERIES_MAX
            key = (stratum, cause) if known else (OTHER, OTHER)
            self.shed[key] = self.shed.get(key, 0) + rows


class View:
    """One guard as its events tell it."""

    def __init__(self, name: str) -> None:
        """Start with nothing told; `name` stands until an event says the guard's."""
        self.name = name
        self.words = ""
        self.seen: Observed | None = None
        self.plan: Planned | None = None
        self.budget: Budgeted | None = None
        self.counted = Counted()
        self.parts: list[str] = []
        self.recent: deque[Point] = deque(maxlen=_RECENT)
        self.history = Thinned(columns=len(COLUMNS) + PARTS_MAX + 1)
        self.alarms: deque[Alarmed] = deque(maxlen=_ALARMS_MAX)
        self._booked: dict[tuple[str, int], tuple[Observed, str]] = {}

    def take(self, events: Iterable[Event], seq: int) -> Point | None:
        """Take the events of one batch; a batch that was told before counts once."""
        told = {type(event): event for event in events if not isinstance(event, Alarmed)}
        seen = told.get(Observed)
        if not isinstance(seen, Observed):
            return None
        self.seen, self.name = seen, seen.guard or self.name
        self.plan, self.budget = _of(told, Planned), _of(told, Budgeted)
        reasoned = _of(told, Reasoned)
        self.words = reasoned.words if reasoned else ""
        self._count(seen)
        self._alarm([event for event in events if isinstance(event, Alarmed)])
        point = Point(seq=seq, batch=(seen.query_id, seen.batch_id), numbers=self._numbers(seen))
        self.recent.append(point)
        self.history.add(point.numbers)
        return point

    def _alarm(self, alarms: list[Alarmed]) -> None:
        for alarm in alarms:
            self.alarms.append(alarm)
            known = alarm.kind in self.counted.alarms or len(self.counted.alarms) < _ALARMS_MAX
            kind = alarm.kind if known else OTHER
            self.counted.alarms[kind] = self.counted.alarms.get(kind, 0) + 1

    def _count(self, seen: Observed) -> None:
        cause = self.budget.cause if self.budget else _UNKNOWN
        key = (seen.query_id, seen.batch_id)
        if key in self._booked:
            self.counted.add(*self._booked.pop(key), sign=-1)
        self.counted.add(seen, cause)
        self._booked[key] = (seen, cause)
        if len(self._booked) > _RECENT:
            self._booked.pop(next(iter(self._booked)))

    def _numbers(self, seen: Observed) -> tuple[float, ...]:
        share = seen.rows_kept / seen.rows_in if seen.rows_in else _NAN
        budget, mix = self.budget, self.plan.mix if self.plan else None
        numbers = (
            seen.at_s,
            seen.rate,
            seen.rate * share if seen.rate is not None else None,
            seen.latency_s_mean,
            seen.latency_s_p99,
            seen.latency_s_max,
            seen.limit_s,
            seen.backlog_rows,
            budget.work_s_max if budget else None,
            budget.work_s_full if budget else None,
            seen.spent_s,
            seen.duration_s,
            share,
            seen.sic,
            seen.cost.error if seen.cost else None,
            mix.accuracy if mix else None,
        )
        return (*(_NAN if n is None else float(n) for n in numbers), *self._shares(seen))

    def _shares(self, seen: Observed) -> list[float]:
        """Return which share of each part was kept, or done; the last is that of all others."""
        came, kept = [0] * (PARTS_MAX + 1), [0] * (PARTS_MAX + 1)
        for part in _parts_of(seen):
            place = self._place(part.name)
            came[place] += part.rows_in
            kept[place] += part.rows_kept
        return [k / c if c else _NAN for c, k in zip(came, kept, strict=True)]

    def _place(self, name: str) -> int:
        if name not in self.parts:
            if len(self.parts) == PARTS_MAX:
                return PARTS_MAX
            self.parts.append(name)
        return self.parts.index(name)


def _parts_of(seen: Observed) -> list[StratumCount]:
    """Return the strata where there are several, and the subtasks as if they were some."""
    strata = list(seen.strata) if len(seen.strata) > 1 else []
    work = seen.work
    runs = work.subtasks if work else ()
    rows = work.rows if work else 0
    return strata + [StratumCount(name=r.name, rows_in=rows, rows_kept=r.rows) for r in runs]


def _of(told: dict[type, Event], kind: type[E]) -> E | None:
    found = told.get(kind)
    return found if isinstance(found, kind) else None
