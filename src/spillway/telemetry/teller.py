"""Notes what else is to be told of a batch: rates, words, alarms. A fold over the batches."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, replace
from statistics import median

from spillway.note_values import Alarm, CostHealth, Note
from spillway.objective import Latency
from spillway.state.ledger import Entry
from spillway.telemetry.words import percent, reason
from spillway.values import Limits, Observation

_NORMAL_BATCHES = 40
_WINDOW_BATCHES = 1000  # at most, in a window: enough for 30 a second
_MISSED_BATCHES = 3  # a single batch that is late is no alarm
_ALARMS_MAX = 5
_AT_FLOOR = 1.5  # kept at less than so many times the least rate
_STALE = "no recent observation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What a guard is: its name, what must hold, its limits, and the window of its fair share."""

    guard: str = ""
    objective: Latency | None = None
    limits: Limits = Limits()  # noqa: RUF009 (frozen)
    window_s: float = 30.0


class Teller:
    """Follows the batches of one guard and notes each; memory is bounded."""

    def __init__(self, watched: Watched) -> None:
        """Start with nothing seen."""
        self.watched = watched
        self._began_at_s: float | None = None
        self._run_id = ""
        self._calm: deque[float] = deque(maxlen=_NORMAL_BATCHES)
        self._missed = 0
        self._window: deque[tuple[float, int, int]] = deque(maxlen=_WINDOW_BATCHES)
        self._complaints: deque[str] = deque(maxlen=_ALARMS_MAX)
        self._unheard = 0

    def hear(self, complaint: str) -> None:
        """Keep a fault for the batch to come; beyond so many only their number."""
        self._unheard += len(self._complaints) == _ALARMS_MAX
        self._complaints.append(complaint)

    def noted(
        self,
        entry: Entry,
        *,
        spent_s: float | None = None,
        cost: CostHealth | None = None,
        faults: int = 0,
    ) -> Entry:
        """Return the entry with its note."""
        objective, rate = self.watched.objective, self._rate(entry)
        normal = median(self._calm) if self._calm else None
        note = Note(
            guard=self.watched.guard,
            objective=objective.kind if objective else "",
            limit_s=objective.limit_s if objective else None,
            rate=rate,
            normal=normal,
            spent_s=spent_s,
            sic=self._result_sic(entry),
            window_s=self.watched.window_s,
            cost=cost,
            words=reason(entry, rate=rate, normal=normal),
            faults=faults,
            alarms=self._alarms(entry),
        )
        if rate and not entry.rows_shed:
            self._calm.append(rate)
        return replace(entry, note=note)

    def _rate(self, entry: Entry) -> float | None:
        """Return the rows that came in a second since the batch before began; unknown at a start.

        A batch that is booked late tells nothing of the time between two.
        """
        before_s, self._began_at_s = self._began_at_s, entry.started_at_s
        if entry.run_id != self._run_id:
            self._run_id, before_s, self._missed = entry.run_id, None, -1  # the first one is slow
        since_s = entry.started_at_s - before_s if before_s is not None else 0.0
        return entry.seen.rows_in / since_s if 0 < since_s < math.inf else None

    def _result_sic(self, entry: Entry) -> float:
        """Return which share of the window's input is in the results (`estimate.sic`, one source).

        Counts suffice: rows of one source carry the same.
        """
        now_s = entry.started_at_s
        self._window.append((now_s, entry.seen.rows_in, entry.seen.rows_kept))
        while self._window[0][0] <= now_s - self.watched.window_s:
            self._window.popleft()
        came = sum(rows_in for _, rows_in, _ in self._window)
        return sum(kept for _, _, kept in self._window) / came if came else 1.0

    def _alarms(self, entry: Entry) -> tuple[Alarm, ...]:
        told = [Alarm(kind="fault", text=text) for text in self._complaints]
        if self._unheard:
            told.append(Alarm(kind="fault", text=f"and {self._unheard} more faults"))
        self._complaints.clear()
        self._unheard = 0
        found = (self._late(entry.seen), _stale(entry), self._at_floor(entry))
        return (*told, *(alarm for alarm in found if alarm))

    def _late(self, seen: Observation) -> Alarm | None:
        objective = self.watched.objective
        latency_s = objective.of(seen) if objective else None
        if objective is None or latency_s is None:
            return None
        self._missed = self._missed + 1 if latency_s > objective.limit_s else 0
        if self._missed < _MISSED_BATCHES:
            return None
        text = f"{latency_s:.3g} s in the last of {self._missed} batches in a row: {objective}"
        return Alarm(kind="objective", text=text)

    def _at_floor(self, entry: Entry) -> Alarm | None:
        least = self.watched.limits.keep_min
        if entry.plan is None or not entry.plan.plan.sheds or entry.seen.share >= _AT_FLOOR * least:
            return None
        return Alarm(kind="floor", text=f"keeping {percent(entry.seen.share)}, the least allowed")


def _stale(entry: Entry) -> Alarm | None:
    if not entry.reason.startswith(_STALE):
        return None
    return Alarm(kind="stale", text="the plan was decided without a recent observation")
