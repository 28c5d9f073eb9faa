"""Profiling goes on at run time, so that the plan follows the data (CS, section 6.3.3).

The running operator tells how long its subtasks took; a small share of rows that always runs
complete tells what leaving subtasks out would lose (and what those cost that are off just now).
Of every number the latest few measurements are kept, and their median counts: with a window of 5
a lasting change shows after 3 measured batches, and 2 outliers in a row change nothing.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from statistics import median
from typing import TypeVar

from spillway.degrade.profile import Profile, interactions, own_losses
from spillway.degrade.subtask import Subtasks

Off = tuple[str, ...]
Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What one batch showed; what was not measured is left out.

    rows, busy_s: rows that each subtask's time was measured over, and that time.
    lost_rows:    rows that ran complete, on which losses were measured.
    lost:         accuracy lost without these subtasks, by what was left out: one, or a pair.
    """

    rows: Mapping[str, int] = field(default_factory=dict)
    busy_s: Mapping[str, float] = field(default_factory=dict)
    lost_rows: int = 0
    lost: Mapping[Off, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """How far the numbers have moved from those that the plan was built from.

    duration: the greatest change of a subtask's time, as a share of the whole row's time.
    accuracy: the greatest change of a loss.
    """

    duration: float = 0.0
    accuracy: float = 0.0
    slowest: str = ""
    rebuild: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OnlineState:
    """What is remembered: the profile of the plan in use, and the latest measurements."""

    built: Profile
    duration_s: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    lost: Mapping[Off, tuple[float, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class OnlineProfile:
    """Keeps a profile up to date, and says when the plan must be rebuilt.

    window:         measurements whose median counts.
    rows_min:       a measurement over fewer rows does not count.
    duration_drift: share of a row's whole time by which one subtask may change.
    accuracy_drift: accuracy by which a loss may change.
    """

    subtasks: Subtasks
    window: int = 5
    rows_min: int = 100
    duration_drift: float = 0.05
    accuracy_drift: float = 0.05

    def __post_init__(self) -> None:
        """Reject windows and bounds that bound nothing."""
        if not self.window >= 1:
            raise ValueError(f"window must be >= 1, got {self.window}")
        if not self.rows_min >= 1:
            raise ValueError(f"rows_min must be >= 1, got {self.rows_min}")
        for name in ("duration_drift", "accuracy_drift"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be > 0, got {getattr(self, name)}")

    def start(self, profile: Profile) -> OnlineState:
        """Return the state before the first batch; the given numbers fill the windows."""
        profile.check(self.subtasks)
        losses = {(name,): self._lost(profile, name) for name in self.subtasks.optional}
        return OnlineState(
            built=profile,
            duration_s={name: (s,) * self.window for name, s in profile.duration_s.items()},
            lost={off: (lost,) * self.window for off, lost in losses.items()},
        )

    def learn(self, state: OnlineState, seen: Measured) -> OnlineState:
        """Return the state after one more batch; numbers that cannot be are left out."""
        times = {
            name: busy_s / seen.rows[name]
            for name, busy_s in seen.busy_s.items()
            if name in state.duration_s and seen.rows.get(name, 0) >= self.rows_min
        }
        times = {name: row_s for name, row_s in times.items() if 0 <= row_s < math.inf}
        losses = seen.lost if seen.lost_rows >= self.rows_min else {}
        possible = {off: lost for off, lost in losses.items() if 0 <= lost <= 1 and self._fits(off)}
        return replace(
            state,
            duration_s=_pushed(state.duration_s, times, self.window),
            lost=_pushed(state.lost, possible, self.window),
        )

    def profile(self, state: OnlineState) -> Profile:
        """Return the profile of now."""
        lost = {off: median(seen) for off, seen in state.lost.items()}
        single = {name: lost[(name,)] for name in self.subtasks.optional}
        alone = Profile(
            duration_s={name: median(seen) for name, seen in state.duration_s.items()},
            lost=own_losses(self.subtasks, single),
        )
        enough = {off for off, seen in state.lost.items() if len(seen) > self.window // 2}
        pairs = {(off[0], off[1]): lost[off] for off in enough if len(off) == 2}
        known = {pair: more for pair, more in state.built.together.items() if pair not in pairs}
        found = interactions(self.subtasks, alone, pairs, least=self.accuracy_drift)
        return replace(alone, together={**known, **found})

    def drift(self, state: OnlineState) -> Drift:
        """Return how far the profile has moved, and whether the plan must be rebuilt.

        A pair that has come to interact, or has ceased to, counts like a loss.
        """
        built, now = state.built, self.profile(state)
        moved = {name: abs(now.duration_s[name] - was) for name, was in built.duration_s.items()}
        slowest = max(moved, key=lambda name: moved[name])
        whole = built.duration_with(built.duration_s) or max(now.duration_with(moved), 1e-12)
        duration = moved[slowest] / whole
        accuracy = max(_distance(built.lost, now.lost), _distance(built.together, now.together))
        rebuild = duration > self.duration_drift or accuracy > self.accuracy_drift
        return Drift(duration=duration, accuracy=accuracy, slowest=slowest, rebuild=rebuild)

    def rebuilt(self, state: OnlineState) -> OnlineState:
        """Return the state after the plan was rebuilt from the profile of now."""
        return replace(state, built=self.profile(state))

    def _lost(self, profile: Profile, name: str) -> float:
        """Return what a run without this subtask, and all that needs it, would lose."""
        return min(math.fsum(profile.lost[one] for one in self.subtasks.closed([name])), 1.0)

    def _fits(self, off: Off) -> bool:
        return len(set(off)) == len(off) in (1, 2) and set(off) <= set(self.subtasks.optional)


def _pushed(
    windows: Mapping[Name, tuple[float, ...]], fresh: Mapping[Name, float], size: int
) -> dict[Name, tuple[float, ...]]:
    """Return the windows with the fresh numbers at their ends."""
    added = {name: (*windows.get(name, ()), number)[-size:] for name, number in fresh.items()}
    return {**windows, **added}


def _distance(was: Mapping[Name, float], now: Mapping[Name, float]) -> float:
    """Return the greatest difference; what one side lacks is 0 there."""
    return max((abs(was.get(x, 0.0) - now.get(x, 0.0)) for x in {*was, *now}), default=0.0)
