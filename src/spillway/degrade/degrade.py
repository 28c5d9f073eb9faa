"""Degrade: gives up optional work before rows, batch by batch.

Of every budget the frontier makes a mix of two selections of subtasks that fills it. Only where
the mandatory work alone is too much is something left to do for a shedder of rows.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from spillway.contracts import Shedder
from spillway.degrade.classifiers import Classifier
from spillway.degrade.execution_plan import ExecutionPlan
from spillway.degrade.frontier import Choice
from spillway.degrade.online import Measured, OnlineProfile, OnlineState
from spillway.degrade.remembered import (
    Application,
    application,
    built,
    recalled,
    remembered,
    selector_of,
    table_of,
)
from spillway.values import Budget, Observation
from spillway.work_values import Selection, SubtaskRun, WorkDone, WorkMix, WorkState, total_work

_NAMES_MAX = 6  # so many subtasks are named in a reason


@dataclass(frozen=True, kw_only=True)
class Degrade:
    """Leaves optional subtasks out while the work on all rows is too much (CS).

    then:       the shedder that lets go of rows where the mandatory work alone is too much, and
                until the subtasks have been measured; by default every row has the same chance.
    window:     measurements of a number whose median counts.
    rows_min:   rows of a measurement; batches that have fewer are taken together until they do.
    drift:      the table is rebuilt when a subtask's time has moved by this share of a row's whole
                time, or the accuracy lost without it by so much.
    classifier: one of CS's own (`classifiers.accuracy`, ...) in place of the frontier, to compare:
                one selection for all rows, of a plan of all 2^n.

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
    classifier: Callable[[ExecutionPlan], Classifier] | None = None
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
        runs = _pooled(app, state.pending, seen.work)
        pending = tuple(self._left(run) for run in runs)
        if not app.of_state(state):
            first = self._first(app, replace(seen.work, subtasks=runs))
            return remembered(app, first) if first else replace(state, pending=runs)
        online = self._online(app)
        now = online.learn(recalled(state), self._measured(runs))
        moved = online.drift(now).rebuild
        now = online.rebuilt(now) if moved else now
        return remembered(app, now, rebuilt=state.rebuilt + moved, pending=pending)

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
        whole_s = math.fsum(one.duration_s for one in known.subtasks)
        if not whole_s > 0:
            return None, budget
        row_s = max((budget.share - known.complete) / (1.0 - known.complete), 0.0) * whole_s
        mix = self._mix(known, row_s, whole_s)
        return mix, _left(mix, budget)

    def _mix(self, known: WorkState, row_s: float, whole_s: float) -> WorkMix:
        """Return the mix that takes so long for a row, beside those that always run complete."""
        if self.classifier is None:
            mix = table_of(known).mix(rows=1.0, limit_s=row_s)
            less, more, fraction = mix.less, mix.more, mix.fraction
        else:
            less = more = _selected(selector_of(self.classifier, known), row_s)
            fraction = 0.0
        return WorkMix(
            less=_selection(less, whole_s),
            more=_selection(more, whole_s),
            fraction=fraction,
            complete=known.complete,
        )

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

    def _times_s(self, work: WorkDone) -> dict[str, float]:
        """Return the seconds a row of the subtasks that ran on enough rows."""
        ran = (run for run in work.subtasks if run.rows >= self.rows_min)
        return {run.name: run.busy_ns / 1e9 / run.rows for run in ran}

    def _measured(self, runs: Sequence[SubtaskRun]) -> Measured:
        judged = [run for run in runs if run.judged >= self.rows_min]
        return Measured(
            rows={run.name: run.rows for run in runs},
            busy_s={run.name: run.busy_ns / 1e9 for run in runs},
            lost_rows=min((run.judged for run in judged), default=0),
            lost={(run.name,): run.lost / run.judged for run in judged},
        )

    def _left(self, run: SubtaskRun) -> SubtaskRun:
        """Return of a measurement what was over too few rows to count yet."""
        rows, busy_ns = (0, 0) if run.rows >= self.rows_min else (run.rows, run.busy_ns)
        judged, lost = (0, 0.0) if run.judged >= self.rows_min else (run.judged, run.lost)
        return SubtaskRun(name=run.name, rows=rows, busy_ns=busy_ns, judged=judged, lost=lost)


def _pooled(
    app: Application, pending: tuple[SubtaskRun, ...], work: WorkDone
) -> tuple[SubtaskRun, ...]:
    """Return what was measured by this batch and by those before it that had too few rows."""
    both = total_work((WorkDone(subtasks=pending), WorkDone(subtasks=work.subtasks)))
    return tuple(run for run in both.subtasks if run.name in app.timed.names)


def _selected(selector: Classifier, row_s: float) -> Choice:
    """Return the entry of a classifier for one row; without any time the mandatory subtasks."""
    entry = selector.select(rows=1.0, limit_s=max(row_s, sys.float_info.min))
    return Choice(off=entry.excluded, duration_s=entry.local_duration_s, accuracy=entry.accuracy)


def _selection(choice: Choice, whole_s: float) -> Selection:
    return Selection(off=choice.off, accuracy=choice.accuracy, work=choice.duration_s / whole_s)


def _left(mix: WorkMix, budget: Budget) -> Budget:
    """Return the budget for rows: what they take by the mix, and no more than there is.

    Optional work fills the budget; mandatory work may take its slack too, before rows go.
    """
    mixed = mix.less.work + mix.fraction * (mix.more.work - mix.less.work)
    share = mix.complete + (1.0 - mix.complete) * mixed
    reason = _words(budget.reason, mix)
    full_s, most_s = share * budget.work_s_full, budget.work_s_max * (1.0 + budget.slack)
    if most_s >= full_s * (1.0 - 1e-9):  # it fits, but for rounding
        full_s = most_s
    return replace(budget, work_s_max=most_s, work_s_full=full_s, slack=0.0, reason=reason)


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
