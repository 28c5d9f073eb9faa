"""The windows of a stream: cut by time, told by group, sampled without a seed of their own.

A rival is a number of rows for every group. Which rows they are is one shuffle of the window, the
same for all rivals of a run: the first so many of every group, a uniform sample of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spillway.estimate import groups as estimate
from spillway.estimate.moments import divided, sums
from spillway.shedders.group_sizes import Groups

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """A stream in order of time: when, of which group, and the value that is aggregated."""

    time_s: Floats
    group: Ints
    value: Floats

    def between(self, first_s: float, last_s: float) -> Rows:
        """Return the rows from a time to just before another."""
        first, last = np.searchsorted(self.time_s, [first_s, last_s])
        part = slice(first, last)
        return Rows(time_s=self.time_s[part], group=self.group[part], value=self.value[part])


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A window, row by row and group by group; `names` are the groups in ascending order."""

    code: Ints  # of every row: its group's place in `names`
    value: Floats
    names: Ints
    groups: Groups

    @property
    def rows(self) -> Ints:
        """How many rows each group has."""
        return self.groups.rows

    @property
    def total(self) -> int:
        """How many rows there are."""
        return self.value.size

    @classmethod
    def of(cls, rows: Rows) -> Window:
        """Tell the groups of the rows, with their exact moments."""
        names, code = np.unique(rows.group, return_inverse=True)
        count = np.bincount(code)
        mean = np.bincount(code, rows.value) / count
        squares = np.bincount(code, (rows.value - mean[code]) ** 2)
        variance = np.where(count > 1, squares / np.maximum(count - 1, 1), np.nan)
        groups = Groups(rows=count, means=mean, variances=variance)
        return cls(code=code, value=rows.value, names=names, groups=groups)

    def shuffled(self, random: np.random.Generator) -> Shuffled:
        """Put the rows of every group together, in random order within the group."""
        order = np.argsort(self.code + random.random(self.total))
        starts = np.concatenate([[0], np.cumsum(self.rows)])
        return Shuffled(values=self.value[order], starts=starts, rows=self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shuffled:
    """The values of a window, group after group, in random order within each."""

    values: Floats
    starts: Ints
    rows: Ints

    def sample(self, kept: Ints) -> estimate.GroupSample:
        """Return the first so many values of every group."""
        ends = np.cumsum(kept)
        place = np.arange(ends[-1]) + np.repeat(self.starts[:-1] - ends + kept, kept)
        starts = np.concatenate([[0], ends])
        return estimate.GroupSample(values=self.values[place], starts=starts, rows=self.rows)


class Pair(NamedTuple):
    """A window, and the one that began a slide before it."""

    before: Window
    window: Window


class Judged(NamedTuple):
    """How a rival did in a window: relative error, share of its rows kept, share of groups lost."""

    error: float
    kept: float
    missing: float


def judge(window: Window, shuffled: Shuffled, kept: Ints) -> Judged:
    """Estimate the mean of every group from what is kept; a missing group errs by 100 %."""
    sample = shuffled.sample(kept)
    found = divided(sums(sample.values, sample.starts), kept)  # as estimate.means, no intervals
    errors = estimate.error_sources(window.groups.means, found)
    return Judged(
        error=errors.mean_relative,
        kept=float(kept.sum() / window.total),
        missing=errors.missing / errors.groups,
    )


def starts_of(rows: Rows, *, size_s: float, slide_s: float) -> Floats:
    """Return when the full windows begin, the first with the first row."""
    first, last = float(rows.time_s[0]), float(rows.time_s[-1])
    count = int((last - first - size_s) // slide_s) + 1
    starts: Floats = first + slide_s * np.arange(max(count, 0), dtype=np.float64)
    return starts


def pairs(rows: Rows, starts: Floats, *, size_s: float, slide_s: float) -> Iterator[Pair]:
    """Cut windows that have rows, each with the one before it (partly or wholly, if need be)."""
    for start in starts:
        at, earlier = (
            rows.between(begin, begin + size_s) for begin in (float(start), float(start) - slide_s)
        )
        if at.value.size and earlier.value.size:
            yield Pair(Window.of(earlier), Window.of(at))
