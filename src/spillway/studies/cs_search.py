"""The search of tweets, as the study and the application run it: subtasks, profile, ideal.

What each subtask does, the window and the tweets are in `spillway.workload`; here they become
subtasks that may be left out, with what that saves and what it loses.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from spillway.degrade.accuracy import Footrule, RankedRows, Ranks
from spillway.degrade.profile import Profile, Profiler
from spillway.degrade.sample import Complete, Row, Sample
from spillway.degrade.subtask import Subtask, Subtasks
from spillway.guard import Guard
from spillway.spark import burst_source
from spillway.workload.search_files import READ, Source, Tweet
from spillway.workload.search_window import Score, Window, empty
from spillway.workload.search_work import search_parts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TWEETS = 20_000  # so many are loaded, once by every worker; then they come again
SCHEMA = (
    "id bigint, author string, text string, metrics array<double>, measured int, arrived timestamp"
)
WORDS = "size(split(trim(text), ' +'))"  # what a row is worth to the semantic shedder (4.4.2)
COLUMNS = tuple(column.split()[0] for column in SCHEMA.split(", "))


def search_subtasks(query: str, *, effort: int = 1) -> Subtasks:
    """Return the 13 subtasks of a search for any word of the query, 9 of them optional.

    `effort`: every subtask does its work so many times, so that a lower rate is too much.

    >>> work = search_subtasks("Just in Time")
    >>> len(work), len(work.optional)
    (13, 9)
    """
    return Subtasks(search_parts(query, Subtask, effort=effort))


def complete(subtasks: Subtasks) -> Complete:
    """Return the operator that does all of a search for every tweet."""
    return Complete(subtasks, COLUMNS)


def ideal(
    source: Source,
    query: str,
    numbers: NDArray[np.int64],
    arrived_s: NDArray[np.float64],
    window: Window,
) -> Window:
    """Return the window with all rows that came, each with all subtasks: row n is tweet n.

    After the last tweet the first one comes again.
    """
    metrics, tweets = _metrics(source, query), len(source.load())
    found = np.isin(numbers % tweets, list(metrics))
    return window.with_rows(
        numbers[found].tolist(),
        arrived_s[found].tolist(),
        [metrics[number % tweets] for number in numbers[found].tolist()],
        [None] * int(found.sum()),
    )


@lru_cache(maxsize=2)
def _metrics(source: Source, query: str) -> dict[int, list[float]]:
    """Return the metrics of the tweets that are found, by their number: each is searched once."""
    search = complete(search_subtasks(query))
    rows = (search({**tweet.row(n), "arrived": None}) for n, tweet in enumerate(source.load()))
    return {row["id"]: row["metrics"] for row in rows if row is not None}


def open_tweets(
    spark: SparkSession, source: Source, *, rate: str, seconds: float, instances: int = 1
) -> DataFrame:
    """Return the stream of tweets: arrivals from the clock, contents by their number."""
    burst_source.register(spark)
    clock = (
        spark.readStream.format("spillway-burst")
        .options(rate=rate, duration=f"{seconds:g}", partitions=str(instances))
        .load()
    )
    return clock.mapInArrow(source, READ).coalesce(instances)


def whole(tweets: DataFrame, guard: Guard, subtasks: Subtasks, *, gate: bool) -> DataFrame:
    """Search with all subtasks: all tweets, or those that the guard's gate keeps."""
    if gate:
        tweets = guard.protect(tweets, arrived="arrived", identity=["id"])
    return guard.map(tweets, complete(subtasks), SCHEMA, arrived="arrived")


def degraded(
    tweets: DataFrame,
    guard: Guard,
    subtasks: Subtasks,
    profiled: Profiled,
    *,
    effort: int,
    share: float = 0.01,
) -> DataFrame:
    """Search with the subtasks that the guard selects; a share of the tweets runs complete."""
    return guard.run(
        tweets,
        subtasks,
        schema=SCHEMA,
        profile=profiled.longer(effort),
        measure=RankedRows(item="id", score=Score(profiled.largest)),
        complete=share,
        arrived="arrived",
        identity=["id"],
    )


def await_books(guard: Guard) -> None:
    """Wait for the last batches to come into the books; Spark tells of them a little later."""
    pause, deadline = threading.Event(), time.monotonic() + 5.0
    while guard.gaps() and time.monotonic() < deadline:
        pause.wait(0.1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiled:
    """A profile, and the sample that it was measured on.

    `largest`: of every metric, over the tweets that were found in the sample.
    """

    profile: Profile
    rows: int
    found: int
    largest: tuple[float, ...]

    def longer(self, times: int) -> Profile:
        """Return the profile of subtasks that do their work so many times."""
        durations_s = {name: s * times for name, s in self.profile.duration_s.items()}
        return replace(self.profile, duration_s=durations_s)

    @property
    def displacement_max(self) -> int:
        """The displacement of a ranking of this length that is turned round."""
        return self.found**2 // 2

    def displacement(self, name: str) -> float:
        """Return by how many places, over all tweets, the ranking is off without a subtask."""
        return self.profile.lost[name] * self.displacement_max


def sample_of(subtasks: Subtasks, tweets: Sequence[Tweet]) -> Sample[Ranks]:
    """Return the search over a sample; ranking counts to the subtask that ranks."""
    rows = [tweet.row(number) for number, tweet in enumerate(tweets)]
    return Sample(
        subtasks=subtasks,
        rows=rows,
        result=lambda found: window_of(found).ranking().by_id(),
        adds="rank",
    )


def window_of(found: Sequence[Row]) -> Window:
    """Return a window with these rows."""
    return empty(rows_max=max(len(found), 1)).with_rows(
        [row["id"] for row in found],
        [0.0] * len(found),
        [row["metrics"] for row in found],
        found,
    )


def profile(subtasks: Subtasks, tweets: Sequence[Tweet]) -> Profiled:
    """Measure the subtasks on these tweets: with all, without each, without any."""
    search = sample_of(subtasks, tweets)
    found, _ = search.finished()  # it warms up, too
    if len(found) < 2:
        raise ValueError(
            f"the query must be found in at least 2 of the {len(tweets)} tweets of the sample, "
            f"got {len(found)}"
        )
    return Profiled(
        profile=Profiler().profile(subtasks, search.run, Footrule()),
        rows=len(tweets),
        found=len(found),
        largest=tuple(window_of(found).metrics.max(axis=0).tolist()),
    )
