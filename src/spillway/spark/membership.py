"""A guard as a member of a fair share: it publishes what it needs and reads its share.

The driver publishes after every batch; the planner, which may run in a Python worker, reads before
every batch. Whatever breaks here, the share is 1 and the query's own objective decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from spillway.cost.average import AverageCost
from spillway.estimate.sic import SicState, SicWindow
from spillway.kernels.uniform import uniform
from spillway.shedders.water_filling import shares
from spillway.state.fair_log import FairLog, Member
from spillway.values import LoopState, Observation

Floats = NDArray[np.float64]

Split = Literal["fair", "random"]
RESERVE = 0.9  # of the cores' time; the rest is Spark's own
_GAIN_LEAST = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """Which member a guard is, where the members meet, and how time is split among them."""

    name: str
    log: FairLog
    weight: float = 1.0
    cores: float | None = None
    split: Split = "fair"
    window: SicWindow = field(default_factory=SicWindow)

    def share(self, now_s: float) -> float:
        """Return which share of its rows this member may keep in the batch ahead."""
        members = self.log.fresh(now_s)
        names = [member.name for member in members]
        if self.name not in names:
            return 1.0
        found = split_shares(members, now_s=now_s, cores=self.cores, window=self.window)
        if self.split == "random":
            found = random_shares(members, now_s=now_s, cores=self.cores)
        return float(found[names.index(self.name)])

    def publish(self, member: Member) -> None:
        """Tell the others."""
        self.log.publish(member)


def split_shares(
    members: Sequence[Member], *, now_s: float, cores: float | None, window: SicWindow
) -> Floats:
    """Return every member's share, such that projected SIC are as equal as weights say."""
    ahead = [
        window.ahead(SicState(slots=m.sic), now_s=now_s, rows=[m.rows_per_s * m.batch_s])
        for m in members
    ]
    before, gains = np.array(ahead).T
    return shares(
        [_demand(member) for member in members],
        capacity(members, cores),
        [member.weight for member in members],
        before=before,
        gains=np.maximum(gains, _GAIN_LEAST),
    )


def random_shares(members: Sequence[Member], *, now_s: float, cores: float | None) -> Floats:
    """Return whole shares in random order until the capacity is used: the paper's rival."""
    left = capacity(members, cores)
    turn = int(now_s / max(min(m.batch_s for m in members), 0.1))
    found = np.zeros(len(members))
    for index in sorted(range(len(members)), key=lambda i: uniform(turn, members[i].name)):
        demand = _demand(members[index])
        found[index] = 1.0 if demand <= left else max(left, 0.0) / demand
        left -= demand * found[index]
    return found


def capacity(members: Sequence[Member], cores: float | None) -> float:
    """Return the seconds of work that can be done in a second, as latencies show it to be true."""
    apps = {member.app: member.cores for member in members}
    total = cores if cores is not None else sum(apps.values())
    return RESERVE * total * min((member.gain for member in members), default=1.0)


def _demand(member: Member) -> float:
    return max(member.rows_per_s * member.cost_s, 0.0)


class Reporter:
    """Works out, batch by batch, what a member needs, and publishes it."""

    def __init__(self, membership: Membership, *, app: str, cores: float) -> None:
        """Start with nothing seen."""
        self._membership = membership
        self._app, self._cores = app, cores
        self._started_at_s: float | None = None
        self._sic = SicState()

    def tell(
        self, seen: Observation, state: LoopState, *, run_id: str, started_at_s: float
    ) -> None:
        """Publish what the batch showed; the first one has no rate yet."""
        before, self._started_at_s = self._started_at_s, started_at_s
        rows_in, rows_kept = [seen.rows_in], [min(seen.rows_kept, seen.rows_in)]
        self._sic = self._membership.window.learn(
            self._sic, at_s=started_at_s, rows_in=rows_in, rows_kept=rows_kept
        )
        if before is None or started_at_s <= before:
            return
        batch_s = started_at_s - before
        self._membership.publish(
            Member(
                name=self._membership.name,
                owner=run_id,
                app=self._app,
                cores=self._cores,
                at_s=started_at_s + seen.duration_s,
                rows_per_s=seen.rows_in / batch_s,
                cost_s=_cost_s(state),
                weight=self._membership.weight,
                gain=state.controller.gain,
                batch_s=batch_s,
                sic=self._sic.slots,
            )
        )


def reporter_of(membership: Membership) -> Reporter:
    """Return what reports for a member of the running application."""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    if context is None:  # Spark Connect: nobody here knows the cluster
        return Reporter(membership, app=membership.name, cores=membership.cores or 1.0)
    app = str(context.applicationId)
    return Reporter(membership, app=app, cores=float(context.defaultParallelism))


def _cost_s(state: LoopState) -> float:
    """Return what a row that comes costs: as an operator tells, else by the batches' durations."""
    if state.cost.row_ns > 0:
        return state.cost.row_ns / 1e9
    forecast = AverageCost().forecast(state.cost, 1.0)
    return forecast.work_s if forecast else 0.0
