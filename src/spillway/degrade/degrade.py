"""Degrade: gives up optional work before rows, batch by batch.

Of every budget the frontier makes a mix of two selections of subtasks that fills it. Only where
the mandatory work alone is too much is something left to do for a shedder of rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from spillway.contracts import Shedder
from spillway.degrade.frontier import Choice, Frontier, frontier
from spillway.degrade.online import Measured, OnlineProfile, OnlineState
from spillway.degrade.remembered import Application, application, built, recalled, remembered
from spillway.values import Budget, Observation
from spillway.work_values import Selection, SubtaskRun, WorkDone, WorkMix, WorkState

_TABLE_MAX = 1024  # entries of a frontier at any step: built for every batch, in milliseconds
_NAMES_MAX = 6  # so many subtasks are named in a reason


@dataclass(frozen=True, kw_only=True)
class Degrade:
    """Leaves optional subtasks out while the work on all rows is too much (CS).

    then:     the shedder that lets go of rows where the mandatory work alone is too much, and
              until the subtasks have been measured; by default every row has the same chance.
    window:   measurements of a number whose median counts.
    rows_min: a measurement over fewer rows does not count.
    drift:    the table is rebuilt when a subtask's time has moved by this share of a row's whole
              time, or the accuracy lost without it by so much.

    What the subtasks are is said to `guard.run`.

    >>> Degrade(window=0)
    Traceback (most recent call last):
      ...
    ValueError: window must be >= 1, got 0
    """

    then: Shedder | None = None
    window: int = 5
    rows_min: int = 30
    drift: float = 0.05
    application: Application | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Reject windows and bounds that bound nothing."""
        for name in ("window", "rows_min"):
            if not getattr(self, name) >= 1:
                raise ValueError(f"{name} must be >= 1, got {getattr(self, name)}")
        if not 0 < self.drift < math.inf:
            raise ValueError(f"drift must be finite and > 0, got {self.drift}")
        if isinstance(self.then, Degrade):
            raise ValueError("then must be a shedder of rows, got another Degrade")

    def learn(self, state: WorkState, seen: Observation) -> WorkState:
        """Return the state after one more batch; the table is rebuilt if the profile has moved."""
        app = self._app(state)
        if app is None or seen.work is None:
            return state
        if not app.of_state(state):
            first = self._first(app, seen.work)
            return remembered(app, first) if first else state
        online = self._online(app)
        now = online.learn(recalled(state), self._measured(seen.work))
        moved = online.drift(now).rebuild
        now = online.rebuilt(now) if moved else now
        return remembered(app, now, rebuilt=state.rebuilt + moved)

    def done(self, state: WorkState, seen: Observation) -> float:
        """Return the time that was taken over that which all subtasks on all rows would take."""
        work, known = seen.work, self._known(state)
        if work is None or not work.rows:
            return 1.0
        if work.done is not None:
            return min(max(work.done, 0.0), 1.0)
        if all(run.rows == work.rows for run in work.subtasks) or not known.subtasks:
            return 1.0
        usual_s = built(known).duration_s
        times_s = {**usual_s, **self._times_s(work)}
        whole_s = work.rows * math.fsum(times_s.values())
        taken_s = math.fsum(run.busy_ns for run in work.subtasks) / 1e9
        return min(taken_s / whole_s, 1.0) if whole_s > 0 else 1.0

    def cut(self, state: WorkState, budget: Budget) -> tuple[WorkMix | None, Budget]:
        """Fill the budget with a mix of two selections; leave to a shedder what does not fit."""
        known = self._known(state)
        table = self._table(known) if known.subtasks else None
        if table is None or not table.durations_s[-1] > 0:
            return None, budget
        mix = _mix(table, budget.share, known.complete)
        return mix, _left(mix, budget)

    def _app(self, state: WorkState) -> Application | None:
        """Return the subtasks that were said, else those of the state."""
        return self.application or (application(state) if state.subtasks else None)

    def _known(self, state: WorkState) -> WorkState:
        """Return the state if it is of the subtasks that were said, else that of their profile."""
        app = self.application
        if app is None:
            return state
        if app.of_state(state):
            return replace(state, complete=app.complete)
        given = app.start(self.window)
        return remembered(app, given) if given else WorkState()

    def _first(self, app: Application, work: WorkDone) -> OnlineState | None:
        """Return what is known after the first batch; native subtasks are not timed."""
        if work.done is not None:
            return app.start(self.window)
        return app.first(self._times_s(work), self.window)

    def _online(self, app: Application) -> OnlineProfile:
        return OnlineProfile(
            subtasks=app.timed,
            window=self.window,
            rows_min=self.rows_min,
            duration_drift=self.drift,
            accuracy_drift=self.drift,
        )

    def _table(self, known: WorkState) -> Frontier:
        return frontier(application(known).timed, built(known), size_max=_TABLE_MAX)

    def _times_s(self, work: WorkDone) -> dict[str, float]:
        """Return the seconds a row of the subtasks that ran on enough rows."""
        ran = (run for run in work.subtasks if run.rows >= self.rows_min)
        return {run.name: run.busy_ns / 1e9 / run.rows for run in ran}

    def _measured(self, work: WorkDone) -> Measured:
        judged = [run for run in work.subtasks if run.judged >= self.rows_min]
        return Measured(
            rows={run.name: run.rows for run in work.subtasks},
            busy_s={run.name: run.busy_ns / 1e9 for run in work.subtasks},
            lost_rows=min((run.judged for run in judged), default=0),
            lost={(run.name,): _mean_lost(run) for run in judged},
        )


def _mix(table: Frontier, share: float, complete: float) -> WorkMix:
    """Return the mix that takes this share of the complete work, with those that run complete."""
    whole_s = table.durations_s[-1]
    row_s = max((share - complete) / (1.0 - complete), 0.0) * whole_s
    mix = table.mix(rows=1.0, limit_s=row_s)
    return WorkMix(
        less=_selection(mix.less, whole_s),
        more=_selection(mix.more, whole_s),
        fraction=mix.fraction,
        complete=complete,
    )


def _selection(choice: Choice, whole_s: float) -> Selection:
    return Selection(off=choice.off, accuracy=choice.accuracy, work=choice.duration_s / whole_s)


def _left(mix: WorkMix, budget: Budget) -> Budget:
    """Return the budget for rows: what they take by the mix, and no more than there is."""
    mixed = mix.less.work + mix.fraction * (mix.more.work - mix.less.work)
    share = mix.complete + (1.0 - mix.complete) * mixed
    reason = _words(budget.reason, mix)
    if budget.share >= share * (1.0 - 1e-9):  # it fits, but for rounding
        return replace(budget, work_s_full=budget.work_s_max, reason=reason)
    return replace(budget, work_s_full=share * budget.work_s_full, reason=reason)


def _words(reason: str, mix: WorkMix) -> str:
    """Say what is left out, on which share of the rows, and what that leaves.

    >>> mix = WorkMix(less=Selection(off=("mood",)), more=Selection(), fraction=0.25)
    >>> _words("overload", mix)
    'overload: without mood on 75 %, all on 25 % of the rows; accuracy 1.000'
    """
    if not (mix.less.off or mix.more.off):
        return reason
    less, more = _without(mix.less.off), _without(mix.more.off)
    told = f"{less} on {1.0 - mix.fraction:.0%}, {more} on {mix.fraction:.0%} of the rows"
    told = less if mix.fraction == 0 or mix.less == mix.more else told
    return f"{reason}: {told}; accuracy {mix.accuracy:.3f}".replace("%", " %")


def _without(off: Sequence[str]) -> str:
    if not off:
        return "all"
    more = f" and {len(off) - _NAMES_MAX} more" if len(off) > _NAMES_MAX else ""
    return f"without {', '.join(off[:_NAMES_MAX])}{more}"


def _mean_lost(run: SubtaskRun) -> float:
    return run.lost / run.judged if run.judged else 0.0
