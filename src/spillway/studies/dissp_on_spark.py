"""DISSP on Spark: how far the SIC of concurrent queries lie apart, fair against random and none.

Queries share two cores. Rates differ 1:100 and costs 1:50; a Python operator works as long as a row
says. Batches begin every 4 s, the objective is 10 s on average for each, and the source time window
is 30 s long: some seven batches. So much work comes that, at what Spark itself takes for so many
queries, about half can be done; how much it was is measured. Every run has a lead that is not
measured, and the first is preceded by one that only warms Spark up.

What is done in a minute swings from run to run, and Java compiles for minutes. So eight queries run
fair and random in pairs, each order twice (fair, random, random, fair, and again), after the runs
that are compared with neither.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spillway.estimate.sic import Spread
from spillway.studies import dissp_queries
from spillway.studies.dissp import time_line
from spillway.studies.dissp_claims import NONE, RANDOM
from spillway.studies.dissp_on_spark_claims import (
    ALONE,
    FAIR,
    by_run,
    claims,
    counts,
    label,
    latencies,
    parts,
    ratios,
    runs,
)
from spillway.studies.dissp_queries import OBJECTIVE_S, WINDOW_S, Batches, Load, Split
from spillway.studies.study import Claim, Figure, Panel, Point, Results, Series, Study

Floats = NDArray[np.float64]

SPLITS: dict[str, Split] = {FAIR: "fair", RANDOM: "random", ALONE: "alone", NONE: "none"}
WORK_PER_S = {2: 2.8, 8: 2.4, 12: 1.8}  # by the number of queries: about twice the capacity
SHOWN = 8  # queries that are run in pairs and drawn over time
PAIRS = 4  # of which every other begins with random


def numbers(found: Sequence[Batches], load: Load, seconds: float) -> dict[str, list[float]]:
    """Return spread over time, and what each query kept, waited and did, from a lead on."""
    times = np.arange(WINDOW_S, seconds + 1e-9, 1.0)
    sic = np.array([[each.sic(t - WINDOW_S, t) for each in found] for t in times])
    spreads = [Spread.of(row) for row in sic]
    done, in_time = (
        np.array([each.rows_done(seconds, within_s=within_s) for each in found])
        for within_s in (np.inf, OBJECTIVE_S)
    )
    return {
        "time_s": times.tolist(),
        "least": sic.min(axis=1).tolist(),
        "average": sic.mean(axis=1).tolist(),
        "greatest": sic.max(axis=1).tolist(),
        "deviation": [spread.deviation for spread in spreads],
        "jain": [spread.jain for spread in spreads],
        "sic": [each.sic(0.0, seconds) for each in found],
        "latency_s": [each.mean_latency_s() for each in found],
        "useful_s": [float(done @ load.costs_us) / 1e6],
        "in_time_s": [float(in_time @ load.costs_us) / 1e6],
        "needed_s": [float(load.rates @ load.costs_us) / 1e6 * seconds],
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class OnSpark:
    """A figure: each way to shed, with few and with many queries."""

    id: str = "spread"
    title: str = "Spread of SIC on Spark: rates 1:100, costs 1:50"
    runs: int = 1
    quick_runs: int = 1

    def points(self) -> Sequence[Point]:
        """Return the pairs of fair and random, with others before and fewer or more queries after.

        They are run in this order. Those before the pairs warm Spark up as well.
        """
        return [
            _point(ALONE, SHOWN, lead_s=30.0, seconds=45.0),
            _point(NONE, SHOWN, lead_s=0.0, seconds=45.0),
            *_pairs(PAIRS, lead_s=30.0, seconds=45.0),
            *(_point(name, 2, lead_s=20.0, seconds=40.0) for name in (FAIR, RANDOM)),
            *(_point(name, 12, lead_s=30.0, seconds=45.0) for name in (FAIR, RANDOM)),
        ]

    def quick_points(self) -> Sequence[Point]:
        """Return one pair, shorter."""
        return _pairs(1, lead_s=30.0, seconds=40.0)

    def compute(self, point: Point, runs: range, seed: int) -> dict[str, list[float]]:
        """Run the queries of a point at once."""
        name, queries, _ = parts(point.label)
        load = Load.draw(queries, float(point.params["work_per_s"]), seed)
        lead_s, seconds = (float(point.params[key]) for key in ("lead_s", "seconds"))
        found = dissp_queries.play(load, SPLITS[name], lead_s=lead_s, seconds=seconds)
        return numbers(found, load, seconds)

    def draw(self, results: Results) -> Figure:
        """Draw spread by the number of queries, SIC over time, latency, and pair by pair."""
        by_number = tuple(
            Panel(
                f"{words}, mean over time: median of the runs, and from the least to the greatest",
                tuple(_by_number(name, key, results) for name in (RANDOM, FAIR)),
                x_label="queries",
            )
            for key, words in (
                ("deviation", "standard deviation of SIC"),
                ("jain", "Jain's index of SIC"),
            )
        )
        over_time = tuple(
            Panel(
                f"SIC, {name}, {SHOWN} queries, run 1: mean, and from the least to the greatest",
                (time_line(name, results[label(name, SHOWN)]),),
                x_label="time (s)",
                lines=(("all rows", 1.0), ("none", 0.0)),
            )
            for name in (RANDOM, FAIR)
        )
        latency = Panel(
            "mean latency of each query (s): mean of the runs, and from the least to the greatest",
            tuple(_latencies(name, results) for name in (RANDOM, FAIR)),
            x_label=f"query, by its rate, of {SHOWN}",
            lines=(("objective", OBJECTIVE_S),),
        )
        return Figure(self.id, self.title, (*by_number, *over_time, latency, _work(results)))

    def claims(self, results: Results) -> list[Claim]:
        """Check what must hold."""
        return claims(results)


def _pairs(pairs: int, *, lead_s: float, seconds: float) -> list[Point]:
    """Return fair and random, then random and fair, and so on: what drifts favours neither."""
    return [
        _point(name, SHOWN, number=number, lead_s=lead_s, seconds=seconds)
        for number in range(1, pairs + 1)
        for name in ((FAIR, RANDOM) if number % 2 else (RANDOM, FAIR))
    ]


def _point(name: str, queries: int, *, number: int = 1, lead_s: float, seconds: float) -> Point:
    params = {"work_per_s": WORK_PER_S[queries], "lead_s": lead_s, "seconds": seconds}
    return Point(label(name, queries, number), params)


def _by_number(name: str, key: str, results: Results) -> Series:
    x = counts(results)
    return _line(name, x, [by_run(results, name, queries, key) for queries in x], np.median)


def _latencies(name: str, results: Results) -> Series:
    found = latencies(results, name, SHOWN).T
    return _line(name, range(1, len(found) + 1), found, np.mean)


def _work(results: Results) -> Panel:
    """Show every pair: what order it had is in its name."""
    _, pairs = ratios(results, SHOWN, "useful_s")
    names = [
        f"{number}: {'fair' if number % 2 else 'random'} first"
        for number in runs(results, FAIR, SHOWN)
    ]
    return Panel(
        f"useful work of the fair share over random's, {SHOWN} queries",
        (Series(FAIR, tuple(names), tuple(map(float, pairs))),),
        x_label="pair",
        lines=(("as much", 1.0),),
    )


def _line(
    name: str,
    x: Sequence[int],
    values: Sequence[Floats] | Floats,
    middle: Callable[[Floats], np.float64],
) -> Series:
    """Draw the middle of the runs with the range of all."""
    mean, low, high = (
        tuple(float(reduce(each)) for each in values) for reduce in (middle, np.min, np.max)
    )
    return Series(name, tuple(map(float, x)), mean, low, high)


STUDY = Study(
    name="dissp-on-spark",
    title="Quality-Aware Load-Shedding (DISSP, thesis chapter 5), on Spark",
    figures=(OnSpark(),),
)
