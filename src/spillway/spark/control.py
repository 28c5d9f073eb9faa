"""The control path's end at the gate: finds, decides and pins the plan of a batch.

The planner runs inside the batch it plans for, in the driver, or in a Python worker where Python
does not reach the driver (see `batch_column`). Whatever breaks here, the gate opens.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from spillway.loop import Loop, batch_rows, state_of
from spillway.spark.uniform import salt_of
from spillway.state import files, offsets
from spillway.state.memory import Memory
from spillway.state.plan_log import PlanLog
from spillway.values import BatchAhead, LoopState, PinnedPlan, Plan

if TYPE_CHECKING:
    from spillway.spark.membership import Membership

BATCH_ID, QUERY_ID = "streaming.sql.batchId", "sql.streaming.queryId"  # as Spark names them
_PATIENCE_S, _POLL_S = 0.2, 0.01
_REASON_MAX = 300
_HANGING_MAX = 2  # threads that a policy which never returns may hold
_hanging: dict[str, list[threading.Thread]] = {}
_PROBED_ROWS = 20_000.0  # rows that suffice to know the quantiles of a score


@dataclass(frozen=True, kw_only=True)
class Planner:
    """Makes the plan of a batch: the pinned one if there is one, a new one pinned otherwise.

    `sized` says that the rows to plan for are the batch's own, which its offsets count. Those of a
    window came before: they are as many as the last window's.
    """

    loop: Loop
    state: Path
    checkpoint: Path | None
    on_error: Literal["open", "last"] = "open"
    sized: bool = True
    fair: Membership | None = None

    def plan_for(self, batch_id: int, query_id: str = "") -> PinnedPlan:
        """Return the plan that every attempt at this batch must use. Never raises."""
        query_id = query_id or offsets.query_id(self.checkpoint)
        log = PlanLog.of(self.state, query_id)
        try:
            pinned = log.read(batch_id) or log.pin(self._decide(batch_id, query_id, log))
        except (files.BadStateFile, OSError) as error:
            # Without a pin a replay could decide otherwise, so only "keep all" is safe.
            return self.opened(batch_id, f"open: {error}")
        if not self.loop.fits(pinned.plan):
            return self.opened(batch_id, "open: the pinned plan is another policy's")
        return pinned

    def _decide(self, batch_id: int, query_id: str, log: PlanLog) -> PinnedPlan:
        memory = Memory(folder=self.state)
        state, complaints = self._latest_state(memory, batch_id, query_id)
        rows = self._rows(state, batch_id)
        state = self._shared(state, rows, (query_id, batch_id), complaints)
        ahead = BatchAhead(batch_id=batch_id, rows=rows)
        try:
            decide = partial(self.loop.decide, state, ahead)
            plan, faults = in_time(decide, self.loop.limits.timeout_s, owner=str(self.state))
        except Exception as error:  # a user's policy may raise anything
            plan, faults = self._on_error(log, batch_id, error), 1
        return PinnedPlan(
            batch_id=batch_id,
            version=state.batch_id,
            salt=salt_of(memory.seed(), batch_id),
            plan=plan,
            probe=_probe(rows or (state.seen.rows_in if state.seen else 0)),
            rows_expected=rows,
            faults=faults + len(complaints),
        )

    def _latest_state(
        self, memory: Memory, batch_id: int, query_id: str
    ) -> tuple[LoopState, list[str]]:
        """Load the state; wait a moment for the batch before, whose report may be on its way."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            state, complaints = memory.load()
            state = state_of(state, query_id)
            missed = batch_id - 1 - state.batch_id
            silent = state.seen is None or missed > self.loop.limits.stale_batches
            if missed <= 0 or silent or time.monotonic() > deadline:
                return state, complaints
            time.sleep(_POLL_S)

    def _shared(
        self, state: LoopState, rows: float | None, batch: tuple[str, int], complaints: list[str]
    ) -> LoopState:
        """Put the fair share into the state; if it cannot be known, all."""
        if self.fair is None:
            return state
        try:
            query_id, batch_id = batch
            share = self.fair.share(time.time(), rows=rows, query_id=query_id, after=batch_id - 1)
        except (OSError, ValueError) as error:
            complaints.append(f"fair share not known: {error}")
            share = 1.0
        return replace(state, controller=replace(state.controller, share=share))

    def _rows(self, state: LoopState, batch_id: int) -> float | None:
        """Read the batch's size from Spark's offset log, as exactly as the source allows."""
        if self.checkpoint is None or not self.sized:
            return None
        span = offsets.batch_span(self.checkpoint, batch_id)
        rows = batch_rows(state, span)
        if rows is None and offsets.counts_rows(offsets.end_offsets(self.checkpoint, batch_id)):
            return span
        return rows

    def _on_error(self, log: PlanLog, batch_id: int, error: Exception) -> Plan:
        reason = f"policy failed: {type(error).__name__}: {error}"
        last = log.read(batch_id - 1) if self.on_error == "last" else None
        if last and self.loop.fits(last.plan):
            return replace(last.plan, reason=printable(f"last: {reason}"))
        return self.loop.open_plan(printable(f"open: {reason}"))

    def opened(self, batch_id: int, reason: str) -> PinnedPlan:
        """Return a plan that keeps all, and is not pinned."""
        plan = self.loop.open_plan(printable(reason))
        return PinnedPlan(batch_id=batch_id, salt=0, plan=plan, faults=1)


def _probe(rows: float) -> float:
    return min(1.0, _PROBED_ROWS / rows) if rows > 0 else 1.0


def pinned_of_task(planner: Planner) -> PinnedPlan:
    """Return the plan of the batch that the running task belongs to."""
    from pyspark import TaskContext

    task = TaskContext.get()
    batch_id = task.getLocalProperty(BATCH_ID) if task else None
    query_id = (task.getLocalProperty(QUERY_ID) if task else None) or ""
    return pinned_of(planner, query_id, batch_id)


def pinned_of(planner: Planner, query_id: str, batch_id: str | None) -> PinnedPlan:
    """Return the plan of a batch that Spark names so; refuse what is no micro-batch."""
    return planner.plan_for(check_micro_batch(planner.checkpoint, query_id, batch_id), query_id)


def share_of_task(planner: Planner) -> float:
    """Return which share of its rows the windows that end in the running batch may use."""
    return pinned_of_task(planner).plan.rates[0]


def check_micro_batch(checkpoint: Path | None, query_id: str, batch_id: str | None) -> int:
    """Return the batch's id; refuse, before data is read, batches that are not planned singly.

    A micro-batch has its id, and stands in the offset log of its own checkpoint before it runs.
    In real-time mode, and with asynchronous progress tracking, it does not.
    """
    if batch_id is not None:
        known = checkpoint if query_id and offsets.query_id(checkpoint) == query_id else None
        if known is None or offsets.end_offsets(known, int(batch_id)) is not None:
            return int(batch_id)
    raise RuntimeError(
        f"a guard protects micro-batches only; batch {batch_id} of query {query_id!r} is not in "
        "the offset log before it runs, as in real-time mode or with asynchronous progress "
        "tracking: use an ordinary trigger, or take the guard out of this query"
    )


def printable(text: str) -> str:
    r"""Make foreign text safe for logs and the ledger: one line, no escapes, not too long.

    >>> printable("a\nb\x1b[31m")
    'a\\nb\\x1b[31m'
    """
    return text[:_REASON_MAX].encode("unicode_escape").decode("ascii")


def in_time(
    decide: Callable[[], tuple[Plan, int]], timeout_s: float, *, owner: str = ""
) -> tuple[Plan, int]:
    """Run a decision in a thread of its own; raise what it raises, or TimeoutError.

    An owner whose earlier decisions still hang gets no further threads.
    """
    hanging = [thread for thread in _hanging.get(owner, []) if thread.is_alive()]
    if len(hanging) >= _HANGING_MAX:
        raise TimeoutError(f"{len(hanging)} earlier decisions still hang")
    outcome: list[tuple[Plan, int] | Exception] = []

    def run() -> None:
        try:
            outcome.append(decide())
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=run, daemon=True, name="spillway-policy")
    thread.start()
    thread.join(timeout_s)
    if not outcome:
        _hanging[owner] = [*hanging, thread]
        raise TimeoutError(f"no plan within {timeout_s:g} s")
    if isinstance(outcome[0], Exception):
        raise outcome[0]
    return outcome[0]
