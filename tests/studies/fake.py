"""A tiny study for the tests: a curve, bars, a long line; claims of every verdict.

It notes what it computes in this process. With SPILLWAY_FAKE_BLOCKS set, no slice from run 50 on
ever ends.
"""

from __future__ import annotations

import math
import os
import threading
from dataclasses import dataclass

import numpy as np

from spillway.studies.study import Claim, Figure, Panel, Point, Results, Series, Study

COMPUTED: list[tuple[str, str, int, int]] = []
NASTY = "<script>alert('x')</script> & $5 | $6"


def band(results: Results, key: str, name: str, x: tuple[float | str, ...]) -> Series:
    values = [found[key] for found in results.values()]
    return Series(
        name,
        x,
        tuple(float(v.mean()) for v in values),
        tuple(float(v.min()) for v in values),
        tuple(float(v.max()) for v in values),
    )


@dataclass(frozen=True)
class Curve:
    """Means of draws, one run each from its own generator."""

    id: str = "curve"
    title: str = "Error over k"
    runs: int = 60
    quick_runs: int = 20

    def points(self) -> list[Point]:
        return [Point(f"k = {k}", {"k": k}) for k in (1, 2, 4)]

    def quick_points(self) -> list[Point]:
        return self.points()[:2]

    def compute(self, point: Point, runs: range, seed: int) -> dict[str, list[float]]:
        COMPUTED.append((self.id, point.label, runs.start, runs.stop))
        if runs.start >= 50 and "SPILLWAY_FAKE_BLOCKS" in os.environ:
            threading.Event().wait()
        k = float(point.params["k"])
        drawn = [np.random.default_rng((seed, run)).random() for run in runs]
        return {"error": [value / k for value in drawn], "odd": [math.nan] * len(runs)}

    def draw(self, results: Results) -> Figure:
        x = tuple(float(label.removeprefix("k = ")) for label in results)
        series = (band(results, "error", "ours", x), Series("paper", x, tuple(0.4 / k for k in x)))
        panels = (
            Panel("mean error", series, x_label="k", lines=(("goal", 0.2),)),
            Panel("mean error, logarithmic", series, x_label="k", y_log=True),
        )
        return Figure(self.id, self.title, panels)

    def claims(self, results: Results) -> list[Claim]:
        return [
            Claim(self.id, "falls with k", "yes", "yes", "holds"),
            Claim(self.id, "mean at k = 1", "0.6", "0.5", "holds better", "uniform draws"),
        ]


@dataclass(frozen=True)
class Bars:
    """Labels on the x axis, texts that must be escaped, a claim that does not hold."""

    id: str = "bars"
    title: str = NASTY
    runs: int = 3
    quick_runs: int = 2

    def points(self) -> list[Point]:
        return [Point("uniform"), Point("zipf", {"z": 1.0})]

    quick_points = points

    def compute(self, point: Point, runs: range, seed: int) -> dict[str, list[float]]:
        COMPUTED.append((self.id, point.label, runs.start, runs.stop))
        return {"rows": [10.0 * (run + 1) for run in runs]}

    def draw(self, results: Results) -> Figure:
        x = tuple(results)
        series = tuple(band(results, "rows", name, x) for name in ("a", NASTY, "_c"))
        return Figure(self.id, self.title, (Panel(NASTY, series, NASTY, lines=((NASTY, 15.0),)),))

    def claims(self, results: Results) -> list[Claim]:
        return [Claim(self.id, NASTY, NASTY, NASTY, "does not hold", NASTY)]


@dataclass(frozen=True)
class Line:
    """One run that is a whole time series."""

    id: str = "line"
    title: str = "A long line"
    runs: int = 1
    quick_runs: int = 1

    def points(self) -> list[Point]:
        return [Point("all")]

    quick_points = points

    def compute(self, point: Point, runs: range, seed: int) -> dict[str, list[float]]:
        COMPUTED.append((self.id, point.label, runs.start, runs.stop))
        return {"walk": np.random.default_rng(seed).normal(size=4000).cumsum().tolist()}

    def draw(self, results: Results) -> Figure:
        walk = results["all"]["walk"]
        x = tuple(map(float, range(len(walk))))
        series = Series("walk", x, tuple(walk), tuple(walk - 1), tuple(walk + 1))
        return Figure(self.id, self.title, (Panel("place", (series,), "step"),))

    def claims(self, results: Results) -> list[Claim]:
        return []


STUDY = Study("fake", "A fake study", (Curve(), Bars(), Line()), 1)
