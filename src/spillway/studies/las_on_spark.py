"""LAS's figures 10 and 11 on Spark: seven phases, and tweets. Who holds the latency, at what loss.

Costs, keys, rates and phases are the papers'. The threshold is not: a micro-batch engine spends
0.05 to 0.2 s on every batch, whatever is in it, so that no row could wait for as little as the
paper's 64 ms (phases) or 32 ms (tweets). Here τ is 1.5 s and 1 s, and there are so many rows that a
policy takes 3 to 5 minutes: Straw-Man's queue grows with time, and the slower, the less time the
engine itself takes.
Latencies are measured by the operator, from a row's arrival to the start of its processing. The
mean that is held is that of a batch: over the whole of so short a stream calm phases would pay for
the others.

The gate promises arrival to end of batch. With back-to-back batches of length d a row is begun d
and ended 1.5 d after its arrival, on average: the gate is given 1.5 τ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

import spillway as sw
from spillway.shedders.admission import Admission, Condition
from spillway.sim.one_operator import Policy as Rival
from spillway.sim.one_operator import Shedding, simulate
from spillway.sim.workloads import MS, Recipe, Stream
from spillway.studies import las_series, spark_run
from spillway.studies.las_judge import FULL, STRAW
from spillway.studies.las_on_spark_claims import (
    BOTH,
    FEWEST,
    GATE,
    NAMES,
    OPERATOR,
    claims_10,
    claims_11,
    label,
    plays_of,
    waits,
)
from spillway.studies.las_series import PHASES
from spillway.studies.spark_work import FullKnowledge, batches, busy
from spillway.studies.study import Claim, Figure, Panel, Point, Results, Series, Study
from spillway.workload.tweets import draw_tweets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Aim = Literal["faithful", "fewest"]

_CHEAP_NS = MS // 2
_LATEST = 256  # rows whose mean wait Straw-Man holds: about as many as a batch has
_CORES = 2  # one for the operator, one for Spark
_MARGIN = 1.0  # of the gate's objective: a mean is held, and the operator's clock is exact
_TURNS = 2
_WINDOWS = 4  # of a phase, or of a seventh of the tweets: each some batches long


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A stream that is measured from row `first` on; Straw-Man thinks every row costs the mean."""

    stream: Stream
    first: int
    mean_ns: float


def phases(rows: int, seed: int) -> Part:
    """Make LAS's seven phases of so many rows each.

    The key that comes most often is a cheap one: phase D, in which it changes places with one of
    the largest cost, is then the abrupt change that the paper describes.
    """
    stream = las_series.phases(_association(rows, seed), seed, rows=rows)
    return _part(stream, float(stream.costs_ns[:rows].mean()))


def _association(rows: int, seed: int) -> int:
    recipe, number = Recipe(rows=rows), 1_000 * seed
    while recipe.cost_by_key(number)[0] > _CHEAP_NS:
        number += 1
    return number


def tweets(rows: int, seed: int) -> Part:
    """Make tweets that come exactly as fast as the operator can do them."""
    drawn = draw_tweets(rows, seed=seed)
    costs = drawn.work_ms * MS
    mean_ns = float(costs.mean())
    arrivals = (np.arange(rows) * mean_ns).astype(np.int64)
    stream = Stream(keys=drawn.keys, costs_ns=costs, arrivals_ns=arrivals)
    return _part(stream, mean_ns)


def _part(stream: Stream, mean_ns: float) -> Part:
    whole, first = spark_run.with_prelude(stream, gap_ns=2 * mean_ns)
    return Part(stream=whole, first=first, mean_ns=mean_ns)


def straw_man(part: Part, limit_s: float) -> NDArray[np.bool_]:
    """Say which rows Straw-Man admits: it looks at no clock but the rows' arrivals."""
    las = Admission(
        limit_ns=round(limit_s * 1e9),
        margin=1.0,
        condition=Condition.WINDOW,
        condition_rows=_LATEST,
    )
    shedding = Shedding(policy=Rival.STRAW_MAN, las=las, mean_ns=part.mean_ns)
    return simulate(part.stream, shedding).kept


def _straw(rows: DataFrame, folder: Path, *, limit_s: float) -> DataFrame:
    """Straw-Man: its decisions stand in the stream."""
    return rows.where("admitted").coalesce(1).mapInArrow(batches(busy), spark_run.OUT)


def _full(rows: DataFrame, folder: Path, *, limit_s: float) -> DataFrame:
    """Full Knowledge, right before the operator."""
    return rows.coalesce(1).mapInArrow(FullKnowledge(limit_s=limit_s), spark_run.OUT)


def _guarded(
    rows: DataFrame, folder: Path, *, limit_s: float, aim: Aim | None, admits: bool
) -> DataFrame:
    """LAS at the gate, in the operator, or at both."""
    objective = sw.Latency(average=f"{limit_s * 1.5e3:g} ms")
    guard = sw.Guard(
        "las",
        objective=objective,
        control=sw.HoldLatency(objective=objective, margin=_MARGIN),
        shed=sw.LoadAware(key="key", aim=aim or "faithful"),
        state=folder / "checkpoint" / "spillway",
    )
    if aim is not None:
        rows = guard.protect(rows, arrived="arrived", identity=["id"])
    done = guard.map(
        rows.coalesce(1),
        busy,
        spark_run.OUT,
        key="key",
        arrived="arrived",
        admit=sw.Latency(average=f"{limit_s * 1e3:g} ms") if admits else None,
    )
    return done.select("id", "started_us", "ended_us")


POLICIES: dict[str, Callable[..., DataFrame]] = {
    STRAW: _straw,
    FULL: _full,
    OPERATOR: partial(_guarded, aim=None, admits=True),
    GATE: partial(_guarded, aim="faithful", admits=False),
    BOTH: partial(_guarded, aim="faithful", admits=True),
    FEWEST: partial(_guarded, aim="fewest", admits=False),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OnSpark:
    """A figure: every policy on the same stream, in turns.

    They take their turns forwards and then backwards: a machine that becomes slower or faster
    meets all of them alike.
    """

    id: str
    title: str
    rows: int
    quick_rows: int
    limit_s: float
    stream: Callable[[int, int], Part]
    claim: Callable[[Results, float], list[Claim]]
    borders: str = ""  # the phases' names
    runs: int = 1
    quick_runs: int = 1

    def points(self) -> Sequence[Point]:
        """Return a point for every policy and turn."""
        return self._points(self.rows, _TURNS)

    def quick_points(self) -> Sequence[Point]:
        """Return the same with fewer rows, and one turn."""
        return self._points(self.quick_rows, 1)

    def _points(self, rows: int, turns: int) -> Sequence[Point]:
        return [
            Point(label(name, turn), {"rows": rows, "limit_s": self.limit_s})
            for turn in range(turns)
            for name in (reversed(NAMES) if turn % 2 else NAMES)
        ]

    def compute(self, point: Point, runs: range, seed: int) -> dict[str, list[float]]:
        """Play the stream through the point's policy."""
        name, turn = point.label.split(" | ")
        part = self.stream(int(point.params["rows"]), seed)
        played = spark_run.play(
            part.stream,
            partial(POLICIES[name], limit_s=self.limit_s),
            cores=_CORES,
            admitted=straw_man(part, self.limit_s) if name == STRAW else None,
            warm_rows=part.first,
            warm_alike=turn == "0",  # later each has played before
            config=spark_run.PLAIN_FILES,
        )
        return played.numbers(part.first)

    def draw(self, results: Results) -> Figure:
        """Draw latency and dropped share, window by window."""
        plays = plays_of(results)
        rows = waits(plays, STRAW).shape[1]
        edges = np.linspace(0, rows, _WINDOWS * len(PHASES) + 1).astype(int)
        borders = tuple(zip(self.borders, edges[::_WINDOWS][:-1].tolist(), strict=False))
        limit = (f"τ = {self.limit_s:g} s", self.limit_s)
        latency = tuple(_line(name, waits(plays, name), edges, _mean) for name in NAMES)
        dropped = tuple(_line(name, waits(plays, name), edges, _dropped) for name in NAMES)
        x = "rows"
        return Figure(
            self.id,
            self.title,
            (
                Panel("mean latency until processed (s)", latency, x, True, (limit,), borders),
                Panel("share of rows dropped, α", dropped, x, False, (), borders),
            ),
        )

    def claims(self, results: Results) -> list[Claim]:
        """Check what must hold."""
        return self.claim(results, self.limit_s)


def _line(name: str, waited_s: Floats, edges: Ints, value: Callable[[Floats], float]) -> Series:
    windows = np.split(waited_s, edges[1:-1], axis=1)
    return Series(name, tuple(float(x) for x in edges[1:]), tuple(value(w) for w in windows))


def _mean(waited_s: Floats) -> float:
    taken = waited_s[~np.isnan(waited_s)]
    return float(taken.mean()) if taken.size else float("nan")


def _dropped(waited_s: Floats) -> float:
    return float(np.isnan(waited_s).mean())


STUDY = Study(
    name="las-on-spark",
    title="Load-Aware Shedding in Stream Processing Systems, on Spark",
    version=5,
    figures=(
        OnSpark(
            id="10",
            title="Seven phases on Spark, τ = 1.5 s",
            rows=9_000,
            quick_rows=700,
            limit_s=1.5,
            stream=phases,
            claim=lambda results, limit_s: claims_10(results, PHASES, limit_s),
            borders=PHASES,
        ),
        OnSpark(
            id="11",
            title="Tweets on Spark, τ = 1 s",
            rows=27_000,
            quick_rows=1_500,
            limit_s=1.0,
            stream=tweets,
            claim=claims_11,
        ),
    ),
)
