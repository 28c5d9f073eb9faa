"""Measures the subtasks on a sample: what each takes, and what the ranking loses without it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from time import thread_time_ns
from typing import cast

from apps.tweet_search.ranking import Window, empty, filled, normalised, ranked
from apps.tweet_search.subtasks import Does, Row
from apps.tweet_search.tweets import Tweet
from spillway.degrade.accuracy import Footrule, Ranks
from spillway.degrade.profile import Profile, Profiler, Run
from spillway.degrade.subtask import Subtasks


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Runs the search over a sample, with some subtasks off, and times every subtask.

    Subtask by subtask over all rows, as the operator does it, so that the clock is read seldom. It
    counts the time of this thread: what other programs do meanwhile is not a subtask's.
    """

    subtasks: Subtasks
    tweets: Sequence[Tweet]
    clock_ns: Callable[[], int] = thread_time_ns

    def run(self, off: frozenset[str]) -> Run[Ranks]:
        """Return the ranking of the sample, and what it took."""
        found, busy_ns = self.found(off)
        began_ns = self.clock_ns()
        window = window_of(found)
        metrics = filled(normalised(window.metrics), window.missing)
        between_ns = self.clock_ns()
        ranks = ranked(window, metrics).by_id()
        busy_ns["normalisation"] += between_ns - began_ns
        busy_ns["rank"] += self.clock_ns() - between_ns
        busy_s = {name: taken_ns / 1e9 for name, taken_ns in busy_ns.items()}
        return Run(result=ranks, rows=len(self.tweets), busy_s=busy_s)

    def found(self, off: Iterable[str] = ()) -> tuple[list[Row], dict[str, int]]:
        """Return the rows that are results, and how long each subtask took for all of them."""
        rows = [tweet.row(number) for number, tweet in enumerate(self.tweets)]
        busy_ns: dict[str, int] = {}
        for subtask in self.subtasks.selected(off):
            began_ns = self.clock_ns()
            rows = _worked(cast("Does", subtask.does), rows)
            busy_ns[subtask.name] = self.clock_ns() - began_ns
        return rows, busy_ns


def window_of(found: Sequence[Row]) -> Window:
    """Return a window with these rows."""
    return empty(rows_max=max(len(found), 1)).with_rows(
        [row["id"] for row in found],
        [0.0] * len(found),
        [row["metrics"] for row in found],
        found,
    )


def _worked(does: Does, rows: Iterable[Row]) -> list[Row]:
    """Add to the rows what a subtask makes of them; without those that are no result."""
    kept = []
    for row in rows:
        made = does(row)
        if made is not None:
            row.update(made)
            kept.append(row)
    return kept


def profile(subtasks: Subtasks, tweets: Sequence[Tweet]) -> Profiled:
    """Measure the subtasks on these tweets: with all, without each, without any."""
    search = Search(subtasks=subtasks, tweets=tweets)
    found, _ = search.found()  # it warms up, too
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
