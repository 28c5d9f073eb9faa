"""CoD's figures 7 and 8 on Spark: how soon after the watermark a window's median fares are there.

Normal execution is tried in two ways: Spark's own exact `percentile`, and a Python function over
all rows, as a user's own function would be. Uniform keeps a share of the rows by their hash, before
the window. `guard.window` samples as the paper's CoD does; once as it is by default, once with at
most 16 rows of a route in Spark's state, which takes as much room for every route as the most may
need. The paper's function is a mean, which Spark keeps up to date row by row and nobody needs to
sample; the median stands for functions that need the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

import spillway as sw
from spillway.studies import cod_feed
from spillway.studies.cod_data import Made, present, read
from spillway.studies.cod_feed import TICK_ROUTE, Feed, Way
from spillway.studies.cod_on_spark_claims import (
    NAMES,
    NATIVE,
    PYTHON,
    SMALL,
    UNIFORM,
    WINDOW,
    claims_7,
    claims_8,
    label,
    mean_s,
    ons,
    p95_s,
)
from spillway.studies.cod_windows import Rows
from spillway.studies.study import Claim, Figure, FigureJob, Panel, Point, Results, Series, Study

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_OUT = pa.schema([("route", pa.int64()), ("value", pa.float64())])
_SHARES = 10_000
_WARM = 2
_REPEATS = 6  # Google's trace holds three windows: it is played so often in a row
_CORES = 2


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


def _window(
    rides: DataFrame, feed: Feed, shed: float, folder: Path, *, sample_rows: int = 64
) -> DataFrame:
    """What is shipped; `sample_rows` is what the state holds of a route at most."""
    guard = sw.Guard(
        "cod", control=sw.FixedRate(1.0 - shed), state=folder / "checkpoint" / "spillway"
    )
    return guard.window(
        rides,
        time="pickup",
        size=f"{feed.size_s:.0f} seconds",
        slide=f"{feed.slide_s:.0f} seconds",
        by="route" if feed.grouped else None,
        apply="median(fare)",
        late="0 seconds",
        identity=["id"],
        sample_rows=sample_rows,
    )


WAYS: dict[str, Way] = {
    NATIVE: _native,
    PYTHON: _python,
    UNIFORM: _uniform,
    WINDOW: _window,
    SMALL: partial(_window, sample_rows=16),
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


@dataclass(frozen=True, kw_only=True)
class OnSpark:
    """A figure: every way on the same feeds, one after the other."""

    id: str
    title: str
    shed: float
    feeds: Mapping[str, Callable[[int], Feed]]
    quick: Mapping[str, Callable[[int], Feed]]
    claim: Callable[[Results], list[Claim]]
    cores: Mapping[str, int] | None = None  # by feed; two if none
    runs: int = 1
    quick_runs: int = 1

    def points(self) -> Sequence[Point]:
        """Return a point for every way and feed."""
        return [Point(label(name, on), {"shed": self.shed}) for on in self.feeds for name in NAMES]

    def quick_points(self) -> Sequence[Point]:
        """Return the same with fewer rows."""
        return [
            Point(label(name, on), {"shed": self.shed, "quick": 1})
            for on in self.quick
            for name in NAMES
        ]

    def compute(self, point: Point, runs: range, seed: int) -> dict[str, list[float]]:
        """Feed the windows to the point's way."""
        name, on = point.label.split(" | ")
        feed = (self.quick if "quick" in point.params else self.feeds)[on](seed)
        cores = (self.cores or {}).get(on, _CORES)
        return cod_feed.play(feed, WAYS[name], self.shed, cores=cores).numbers()

    def draw(self, results: Results) -> Figure:
        """Draw latencies, what taking the rows in takes, and the state."""
        panels = (
            _panel("mean latency from watermark to result (s)", results, mean_s),
            _panel("its 95th percentile (s)", results, p95_s),
            _panel("taking in the rows of a slide (s)", results, _taking_in),
            _panel("Spark's state (MB)", results, _state),
        )
        return Figure(self.id, self.title, panels)

    def claims(self, results: Results) -> list[Claim]:
        """Check what must hold."""
        return self.claim(results)


def _panel(title: str, results: Results, value: Callable[[Results, str, str], float]) -> Panel:
    on = ons(results)
    lines = (
        Series(
            name,
            tuple(each.replace(", ", "\n") for each in on),
            tuple(value(results, name, each) for each in on),
        )
        for name in NAMES
    )
    return Panel(title, tuple(lines))


def _taking_in(results: Results, name: str, on: str) -> float:
    return mean_s(results, name, on, "taking_in_s")


def _state(results: Results, name: str, on: str) -> float:
    return mean_s(results, name, on, "state_mb")


def _made(rows: int, windows: int) -> Callable[[int], Feed]:
    """Made rides, with so many measured windows of so many rows."""
    made = Made(rows=rows)
    slides = made.size_min // made.slide_min - 1 + _WARM + windows

    def feed(seed: int) -> Feed:
        rides = made.stream(0, slides * made.slide_min, (seed, 0))
        return Feed(rows=rides, size_s=60.0 * made.size_min, slide_s=60.0 * made.slide_min)

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


def _figures(folder: str, kinds: set[str]) -> tuple[FigureJob, ...]:
    sizes = {f"{rows:,} rows, 30 by 10 min": _made(rows, 12) for rows in (20_000, 100_000, 300_000)}
    real = {}
    if "packets" in kinds:
        real["packets, 45 by 15 s"] = _packets(folder)
    if "google" in kinds:
        real["Google, 60 by 30 min"] = _google(folder)
    few = {f"{rows:,} rows, 30 by 10 min": _made(rows, 4) for rows in (5_000, 20_000)}
    by_cores = {"1 core": 1, "2 cores": 2}
    return (
        OnSpark(
            id="7",
            title="Latency from watermark to result by cores, 100,000 rows a window, 98 % shed",
            shed=0.98,
            feeds=dict.fromkeys(by_cores, _made(100_000, 12)),
            quick=dict.fromkeys(by_cores, _made(5_000, 4)),
            claim=claims_7,
            cores=by_cores,
        ),
        OnSpark(
            id="8",
            title="Latency from watermark to result, 97 % shed",
            shed=0.97,
            feeds={**sizes, **real},
            quick=few,
            claim=claims_8,
        ),
    )


@lru_cache(maxsize=2)
def with_data(folder: str | None) -> Study:
    """Return the study on the real data of a folder; on made rides alone if there is none."""
    return Study(
        name="cod-on-spark",
        title="Concept-Driven Load Shedding, on Spark",
        figures=_figures(folder or "", present(folder) if folder else set()),
    )


STUDY = with_data(None)
