"""Measures the subtasks on a sample: what each takes, and what the ranking loses without it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter_ns
from typing import Any, cast

from apps.tweet_search.ranking import empty, normalised, ranked
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


@dataclass(kw_only=True)
class Search:
    """Runs the search over a sample, with some subtasks off, and times every subtask.

    One reading of the clock ends a subtask and begins the next.
    """

    subtasks: Subtasks
    tweets: Sequence[Tweet]
    clock_ns: Callable[[], int] = perf_counter_ns
    busy_ns: dict[str, int] = field(default_factory=dict)
    largest: tuple[float, ...] = ()  # of the latest run

    def run(self, off: frozenset[str]) -> Run[Ranks]:
        """Return the ranking of the sample, and what it took."""
        on = [(each.name, cast("Does", each.does)) for each in self.subtasks.selected(off)]
        self.busy_ns = dict.fromkeys((name for name, _ in on), 0)
        rows = (self.worked(tweet.row(number), on) for number, tweet in enumerate(self.tweets))
        ranks = self._ranked([row for row in rows if row is not None])
        busy_s = {name: busy_ns / 1e9 for name, busy_ns in self.busy_ns.items()}
        return Run(result=ranks, rows=len(self.tweets), busy_s=busy_s)

    def worked(self, row: Row, on: Sequence[tuple[str, Does]]) -> Row | None:
        """Return a row with what these subtasks add to it; none if it is no result."""
        before = self.clock_ns()
        for name, does in on:
            made = does(row)
            after = self.clock_ns()
            self.busy_ns[name] += after - before
            before = after
            if made is None:
                return None
            row.update(made)
        return row

    def _ranked(self, found: list[Row]) -> Ranks:
        """Rank the whole sample once; that is work of the subtasks 12 and 13."""
        began = self.clock_ns()
        window = empty(rows_max=max(len(found), 1)).with_rows(
            [row["id"] for row in found],
            [0.0] * len(found),
            [row["metrics"] for row in found],
            found,
        )
        self.largest = tuple(window.metrics.max(axis=0, initial=0.0).tolist())
        metrics = normalised(window.metrics)
        between = self.clock_ns()
        ranks: Any = ranked(window, metrics).by_id()
        self.busy_ns["normalisation"] += between - began
        self.busy_ns["rank"] += self.clock_ns() - between
        return cast("Ranks", ranks)


def profile(subtasks: Subtasks, tweets: Sequence[Tweet]) -> Profiled:
    """Measure the subtasks on these tweets: with all, without each, without any."""
    search = Search(subtasks=subtasks, tweets=tweets)
    found = len(search.run(frozenset()).result)  # it warms up, too
    if found < 2:
        raise ValueError(
            f"the query must be found in at least 2 of the {len(tweets)} tweets of the sample, "
            f"got {found}"
        )
    largest = search.largest
    measured = Profiler().profile(subtasks, search.run, Footrule())
    return Profiled(profile=measured, rows=len(tweets), found=found, largest=largest)
