"""Computational shedding: what a selection costs, and the frontier's size and time by subtasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from benchmarks.measure import Bound, Figure, interleaved, ratios
from benchmarks.sketch import cpu_seconds
from benchmarks.stage import Stage
from spillway.degrade import classifiers
from spillway.degrade.execution_plan import execution_plan
from spillway.degrade.frontier import frontier
from spillway.degrade.profile import Profile
from spillway.degrade.subtask import Subtask, Subtasks

App = tuple[Subtasks, Profile]

OPTIONAL = 9  # as in the thesis: 512 entries
COUNTS = (10, 20, 30, 40, 50, 60)
FASTER = Bound(bound=100, at_least=True)
FAST = ("CS-B", "frontier")
LINEAR = "CS-D (linear search)"
OVERLOADED, MIXED = "at a steady full overload", "over all loads"


class Selector(Protocol):
    """What the classifiers and the frontier have in common."""

    def select(self, *, rows: float, limit_s: float) -> object:
        """Return an entry."""
        ...


def run(stage: Stage) -> list[Figure]:
    """Select at 512 entries, then build frontiers of more and more subtasks."""
    return [*_selections(stage), *_frontiers(stage)]


def _selections(stage: Stage) -> list[Figure]:
    """Time `select`: at a load that stays where only the last entries fit, and at loads up to it.

    Where the load stays, CS-B finds its entry where it was; where every one differs it searches.
    """
    subtasks, profile = _independent(OPTIONAL, mandatory=4)
    plan, found = execution_plan(subtasks, profile), frontier(subtasks, profile)
    least_s, all_s = found.durations_s[0], found.durations_s[-1]
    loads = {
        OVERLOADED: [1.0 / least_s] * 1000,
        MIXED: (1.0 / np.linspace(least_s, all_s, 1000)).tolist(),
    }
    ways: dict[str, Selector] = {
        "CS-D": classifiers.duration(plan),
        "CS-A": classifiers.accuracy(plan),
        "CS-C": classifiers.cost(plan),
        "CS-B": classifiers.binary(plan),
        "frontier": found,
    }
    return [
        figure
        for load, rows in loads.items()
        for figure in _compared(stage, ways, load, rows, len(plan.entries), len(found))
    ]


def _compared(
    stage: Stage, ways: dict[str, Selector], load: str, rows: list[float], entries: int, size: int
) -> list[Figure]:
    times = {name: stage.size(10, 2) * (20 if name in FAST else 1) for name in ways}
    timed = {name: _timed(way, rows, times[name]) for name, way in ways.items()}
    taken = interleaved(timed, repetitions=stage.size(11, 3), tick=stage.tick)
    return [
        Figure(
            benchmark="degrade",
            what=f"selection by {_named(name, entries, size)}, {load}",
            rival=f"{LINEAR}, {entries} entries",
            unit="× faster",
            values=ratios(taken["CS-D"], taken[name]),
            bound=FASTER if name in FAST and load == OVERLOADED else None,
        )
        for name in ways
        if name != "CS-D"
    ] + [
        Figure(
            benchmark="degrade",
            what=f"one selection by {_named(name, entries, size)}, {load}",
            rival="none",
            unit="µs",
            values=tuple(value * 1e6 for value in taken[name]),
        )
        for name in ("CS-D", "frontier")
    ]


def _named(name: str, entries: int, size: int) -> str:
    return f"{name}, {size if name == 'frontier' else entries} entries"


def _timed(way: Selector, rows: list[float], times: int) -> Callable[[], float]:
    def act() -> None:
        select = way.select
        for _ in range(times):
            for count in rows:
                select(rows=count, limit_s=1.0)

    return lambda: cpu_seconds(act) / times / len(rows)


def _frontiers(stage: Stage) -> list[Figure]:
    """Build frontiers; the first call of each kind is a warm-up and not counted."""
    kinds: dict[str, Callable[[int], App]] = {
        "worth at random": _independent,
        "with dependencies": _dependent,
        "worth ∝ cost ± 10 %": _correlated,
        "worth ∝ cost (the worst case)": _proportional,
    }
    return [
        figure
        for kind, make in kinds.items()
        for n in COUNTS
        for figure in _built(stage, kind, n, make(n))
    ]


def _built(stage: Stage, kind: str, n: int, app: App) -> list[Figure]:
    stage.tick(f"frontier of {n}, {kind}")
    found = frontier(*app)
    taken = [cpu_seconds(lambda: frontier(*app)) * 1e3 for _ in range(stage.size(7, 3))]
    exact = f"resolution {found.resolution_s / found.durations_s[-1]:.0e}"
    size = f"{len(found):,} entries, {exact if found.resolution_s else 'exact'}"
    return [
        Figure(
            benchmark="degrade",
            what=f"frontier of {n} optional subtasks, {kind}: {size}",
            rival=f"enumerating 2^{n}: not possible" if n > 20 else "none",
            unit="ms",
            values=tuple(taken),
            bound=Bound(bound=1000) if n == 30 else None,
        )
    ]


def _app(times: np.ndarray, lost: np.ndarray, inputs: list[tuple[str, ...]], mandatory: int) -> App:
    """Return an application whose losses add up to 1."""
    names = [f"o{k}" for k in range(times.size)]
    always = [f"m{k}" for k in range(mandatory)]
    members = [
        Subtask(name, optional=True, inputs=i) for name, i in zip(names, inputs, strict=True)
    ]
    profile = Profile(
        duration_s={
            **dict.fromkeys(always, 0.001),
            **dict(zip(names, times.tolist(), strict=True)),
        },
        lost=dict(zip(names, (lost / lost.sum()).tolist(), strict=True)),
    )
    return Subtasks([*map(Subtask, always), *members]), profile


def _independent(n: int, mandatory: int = 1) -> App:
    rng = np.random.default_rng(1)
    return _app(rng.random(n) / 100, rng.random(n), [()] * n, mandatory)


def _dependent(n: int) -> App:
    """Every subtask needs none, one or two earlier ones."""
    rng = np.random.default_rng(1)
    inputs = [
        tuple(f"o{j}" for j in rng.choice(k, min(int(rng.integers(0, 3)), k), replace=False))
        if k
        else ()
        for k in range(n)
    ]
    return _app(rng.random(n) / 100, rng.random(n), inputs, 1)


def _correlated(n: int) -> App:
    rng = np.random.default_rng(1)
    times = rng.random(n) / 100
    return _app(times, times * rng.uniform(0.9, 1.1, n), [()] * n, 1)


def _proportional(n: int) -> App:
    """No selection beats another: all 2^n are on the frontier."""
    times = np.random.default_rng(1).random(n) / 100
    return _app(times, times, [()] * n, 1)
