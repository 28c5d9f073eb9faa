"""POSG's figures 4 to 10 on virtual time: who places rows best, and where the paper's claims hold.

Every run has its own association of costs and keys, its own order of rows and its own hash
functions, all from the run's number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spillway.cost.sketch import SketchShape
from spillway.placement.full_knowledge import FullKnowledge
from spillway.placement.least_loaded import LeastLoaded
from spillway.placement.proactive import Proactive, SchedulerState
from spillway.placement.round_robin import RoundRobin
from spillway.sim.instances import Placement, Run, Speeds, simulate
from spillway.sim.workloads import MS, Recipe, Stream
from spillway.studies.posg_claims import (
    CLAMPED,
    DEFAULT,
    FULL,
    LEAST,
    PAPER,
    ROUND_ROBIN,
    SERIES_ROWS,
    WINDOW_ROWS,
    claims_4,
    claims_5,
    claims_6,
    claims_7,
    claims_8,
    claims_9,
    claims_10,
    completion_ms,
    speed_up,
)
from spillway.studies.study import Claim, Figure, Panel, Param, Point, Results, Series, Study

Floats = NDArray[np.float64]

NAMES = (ROUND_ROBIN, PAPER, CLAMPED, DEFAULT, FULL, LEAST)
STALE_NS = 100 * MS
CHANGE_ROW = 75_000
BEFORE = (1.05, 1.025, 1.0, 0.975, 0.95)
AFTER = (0.90, 0.95, 1.0, 1.05, 1.10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One configuration of section V-A; the defaults are the paper's."""

    zipf: float = 1.0
    provisioning: float = 1.0
    cost_ms_max: float = 64.0
    cost_values: int = 64
    instances: int = 5
    epsilon: float = 0.05
    rows: int = 32_768

    def stream(self, number: int) -> Stream:
        """Make the stream of a run."""
        recipe = Recipe(
            rows=self.rows,
            zipf=self.zipf,
            cost_values=self.cost_values,
            cost_ns_min=MS,
            cost_ns_max=round(self.cost_ms_max * MS),
        )
        stream = recipe.stream(association=number, order=number)
        return stream.arriving_every(self.provisioning * stream.cost_ns_mean / self.instances)

    def placements(self, number: int) -> dict[str, Placement]:
        """Return all rivals."""
        k = self.instances
        shape = SketchShape.for_error(epsilon=self.epsilon, delta=0.1, seed=number)
        return {
            ROUND_ROBIN: RoundRobin(instances=k),
            PAPER: Proactive(instances=k, shape=shape, mode="paper"),
            CLAMPED: Proactive(instances=k, shape=shape, mode="clamped"),
            DEFAULT: Proactive(instances=k, shape=shape),
            FULL: FullKnowledge(instances=k, mode="paper"),
            LEAST: LeastLoaded(instances=k, stale_ns=STALE_NS),
        }


def setting(params: Mapping[str, Param]) -> Setting:
    """Read a point's parameters; what it does not say is the paper's."""
    return Setting(**dict(params))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """A figure over one parameter: mean completion time, or the speed-up against round robin."""

    id: str
    title: str
    x_label: str
    param: str
    values: tuple[float | int, ...]
    labels: tuple[str, ...] = ()  # where a number alone would not say it
    quick: tuple[int, ...]  # which of the values a quick look takes
    as_speed_up: bool
    claim: Callable[[Results], list[Claim]]
    runs: int = 100
    quick_runs: int = 3

    def points(self) -> list[Point]:
        """Return a point for every value."""
        labels = self.labels or tuple(f"{value:g}" for value in self.values)
        pairs = zip(labels, self.values, strict=True)
        return [Point(label, {self.param: value}) for label, value in pairs]

    def quick_points(self) -> list[Point]:
        """Return the points that a quick look takes."""
        points = self.points()
        return [points[index] for index in self.quick]

    def compute(self, point: Point, runs: range, seed: int) -> dict[str, list[float]]:
        """Place every run's rows by every policy."""
        found: dict[str, list[float]] = {}
        chosen = setting(point.params)
        for number in (seed + run for run in runs):
            stream = chosen.stream(number)
            for name, placement in chosen.placements(number).items():
                run = simulate(stream, placement)
                found.setdefault(f"{name}/completion_ms", []).append(run.completion_ms_mean)
                found.setdefault(f"{name}/messages", []).append(float(run.messages))
        return found

    def draw(self, results: Results) -> Figure:
        """Draw mean, minimum and maximum over the runs."""
        value = speed_up if self.as_speed_up else completion_ms
        names = [name for name in NAMES if not (self.as_speed_up and name == ROUND_ROBIN)]
        lines = (("Round Robin", 1.0),) if self.as_speed_up else ()
        label = "speed-up S_L" if self.as_speed_up else "mean completion time (ms)"
        series = tuple(self._series(name, results, value) for name in names)
        panel = Panel(label, series, x_label=self.x_label, y_log=not self.as_speed_up, lines=lines)
        return Figure(self.id, self.title, (panel,))

    def claims(self, results: Results) -> list[Claim]:
        """Compare with what the paper's text says about the figure."""
        return self.claim(results)

    def _series(self, name: str, results: Results, value: Callable[..., Floats]) -> Series:
        points = [point for point in self.points() if point.label in results]
        x = tuple(p.label if self.labels else float(p.params[self.param]) for p in points)
        runs = [value(results, point.label, name) for point in points]
        mean, low, high = (
            tuple(float(reduce(values)) for values in runs) for reduce in (np.mean, np.min, np.max)
        )
        return Series(name, x, mean, low, high)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSeries:
    """Figure 10: completion times over a stream whose instances change their speed half-way."""

    id: str = "10"
    title: str = "Completion times while the instances' speeds change"
    runs: int = 1
    quick_runs: int = 1
    rows: int = SERIES_ROWS

    def points(self) -> list[Point]:
        """Return the only point."""
        return [Point("stream", {"rows": self.rows})]

    def quick_points(self) -> list[Point]:
        """Return the only point."""
        return self.points()

    def compute(self, point: Point, runs: range, seed: int) -> dict[str, list[float]]:
        """Place the rows; return mean, least and greatest of every 2,000 rows."""
        found: dict[str, list[float]] = {}
        chosen = setting(point.params)
        speeds = (
            Speeds(first_row=0, factors=BEFORE),
            Speeds(first_row=CHANGE_ROW, factors=AFTER),
        )
        for number in (seed + run for run in runs):
            stream = chosen.stream(number)
            for name, placement in chosen.placements(number).items():
                run = simulate(stream, placement, speeds=speeds)
                for key, values in _windows(run, chosen.instances).items():
                    found.setdefault(f"{name}/{key}", []).extend(values)
        return found

    def draw(self, results: Results) -> Figure:
        """Draw one line per policy with the range of its rows."""
        series = tuple(_time_line(name, results["stream"]) for name in NAMES)
        panel = Panel("completion time (ms)", series, x_label="rows read", y_log=True)
        return Figure(self.id, self.title, (panel,))

    def claims(self, results: Results) -> list[Claim]:
        """Compare when POSG starts, and how it gets over the change."""
        return claims_10(results["stream"])


def _windows(run: Run, instances: int) -> dict[str, list[float]]:
    windows = (run.completions_ns / 1e6).reshape(-1, WINDOW_ROWS)
    learnt_by_change = run.learnt[CHANGE_ROW] if run.learnt.size > CHANGE_ROW else 0
    relearnt = np.searchsorted(run.learnt, learnt_by_change + instances)
    return {
        "mean_ms": windows.mean(axis=1).tolist(),
        "min_ms": windows.min(axis=1).tolist(),
        "max_ms": windows.max(axis=1).tolist(),
        "first_run": [float(run.first_row_in(SchedulerState.RUN))],
        "relearnt": [float(relearnt)],
        "messages": [float(run.messages)],
    }


def _time_line(name: str, values: Mapping[str, Floats]) -> Series:
    mean, low, high = (
        tuple(float(value) for value in values[f"{name}/{key}_ms"])
        for key in ("mean", "min", "max")
    )
    x = tuple(float((index + 1) * WINDOW_ROWS) for index in range(len(mean)))
    return Series(name, x, mean, low, high)


_FIGURES = (
    Sweep(
        id="4",
        title="Completion time and the distribution of keys",
        x_label="distribution",
        param="zipf",
        values=(0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0),
        labels=("uniform", *(f"Zipf-{z:.1f}" for z in (0.5, 1.0, 1.5, 2.0, 2.5, 3.0))),
        quick=(0, 1, 2, 3, 5),
        as_speed_up=False,
        claim=claims_4,
    ),
    Sweep(
        id="5",
        title="Speed-up and over-provisioning",
        x_label="over-provisioning",
        param="provisioning",
        values=tuple(q / 100 for q in range(95, 116)),
        labels=tuple(f"{q} %" for q in range(95, 116)),
        quick=(0, 5, 7, 14, 20),
        as_speed_up=True,
        claim=claims_5,
    ),
    Sweep(
        id="6",
        title="Completion time and the greatest cost",
        x_label="w_max (ms)",
        param="cost_ms_max",
        values=(2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0),
        quick=(0, 5, 8),
        as_speed_up=False,
        claim=claims_6,
    ),
    Sweep(
        id="7",
        title="Completion time and the number of different costs",
        x_label="w_n",
        param="cost_values",
        values=(2, 4, 8, 16, 32, 64, 128, 256, 512, 1024),
        quick=(0, 3, 5),
        as_speed_up=False,
        claim=claims_7,
    ),
    Sweep(
        id="8",
        title="Speed-up and the number of instances",
        x_label="k",
        param="instances",
        values=tuple(range(1, 11)),
        quick=(0, 1, 2, 9),
        as_speed_up=True,
        claim=claims_8,
    ),
    Sweep(
        id="9",
        title="Speed-up and the precision of the sketch",
        x_label="ε",
        param="epsilon",
        values=(1.0, 0.7, 0.5, 0.3, 0.2, 0.1, 0.09, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001),
        quick=(0, 5, 7, 9),
        as_speed_up=True,
        claim=claims_9,
    ),
    TimeSeries(),
)

STUDY = Study(
    name="posg",
    title="Proactive Online Shuffle Grouping (Rivetti et al., 2015)",
    figures=_FIGURES,
    version=2,
)
