"""CoD's figures 2, 9 and 10, and what is beyond: windows are cut and sampled without an engine.

Grouped: mean fare by route of taxis (30 by 10 minutes), mean CPU request by scheduling class of
Google's tasks (60 by 30 minutes). Scalar: mean size of packets (45 by 15 seconds). Made rides stand
beside them with the paper's 100,000 rows a window; without a folder of real data they stand alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from spillway.shedders.group_sizes import sample_sizes
from spillway.studies import cod_beyond, cod_claims, cod_panels
from spillway.studies.cod_data import Made, Recorded, Source, present
from spillway.studies.cod_drift import Drift
from spillway.studies.cod_judge import (
    FEW,
    FINE,
    GOOGLE,
    MADE,
    PACKETS,
    RUN,
    SCALAR,
    TAXI,
)
from spillway.studies.cod_limits import limits
from spillway.studies.cod_rivals import measure
from spillway.studies.cod_windows import Window
from spillway.studies.study import Claim, Figure, FigureJob, Panel, Point, Results, Study

_QUICK_ROWS = 20_000
_MINUTE_S = 60.0
_RATES = (0.98, 0.9, 0.75, 0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Windows, the share of them that is shed, and how often every window is sampled."""

    source: Source
    shed: float
    repeats: int = 1

    @property
    def params(self) -> dict[str, float | int | str]:
        """All that the numbers depend on."""
        return {**self.source.params, "shed": self.shed, "repeats": self.repeats}


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """A figure for which everybody samples the same windows."""

    id: str
    title: str
    cases: Mapping[str, Case]
    quick: Mapping[str, Case]
    panels: Callable[[Results], Sequence[Panel]]
    judge: Callable[[Results], list[Claim]]
    runs: int = 20
    quick_runs: int = 2

    def points(self) -> Sequence[Point]:
        """Return a point for every case."""
        return [Point(label, case.params) for label, case in self.cases.items()]

    def quick_points(self) -> Sequence[Point]:
        """Return few of them, with smaller windows."""
        return [Point(label, {**case.params, "quick": 1}) for label, case in self.quick.items()]

    def compute(self, point: Point, runs: range, seed: int) -> dict[str, list[float]]:
        """Sample the windows of these runs; every window gives one number for each key."""
        case = (self.quick if "quick" in point.params else self.cases)[point.label]
        found: dict[str, list[float]] = {}
        for run in runs:
            random = np.random.default_rng((5, seed, run))
            for pair in case.source.pairs(run, seed):
                bounds = self._limits(pair.window, case.shed)
                for _ in range(case.repeats):
                    for key, value in bounds.items():
                        found.setdefault(key, []).append(value)
                    for name, judged in measure(pair, case.shed, random).items():
                        for key, value in judged._asdict().items():
                            found.setdefault(f"{name}/{key}", []).append(value)
                    found.setdefault(RUN, []).append(float(run))
        return found

    def _limits(self, window: Window, shed: float) -> dict[str, float]:
        """Return what no allocation of as many rows as CoD keeps could do better."""
        kept = sample_sizes(window.groups, (1.0 - shed) * window.total, allocation="cvopt")
        return limits(window, float(kept.sum()))

    def draw(self, results: Results) -> Figure:
        """Draw the panels."""
        return Figure(self.id, self.title, tuple(self.panels(results)))

    def claims(self, results: Results) -> list[Claim]:
        """Check what must hold."""
        return self.judge(results)


def _made(rows: int, windows: int) -> dict[str, Case]:
    """Cases of made rides at the paper's rates."""
    made = Made(rows=rows, windows=windows)
    return {
        SCALAR: Case(source=replace(made, scalar=True), shed=0.99, repeats=5),
        MADE: Case(source=made, shed=0.98),
        FEW: Case(source=replace(made, routes=200), shed=0.98),
    }


def _recorded(folder: str, kinds: set[str]) -> dict[str, Case]:
    """Cases of the real data that is there, with the paper's windows and rates."""
    taxi = Recorded(folder=folder, kind="taxi", size_s=1800.0, slide_s=600.0, stride=20)
    google = Recorded(folder=folder, kind="google", size_s=3600.0, slide_s=1800.0)
    packets = Recorded(folder=folder, kind="packets", size_s=45.0, slide_s=15.0)
    cases = {}
    if "packets" in kinds:
        cases[PACKETS] = Case(source=packets, shed=0.99, repeats=5)
    if "google" in kinds:
        cases[GOOGLE] = Case(source=google, shed=0.98, repeats=20)
        cases[FINE] = Case(source=replace(google, kind="google fine"), shed=0.98, repeats=20)
    if "taxi" in kinds:
        cases[TAXI] = Case(source=taxi, shed=0.98)
    return cases


def _drift(folder: str, kinds: set[str]) -> Drift:
    short, long = (_as_taxi(size, slide) for size, slide in ((15, 5), (30, 10)))
    made: dict[str, Source] = {
        "few made rides, 15 by 5 min": replace(short, windows=300),
        "few made rides, 30 by 10 min": replace(long, windows=150),
        "made rides, 30 by 10 min": Made(windows=6),
    }
    real: dict[str, Recorded] = {}
    if "taxi" in kinds:
        taxi = Recorded(folder=folder, kind="taxi", size_s=900.0, slide_s=300.0, stride=4)
        real["taxi, 15 by 5 min"] = taxi
        real["taxi, 30 by 10 min"] = replace(taxi, size_s=1800.0, slide_s=600.0)
    if "google" in kinds:
        google = Recorded(folder=folder, kind="google", size_s=3600.0, slide_s=1800.0)
        real["Google, 60 by 30 min"] = google
    few = {label: replace(source, stride=40) for label, source in real.items()}
    quick: dict[str, Source] = {**few, "few made rides, 15 by 5 min": short}
    if "google" in kinds:
        quick["Google, 60 by 30 min"] = google
    return Drift(sources={**made, **real}, quick=quick)


def _as_taxi(size_min: int, slide_min: int) -> Made:
    """Made rides with as many rows a window as March 2020 has on average."""
    return Made(rows=5 * size_min, size_min=size_min, slide_min=slide_min, windows=40)


def _figures(folder: str, kinds: set[str]) -> tuple[FigureJob, ...]:
    made, real = _made(100_000, 3), _recorded(folder, kinds)
    few = _made(_QUICK_ROWS, 2) | {FEW: _made(100_000, 1)[FEW]}  # its budget is above the minima
    seldom = real | {name: _every(real[name], 400) for name in (TAXI,) if name in real}
    third = {name: _every(real[name], 60) for name in (TAXI,) if name in real}
    tenth = {name: seldom[name] for name in (TAXI,) if name in real}
    return (
        _drift(folder, kinds),
        Accuracy(
            id="9",
            title="Relative error at the paper's shed rates",
            cases={**made, **real},
            quick={**few, **seldom},
            panels=cod_panels.accuracy,
            judge=cod_claims.accuracy_claims,
        ),
        Accuracy(
            id="10",
            title="Error against volume: 98, 90, 75 and 50 % shed",
            cases=_at_rates({MADE: made[MADE]} | third),
            quick=_at_rates({MADE: few[MADE]} | tenth),
            panels=cod_panels.volume,
            judge=cod_claims.volume_claims,
        ),
        Accuracy(
            id="allocations",
            title="Beyond the paper: who gets the rows",
            cases=_unlike(made, real),
            quick=_unlike(few, real),
            panels=cod_panels.allocation,
            judge=cod_claims.allocation_claims,
        ),
        Accuracy(
            id="drift",
            title="Beyond the paper: all routes change every fourth window",
            cases={"made rides": _changing(100_000)},
            quick={"made rides": _changing(_QUICK_ROWS)},
            panels=cod_panels.change,
            judge=cod_beyond.change_claims,
            runs=15,
        ),
        cod_beyond.Coverage(
            cases=_coverage(3),
            quick=_coverage(1),
        ),
    )


def _unlike(made: Mapping[str, Case], real: Mapping[str, Case]) -> dict[str, Case]:
    """Cases in which more may be kept than two rows of every group."""
    rates = {f"{MADE}, {rate:.0%} shed": replace(made[MADE], shed=rate) for rate in (0.75, 0.5)}
    return rates | {FEW: made[FEW]} | {n: real[n] for n in (GOOGLE, FINE) if n in real}


def _every(case: Case, stride: int) -> Case:
    assert isinstance(case.source, Recorded)
    return replace(case, source=replace(case.source, stride=stride))


def _at_rates(cases: Mapping[str, Case]) -> dict[str, Case]:
    return {
        f"{label}, {rate:.0%} shed": replace(case, shed=rate)
        for label, case in cases.items()
        for rate in _RATES
    }


def _changing(rows: int) -> Case:
    """2,000 of the routes are in use at a time; windows do not overlap, so that a change is one."""
    source = Made(
        rows=rows,
        slide_min=30,
        windows=2 * cod_beyond.CHANGE_WINDOWS,
        busy=2_000,
        change_windows=cod_beyond.CHANGE_WINDOWS,
    )
    return Case(source=source, shed=0.9)


def _coverage(windows: int) -> dict[str, tuple[Made, float]]:
    fine = Made(windows=windows, fare_step=0.01)
    few = replace(fine, routes=200)
    return {
        "25,000 routes, 75 % shed": (fine, 0.75),
        "200 routes, 98 % shed": (few, 0.98),
        "200 routes, 98 % shed, fares in steps of $ 0.50": (replace(few, fare_step=0.5), 0.98),
    }


@lru_cache(maxsize=2)
def with_data(folder: str | None) -> Study:
    """Return the study on the real data of a folder; on made rides alone if there is none."""
    return Study(
        name="cod",
        title="Concept-Driven Load Shedding (Katsipoulakis et al., 2018)",
        figures=_figures(folder or "", present(folder) if folder else set()),
        version=3,
    )


STUDY = with_data(None)
