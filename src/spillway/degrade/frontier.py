"""The frontier: the selections that no other beats in duration and accuracy, without trying all.

One table, ordered by both at once: searched in O(log n), and at every budget at least as accurate
as any of the four classifiers (CS leaves a better organisation of the plan open, section 6.3.2).
Two neighbouring entries mixed over the rows of a batch fill the budget exactly.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from spillway.degrade.execution_plan import Container
from spillway.degrade.nondominated import SIZE_MAX, Items, nondominated
from spillway.degrade.profile import Profile
from spillway.degrade.subtask import Subtasks

Floats = NDArray[np.float64]

SLACK = 1e-10  # of a row's whole work: so much may sums be off by rounding


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One entry of the frontier: what is off, the seconds a row, the accuracy that is left."""

    off: tuple[str, ...]
    duration_s: float
    accuracy: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """Two neighbouring choices over the rows of a batch: `fraction` of the rows take `more`.

    A row takes it if uniform(row) < fraction, by its own hash, so a replay decides alike; the salt
    must not be the gate's, or the rows that a gate keeps would not be mixed as told. `keep` is the
    share of the rows that there is time for: below 1 the least work is still too much, and the next
    shedder must let go of rows.

    >>> less = Choice(off=("mood",), duration_s=1.0, accuracy=0.8)
    >>> more = Choice(off=(), duration_s=3.0, accuracy=1.0)
    >>> mix = Mix(less=less, more=more, fraction=0.25)
    >>> mix.duration_s, round(mix.accuracy, 9)
    (1.5, 0.85)
    """

    less: Choice
    more: Choice
    fraction: float
    keep: float = 1.0

    @property
    def duration_s(self) -> float:
        """Expected seconds a row."""
        return self._between(self.less.duration_s, self.more.duration_s)

    @property
    def accuracy(self) -> float:
        """Expected accuracy, as the mean over rows."""
        return self._between(self.less.accuracy, self.more.accuracy)

    def takes_more(self, uniforms: Floats) -> NDArray[np.bool_]:
        """Return which rows take the longer choice, by their own numbers in [0, 1)."""
        return uniforms < self.fraction

    def _between(self, low: float, high: float) -> float:
        return low + self.fraction * (high - low)


@dataclass(frozen=True, slots=True, kw_only=True)
class Frontier:
    """Choices of growing duration and accuracy; the first is the least work, the last all of it.

    (All of it is there even if some of it gains nothing: without overload nothing is left out.)
    `names` are the optional subtasks, the k-th of them bit k of the `off` masks. At a budget of b
    seconds a row the best choice here is at least as accurate as any within b - `resolution_s`,
    which is 0 where the frontier is exact.
    """

    names: tuple[str, ...]
    off: tuple[int, ...]
    durations_s: tuple[float, ...]
    accuracies: tuple[float, ...]
    resolution_s: float = 0.0
    _reach_s: tuple[float, ...] = field(init=False, repr=False, compare=False)
    _selected: list[Choice | None] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Prepare the search: durations less what rounding may have added."""
        slack_s = SLACK * self.durations_s[-1]
        object.__setattr__(self, "_reach_s", tuple(s - slack_s for s in self.durations_s))
        object.__setattr__(self, "_selected", [None] * (len(self.durations_s) + 1))

    def __len__(self) -> int:
        """Count the choices."""
        return len(self.off)

    def choice(self, at: int) -> Choice:
        """Return the entry at this place."""
        mask = self.off[at]
        off = tuple(name for bit, name in enumerate(self.names) if mask >> bit & 1)
        return Choice(off=off, duration_s=self.durations_s[at], accuracy=self.accuracies[at])

    def find(self, row_s_max: float) -> int:
        """Return the place of the best choice of at most this duration; -1 if all take longer."""
        return bisect_right(self._reach_s, row_s_max) - 1

    def find_near(self, row_s_max: float, last: int) -> int:
        """Return the same, from the place found last: O(log of the way) (section 6.3.1)."""
        low, high = self._bracket(row_s_max, min(max(last, 0), len(self) - 1))
        return bisect_right(self._reach_s, row_s_max, low, high) - 1

    def select(self, *, rows: float, limit_s: float) -> Choice:
        """Return the best choice by which the rows are done on time, or the least work."""
        if rows > 0 <= limit_s:  # first and without a call, because this is asked most often
            place = bisect_right(self._reach_s, limit_s / rows)
            return self._selected[place] or self._select(place)
        return self.choice(self.find(_row_s_max(rows, limit_s)))

    def mix(self, *, rows: float, limit_s: float, last: int | None = None) -> Mix:
        """Return the two neighbours, and the fraction of rows, that fill the time exactly.

        If there is time for all work, all of it is done; if not even for the least, that is done on
        the share `keep` of the rows.
        """
        row_s_max = _row_s_max(rows, limit_s)
        at = self.find(row_s_max) if last is None else self.find_near(row_s_max, last)
        if at < 0:
            least = self.choice(0)
            return Mix(less=least, more=least, fraction=0.0, keep=row_s_max / least.duration_s)
        less, more = self.choice(at), self.choice(min(at + 1, len(self) - 1))
        step_s = more.duration_s - less.duration_s
        fraction = (row_s_max - less.duration_s) / step_s if step_s else 0.0
        return Mix(less=less, more=more, fraction=min(max(fraction, 0.0), 1.0))

    def hull(self) -> Frontier:
        """Return the choices that no mix of two others beats: between them a mix is best of all.

        It has few entries. Rows are then treated less alike than by neighbours of the frontier.
        """
        kept = _upper_hull(self.durations_s, self.accuracies)
        return replace(
            self,
            off=tuple(self.off[at] for at in kept),
            durations_s=tuple(self.durations_s[at] for at in kept),
            accuracies=tuple(self.accuracies[at] for at in kept),
        )

    def _select(self, place: int) -> Choice:
        choice = self.choice(max(place - 1, 0))
        self._selected[place] = choice
        return choice

    def _bracket(self, row_s_max: float, last: int) -> tuple[int, int]:
        """Return a range that holds the place, in steps that double away from the last one."""
        reach_s, end, step = self._reach_s, len(self), 1
        if reach_s[last] <= row_s_max:
            while last + step < end and reach_s[last + step] <= row_s_max:
                step *= 2
            return last + step // 2, min(last + step, end)
        while last - step >= 0 and reach_s[last - step] > row_s_max:
            step *= 2
        return max(last - step, 0), last - step // 2


def frontier(
    subtasks: Subtasks,
    profile: Profile,
    *,
    container: Container | None = None,
    off: Iterable[str] = (),
    size_max: int = SIZE_MAX,
) -> Frontier:
    """Find the frontier of all selections; exact up to `size_max` entries at any step.

    container: only its subtasks are chosen and only their time counts; what other stages lose
               because it leaves out their inputs counts too.
    off:       what is off already, decided by an earlier stage.

    >>> from spillway.degrade.subtask import Subtask
    >>> work = Subtasks([Subtask("parse"), Subtask("mood", optional=True)])
    >>> profile = Profile(duration_s={"parse": 0.004, "mood": 0.002}, lost={"mood": 0.1})
    >>> frontier(work, profile).mix(rows=100, limit_s=0.5).fraction
    0.5
    """
    profile.check(subtasks)
    own = set(subtasks.names if container is None else container.subtasks)
    gone = subtasks.closed(off)
    found = nondominated(_items(subtasks, profile, own, gone), size_max=size_max)
    base_s = profile.duration_with(name for name in subtasks.mandatory if name in own)
    accuracies = np.clip(1.0 - found.lost, 0.0, 1.0)
    kept = np.flatnonzero(np.diff(accuracies, prepend=-1.0) > 0)  # below 0 there is nothing to gain
    known = Frontier(
        names=subtasks.optional,
        off=tuple(found.off[kept].tolist()),
        durations_s=tuple((base_s + found.durations_s[kept]).tolist()),
        accuracies=tuple(accuracies[kept].tolist()),
        resolution_s=found.resolution_s,
    )
    return _completed(known, subtasks, profile, own, gone)


def _completed(
    known: Frontier, subtasks: Subtasks, profile: Profile, own: set[str], gone: frozenset[str]
) -> Frontier:
    """Return the frontier with all work as its last entry, even if some of it gains nothing."""
    mask = subtasks.mask(gone)
    if known.off[-1] == mask:
        return known
    on = (name for name in subtasks.names if name in own and name not in gone)
    return replace(
        known,
        off=(*known.off, mask),
        durations_s=(*known.durations_s, profile.duration_with(on)),
        accuracies=(*known.accuracies, max(profile.accuracy_without(gone), known.accuracies[-1])),
    )


def _items(subtasks: Subtasks, profile: Profile, own: set[str], gone: frozenset[str]) -> Items:
    names = subtasks.optional
    place = {name: bit for bit, name in enumerate(names)}
    return Items(
        durations_s=tuple(profile.duration_s[name] if name in own else 0.0 for name in names),
        lost=tuple(profile.lost[name] for name in names),
        dependents=tuple(subtasks.mask(subtasks.dependents(name)) for name in names),
        together={
            (place[one], place[other]): more for (one, other), more in profile.together.items()
        },
        free=subtasks.mask(name for name in names if name in own and name not in gone),
        gone=subtasks.mask(gone),
    )


def _row_s_max(rows: float, limit_s: float) -> float:
    if not rows >= 0 <= limit_s:  # also rejects NaN
        raise ValueError(f"rows and limit_s must be >= 0, got {rows} and {limit_s}")
    return limit_s / rows if rows else math.inf


def _upper_hull(durations_s: Sequence[float], accuracies: Sequence[float]) -> list[int]:
    """Return the places on the upper concave hull (Andrew's monotone chain)."""
    kept: list[int] = []
    for at in range(len(durations_s)):
        while len(kept) > 1 and _below(durations_s, accuracies, kept[-2], kept[-1], at):
            kept.pop()
        kept.append(at)
    return kept


def _below(x: Sequence[float], y: Sequence[float], a: int, b: int, c: int) -> bool:
    """Whether point b lies on or below the line from a to c."""
    return (y[b] - y[a]) * (x[c] - x[a]) <= (y[c] - y[a]) * (x[b] - x[a])
