"""Writes a finished batch into the ledger and lets the loop learn from it. Never raises."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from spillway.contracts import by_cost
from spillway.loop import Loop, state_of
from spillway.spark.control import printable
from spillway.state import files
from spillway.state.ledger import Entry, Ledger
from spillway.state.memory import Memory
from spillway.state.plan_log import PlanLog, brief
from spillway.telemetry.events import events_of
from spillway.telemetry.health import health
from spillway.telemetry.hooks import Hooks
from spillway.telemetry.teller import Teller, Watched
from spillway.values import LoopState, Observation, PinnedPlan, total_report

if TYPE_CHECKING:
    from spillway.spark.membership import Reporter

_log = logging.getLogger("spillway")
_PRUNE_EVERY = 100


class Recorder:
    """The control path's other end: observation in, ledger and state out.

    Events may be late, doubled or dropped. A late one is written down but teaches nothing, a
    doubled one is passed over, a dropped one leaves a gap in the ledger that `gaps` names.
    """

    def __init__(
        self,
        *,
        loop: Loop,
        state: Path,
        identity: tuple[str, ...],
        reporter: Reporter | None = None,
        watched: Watched | None = None,
        hooks: Hooks | None = None,
    ) -> None:
        """Start from the last good state in the folder; a `reporter` tells other queries.

        `watched` is what the notes in the books say of the guard; `hooks` hear every event.
        """
        self.loop = loop
        self.identity = identity
        self.gate = ""  # digest of the gate's description
        self.faults = 0
        self._state_folder = state
        self._memory = Memory(folder=state)
        self._ledger = Ledger(state / "ledger", retain=loop.limits.replay_batches)
        self._teller = Teller(watched or Watched(limits=loop.limits))
        self._hooks = Hooks() if hooks is None else hooks  # one without functions is false
        self._lock = threading.Lock()
        self._reporter = reporter
        self._recorded: deque[tuple[str, int]] = deque(maxlen=1000)
        self._state, complaints = self._memory.load()
        for complaint in complaints:
            self.complain(f"state not usable, going back to the last good one: {complaint}")

    def record(
        self, seen: Observation, *, query_id: str, run_id: str, offsets: str, started_at_s: float
    ) -> None:
        """Take one finished batch; the same batch of the same run again changes nothing."""
        with self._lock:
            if (run_id, seen.batch_id) in self._recorded:
                return
            self._attempt(
                lambda: self._book(seen, query_id, run_id, offsets, started_at_s), "ledger"
            )
            self._attempt(lambda: self._learn(seen, query_id, run_id), "state")
            self._attempt(lambda: self._tell(seen, run_id, started_at_s), "fair share")

    @property
    def state(self) -> LoopState:
        """What the loop knows now."""
        return self._state

    def _book(
        self, seen: Observation, query_id: str, run_id: str, offsets: str, started_at_s: float
    ) -> None:
        entry = Entry(
            query_id=query_id,
            run_id=run_id,
            seen=_in_brief(seen),
            plan=self._plan(query_id, seen.batch_id),
            identity=self.identity,
            offsets=offsets,
            started_at_s=started_at_s,
            gate=self.gate,
        )
        self._count_faults(entry)
        entry = self._noted(entry, seen)
        self._ledger.append(entry)
        self._recorded.append((run_id, seen.batch_id))
        if self._hooks:
            self._hooks.tell(events_of(entry))

    def _noted(self, entry: Entry, seen: Observation) -> Entry:
        """Return the entry with its note; the books go on without one if that fails."""
        try:
            spent_s, cost = health(self.loop, state_of(self._state, entry.query_id), seen)
            return self._teller.noted(entry, spent_s=spent_s, cost=cost, faults=self.faults)
        except Exception as error:  # a user's cost model may raise anything
            self.complain(f"batch {entry.batch_id} not noted: {type(error).__name__}: {error}")
            return entry

    def _learn(self, seen: Observation, query_id: str, run_id: str) -> None:
        learnt = self.loop.learn(self._state, seen, query_id=query_id, run_id=run_id)
        if learnt is self._state:
            return
        self._state = learnt
        self._memory.save(learnt)
        if seen.batch_id % _PRUNE_EVERY == 0:
            retained = self.loop.limits.replay_batches
            log = PlanLog.of(self._state_folder, query_id, history=retained)
            log.prune(seen.batch_id, shorten=self._in_brief)

    def _tell(self, seen: Observation, run_id: str, started_at_s: float) -> None:
        if self._reporter is not None:
            self._reporter.tell(seen, self._state, run_id=run_id, started_at_s=started_at_s)

    def _plan(self, query_id: str, batch_id: int) -> PinnedPlan | None:
        """Return the plan that the gate followed; one that does not fit it did not follow."""
        try:
            pinned = PlanLog.of(self._state_folder, query_id).read(batch_id)
            return self._in_brief(pinned) if pinned and self.loop.fits(pinned.plan) else None
        except (files.BadStateFile, OSError) as error:
            self.complain(f"plan of batch {batch_id} not readable: {error}")
            return None

    def _in_brief(self, pinned: PinnedPlan) -> PinnedPlan:
        """Leave the tables out where the gate did not decide by them: they are long."""
        return brief(pinned, keyed=by_cost(self.loop.shedder) is not None)

    def _count_faults(self, entry: Entry) -> None:
        missing = 1 if entry.seen.strata and entry.seen.rows_in else 0  # else no plan is needed
        faults = entry.plan.faults if entry.plan else missing
        if faults:
            self.faults += faults - 1
            self.complain(f"batch {entry.batch_id}: {entry.reason}")

    def _attempt(self, write: Callable[[], None], what: str) -> None:
        try:
            write()
        except Exception as error:  # a full disk, or a user's policy that raises
            self.complain(f"{what} not written: {type(error).__name__}: {error}")

    def complain(self, complaint: str) -> None:
        """Count a fault and log it, on one line."""
        self.faults += 1
        told = printable(complaint)
        self._teller.hear(told)
        _log.warning("%s", told)


def _in_brief(seen: Observation) -> Observation:
    """Return what one bounded line of the ledger holds: all tasks as one, no sketches."""
    total = (total_report(seen.tasks),) if seen.tasks else ()
    return replace(seen, quantiles=(), sample=(), groups=None, tasks=total)
