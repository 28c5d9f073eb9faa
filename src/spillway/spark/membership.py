"""A guard as a member of a fair share: it publishes what it needs and reads its share.

The driver publishes after every batch; the planner, which may run in a Python worker, announces the
batch ahead and reads its share. Whatever breaks here, the query's own objective decides.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from spillway.cost.average import AverageCost
from spillway.estimate.sic import SicState, SicWindow
from spillway.kernels.uniform import uniform
from spillway.objective import Latency
from spillway.overload.fair import Capacity
from spillway.shedders.water_filling import shares
from spillway.state.fair_log import FairLog, Member
from spillway.values import LoopState, Observation

Floats = NDArray[np.float64]

Split = Literal["fair", "random"]
_GAIN_LEAST = 1e-6
_COLD_BATCHES = 2  # of a start: they compile code, and their latency says nothing
_AHEAD = 1.25  # a gain is at most so much larger than the least, or than all could need
_PATIENCE_S, _POLL_S = 0.2, 0.005
_PATIENCE_S_FIRST = 1.0  # the first report of a start comes late
_FADES = 0.5  # of a window: rows as old as that count for e^-1 where shares are made even
_REMEMBERED = 2  # windows: what is older counts for less than a fiftieth
_SLOTS = 40  # of a window
_FED = 0.5  # so much of what it would get without a past is certain to everybody


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """Which member a guard is, where the members meet, and how time is split among them."""

    name: str
    log: FairLog
    weight: float = 1.0
    cores: float | None = None
    split: Split = "fair"
    window_s: float = 30.0
    objective: Latency | None = None
    capacity: Capacity = field(default_factory=Capacity)

    def share(
        self, now_s: float, *, rows: float | None = None, query_id: str = "", after: int = -1
    ) -> float:
        """Return which share of its rows this member may keep in the batch ahead.

        The rows are announced to the others; `after` is the batch whose record is waited for.
        """
        own = self._own(query_id, after)
        if own is not None and rows is not None:
            due_s = self.capacity.due_s(self.objective)
            self.log.publish(own.announced(rows, now_s=now_s, due_s=due_s))
        members = self.log.fresh(now_s)
        names = [member.name for member in members]
        if self.name not in names:
            return 1.0
        split = random_shares if self.split == "random" else fair_shares
        found = split(members, self.seconds(members), now_s=now_s)
        return float(found[names.index(self.name)])

    def seconds(self, members: Sequence[Member]) -> float:
        """Return how many seconds of work all may do in a second."""
        return self.cores_of(members) * least_gain(members, self.capacity.start)

    def cores_of(self, members: Sequence[Member]) -> float:
        """Return the cores that the members share: as was said, else those of all applications."""
        apps = {member.app: member.cores for member in members}
        return self.cores if self.cores is not None else sum(apps.values())

    def _own(self, query_id: str, after: int) -> Member | None:
        """Read the own record; wait a moment for that of the batch before, which is on its way."""
        patience_s = _PATIENCE_S_FIRST if after == 0 else _PATIENCE_S
        deadline = time.monotonic() + patience_s
        while True:
            found = self.log.read(self.name)
            own = found if found and found.owner == query_id else None
            batch_id = own.batch_id if own else -1
            if batch_id >= after or time.monotonic() > deadline:
                return own
            time.sleep(_POLL_S)


def fair_shares(members: Sequence[Member], capacity: float, *, now_s: float) -> Floats:
    """Return every member's share, such that projected SIC are as equal as weights say.

    Half of what a member would get without a past is certain: who had more than others for a while
    pays it back in time, and does not starve. What its own tasks cannot do in time is left to the
    others.
    """
    demand, weights, most = (
        np.array([getattr(member, name) for member in members])
        for name in ("demand", "weight", "most")
    )
    before, gains = np.array([_projected(member, now_s) for member in members]).T
    certain = _FED * shares(most * demand, capacity, weights)
    rest = shares(
        most * (1.0 - certain) * demand,
        max(capacity - float(most * certain @ demand), 0.0),
        weights,
        before=before + most * certain * gains,
        gains=np.maximum(most * (1.0 - certain) * gains, _GAIN_LEAST),
    )
    return np.asarray(most * (certain + (1.0 - certain) * rest), dtype=np.float64)


def random_shares(members: Sequence[Member], capacity: float, *, now_s: float) -> Floats:
    """Return whole shares in random order until the capacity is used: the paper's rival."""
    left = capacity
    turn = int(now_s / max(min(m.batch_s for m in members), 0.1))
    found = np.zeros(len(members))
    for index in sorted(range(len(members)), key=lambda i: uniform(turn, members[i].name)):
        demand = members[index].demand
        found[index] = 1.0 if demand <= left else max(left, 0.0) / demand
        left -= demand * found[index]
    return found


def least_gain(members: Sequence[Member], otherwise: float) -> float:
    """Return the gain of the member whose latency leaves the least."""
    return min((m.gain for m in members if m.gain is not None), default=otherwise)


def _projected(member: Member, now_s: float) -> tuple[float, float]:
    window = remembered(member.window_s)
    return window.ahead(SicState(slots=member.sic), now_s=now_s, rows=[member.rows])


def remembered(window_s: float) -> SicWindow:
    """Return by what is planned: rows of a window ago count for e^-1."""
    return SicWindow(window_s=_REMEMBERED * window_s, slots=_REMEMBERED * _SLOTS, fade_s=window_s)


class Reporter:
    """Works out, batch by batch, what a member needs, and publishes it."""

    def __init__(self, membership: Membership, *, app: str, cores: float) -> None:
        """Start with nothing seen."""
        self._membership = membership
        self._app, self._cores = app, cores
        self._window = remembered(membership.window_s)
        self._run_id, self._batches = "", 0
        self._before: Member | None = None

    def tell(
        self, seen: Observation, state: LoopState, *, run_id: str, started_at_s: float
    ) -> None:
        """Publish what the batch showed."""
        self._begin(run_id)
        owner = state.query_id or run_id
        before = self._before if self._before and self._before.owner == owner else None
        member = Member(
            name=self._membership.name,
            owner=owner,
            app=self._app,
            cores=self._cores,
            at_s=started_at_s + seen.duration_s,
            cost_s=_cost_s(seen, state),
            weight=self._membership.weight,
            spread=_spread(seen),
            began_at_s=started_at_s,
            batch_id=seen.batch_id,
            window_s=self._membership.window_s,
            gain=self._gain(before, seen, now_s=started_at_s + seen.duration_s),
            sic=self._sic(before, seen, started_at_s),
            **_pace(before, seen, started_at_s),
        )
        self._batches += 1
        self._membership.log.publish(member)
        self._before = member

    def _begin(self, run_id: str) -> None:
        """Go on, in the first batch of a start, with what was told before it."""
        if run_id != self._run_id:
            self._run_id, self._batches = run_id, 0
            self._before = self._membership.log.read(self._membership.name)

    def _sic(
        self, before: Member | None, seen: Observation, at_s: float
    ) -> tuple[tuple[int, tuple[int, ...], tuple[int, ...]], ...]:
        told = before.sic if before and before.window_s == self._membership.window_s else ()
        rows_in, rows_kept = [seen.rows_in], [min(max(seen.rows_kept, 0), seen.rows_in)]
        state = SicState(slots=told)
        return self._window.learn(state, at_s=at_s, rows_in=rows_in, rows_kept=rows_kept).slots

    def _gain(self, before: Member | None, seen: Observation, *, now_s: float) -> float | None:
        """Correct the capacity by the own latency; stay near to what the others leave."""
        ours, capacity = self._membership, self._membership.capacity
        if ours.objective is None:
            return None
        members = ours.log.fresh(now_s)
        least = least_gain(members, capacity.start)
        gain = before.gain if before and before.gain is not None else least
        if self._batches < _COLD_BATCHES or not seen.rows_kept:
            return gain
        return capacity.corrected(
            gain,
            latency_s=capacity.latency_s(ours.objective, seen),
            limit_s=ours.objective.limit_s,
            most=min(_AHEAD * least, max(_AHEAD * self._needed(members), capacity.start)),
        )

    def _needed(self, members: Sequence[Member]) -> float:
        """Return the gain at which nobody would have to give up anything."""
        cores = self._membership.cores_of(members)
        return sum(member.demand for member in members) / cores if cores > 0 else np.inf


def _pace(before: Member | None, seen: Observation, started_at_s: float) -> dict[str, float]:
    """Return how many rows come in a second; the first batch of all came while it ran itself."""
    since_s = started_at_s - before.began_at_s if before else seen.duration_s
    batch_s = max(since_s, 1e-3)
    return {"rows_per_s": seen.rows_in / batch_s, "batch_s": batch_s}


def _spread(seen: Observation) -> float:
    """Return the busiest task's part of the work, without what it waited for others."""
    busiest_ns = max((task.busy_ns for task in seen.tasks), default=0)
    return busiest_ns / 1e9 / seen.work_s if seen.work_s > 0 else 0.0


def reporter_of(membership: Membership) -> Reporter:
    """Return what reports for a member of the running application."""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    if context is None:  # Spark Connect: nobody here knows the cluster
        return Reporter(membership, app=membership.name, cores=membership.cores or 1.0)
    app = str(context.applicationId)
    return Reporter(membership, app=app, cores=float(context.defaultParallelism))


def _cost_s(seen: Observation, state: LoopState) -> float:
    """Return what a row that comes costs: as an operator tells, else by the batches' durations."""
    if state.cost.row_ns > 0:
        return state.cost.row_ns / 1e9
    if seen.work_s > 0 and seen.rows_kept > 0:  # the first batch, which teaches the model nothing
        return seen.work_s / seen.rows_kept
    forecast = AverageCost().forecast(state.cost, 1.0)
    return forecast.work_s if forecast else 0.0
