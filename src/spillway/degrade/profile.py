"""What every subtask takes and gives: seconds a row, and the accuracy that is lost without it.

CS, sections 3.4.5 and 4.3.10: one run with all subtasks, then one without each optional one, on
the same sample. The accuracy that is left without several of them is

    1 - Σ lost - Σ together

over those that are off and over the pairs of them that matter to each other. The thesis has the
first sum only; the second is measured where that is badly wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from statistics import median
from typing import Generic, TypeVar

from spillway.degrade.accuracy import Measure
from spillway.degrade.subtask import Subtasks

Result = TypeVar("Result")
Pair = tuple[str, str]

PAIRS_MAX = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The measured cost and worth of every subtask.

    duration_s: seconds a row that comes in, of the subtask's own.
    lost:       accuracy lost without an optional subtask, of its own: what needs it and is off
                with it has its own number.
    together:   what a pair loses beyond the sum if both are off (less, if negative).

    >>> profile = Profile(duration_s={"parse": 0.004, "mood": 0.002}, lost={"mood": 0.1})
    >>> profile.accuracy_without(["mood"])
    0.9
    """

    duration_s: Mapping[str, float]
    lost: Mapping[str, float]
    together: Mapping[Pair, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Reject what is no time and no accuracy."""
        for name, taken in self.duration_s.items():
            if not 0 <= taken < math.inf:
                raise ValueError(f"duration_s of {name!r} must be finite and >= 0, got {taken}")
        for name, lost in self.lost.items():
            if not 0 <= lost <= 1:
                raise ValueError(f"lost of {name!r} must be in [0, 1], got {lost}")
        for (one, other), more in self.together.items():
            if one not in self.lost or other not in self.lost or one == other:
                raise ValueError(f"together must name two that may be lost, got {one!r}, {other!r}")
            if not -1 <= more <= 1:
                raise ValueError(f"together of {one!r}, {other!r} must be in [-1, 1], got {more}")

    def check(self, subtasks: Subtasks) -> None:
        """Raise unless every subtask has a duration, and every optional one a loss."""
        for what, needed, given in (
            ("duration_s", subtasks.names, self.duration_s),
            ("lost", subtasks.optional, self.lost),
        ):
            if set(needed) != set(given):
                odd = sorted(set(needed) ^ set(given))
                raise ValueError(f"{what} must be known of {', '.join(needed)}, got {odd} odd")

    def duration_with(self, names: Iterable[str]) -> float:
        """Return the seconds a row of these subtasks together."""
        return math.fsum(self.duration_s[name] for name in names)

    def accuracy_without(self, off: Collection[str]) -> float:
        """Return the accuracy that is left if exactly these are off, in [0, 1]."""
        gone = frozenset(off)
        alone = (self.lost[name] for name in gone)
        pairs = (more for pair, more in self.together.items() if gone.issuperset(pair))
        return min(max(1.0 - math.fsum((*alone, *pairs)), 0.0), 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run(Generic[Result]):
    """What one run over the sample gave, and how long each subtask that was on took for it.

    `rows` came in; those that an early subtask filters out cost the later ones nothing, so all
    times are per row that came in. (The thesis divides by the rows that reached the subtask, and
    adds: too much, if rows are filtered.)
    """

    result: Result
    rows: int
    busy_s: Mapping[str, float]

    def __post_init__(self) -> None:
        """Reject a sample without rows."""
        if not self.rows > 0:
            raise ValueError(f"rows must be > 0, got {self.rows}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiler:
    """Runs an application with and without its optional subtasks and compares the results.

    `interaction_min`: accuracy by which the sum of single losses must be wrong before pairs are
    measured, and by which a pair must be off before it is remembered.
    """

    interaction_min: float = 0.05

    def __post_init__(self) -> None:
        """Reject what is no accuracy."""
        if not 0 < self.interaction_min <= 1:
            raise ValueError(f"interaction_min must be in (0, 1], got {self.interaction_min}")

    def profile(
        self,
        subtasks: Subtasks,
        run: Callable[[frozenset[str]], Run[Result]],
        measure: Measure[Result],
        *,
        pairs: Iterable[Pair] | None = None,
    ) -> Profile:
        """Measure the subtasks; `run` executes the application with some of them off.

        Without `pairs` one more run, with every optional subtask off, tells whether the single
        losses add up; if not, all pairs are measured.
        """
        bench = _Bench(subtasks, run, measure)
        losses = {name: bench.lost([name]) for name in subtasks.optional}
        alone = Profile(duration_s=bench.durations_s(), lost=own_losses(subtasks, losses))
        chosen = self._pairs(subtasks, bench, alone) if pairs is None else pairs
        together = {pair: bench.lost(pair) for pair in chosen}
        return Profile(
            duration_s=bench.durations_s(),
            lost=alone.lost,
            together=interactions(subtasks, alone, together, least=self.interaction_min),
        )

    def _pairs(self, subtasks: Subtasks, bench: _Bench[Result], alone: Profile) -> Iterable[Pair]:
        if len(subtasks.optional) < 2:
            return ()
        expected = 1.0 - alone.accuracy_without(subtasks.optional)
        if abs(bench.lost(subtasks.optional) - expected) < self.interaction_min:
            return ()
        return combinations(subtasks.optional, 2)


def own_losses(subtasks: Subtasks, losses: Mapping[str, float]) -> dict[str, float]:
    """Return each subtask's own loss; a run without it was a run without all that needs it.

    What dependents lose by themselves is taken off, and nothing below 0 is left.
    """
    own: dict[str, float] = {}
    for name in reversed(subtasks.optional):
        others = math.fsum(own[dependent] for dependent in subtasks.dependents(name))
        own[name] = min(max(losses[name] - others, 0.0), 1.0)
    return {name: own[name] for name in subtasks.optional}


def interactions(
    subtasks: Subtasks, alone: Profile, together: Mapping[Pair, float], *, least: float
) -> dict[Pair, float]:
    """Return what pairs lose beyond the sum of their single losses, where it is `least` or more.

    A pair of which one needs the other has no loss of its own: the one is never off alone. At most
    `PAIRS_MAX` are returned, those that matter most: the frontier must keep track of them.
    """
    found: dict[Pair, float] = {}
    for pair, lost in together.items():
        one, other = pair
        expected = 1.0 - alone.accuracy_without(subtasks.closed(pair))
        if one in subtasks.dependents(other) or other in subtasks.dependents(one):
            continue
        if abs(lost - expected) >= least:
            found[pair] = min(max(lost - expected, -1.0), 1.0)
    strongest = sorted(found, key=lambda pair: -abs(found[pair]))[:PAIRS_MAX]
    return {pair: found[pair] for pair in strongest}


class _Bench(Generic[Result]):
    """The runs so far: the complete one first, then those without."""

    def __init__(
        self,
        subtasks: Subtasks,
        run: Callable[[frozenset[str]], Run[Result]],
        measure: Measure[Result],
    ) -> None:
        """Make the run that the others are compared with."""
        self._subtasks, self._run, self._measure = subtasks, run, measure
        self._runs = [run(frozenset())]

    def lost(self, off: Iterable[str]) -> float:
        """Run without these and return the accuracy that is lost, in [0, 1]."""
        self._runs.append(self._run(self._subtasks.closed(off)))
        accuracy = self._measure.accuracy(self._runs[0].result, self._runs[-1].result)
        if not 0 <= accuracy <= 1:
            raise ValueError(f"accuracy must be in [0, 1], got {accuracy}")
        return 1.0 - accuracy

    def durations_s(self) -> dict[str, float]:
        """Return the median seconds a row of every subtask, over the runs that it was in."""
        return {name: median(self._times(name)) for name in self._subtasks.names}

    def _times(self, name: str) -> list[float]:
        return [run.busy_s[name] / run.rows for run in self._runs if name in run.busy_s]
