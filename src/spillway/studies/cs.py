"""CS's profile and plan on the tweet search, and what each classifier makes of the same time.

No Spark is needed: tweets are searched in this process. What a selection is worth is measured on
other tweets than those that the profile was made of. `spillway study cs --on spark` has figures
5.2 to 5.6.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from spillway.degrade import classifiers
from spillway.degrade.accuracy import Footrule, Ranks
from spillway.degrade.execution_plan import execution_plan
from spillway.degrade.frontier import Frontier, frontier
from spillway.studies import cs_search
from spillway.studies.cs_claims import (
    CS_A,
    CS_B,
    CS_C,
    CS_D,
    FOUR,
    FRONTIER,
    UNMIXED,
    claims_budgets,
    claims_plan,
    claims_profile,
)
from spillway.studies.study import Claim, Figure, Panel, Point, Results, Series, Study
from spillway.workload.search_files import Source
from spillway.workload.search_window import Window
from spillway.workload.search_work import METRICS, NUMBERS

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Off = tuple[str, ...]
Found = Mapping[str, Floats]

QUERY = "Just in Time"
_LOADS = (1.1, 1.5, 2.0, 2.5, 3.0, 3.5)
_TWEETS, _JUDGED = 40_000, 5  # so many are loaded, and so many times the sample are judged
_COMPLETE = 0.01  # share of the tweets that always runs complete, as `guard.run` has it
_BINS = 24
_FIRST = 15  # entries of a table
_CLASSIFIERS = {
    CS_D: classifiers.duration,
    CS_A: classifiers.accuracy,
    CS_C: classifiers.cost,
    CS_B: classifiers.binary,
}


def source_of(data: str | None, seed: int, tweets: int = _TWEETS) -> Source:
    """Return the tweets of a folder, or made ones."""
    return Source(data=data, tweets=tweets, seed=seed)


@lru_cache(maxsize=8)
def _profiled(source: Source, rows: int, run: int) -> cs_search.Profiled:
    """Profile a sample; every run takes the next one."""
    sample = source.load()[run * rows : (run + 1) * rows]
    return cs_search.profile(cs_search.search_subtasks(QUERY), sample)


@dataclass(frozen=True, slots=True, kw_only=True)
class OnSample:
    """What the figures have in common: the tweets, and the size of the sample."""

    data: str | None = None
    rows: int = 4_000
    quick_rows: int = 1_000

    @property
    def _params(self) -> dict[str, str | int]:
        return {"tweets": "real" if self.data else "made", "rows": self.rows}

    def _quick(self, points: Sequence[Point]) -> list[Point]:
        return [Point(p.label, {**p.params, "rows": self.quick_rows}) for p in points]

    def _sampled(self, point: Point, seed: int, run: int) -> cs_search.Profiled:
        return _profiled(source_of(self.data, seed), int(point.params["rows"]), run)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileTable(OnSample):
    """Tables 3.3 and 5.4: seconds a row of every subtask, and the accuracy lost without it."""

    id: str = "profile"
    title: str = "Table 5.4: what every subtask takes, and what the ranking loses without it"
    runs: int = 4
    quick_runs: int = 2

    def points(self) -> Sequence[Point]:
        """Return the one point."""
        return [Point("profile", self._params)]

    def quick_points(self) -> Sequence[Point]:
        """Return the same on fewer tweets."""
        return self._quick(self.points())

    def compute(self, point: Point, runs: range, seed: int) -> dict[str, list[float]]:
        """Profile a sample in each run."""
        found: dict[str, list[float]] = {}
        for run in runs:
            profile = self._sampled(point, seed, run).profile
            for name in NUMBERS:
                found.setdefault(f"us/{name}", []).append(1e6 * profile.duration_s[name])
            for name, lost in profile.lost.items():
                found.setdefault(f"lost/{name}", []).append(lost)
        return found

    def draw(self, results: Results) -> Figure:
        """Draw both columns."""
        found = results["profile"]
        return Figure(
            self.id,
            self.title,
            (
                Panel("time for a row that comes in (µs)", (_bars("time", found, "us/"),)),
                Panel("accuracy lost without it", (_bars("lost", found, "lost/"),)),
            ),
        )

    def claims(self, results: Results) -> list[Claim]:
        """Check what the thesis says of them."""
        return claims_profile(results)


def _bars(title: str, found: Found, prefix: str) -> Series:
    values = {key[len(prefix) :]: v for key, v in found.items() if key.startswith(prefix)}
    return Series(
        title,
        tuple(_named(at, name) for at, name in enumerate(values)),
        tuple(float(v.mean()) for v in values.values()),
        tuple(float(v.min()) for v in values.values()),
        tuple(float(v.max()) for v in values.values()),
    )


def _named(at: int, name: str) -> str:
    """Return number and name of a subtask; every second one stands lower, or they would touch."""
    lower = "\n\n" * (at % 2)
    return "\n".join((str(NUMBERS[name]), lower + name.replace("_", "\n")))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(OnSample):
    """Figure 5.1 and the tables 5.5 and 5.6: all 512 entries, and those that matter."""

    id: str = "5.1"
    title: str = "Figure 5.1, tables 5.5 and 5.6: the plan's entries, and the frontier"
    runs: int = 1
    quick_runs: int = 1

    def points(self) -> Sequence[Point]:
        """Return the one point."""
        return [Point("plan", self._params)]

    def quick_points(self) -> Sequence[Point]:
        """Return the same on fewer tweets."""
        return self._quick(self.points())

    def compute(self, point: Point, runs: range, seed: int) -> dict[str, list[float]]:
        """Build the plan and its frontier."""
        subtasks = cs_search.search_subtasks(QUERY)
        profile = self._sampled(point, seed, runs.start).profile
        plan, table = execution_plan(subtasks, profile), frontier(subtasks, profile)
        return {
            "us": [1e6 * entry.duration_s for entry in plan.entries],
            "accuracy": [entry.accuracy for entry in plan.entries],
            "off": [float(subtasks.mask(entry.excluded)) for entry in plan.entries],
            **_columns("frontier", table),
            **_columns("hull", table.hull()),
        }

    def draw(self, results: Results) -> Figure:
        """Draw accuracy against duration, and the first entries of both tables."""
        found = results["plan"]
        order = np.argsort(found["us"])
        bins = [part for part in np.array_split(order, _BINS) if part.size]
        middle = tuple(float(found["us"][part].mean()) for part in bins)
        told = tuple(
            tuple(float(of(found["accuracy"][part])) for part in bins)
            for of in (np.mean, np.min, np.max)
        )
        lines = (
            Series("all entries: mean, least and most", middle, *told),
            _line("frontier", found),
            _line("hull", found),
        )
        return Figure(
            self.id,
            self.title,
            (
                Panel("accuracy", lines, "time for a row (µs)"),
                *_table_panels("5.5: the longest first, by what is off", found, -found["us"]),
                *_table_panels("5.6: the most accurate first", found, -found["accuracy"]),
            ),
        )

    def claims(self, results: Results) -> list[Claim]:
        """Check the relationship, and that the frontier bounds it."""
        return claims_plan(results)


def _columns(name: str, table: Frontier) -> dict[str, list[float]]:
    return {
        f"{name}_us": [1e6 * duration_s for duration_s in table.durations_s],
        f"{name}_accuracy": list(table.accuracies),
    }


def _line(name: str, found: Found) -> Series:
    us, accuracy = (found[f"{name}_{what}"] for what in ("us", "accuracy"))
    return Series(name, tuple(us.tolist()), tuple(accuracy.tolist()))


def _table_panels(title: str, found: Found, key: Floats) -> tuple[Panel, Panel]:
    """Return the first entries of a plan: their durations, and their accuracies."""
    first = np.lexsort((-found["accuracy"], key))[:_FIRST]
    names = tuple(_off(int(found["off"][at])) for at in first)
    us, accuracy = (tuple(found[what][first].tolist()) for what in ("us", "accuracy"))
    return (
        Panel(f"table {title}: µs a row", (Series("time of an entry", names, us),)),
        Panel(f"table {title}: accuracy", (Series("its accuracy", names, accuracy),)),
    )


def _off(mask: int) -> str:
    """Return what is off by the numbers of table 4.5, one below the other."""
    names = cs_search.search_subtasks(QUERY).unmask(mask)
    return "\n".join(str(NUMBERS[name]) for name in names) or "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets(OnSample):
    """The same time for a row for every classifier: what is left of the ranking, measured."""

    id: str = "budgets"
    title: str = "Displacement in the same time, by what would be needed for all work"
    runs: int = 8
    quick_runs: int = 2

    def points(self) -> Sequence[Point]:
        """Return a point for every load."""
        return [Point(f"load {load:g}", {**self._params, "load": load}) for load in _LOADS]

    def quick_points(self) -> Sequence[Point]:
        """Return the same on fewer tweets."""
        return self._quick(self.points())

    def compute(self, point: Point, runs: range, seed: int) -> dict[str, list[float]]:
        """Let each choose, and rank other tweets by that."""
        found: dict[str, list[float]] = {}
        for run in runs:
            judged = _judge(source_of(self.data, seed), int(point.params["rows"]), run)
            for name, value in judged.displaced(float(point.params["load"]), (seed, run)).items():
                found.setdefault(name, []).append(value)
        return found

    def draw(self, results: Results) -> Figure:
        """Draw displacement and told accuracy over load."""
        x = tuple(float(on.split(" ")[1]) for on in results)
        series = tuple(_over(name, x, results) for name in (*FOUR, UNMIXED, FRONTIER))
        told = tuple(_over(name, x, results) for name in (FRONTIER, f"{FRONTIER}, told"))
        return Figure(
            self.id,
            self.title,
            (
                Panel("displacement / most possible", series, "load"),
                Panel("displacement of the mix: measured, and as its rows say", told, "load"),
            ),
        )

    def claims(self, results: Results) -> list[Claim]:
        """Compare the frontier with the best of the four."""
        return claims_budgets(results)


def _over(name: str, x: tuple[float, ...], results: Results) -> Series:
    every = [found[name] for found in results.values()]
    return Series(
        name,
        x,
        tuple(float(v.mean()) for v in every),
        tuple(float(v.min()) for v in every),
        tuple(float(v.max()) for v in every),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Judge:
    """A profile, and other tweets, all found with everything: selections are masks on them.

    `plain` are those that are found without the normalisation of words, too.
    """

    profiled: cs_search.Profiled
    window: Window
    plain: Bools
    ideal: Ranks

    def displaced(self, load: float, seed: Iterable[int]) -> dict[str, float]:
        """Return what each choice for a share of the time displaces."""
        subtasks, profile = cs_search.search_subtasks(QUERY), self.profiled.profile
        plan, table = execution_plan(subtasks, profile), frontier(subtasks, profile)
        row_s = plan.complete.duration_s / load
        chosen: dict[str, Off] = {
            name: way(plan).select(rows=1.0, limit_s=row_s).excluded
            for name, way in _CLASSIFIERS.items()
        }
        chosen[UNMIXED] = table.select(rows=1.0, limit_s=row_s).off
        mix = table.hull().mix(rows=1.0, limit_s=row_s)
        random = np.random.default_rng(tuple(seed))
        drawn, whole = random.random(len(self.window)), random.random(len(self.window)) < _COMPLETE
        more = mix.takes_more(drawn)
        alone = {name: 1.0 - self._mixed(off, off, more, whole) for name, off in chosen.items()}
        return {
            **alone,
            FRONTIER: 1.0 - self._mixed(mix.less.off, mix.more.off, more, whole),
            f"{FRONTIER}, told": (1.0 - mix.accuracy) * (1.0 - _COMPLETE),
        }

    def _mixed(self, less: Off, more: Off, takes_more: Bools, whole: Bools) -> float:
        """Return what is left by two selections, beside the share that runs complete."""
        pairs = zip(takes_more.tolist(), whole.tolist(), strict=True)
        return self.accuracy([() if all_ else more if one else less for one, all_ in pairs])

    def accuracy(self, offs: Sequence[Off]) -> float:
        """Return what is left of the ranking if these were off, tweet by tweet."""
        metrics, there = self.window.metrics.copy(), np.ones(len(offs), dtype=np.bool_)
        for at, off in enumerate(offs):
            metrics[at, [METRICS.index(name) for name in off if name in METRICS]] = np.nan
            there[at] = self.plain[at] or "word_normalisation" not in off
        seen = replace(self.window, metrics=metrics).only(there)
        return Footrule().accuracy(self.ideal, seen.ranking().by_id())


@lru_cache(maxsize=8)
def _judge(source: Source, rows: int, run: int) -> Judge:
    """Profile one sample, and search several times as many of the tweets after it."""
    tweets = source.load()[(run + 1) * rows : (run + 1 + _JUDGED) * rows]
    sample = cs_search.sample_of(cs_search.search_subtasks(QUERY), tweets)
    found, _ = sample.finished()
    plain = {row["id"] for row in sample.finished(["word_normalisation"])[0]}
    window = cs_search.window_of(found)
    return Judge(
        profiled=_profiled(source, rows, run),
        window=window,
        plain=np.isin(window.ids, list(plain)),
        ideal=window.ranking().by_id(),
    )


@lru_cache(maxsize=2)
def with_data(folder: str | None) -> Study:
    """Return the study on the real tweets of a folder; on made ones if there is none."""
    return Study(
        name="cs",
        title="Computational Shedding in Stream Computing",
        figures=(ProfileTable(data=folder), Plan(data=folder), Budgets(data=folder)),
    )


STUDY = with_data(None)
