"""LAS's figure 9: seven phases of 20,000 rows, each an abrupt change of rate, keys or costs.

A: as much as the operator can do. B: twice that. C: as A. D: the most frequent key and one of the
largest cost change places (until F). E: two thirds of what it can do. F: as A, and every row costs
twice as much. G: as A. The threshold is 64 ms; every dot is the mean over 4,000 rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spillway.cost.sketch import SketchShape
from spillway.shedders.admission import Admission, Condition
from spillway.sim.one_operator import Policy, Shedding, simulate
from spillway.sim.workloads import MS, Recipe, Stream
from spillway.studies.las_judge import DEFAULT, FULL, PAPER, STRAW
from spillway.studies.las_series_claims import series_claims
from spillway.studies.study import Claim, Figure, Panel, Point, Results, Series

LATEST = "LAS default, latest 1,024 rows"
PHASES = "ABCDEFG"
PHASE_ROWS, WINDOW_ROWS = 20_000, 4_000
LIMIT_NS = 64 * MS
_SHARES = {"B": 0.5, "E": -0.5}


def phases(association: int, order: int, *, rows: int = PHASE_ROWS) -> Stream:
    """Make the stream of all phases, of so many rows each."""
    recipe = Recipe(rows=rows * len(PHASES))
    keys, cost_by_key = recipe.draw_keys(order), recipe.cost_by_key(association)
    mean = float(cost_by_key[keys].mean())
    rare = int(np.flatnonzero(cost_by_key == cost_by_key.max())[-1])
    costs, gaps = np.empty_like(keys), np.empty(keys.size)
    for index, phase in enumerate(PHASES):
        part = slice(index * rows, (index + 1) * rows)
        if phase in "DEF":
            keys[part] = _swapped(keys[part], rare)
        costs[part] = cost_by_key[keys[part]] * (2 if phase == "F" else 1)
        gaps[part] = mean * (1.0 - _SHARES.get(phase, 0.0))
    arrivals = np.concatenate([[0.0], np.cumsum(gaps)[:-1]]).astype(np.int64)
    return Stream(keys=keys, costs_ns=costs, arrivals_ns=arrivals)


def _swapped(keys: np.ndarray, rare: int) -> np.ndarray:
    return np.where(keys == 0, rare, np.where(keys == rare, 0, keys))


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSeries:
    """The figure: latency and dropped share, window by window."""

    id: str = "9"
    title: str = "A stream of seven phases, τ = 64 ms"
    runs: int = 1
    quick_runs: int = 1

    def points(self) -> Sequence[Point]:
        """One stream."""
        return [Point("phases", {"rows": PHASE_ROWS * len(PHASES)})]

    quick_points = points

    def compute(self, point: Point, runs: range, seed: int) -> dict[str, list[float]]:
        """Run the four on the same stream."""
        stream = phases(seed + 7, seed + 7)
        found: dict[str, list[float]] = {}
        mean_ns = float(stream.costs_ns[:PHASE_ROWS].mean())
        for name, shedding in _sheddings(seed, mean_ns).items():
            waited = simulate(stream, shedding, seed=seed).latencies_ns.reshape(-1, WINDOW_ROWS)
            kept = waited >= 0
            sums = np.where(kept, waited, 0).sum(axis=1) / MS
            found[f"{name}/latency_ms"] = (sums / np.maximum(kept.sum(axis=1), 1)).tolist()
            found[f"{name}/dropped"] = (1.0 - kept.mean(axis=1)).tolist()
        return found

    def draw(self, results: Results) -> Figure:
        """Draw both over the rows."""
        found = results["phases"]
        rows = tuple(
            float(x) for x in np.arange(1, len(found[f"{FULL}/dropped"]) + 1) * WINDOW_ROWS
        )
        names = (STRAW, PAPER, DEFAULT, LATEST, FULL)

        def line(name: str, key: str) -> Series:
            return Series(name, rows, tuple(found[f"{name}/{key}"].tolist()))

        above = tuple(line(name, "latency_ms") for name in names)
        below = tuple(line(name, "dropped") for name in names)
        ends = "rows (phases A to G change every 20,000)"
        return Figure(
            self.id,
            self.title,
            (
                Panel("mean queueing latency (ms)", above, ends, True, (("τ = 64 ms", 64.0),)),
                Panel("share of rows dropped, α", below, ends),
            ),
        )

    def claims(self, results: Results) -> list[Claim]:
        """Check what the paper says about the phases."""
        return series_claims(results["phases"])


def _sheddings(seed: int, mean_ns: float) -> dict[str, Shedding]:
    exact = Admission(limit_ns=LIMIT_NS, margin=1.0)
    shape = SketchShape(seed=seed)
    return {
        STRAW: Shedding(policy=Policy.STRAW_MAN, las=exact, mean_ns=mean_ns),
        PAPER: Shedding.paper(limit_ns=LIMIT_NS, shape=shape),
        DEFAULT: Shedding(las=Admission(limit_ns=LIMIT_NS), shape=shape),
        LATEST: Shedding(las=Admission(limit_ns=LIMIT_NS, condition=Condition.WINDOW), shape=shape),
        FULL: Shedding(policy=Policy.FULL_KNOWLEDGE, las=exact),
    }


TIME_SERIES = TimeSeries()
