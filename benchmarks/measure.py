"""Figures and how they are taken: interleaved repetitions, compared pair by pair."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median, quantiles

Tick = Callable[[str], None]
Way = Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """What a figure must reach (`bound`, else the run fails) and what it should (`goal`)."""

    bound: float
    goal: float | None = None
    at_least: bool = False

    def holds(self, value: float) -> bool:
        """Whether the figure reaches the bound."""
        return value >= self.bound if self.at_least else value <= self.bound

    def text(self, unit: str) -> str:
        """The bound and the goal as the table shows them."""
        sign = "≥" if self.at_least else "≤"
        goal = f" (goal {self.goal:g})" if self.goal is not None else ""
        return f"{sign} {self.bound:g} {unit}{goal}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of the table: the median of paired comparisons, with its quartiles."""

    benchmark: str
    what: str
    rival: str
    unit: str
    values: tuple[float, ...]
    bound: Bound | None = None

    @property
    def value(self) -> float:
        """The median."""
        return median(self.values)

    @property
    def spread(self) -> tuple[float, float]:
        """Lower and upper quartile."""
        if len(self.values) < 2:
            return self.value, self.value
        low, _, high = quantiles(self.values, n=4, method="inclusive")
        return low, high

    @property
    def missed(self) -> bool:
        """Whether a bound is not reached."""
        return self.bound is not None and not self.bound.holds(self.value)


def interleaved(
    ways: Mapping[str, Way], *, repetitions: int, tick: Tick, warmups: int = 1
) -> dict[str, list[float]]:
    """Measure all ways in turn, again and again, in an order that is drawn, then reversed.

    What drifts (a warming JIT, a busy neighbour) then meets all ways alike. The order is drawn
    anew, or the same way would always be the one that follows itself at the turn, and find all
    as it left it.
    """
    names = order = list(ways)
    draw = random.Random(len(names))
    taken: dict[str, list[float]] = {name: [] for name in names}
    for repetition in range(-warmups, repetitions):
        order = order[::-1] if repetition % 2 else draw.sample(names, len(names))
        for name in order:
            tick(name)
            value = ways[name]()
            if repetition >= 0:
                taken[name].append(value)
    return taken


def ratios(upper: Sequence[float], lower: Sequence[float]) -> tuple[float, ...]:
    """Divide pair by pair."""
    return tuple(a / b for a, b in zip(upper, lower, strict=True))


def differences(left: Sequence[float], right: Sequence[float]) -> tuple[float, ...]:
    """Subtract pair by pair."""
    return tuple(a - b for a, b in zip(left, right, strict=True))


def seconds(act: Callable[[], object]) -> float:
    """Return how long an action takes."""
    start = time.perf_counter()
    act()
    return time.perf_counter() - start
