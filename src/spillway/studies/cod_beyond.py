"""Beyond CoD's paper: a concept that changes completely, and intervals that hold.

- drift: every fourth window all routes get another popularity and others come into use. What a
  window costs CoD depends on that window alone; fractions of the window before are for routes that
  are gone.
- coverage: how often the interval of a group holds the truth, of the groups of which a part is
  kept (a group that is kept whole is exact, and would only flatter).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spillway.estimate import groups as estimate
from spillway.shedders.group_sizes import sample_sizes
from spillway.studies.cod_data import Made
from spillway.studies.cod_judge import RUN, Found, by_run, percent
from spillway.studies.cod_rivals import BEFORE, SHIPPED, equal
from spillway.studies.cod_windows import Window
from spillway.studies.las_judge import claim
from spillway.studies.study import Claim, Figure, Panel, Point, Results, Series

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

CHANGE_WINDOWS = 4
_SIGMAS = 3.0
_WORSE = 1.5
LOW, HIGH = 0.93, 0.97
SIZES = {"2 rows": (2, 2), "3 to 5": (3, 5), "6 to 20": (6, 20), "more": (21, 10**9)}
STATISTICS = ("mean", "sum", "median")


def changed(found: Found, key: str) -> tuple[Floats, Floats]:
    """Return a number by run: of the windows after a change, and of all others."""
    place = np.arange(found[RUN].size) % CHANGE_WINDOWS
    parts = (
        {RUN: found[RUN][chosen], key: found[key][chosen]} for chosen in (place == 0, place > 0)
    )
    after, steady = (by_run(part, key) for part in parts)
    return after, steady


def change_claims(results: Results) -> list[Claim]:
    """Figure drift."""
    return [claim for label, found in results.items() for claim in _change(label, found)]


def _change(label: str, found: Found) -> list[Claim]:
    ours, steady = changed(found, f"{SHIPPED}/error")
    more = ours - steady
    noise = float(more.std(ddof=1) / np.sqrt(more.size)) if more.size > 1 else np.inf
    theirs, before = changed(found, f"{equal(BEFORE)}/error")
    ratio = float(theirs.mean() / before.mean())
    return [
        claim(
            "drift",
            f"{label}: beyond: right after a complete change {SHIPPED} errs no more than before, "
            f"within {_SIGMAS:.0f} standard errors",
            "not measured",
            f"{percent(float(ours.mean()))} after, {percent(float(steady.mean()))} in steady "
            f"state; difference {100 * more.mean():+.2g} ± {100 * noise:.1g} points",
            float(more.mean()) <= _SIGMAS * noise,
            better=True,
        ),
        claim(
            "drift",
            f"{label}: beyond: {BEFORE} errs at least {_WORSE:g} times more then, at equal rows",
            "destined to deteriorate",
            f"{percent(float(theirs.mean()))} after, {percent(float(before.mean()))} in steady "
            f"state: {ratio:.1f} times",
            ratio >= _WORSE,
            better=True,
        ),
    ]


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """How often intervals at 95 % hold the truth, by the size of the sample."""

    cases: Mapping[str, tuple[Made, float]]  # the windows, and the share that is shed
    quick: Mapping[str, tuple[Made, float]]
    id: str = "coverage"
    title: str = "Beyond the paper: how often intervals at 95 % hold the truth"
    runs: int = 20
    quick_runs: int = 2

    def points(self) -> Sequence[Point]:
        """Return a point for every case."""
        return [
            Point(label, {**source.params, "shed": shed})
            for label, (source, shed) in self.cases.items()
        ]

    def quick_points(self) -> Sequence[Point]:
        """Return the same with smaller windows."""
        return [
            Point(label, {**source.params, "shed": shed, "quick": 1})
            for label, (source, shed) in self.quick.items()
        ]

    def compute(self, point: Point, runs: range, seed: int) -> dict[str, list[float]]:
        """Count what is covered, window by window."""
        source, shed = (self.quick if "quick" in point.params else self.cases)[point.label]
        found: dict[str, list[float]] = {}
        for run in runs:
            random = np.random.default_rng((9, seed, run))
            for pair in source.pairs(run, seed):
                for key, value in covered(pair.window, shed, random).items():
                    found.setdefault(key, []).append(value)
                found.setdefault(RUN, []).append(float(run))
        return found

    def draw(self, results: Results) -> Figure:
        """Draw the coverage by size, a panel for each case."""
        lines = (("95 %", 0.95),)
        panels = (
            Panel(label, tuple(_line(name, found) for name in STATISTICS), "rows kept", lines=lines)
            for label, found in results.items()
        )
        return Figure(self.id, self.title, tuple(panels))

    def claims(self, results: Results) -> list[Claim]:
        """Check that coverage is what is stated."""
        return [
            _coverage(label, name, found)
            for label, found in results.items()
            for name in ("mean", "sum")
        ]


def covered(window: Window, shed: float, random: np.random.Generator) -> dict[str, float]:
    """Count groups, and those whose interval holds the truth, by statistic and sample size."""
    kept = sample_sizes(window.groups, (1.0 - shed) * window.total, allocation="cvopt")
    shuffled = window.shuffled(random)
    sample, part = shuffled.sample(kept), (kept >= 2) & (kept < window.rows)
    sums = window.groups.means * window.rows
    medians = estimate.quantiles(shuffled.sample(window.rows), 0.5).value
    truths = {"mean": window.groups.means, "sum": sums, "median": medians}
    intervals = {
        "mean": estimate.means(sample),
        "sum": estimate.sums(sample),
        "median": estimate.quantiles(sample, 0.5),
    }
    counted = {}
    for size, (low, high) in SIZES.items():
        among = part & (kept >= low) & (kept <= high)
        counted[f"{size}/groups"] = float(among.sum())
        for name, found in intervals.items():
            holds = (found.low <= truths[name]) & (truths[name] <= found.high)
            counted[f"{name}/{size}"] = float((holds & among).sum())
    return counted


def share(found: Found, name: str, sizes: Sequence[str] = tuple(SIZES)) -> float:
    """Return the covered share of the groups with samples of these sizes; NaN of none."""
    groups = sum(float(found[f"{size}/groups"].sum()) for size in sizes)
    hits = sum(float(found[f"{name}/{size}"].sum()) for size in sizes)
    return hits / groups if groups else float("nan")


def _line(name: str, found: Found) -> Series:
    there = [size for size in SIZES if found[f"{size}/groups"].sum() > 0]
    return Series(name, tuple(there), tuple(share(found, name, [size]) for size in there))


def _coverage(label: str, name: str, found: Found) -> Claim:
    groups = sum(int(found[f"{size}/groups"].sum()) for size in SIZES)
    rate = share(found, name)
    return claim(
        "coverage",
        f"{label}: beyond: intervals of the {name} at 95 % hold the truth in 93 to 97 % of the "
        "groups that are kept in part",
        "none given",
        f"{rate:.1%} of {groups:,} groups in windows",
        LOW <= rate <= HIGH,
        better=True,
        why="a few rows, skewed or in steps, tell too little of their group's spread"
        if rate < LOW
        else "intervals allow for the skewness of all groups together: too wide for most of them",
    )
