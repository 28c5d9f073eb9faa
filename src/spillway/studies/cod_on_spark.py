"""CoD's figures 7 and 8 on Spark: how soon after the watermark a window's median fares are there.

Normal execution is tried in two ways: Spark's own exact `percentile`, and a median in Python over
all rows. Uniform keeps a share of the rows by their hash, before the window. `guard.window` holds a
sample of every route, as the paper's CoD does: at most 16 rides by default, and once 32. Then the
same medians by a function of the user's own, which takes some microseconds of Python a ride: over
all rides, and over the share of them that `guard.window` allocates. A bare count of the same groups
shows how little would be left if there were nothing to compute. The paper's function is a mean,
which Spark keeps up to date row by row and nobody needs to sample; the median stands for functions
that need the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

import spillway as sw
from spillway.studies import cod_feed
from spillway.studies.cod_data import Made, present, read
from spillway.studies.cod_feed import TICK_ROUTE, Feed, Way
from spillway.studies.cod_on_spark_claims import (
    COUNT,
    MORE,
    NAMES,
    NATIVE,
    OWN,
    OWN_WINDOW,
    PYTHON,
    UNIFORM,
    WINDOW,
    claims_7,
    claims_8,
    joined,
    label,
    mean_s,
    ons,
    p95_s,
)
from spillway.studies.cod_windows import Rows
from spillway.studies.study import (
    Claim,
    Figure,
    FigureJob,
    Panel,
    Param,
    Point,
    Results,
    Series,
    Study,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_OUT = pa.schema([("route", pa.int64()), ("value", pa.float64())])
_SHARES = 10_000
_WARM = 2
_REPEATS = 4  # Google's trace holds three windows: it is played so often in a row
_CORES = 2
_BANDS = (*((5.0 * band, 5.0) for band in range(12)), (60.0, float("inf")))  # start and width, $


def _native(rides: DataFrame, feed: Feed, shed: float, folder: Path) -> DataFrame:
    """Spark's exact percentile."""
    return _grouped(rides, feed, "percentile(fare, 0.5) AS value")


def _python(rides: DataFrame, feed: Feed, shed: float, folder: Path) -> DataFrame:
    """A Python function over all rows of a group."""
    lists = _grouped(rides, feed, "collect_list(fare) AS fares")
    return lists.select("route", "fares").mapInArrow(_medians, "route bigint, value double")


def _uniform(rides: DataFrame, feed: Feed, shed: float, folder: Path) -> DataFrame:
    """A share of the rows, by hash; then Spark's exact percentile. Ticks move the watermark."""
    share = f"pmod(xxhash64(id), {_SHARES}) < {round((1 - shed) * _SHARES)}"
    kept = rides.where(f"{share} OR route = {TICK_ROUTE}")
    return _grouped(kept, feed, "percentile(fare, 0.5) AS value")


def _count(rides: DataFrame, feed: Feed, shed: float, folder: Path) -> DataFrame:
    """The rows of a group, and nothing else: what is left is Spark's own time."""
    return _grouped(rides, feed, "CAST(count(fare) AS DOUBLE) AS value")


def _own(rides: DataFrame, feed: Feed, shed: float, folder: Path) -> DataFrame:
    """A function of the user's own over all rows of a group."""
    lists = _grouped(rides, feed, "collect_list(fare) AS fares")
    return lists.select("route", "fares").mapInArrow(_added_lists, "route bigint, value double")


def _window(rides: DataFrame, feed: Feed, shed: float, folder: Path, **options: Any) -> DataFrame:
    """What is shipped."""
    guard = sw.Guard(
        "cod", control=sw.FixedRate(1.0 - shed), state=folder / "checkpoint" / "spillway"
    )
    return guard.window(
        rides,
        time="pickup",
        size=f"{feed.size_s:.0f} seconds",
        slide=f"{feed.slide_s:.0f} seconds",
        by="route" if feed.grouped else None,
        late="0 seconds",
        identity=["id"],
        **{"apply": "median(fare)", **options},
    )


def added_up(rides: Any) -> Any:
    """Return the median fare by route; each fare is added up anew by the bands of a tariff.

    That is a few microseconds of Python a ride: what a function of a user's own takes, or less.
    """
    fares = [_by_bands(fare) for fare in rides["fare"].tolist()]
    return rides.assign(value=fares).groupby("route", as_index=False)["value"].median()


def _by_bands(fare: float) -> float:
    return sum(min(max(fare - start, 0.0), width) for start, width in _BANDS)


WAYS: dict[str, Way] = {
    NATIVE: _native,
    PYTHON: _python,
    UNIFORM: _uniform,
    WINDOW: _window,
    MORE: partial(_window, sample_rows=32),
    COUNT: _count,
    OWN: _own,
    OWN_WINDOW: partial(
        _window,
        apply=added_up,
        schema="route bigint, value double",
        values=["fare"],
        columns=["fare"],
        sample_rows=16,
    ),
}


def _grouped(rides: DataFrame, feed: Feed, aggregate: str) -> DataFrame:
    """Aggregate by window and route; a scalar has one route."""
    rides.withWatermark("pickup", "0 seconds").createOrReplaceTempView("spillway_study_rides")
    span = f"window(pickup, '{feed.size_s:.0f} seconds', '{feed.slide_s:.0f} seconds')"
    route = "route" if feed.grouped else "0L"
    return rides.sparkSession.sql(
        f"SELECT {span}, {route} AS route, {aggregate} FROM spillway_study_rides "
        f"GROUP BY {span}, {route}"
    )


def _medians(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        fares = batch.column("fares")
        values = [float(np.median(each.values.to_numpy())) for each in fares]
        arrays = [batch.column("route"), pa.array(values, pa.float64())]
        yield pa.RecordBatch.from_arrays(arrays, schema=_OUT)


def _added_lists(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pandas as pd

    for batch in batches:
        fares = batch.column("fares")
        routes = np.repeat(batch.column("route").to_numpy(), np.diff(fares.offsets.to_numpy()))
        rides = pd.DataFrame({"route": routes, "fare": fares.flatten().to_numpy()})
        yield pa.RecordBatch.from_pandas(added_up(rides), schema=_OUT, preserve_index=False)


class Tried(NamedTuple):
    """A stream, by its seed, the ways of working that are tried on it, and how many turns each."""

    feed: Callable[[int], Feed]
    names: Sequence[str] = NAMES
    turns: int = 2


@dataclass(frozen=True, kw_only=True)
class OnSpark:
    """A figure: every way on the same feeds, one after the other."""

    id: str
    title: str
    shed: float
    feeds: Mapping[str, Tried]
    quick: Mapping[str, Tried]
    claim: Callable[[Results], list[Claim]]
    cores: Mapping[str, int] | None = None  # by feed; two if none
    runs: int = 1
    quick_runs: int = 1

    def points(self) -> Sequence[Point]:
        """Return a point for every way and feed."""
        return self._points(self.feeds, {"shed": self.shed})

    def quick_points(self) -> Sequence[Point]:
        """Return the same with fewer rows."""
        return self._points(self.quick, {"shed": self.shed, "quick": 1})

    def _points(self, feeds: Mapping[str, Tried], params: Mapping[str, Param]) -> Sequence[Point]:
        """Let all ways take turns on a feed, forwards and backwards: drifts meet them alike."""
        return [
            Point(f"{label(name, on)} | {turn}", params)
            for on, tried in feeds.items()
            for turn in range(tried.turns)
            for name in (reversed(tried.names) if turn % 2 else tried.names)
        ]

    def compute(self, point: Point, runs: range, seed: int) -> dict[str, list[float]]:
        """Feed the windows to the point's way."""
        name, on, _ = point.label.split(" | ")
        tried = (self.quick if "quick" in point.params else self.feeds)[on]
        cores = (self.cores or {}).get(on, _CORES)
        _warm_up(cores)
        return cod_feed.play(tried.feed(seed), WAYS[name], self.shed, cores=cores).numbers()

    def draw(self, results: Results) -> Figure:
        """Draw latencies, what taking the rows in takes, and the state."""
        results = joined(results)
        panels = (
            _panel("mean latency from watermark to result (s)", results, mean_s),
            _panel("its 95th percentile (s)", results, p95_s),
            _panel("taking in the rows of a slide (s)", results, _taking_in),
            _panel("Spark's state (MB)", results, _state),
        )
        return Figure(self.id, self.title, panels)

    def claims(self, results: Results) -> list[Claim]:
        """Check what must hold."""
        return self.claim(joined(results))


@lru_cache(maxsize=1)
def _warm_up(cores: int) -> None:
    """Let Java compile what ways have in common, or the first way would pay for all."""
    for name in NAMES:
        cod_feed.play(_made(20_000, 2)(0), WAYS[name], 0.97, cores=cores)


def _panel(title: str, results: Results, value: Callable[[Results, str, str], float]) -> Panel:
    lines = []
    for name in NAMES:
        on = [each for each in ons(results) if label(name, each) in results]
        places = tuple(each.replace(", ", "\n") for each in on)
        lines.append(Series(name, places, tuple(value(results, name, each) for each in on)))
    return Panel(title, tuple(line for line in lines if line.x))


def _taking_in(results: Results, name: str, on: str) -> float:
    return mean_s(results, name, on, "taking_in_s")


def _state(results: Results, name: str, on: str) -> float:
    return mean_s(results, name, on, "state_mb")


def _made(rows: int, windows: int, *, fare_step: float = 0.01) -> Callable[[int], Feed]:
    """Made rides, with so many measured windows of so many rows."""
    made = Made(rows=rows, fare_step=fare_step)
    slides = made.size_min // made.slide_min - 1 + _WARM + windows

    def feed(seed: int) -> Feed:
        rides = made.stream(0, slides * made.slide_min, (seed, 0))
        size_s, slide_s = 60.0 * made.size_min, 60.0 * made.slide_min
        return Feed(rows=rides, size_s=size_s, slide_s=slide_s, warm=_WARM)

    return feed


def _packets(folder: str) -> Callable[[int], Feed]:
    def feed(seed: int) -> Feed:
        rows = read(folder, "packets")[0]
        return Feed(rows=rows, size_s=45.0, slide_s=15.0, grouped=False)

    return feed


def _google(folder: str) -> Callable[[int], Feed]:
    def feed(seed: int) -> Feed:
        rows = _repeated(read(folder, "google")[0], slide_s=1800.0)
        return Feed(rows=rows, size_s=3600.0, slide_s=1800.0)

    return feed


def _repeated(rows: Rows, slide_s: float) -> Rows:
    """The same trace several times in a row, whole slides apart."""
    span_s = slide_s * np.ceil((rows.time_s[-1] - rows.time_s[0]) / slide_s)
    turns = np.repeat(np.arange(_REPEATS), rows.time_s.size) * span_s
    again = {name: np.tile(getattr(rows, name), _REPEATS) for name in ("time_s", "group", "value")}
    return replace(rows, time_s=again["time_s"] + turns, group=again["group"], value=again["value"])


def _sizes(
    windows: Mapping[int, int], names: Sequence[str] = NAMES, turns: int = 2
) -> dict[str, Tried]:
    """Made rides by the size of the window, each with so many measured ones a turn."""
    return {
        f"{rows:,} rows, 30 by 10 min": Tried(_made(rows, count), names, turns)
        for rows, count in windows.items()
    }


def _others(folder: str, kinds: set[str]) -> dict[str, Tried]:
    """Fares in half dollars, of which there are few; and the real traces."""
    meter = _made(1_000_000, 2, fare_step=0.5)
    found = {"1,000,000 rows, half dollars": Tried(meter, (NATIVE, WINDOW, MORE, COUNT))}
    few = (NATIVE, PYTHON, WINDOW, COUNT)
    if "packets" in kinds:
        found["packets, 45 by 15 s"] = Tried(_packets(folder), few)
    if "google" in kinds:
        found["Google, 60 by 30 min"] = Tried(_google(folder), few)
    return found


def _figures(folder: str, kinds: set[str]) -> tuple[FigureJob, ...]:
    few = (NATIVE, PYTHON, WINDOW)
    by_cores = {"1 core": 1, "2 cores": 2}
    return (
        OnSpark(
            id="7",
            title="Latency from watermark to result by cores, 100,000 rows a window",
            shed=0.98,
            feeds=dict.fromkeys(by_cores, Tried(_made(100_000, 6), few)),
            quick=dict.fromkeys(by_cores, Tried(_made(5_000, 2), few)),
            claim=claims_7,
            cores=by_cores,
        ),
        OnSpark(
            id="8",
            title="Latency from watermark to result",
            shed=0.97,
            feeds={
                **_sizes({100_000: 8, 300_000: 8}, turns=4),
                **_sizes({1_000_000: 6}),
                **_sizes({3_000_000: 3}, (NATIVE, PYTHON, WINDOW, MORE, COUNT)),
                **_others(folder, kinds),
            },
            quick=_sizes({5_000: 2, 20_000: 2}),
            claim=claims_8,
        ),
    )


@lru_cache(maxsize=2)
def with_data(folder: str | None) -> Study:
    """Return the study on the real data of a folder; on made rides alone if there is none."""
    return Study(
        name="cod-on-spark",
        title="Concept-Driven Load Shedding, on Spark",
        version=12,
        figures=_figures(folder or "", present(folder) if folder else set()),
    )


STUDY = with_data(None)
