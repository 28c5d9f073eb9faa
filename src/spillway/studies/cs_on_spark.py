"""CS's figures 5.2 to 5.6 on Spark: eight load handlers on the tweet search, at growing rates.

The empty handler does everything and is late. LS-R and LS-S shed rows, by chance and by their
number of words. CS-D, CS-A, CS-C and CS-B leave out subtasks, each by its own search of the plan;
so does the frontier, which mixes two selections. Beyond what leaving out can do, all five let go
of rows by chance, so that they differ in their selections alone.

Load 1 is as much work as one core can do if it does nothing else. In a batch of about 1.1 s Spark
itself takes some tenths, so that overload begins below 1. Displacement is that of all results that
must be there by the limit, second by second; what is missing shares the last places. The thesis
plays 100,000 tweets at 1,000 to 50,000 a second, where 3,500 are load 1; here every rate is played
for the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from spillway.studies import cs_search
from spillway.studies.cs_claims import (
    DEGRADING,
    EMPTY,
    FRONTIER,
    LIMIT_S,
    NAMES,
    TURNS,
    TURNS_BEYOND,
    claims_rates,
    kept,
    label,
    loads,
    throughput,
    typical,
)
from spillway.studies.cs_run import Play, play
from spillway.studies.study import Claim, Figure, Panel, Point, Results, Series, Study
from spillway.workload.search_files import Source
from spillway.workload.search_work import NUMBERS

LOADS = (0.5, 1.2, 2.0, 5.0)
_OVERLOADS = tuple(load for load in LOADS if load > 1)
_QUICK_LOADS = (0.5, 2.0)
_SHEDDING = tuple(name for name in NAMES if name != EMPTY)
Value = Callable[[Results, str, float], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Every handler at every rate, one after the other.

    Runs of nine seconds scatter. Under overload those that give up work have three turns, at the
    highest load eight, each after all others have had theirs, and the median counts.
    """

    id: str = "rates"
    title: str = "Figures 5.2 to 5.6: load handlers at growing rates, on Spark"
    data: str | None = None
    seconds: float = 9.0
    quick_seconds: float = 6.0
    runs: int = 1
    quick_runs: int = 1

    def points(self) -> Sequence[Point]:
        """Return a point for every handler and rate."""
        return [
            *self._points(LOADS, NAMES, self.seconds),
            *(
                point
                for turn in range(1, TURNS_BEYOND)
                for point in self._points(_again(turn), DEGRADING, self.seconds, turn)
            ),
        ]

    def quick_points(self) -> Sequence[Point]:
        """Return a few of them, shorter."""
        return self._points(_QUICK_LOADS, NAMES, self.quick_seconds)

    def _points(
        self, loads: Sequence[float], names: Sequence[str], seconds: float, turn: int = 0
    ) -> list[Point]:
        same = {"seconds": seconds, "tweets": "real" if self.data else "made", "turn": turn}
        return [
            Point(label(name, load, turn), {"handler": name, "load": load, **same})
            for load in loads
            for name in names
        ]

    def compute(self, point: Point, runs: range, seed: int) -> dict[str, list[float]]:
        """Play the tweets through the point's handler."""
        wanted = Play(
            handler=str(point.params["handler"]),
            load=float(point.params["load"]),
            seconds=float(point.params["seconds"]),
            source=Source(data=self.data, tweets=cs_search.TWEETS, seed=seed, shuffled=True),
        )
        return play(wanted).numbers()

    def draw(self, results: Results) -> Figure:
        """Draw what the thesis draws against the data rate, and what it does not."""
        limit = ((f"limit {LIMIT_S:g} s", LIMIT_S),)
        return Figure(
            self.id,
            self.title,
            (
                _panel("5.3: rows that wait, on average", results, _of("queue_rows"), log=True),
                _panel("mean latency (s)", results, _of("latency_s"), log=True, lines=limit),
                _panel("5.4: share of the valid results that are there", results, _of("there")),
                _panel("share of the rows that are searched", results, kept),
                _panel("5.5: time until all is done (s)", results, _of("duration_s"), log=True),
                _panel("rows searched in a second, against the empty handler", results, _ratio),
                _panel("5.6: displacement / most possible", results, _of("displaced")),
                _panel("5.2: deciding on a batch (ms)", results, _decided, _SHEDDING, log=True),
                *_selections(results),
            ),
        )

    def claims(self, results: Results) -> list[Claim]:
        """Check what must hold."""
        return claims_rates(results)


def _again(turn: int) -> tuple[float, ...]:
    """Return the loads of a turn after the first."""
    return _OVERLOADS if turn < TURNS else _OVERLOADS[-1:]


def _panel(
    title: str,
    results: Results,
    value: Value,
    names: Sequence[str] = NAMES,
    *,
    log: bool = False,
    lines: tuple[tuple[str, float], ...] = (),
) -> Panel:
    x = tuple(loads(results))
    series = (Series(name, x, tuple(value(results, name, at) for at in x)) for name in names)
    return Panel(title, tuple(series), "load", log, lines)


def _selections(results: Results) -> list[Panel]:
    """Tables 5.7 and 5.8: for which share of the results each optional subtask ran."""
    keys = [key for key in results[label(FRONTIER, loads(results)[0])] if key.startswith("on/")]
    names = tuple(str(NUMBERS[key[3:]]) for key in keys)
    return [
        Panel(
            f"5.7, 5.8: share of the results for which a subtask ran, load {load:g}",
            tuple(
                Series(name, names, tuple(typical(results, name, load, key) for key in keys))
                for name in DEGRADING
            ),
            "subtask",
        )
        for load in loads(results)[1:-1] or loads(results)[-1:]
    ]


def _of(key: str) -> Value:
    return lambda results, name, load: typical(results, name, load, key)


def _decided(results: Results, name: str, load: float) -> float:
    return 1e3 * typical(results, name, load, "decided_s")


def _ratio(results: Results, name: str, load: float) -> float:
    return throughput(results, name, load) / throughput(results, EMPTY, load)


@lru_cache(maxsize=2)
def with_data(folder: str | None) -> Study:
    """Return the study on the real tweets of a folder; on made ones if there is none."""
    return Study(
        name="cs-on-spark",
        title="Computational Shedding in Stream Computing, on Spark",
        figures=(Rates(data=folder),),
    )


STUDY = with_data(None)
