"""What is known of the subtasks as a value that the loop remembers, and back.

The state is bounded by the number of subtasks, and serialisable: a restarted query goes on with
the profile that it had. What pairs lose together comes from the given profile; at run time the
subtasks are left out one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

from spillway.degrade.classifiers import Classifier
from spillway.degrade.execution_plan import ExecutionPlan, execution_plan
from spillway.degrade.frontier import Frontier, frontier
from spillway.degrade.online import OnlineProfile, OnlineState
from spillway.degrade.profile import Profile
from spillway.degrade.subtask import Subtask, Subtasks
from spillway.work_values import SubtaskRun, SubtaskState, WorkState

_TABLE_MAX = 1024  # entries of a frontier at any step: found in milliseconds
OWN = "(itself)"  # what a row costs beside its subtasks, whatever is selected: mandatory


@dataclass(frozen=True, kw_only=True)
class Application:
    """The subtasks of a query as the loop knows them: without what they do.

    `complete` is the share of the rows that always runs all of them; without a `profile` the first
    measured batch makes one, in which all optional subtasks are worth the same.
    """

    subtasks: Subtasks
    profile: Profile | None = None
    complete: float = 0.0

    def __post_init__(self) -> None:
        """Reject a profile of something else, and what is no share."""
        if not 0 <= self.complete < 1:
            raise ValueError(f"complete must be in [0, 1), got {self.complete}")
        if self.profile is not None:
            self.profile.check(self.subtasks)
        if OWN in self.subtasks.names:
            raise ValueError(f"names must not be {OWN!r}, which stands for the operator itself")

    def bare(self) -> Application:
        """Return it with nothing that could not travel: functions and Columns are left out."""
        members = (replace(subtask, does=None) for subtask in self.subtasks)
        return replace(self, subtasks=Subtasks(members))

    @property
    def timed(self) -> Subtasks:
        """All that takes time: the subtasks, and what the operator itself takes for a row."""
        return Subtasks([Subtask(OWN), *self.subtasks])

    def start(self, window: int, own_s: float = 0.0) -> OnlineState | None:
        """Return the state that the given profile makes; None without one.

        Of the operator's own time a profile says nothing: it is 0 until it is measured.
        """
        if self.profile is None:
            return None
        known = replace(self.profile, duration_s={OWN: own_s, **self.profile.duration_s})
        return OnlineProfile(subtasks=self.timed, window=window).start(known)

    def first(self, measured_s: dict[str, float], window: int) -> OnlineState | None:
        """Return a state from the given profile, or from the first measured times alone.

        None unless all are there. No loss is known yet then: all are taken for equal, and what is
        left without any is as much.
        """
        if self.profile is not None and OWN in measured_s:
            return self.start(window, measured_s[OWN])
        if not set(measured_s) >= set(self.timed.names):
            return None
        each = 1.0 / (len(self.subtasks.optional) + 1)
        lost = dict.fromkeys(self.subtasks.optional, each)
        times_s = {name: measured_s[name] for name in self.timed.names}
        guess = Profile(duration_s=times_s, lost=lost)
        return OnlineProfile(subtasks=self.timed, window=1).start(guess)

    def of_state(self, state: WorkState) -> bool:
        """Say whether a state is that of these subtasks."""
        return application(state).timed == self.timed if state.subtasks else False


def application(state: WorkState) -> Application:
    """Return the subtasks that a state speaks of."""
    members = (
        Subtask(one.name, optional=one.optional, inputs=one.inputs, after=one.after)
        for one in state.subtasks
        if one.name != OWN
    )
    return Application(subtasks=Subtasks(members), complete=state.complete)


def built(state: WorkState) -> Profile:
    """Return the profile of the plan in use."""
    return Profile(
        duration_s={one.name: one.duration_s for one in state.subtasks},
        lost={one.name: one.lost for one in state.subtasks if one.optional},
        together={(one, other): more for one, other, more in state.together},
    )


def recalled(state: WorkState) -> OnlineState:
    """Return what an online profile needs to go on."""
    return OnlineState(
        built=built(state),
        duration_s={one.name: one.durations_s for one in state.subtasks},
        lost={(one.name,): one.losses for one in state.subtasks if one.optional},
    )


def remembered(
    app: Application,
    online: OnlineState,
    *,
    rebuilt: int = 0,
    pending: tuple[SubtaskRun, ...] = (),
) -> WorkState:
    """Return the state of an online profile as the loop keeps it."""
    known = online.built
    return WorkState(
        subtasks=tuple(_subtask_state(subtask, online) for subtask in app.timed),
        together=tuple((one, other, more) for (one, other), more in known.together.items()),
        complete=app.complete,
        rebuilt=rebuilt,
        pending=pending,
    )


def table_of(state: WorkState) -> Frontier:
    """Return the frontier of the plan in use, on which a mix of two is best (`Frontier.hull`)."""
    return _table(_built_from(state))


def selector_of(classifier: Callable[[ExecutionPlan], Classifier], state: WorkState) -> Classifier:
    """Return one of the classifiers of CS over the plan in use."""
    return _selector(classifier, _built_from(state))


def _built_from(state: WorkState) -> WorkState:
    """Return of a state what its table depends on: it changes only when the plan is rebuilt."""
    members = tuple(replace(one, durations_s=(), losses=()) for one in state.subtasks)
    return WorkState(subtasks=members, together=state.together)


@lru_cache(maxsize=8)
def _table(state: WorkState) -> Frontier:
    return frontier(application(state).timed, built(state), size_max=_TABLE_MAX).hull()


@lru_cache(maxsize=8)
def _selector(classifier: Callable[[ExecutionPlan], Classifier], state: WorkState) -> Classifier:
    return classifier(execution_plan(application(state).timed, built(state)))


def _subtask_state(subtask: Subtask, online: OnlineState) -> SubtaskState:
    return SubtaskState(
        name=subtask.name,
        optional=subtask.optional,
        inputs=subtask.inputs,
        after=subtask.after,
        duration_s=online.built.duration_s[subtask.name],
        lost=online.built.lost.get(subtask.name, 0.0),
        durations_s=online.duration_s[subtask.name],
        losses=online.lost.get((subtask.name,), ()),
    )
