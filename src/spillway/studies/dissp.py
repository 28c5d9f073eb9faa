"""DISSP on virtual time: how far the SIC of many queries lie apart, fair against random and none.

The chapter describes the shedder and measures nothing; what it states of fairness is judged here
over the overload, the number of queries, unequal rates, unequal costs, weights and moving bursts.
Every run draws its own rates, costs, batches and delays, all from the run's number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spillway.estimate.sic import Spread
from spillway.overload.detector import RowDetector, WorkDetector
from spillway.shedders.fair import EqualWork, Fair, Last, Random
from spillway.sim.many_queries import Query, Source
from spillway.sim.shared_buffer import Node, simulate
from spillway.sim.shared_run import Run
from spillway.studies.dissp_claims import (
    BURSTS,
    DEFAULT,
    EQUAL,
    NONE,
    PAPER,
    RANDOM,
    burst_claims,
    cost_claims,
    overload_claims,
    query_claims,
    rate_claims,
    weight_claims,
)
from spillway.studies.study import Claim, Figure, Panel, Param, Point, Results, Series, Study

Floats = NDArray[np.float64]

NAMES = (NONE, RANDOM, EQUAL, PAPER, DEFAULT)
SLOWEST = 20.0  # rows a second
SECONDS, WINDOW_S = 60.0, 10.0
BURSTS_SECONDS = 120.0
CALM = 0.8  # load while nothing bursts
BURST_S, CYCLE_S = 5.0, 10.0  # a burst, and until the next one begins
_MEASURED_FROM_S = 2 * WINDOW_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Queries on one node: offered work over capacity, how many, and how unequal they are.

    Rates and costs go up in equal ratios from the least to so many times it, each dealt out to the
    queries at random. Half of the queries weigh `weights` times as much as the others.
    """

    factor: float = 2.0
    queries: int = 20
    rates: float = 100.0
    costs: float = 50.0
    weights: float = 1.0

    def draw(self, number: int) -> list[Query]:
        """Draw the queries of a run."""
        rates, costs_s = self.demand(number)
        scaled_s = costs_s * self.factor / float(rates @ costs_s)
        return [
            Query(
                sources=(Source(steps=((0.0, float(rate)),)),),
                cost_s=float(cost_s),
                weight=self.weights if index % 2 else 1.0,
            )
            for index, (rate, cost_s) in enumerate(zip(rates, scaled_s, strict=True))
        ]

    def demand(self, number: int) -> tuple[Floats, Floats]:
        """Draw the rates, and the costs relative to each other."""
        rng = np.random.default_rng((7, number))
        rates = SLOWEST * np.geomspace(1.0, self.rates, self.queries)
        costs = np.geomspace(1.0, self.costs, self.queries)
        return rng.permutation(rates), rng.permutation(costs)

    def bursting(self, number: int) -> list[Query]:
        """Draw queries that need `CALM` of the node; one after the other adds work up to factor."""
        rates, costs_s = self.demand(number)
        costs_s = costs_s * CALM / float(rates @ costs_s)
        return [
            Query(sources=(Source(steps=self._steps(index, rate, cost_s)),), cost_s=float(cost_s))
            for index, (rate, cost_s) in enumerate(zip(rates, costs_s, strict=True))
        ]

    def _steps(self, index: int, rate: float, cost_s: float) -> tuple[tuple[float, float], ...]:
        burst = rate + (self.factor - CALM) / cost_s
        begins = np.arange(index * CYCLE_S, BURSTS_SECONDS, self.queries * CYCLE_S)
        steps = [(0.0, float(rate))]
        for begin in begins:
            steps += [(float(begin), float(burst)), (float(begin + BURST_S), float(rate))]
        return tuple(steps)


def nodes(number: int) -> dict[str, Node]:
    """Return the rivals: who chooses, and by what measure."""
    rows, work = RowDetector(), WorkDetector()
    return {
        NONE: Node(chooser=None),
        RANDOM: Node(chooser=Random(seed=number), detector=work),
        EQUAL: Node(chooser=EqualWork(), detector=work),
        PAPER: Node(chooser=Fair(last=Last.OVER), detector=rows),
        DEFAULT: Node(chooser=Fair(), detector=work),
    }


def setting(params: Mapping[str, Param]) -> Setting:
    """Read a point's parameters; what it does not say is the default."""
    return Setting(**dict(params))  # type: ignore[arg-type]


def levels(run: Run) -> tuple[Floats, Floats]:
    """Return times, and SIC over weight of every query, from the second window on.

    The last second is left out: some of its rows still wait when the run ends.
    """
    times, sic = run.sic()
    weights = np.array([query.weight for query in run.queries])
    measured = (times >= _MEASURED_FROM_S) & (times <= run.seconds - 1.0)
    return times[measured], sic[measured] / weights


def measures(run: Run) -> dict[str, float]:
    """Return what is compared: spread over time, latency, useful work, rows shed."""
    _, found = levels(run)
    spreads = [Spread.of(row) for row in found]
    return {
        "deviation": float(np.mean([spread.deviation for spread in spreads])),
        "jain": float(np.mean([spread.jain for spread in spreads])),
        "minimum": min(spread.minimum for spread in spreads),
        "mean": float(found.mean()),
        "latency_s": run.latency_s(0.99),
        "useful_s": run.useful_s(),
        "shed": run.totals["shed"] / float(run.came.rows.sum()),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """A figure over one parameter: deviation, Jain's index and the least SIC."""

    id: str
    title: str
    x_label: str
    param: str
    values: tuple[float | int, ...]
    quick: tuple[int, ...]  # which of the values a quick look takes
    claim: Callable[[Results], list[Claim]]
    names: tuple[str, ...] = NAMES
    fixed: tuple[tuple[str, float], ...] = ()
    runs: int = 25
    quick_runs: int = 2

    def points(self) -> list[Point]:
        """Return a point for every value."""
        return [
            Point(f"{value:g}", {**dict(self.fixed), self.param: value}) for value in self.values
        ]

    def quick_points(self) -> list[Point]:
        """Return the points that a quick look takes."""
        points = self.points()
        return [points[index] for index in self.quick]

    def compute(self, point: Point, runs: range, seed: int) -> dict[str, list[float]]:
        """Run every rival on the same batches."""
        found: dict[str, list[float]] = {}
        for number in (seed * 1_000_000 + run for run in runs):
            queries, rivals = setting(point.params).draw(number), nodes(number)
            for name in self.names:
                run = simulate(queries, rivals[name], seconds=SECONDS, seed=number)
                for key, value in measures(run).items():
                    found.setdefault(f"{name}/{key}", []).append(value)
        return found

    def draw(self, results: Results) -> Figure:
        """Draw mean, least and largest over the runs."""
        what = "SIC / weight" if self.param == "weights" else "SIC"
        panels = tuple(
            Panel(
                label,
                tuple(self._series(name, key, results) for name in self.names),
                x_label=self.x_label,
            )
            for key, label in (
                ("deviation", f"standard deviation of {what}, mean over time"),
                ("jain", f"Jain's index of {what}, mean over time"),
                ("minimum", f"least {what} of any query at any time"),
            )
        )
        return Figure(self.id, self.title, panels)

    def claims(self, results: Results) -> list[Claim]:
        """Compare with what the chapter says."""
        return self.claim(results)

    def _series(self, name: str, key: str, results: Results) -> Series:
        points = [point for point in self.points() if point.label in results]
        x = tuple(float(point.params[self.param]) for point in points)
        runs = [results[point.label][f"{name}/{key}"] for point in points]
        mean, low, high = (
            tuple(float(reduce(values)) for values in runs) for reduce in (np.mean, np.min, np.max)
        )
        return Series(name, x, mean, low, high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bursts:
    """SIC over time while a burst moves from query to query."""

    id: str = "bursts"
    title: str = "A burst moves from query to query: least, mean and greatest SIC"
    runs: int = 1
    quick_runs: int = 1
    factor: float = 2.0
    queries: int = 8

    def points(self) -> list[Point]:
        """Return the only point."""
        return [Point(BURSTS, {"factor": self.factor, "queries": self.queries})]

    def quick_points(self) -> list[Point]:
        """Return the only point."""
        return self.points()

    def compute(self, point: Point, runs: range, seed: int) -> dict[str, list[float]]:
        """Run every rival on the same batches; return least, mean and greatest SIC by time."""
        found: dict[str, list[float]] = {}
        for number in (seed * 1_000_000 + run for run in runs):
            queries, rivals = setting(point.params).bursting(number), nodes(number)
            for name in NAMES:
                run = simulate(queries, rivals[name], seconds=BURSTS_SECONDS, seed=number)
                for key, values in _over_time(run).items():
                    found.setdefault(f"{name}/{key}", []).extend(values)
        return found

    def draw(self, results: Results) -> Figure:
        """Draw one line per rival with the range of its queries."""
        panels = tuple(
            Panel(
                f"SIC, {name}: mean, and from the least to the greatest query",
                (time_line(name, results[BURSTS], f"{name}/"),),
                x_label="time (s)",
            )
            for name in (RANDOM, DEFAULT)
        )
        return Figure(self.id, self.title, panels)

    def claims(self, results: Results) -> list[Claim]:
        """Compare with what the chapter says."""
        return burst_claims(results)


def _over_time(run: Run) -> dict[str, list[float]]:
    times, found = levels(run)
    return {
        "time_s": times.tolist(),
        "least": found.min(axis=1).tolist(),
        "average": found.mean(axis=1).tolist(),
        "greatest": found.max(axis=1).tolist(),
        **{key: [value] for key, value in measures(run).items()},
    }


def time_line(name: str, found: Mapping[str, Floats], prefix: str = "") -> Series:
    """Return the line of a rival over time, with the range of its queries."""
    x, mean, low, high = (
        tuple(float(value) for value in found[f"{prefix}{key}"])
        for key in ("time_s", "average", "least", "greatest")
    )
    return Series(name, x, mean, low, high)


STUDY = Study(
    name="dissp",
    title="Quality-Aware Load-Shedding (DISSP, thesis chapter 5)",
    figures=(
        Sweep(
            id="overload",
            title="Spread of SIC and the overload: 20 queries, rates 1:100, costs 1:50",
            x_label="work offered over capacity",
            param="factor",
            values=(0.8, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0),
            quick=(0, 3, 6),
            claim=overload_claims,
        ),
        Sweep(
            id="queries",
            title="Spread of SIC and the number of queries: twice the capacity",
            x_label="queries",
            param="queries",
            values=(2, 5, 10, 20, 50, 100),
            quick=(0, 3, 5),
            claim=query_claims,
        ),
        Sweep(
            id="rates",
            title="Spread of SIC and unequal rates: twice the capacity, equal costs",
            x_label="greatest rate over least",
            param="rates",
            values=(1.0, 3.0, 10.0, 30.0, 100.0),
            fixed=(("costs", 1.0),),
            quick=(0, 4),
            claim=rate_claims,
        ),
        Sweep(
            id="costs",
            title="Spread of SIC and unequal costs: twice the capacity, equal rates",
            x_label="greatest cost over least",
            param="costs",
            values=(1.0, 3.0, 10.0, 50.0),
            fixed=(("rates", 1.0),),
            quick=(0, 3),
            claim=cost_claims,
        ),
        Sweep(
            id="weights",
            title="Beyond the paper: SIC in proportion to weights, at three times the capacity",
            x_label="weight of every other query",
            param="weights",
            values=(1.0, 1.5, 2.0, 3.0),
            fixed=(("factor", 3.0),),
            quick=(0, 3),
            names=(PAPER, DEFAULT),
            claim=weight_claims,
        ),
        Bursts(),
    ),
)
