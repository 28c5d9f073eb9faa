"""LAS's figures 4 to 9 on virtual time, and what the shipped LAS does beyond the paper.

5,000 runs a point: 100 associations of costs and keys, each with 50 orders of the rows and 50 sets
of hash functions. "LAS" follows the paper; because it lets everything pass until its first sketch,
and the paper assumes that nothing needs to be shed until then, its runs (and only its) begin with a
prelude at half load that is not measured. "LAS default" is what is shipped, from the first row on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from spillway.cost.sketch import SketchShape
from spillway.shedders.admission import Admission, Aim
from spillway.sim.one_operator import Policy, Run, Shedding, simulate
from spillway.sim.workloads import MS, Recipe, Stream
from spillway.studies.las_claims import CLAIMS
from spillway.studies.las_judge import (
    BASE,
    COLD,
    DEFAULT,
    FEWEST,
    FULL,
    PAPER,
    STRAW,
    UNBIASED,
)
from spillway.studies.las_series import TIME_SERIES
from spillway.studies.study import Claim, Figure, Panel, Param, Point, Results, Series, Study

Floats = NDArray[np.float64]

RIVALS = (BASE, STRAW, PAPER, DEFAULT, FULL)
PRELUDE = 8 * 1024
ASSOCIATIONS = 100
_KEYS_KEPT = 8  # orders whose keys are remembered: associations share them


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One configuration of section V-A; the defaults are the paper's."""

    share: float = 0.25
    limit_ms: float = 6.4
    zipf: float = 1.0
    cost_ms_max: float = 6.4
    epsilon: float = 0.05
    rows: int = 32_768

    def recipe(self, prelude: int = 0) -> Recipe:
        """Return how the stream is made."""
        return Recipe(
            rows=self.rows + prelude,
            zipf=self.zipf,
            cost_ns_min=MS // 10,
            cost_ns_max=round(self.cost_ms_max * MS),
        )

    def streams(self, run: int) -> tuple[Stream, Stream]:
        """Make the stream of a run, bare and with a prelude at half load before it."""
        recipe = self.recipe(PRELUDE)
        keys = _keys(recipe, run // ASSOCIATIONS)
        costs = recipe.cost_by_key(run % ASSOCIATIONS)[keys]
        mean = float(costs[PRELUDE:].mean())
        gaps = np.full(keys.size, mean * (1.0 - self.share))
        gaps[:PRELUDE] = 2.0 * mean
        arrivals = np.concatenate([[0.0], np.cumsum(gaps)[:-1]]).astype(np.int64)
        whole = Stream(keys=keys, costs_ns=costs, arrivals_ns=arrivals)
        return _from(whole, PRELUDE), whole

    def shedding(self, name: str, run: int) -> Shedding:
        """Return the policy of a name; hash functions differ from run to run."""
        limit = round(self.limit_ms * MS)
        shape = SketchShape.for_error(epsilon=self.epsilon, delta=0.1, seed=run)
        if name in (PAPER, COLD):
            prelude = PRELUDE if name == PAPER else 0
            return Shedding.paper(
                limit_ns=limit, epsilon=self.epsilon, shape=shape, prelude=prelude
            )
        if name in _POLICIES:
            exact = Admission(limit_ns=limit, margin=1.0)
            return Shedding(policy=_POLICIES[name], las=exact, share=max(self.share, 0.0))
        return Shedding(las=Admission(limit_ns=limit, aim=_AIMS[name]), shape=shape)

    def run(self, name: str, number: int, streams: tuple[Stream, Stream]) -> tuple[Run, int]:
        """Run a policy; return what happened and the first row that is measured."""
        first = PRELUDE if name == PAPER else 0
        stream = streams[1] if first else streams[0]
        return simulate(stream, self.shedding(name, number), seed=number), first


_POLICIES = {
    BASE: Policy.BASE_LINE,
    STRAW: Policy.STRAW_MAN,
    FULL: Policy.FULL_KNOWLEDGE,
}
_AIMS = {DEFAULT: Aim.FAITHFUL, FEWEST: Aim.FEWEST, UNBIASED: Aim.UNBIASED}


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """A figure that varies one parameter: latency on the left, dropped rows on the right."""

    id: str
    title: str
    x_label: str
    settings: Mapping[str, Setting]
    quick: tuple[str, ...]
    names: tuple[str, ...] = RIVALS
    runs: int = 5_000
    quick_runs: int = 8
    totals: bool = False  # also how well a count can be estimated for the work
    against_base: bool = False  # the shedding ratio λ instead of the dropped share α
    limit: Callable[[Setting], float] = lambda setting: setting.limit_ms

    def points(self) -> Sequence[Point]:
        """All points of the paper's axis."""
        return [Point(label, _params(setting)) for label, setting in self.settings.items()]

    def quick_points(self) -> Sequence[Point]:
        """The few that `--quick` shows."""
        return [point for point in self.points() if point.label in self.quick]

    def compute(self, point: Point, runs: range, seed: int) -> dict[str, list[float]]:
        """Run every policy on the streams of these runs."""
        setting = self.settings[point.label]
        found: dict[str, list[float]] = {}
        for number in runs:
            streams = setting.streams(number + seed * 1_000_000)
            for name in self.names:
                run, first = setting.run(name, number + seed * 1_000_000, streams)
                found.setdefault(f"{name}/latency_ms", []).append(run.latency_ms_mean(first))
                found.setdefault(f"{name}/dropped", []).append(run.dropped(first))
                if self.totals:
                    work_s = float(streams[0].costs_ns[run.kept].sum()) / 1e9
                    found.setdefault(f"{name}/cost", []).append(run.count_variance() * work_s)
        return found

    def draw(self, results: Results) -> Figure:
        """Draw mean, least and largest over the runs."""
        labels = [label for label in self.settings if label in results]
        limits = tuple(
            (f"τ = {value:g} ms", value)
            for value in sorted({self.limit(self.settings[label]) for label in labels})
            if value > 0
        )
        left = Panel(
            "mean queueing latency (ms)",
            tuple(_series(results, labels, name, "latency_ms") for name in self.names),
            x_label=self.x_label,
            y_log=True,
            lines=limits if len(limits) <= 3 else (),
        )
        right = Panel(
            "rows dropped against Base Line, λ"
            if self.against_base
            else "share of rows dropped, α",
            tuple(self._dropped(results, labels, name) for name in self._droppers),
            x_label=self.x_label,
        )
        return Figure(self.id, self.title, (left, right))

    @cached_property
    def _droppers(self) -> tuple[str, ...]:
        return tuple(name for name in self.names if not (self.against_base and name == BASE))

    def _dropped(self, results: Results, labels: list[str], name: str) -> Series:
        if not self.against_base:
            return _series(results, labels, name, "dropped")
        ratios = {
            label: {name: results[label][f"{name}/dropped"] / results[label][f"{BASE}/dropped"] - 1}
            for label in labels
        }
        return _series(ratios, labels, name, "")

    def claims(self, results: Results) -> list[Claim]:
        """Check what the paper says about this figure."""
        return CLAIMS[self.id](results)


def _series(results: Results, labels: list[str], name: str, key: str) -> Series:
    values = [results[label][f"{name}/{key}" if key else name] for label in labels]
    return Series(
        name,
        tuple(labels),
        tuple(float(each.mean()) for each in values),
        tuple(float(each.min()) for each in values),
        tuple(float(each.max()) for each in values),
    )


def _params(setting: Setting) -> dict[str, Param]:
    return {name: getattr(setting, name) for name in setting.__dataclass_fields__}


_remembered: dict[tuple[Recipe, int], NDArray[np.int64]] = {}


def _keys(recipe: Recipe, order: int) -> NDArray[np.int64]:
    if len(_remembered) > _KEYS_KEPT:
        _remembered.clear()
    if (recipe, order) not in _remembered:
        _remembered[recipe, order] = recipe.draw_keys(order)
    return _remembered[recipe, order]


def _from(stream: Stream, first: int) -> Stream:
    arrivals = stream.arrivals_ns[first:] - stream.arrivals_ns[first]
    return Stream(keys=stream.keys[first:], costs_ns=stream.costs_ns[first:], arrivals_ns=arrivals)


def _by(name: str, values: Sequence[float], label: Callable[[float], str]) -> dict[str, Setting]:
    return {label(value): replace(Setting(), **{name: value}) for value in values}  # type: ignore[arg-type]


STUDY = Study(
    name="las",
    title="Load-Aware Shedding in Stream Processing Systems (Rivetti et al., 2016)",
    figures=(
        Sweep(
            id="4",
            title="How much too little the operator can do",
            x_label="under-provisioning",
            settings=_by(
                "share",
                [x / 100 for x in (-10, 0, 10, 20, 25, *range(30, 91, 10))],
                "{:.0%}".format,
            ),
            quick=("-10%", "0%", "25%", "50%", "90%"),
        ),
        Sweep(
            id="5",
            title="The threshold τ",
            x_label="τ (ms)",
            settings=_by(
                "limit_ms", (0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8), lambda x: f"{x:g}"
            ),
            quick=("0", "0.8", "6.4", "12.8"),
            against_base=True,
        ),
        Sweep(
            id="6",
            title="The largest cost of a row, with τ equal to it",
            x_label="w_max (ms)",
            settings={
                f"{x:g}": Setting(cost_ms_max=x, limit_ms=x)
                for x in (1.6, 3.2, 6.4, 12.8, 25.6, 51.2)
            },
            quick=("1.6", "6.4", "51.2"),
            against_base=True,
        ),
        Sweep(
            id="7",
            title="How unevenly often keys come",
            x_label="distribution",
            settings=_by(
                "zipf",
                (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0),
                lambda x: f"Zipf-{x:.1f}" if x else "uniform",
            ),
            quick=("uniform", "Zipf-1.0", "Zipf-2.0", "Zipf-3.0"),
            against_base=True,
        ),
        Sweep(
            id="8",
            title="The precision ε of the sketches",
            x_label="ε",
            settings=_by("epsilon", (1.0, 0.5, 0.2, 0.1, 0.05, 0.01, 0.005, 0.001), "{:g}".format),
            quick=("1", "0.1", "0.05", "0.01"),
            names=(PAPER, DEFAULT, FULL),
        ),
        TIME_SERIES,
        Sweep(
            id="cold",
            title="Beyond the paper: the first rows",
            x_label="under-provisioning",
            settings=_by("share", (0.0, 0.1, 0.25, 0.5), "{:.0%}".format),
            quick=("0%", "25%"),
            names=(COLD, DEFAULT, FULL),
            runs=500,
        ),
        Sweep(
            id="aims",
            title="Beyond the paper: what goes",
            x_label="under-provisioning",
            settings=_by("share", (0.1, 0.25, 0.5), "{:.0%}".format),
            quick=("25%",),
            names=(FULL, DEFAULT, FEWEST, UNBIASED),
            runs=500,
        ),
        Sweep(
            id="totals",
            title="Beyond the paper: estimated totals, τ = 64 ms",
            x_label="under-provisioning",
            settings={f"{x:.0%}": Setting(share=x, limit_ms=64.0) for x in (0.1, 0.25, 0.5, 0.75)},
            quick=("25%", "50%"),
            names=(BASE, UNBIASED),
            runs=500,
            totals=True,
        ),
    ),
    version=1,
)
