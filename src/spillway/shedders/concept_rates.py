"""Keep rates by cell of a concept, such that the expected share of the rows to come is kept.

A group of n rows is kept at the rate clip(κ s, least, 1); κ is found by bisection. The allocations
differ in s, which they make proportional to (k = rate · n are the rows kept of the group, μ and σ
the mean and the deviation of its values, N all rows, G the number of groups):

    proportional  1                        k ∝ n: the window in small, as in CoD (section VI-C)
    congress      max(1 / N, 1 / (G n))    k ∝ max(n / N, 1 / G): rare groups as well as frequent
    neyman        √(σ² + μ²)               least variance of the weighted total of all rows: rows
                                           are kept one by one, so it is Σ x² (1 / rate - 1)
    cvopt         σ / (|μ| n)              least sum of squared relative errors of groups' means

`least` is rows_min / n: so many rows of every group, in expectation. Where cells are shared by
several groups, n is the cell's rows over the groups that share it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spillway.kernels import count_min
from spillway.shedders.concept_cells import CELLS, Cells, folded
from spillway.shedders.group_sizes import Allocation

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

ROWS_LEANING = 8.0  # a cell of so few sampled values leans halfway towards the pooled ones
_MEAN_MIN = 0.05  # of the deviation: nearer to 0 a relative error is taken of this much
_STRENGTH_MIN = 1e-12  # what does not vary at all is still kept when all else is
_NEW = 0.5  # fewer rows are none: counts are rounded
_RATE_MIN = 1e-6
_LEVEL_MIN = 1e-25  # of the highest level that makes sense
_STEPS = 50
_FOLDED = folded(np.arange(CELLS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """Rows like those to come: how many there are in each cell, and the cells of some of them.

    `each` says how many rows one of them stands for in the counts of the concept.
    """

    counts: Floats
    sampled: Ints
    each: float = 1.0

    def kept(self, rates: Floats) -> float:
        """Return which share of the rows is kept if each is kept at the greatest of its rates.

        The counts say exactly what the mean of its rates would keep, the sample what the greatest
        adds to it: little, so that a small sample tells it well.
        """
        share = float(self.counts @ rates) / max(float(self.counts.sum()), 1e-300)
        if not self.sampled.size:
            return share
        found = rates[self.sampled]
        return share + float((found.max(axis=0) - found.mean(axis=0)).mean())

    def without(self, counts: Floats) -> Floats:
        """Return what each of these rows would find counted if it had not been counted itself.

        So the next row will find it: its group may be new, and is less known than it seems.
        """
        return np.where(self.counts > 0, np.maximum(counts - self.each, 0.0), counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """How much is to be kept, and how it is shared out among the groups."""

    share: float
    allocation: Allocation
    rows_min: float
    keep_min: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claims:
    """What every cell may ask for: rows of its own, and a part of what is left."""

    least: Floats
    strengths: Floats
    floor: float

    @classmethod
    def of(cls, concept: Cells, counts: Floats, rule: Rule) -> _Claims:
        """Read the claims of so many rows; a cell without any is a group's first row."""
        seen = counts > _NEW
        rows = np.where(seen, counts / max(groups_by_cell(concept.counts), 1.0), 1.0)
        least = np.where(seen, rule.rows_min, max(rule.rows_min, 1.0)) / rows
        strengths = np.maximum(_STRENGTHS[rule.allocation](concept, rows), _STRENGTH_MIN)
        return cls(least=least, strengths=strengths, floor=max(rule.keep_min, _RATE_MIN))

    def rates(self, scale: float, level: float) -> Floats:
        """Return the rates for a share of the own rows and a level of the rest."""
        lowest = np.clip(scale * self.least, self.floor, 1.0)
        return np.clip(level * self.strengths, lowest, 1.0)


def keep_rates(concept: Cells, ahead: Ahead, rule: Rule) -> Floats:
    """Return the rate of every cell; where no row was counted it is 1, if the budget allows.

    What `rows_min` and new groups ask for may take (1 + share) / 2 of the budget and is cut down to
    that: the rest goes to the groups that most rows are of.
    """
    found = _Claims.of(concept, ahead.without(concept.counts), rule)
    for_least = rule.share * (1.0 + rule.share) / 2.0
    scale = _highest(lambda at: ahead.kept(found.rates(at, 0.0)), for_least, 1.0)
    highest = 1.0 / float(found.strengths.min())
    level = _highest(lambda at: ahead.kept(found.rates(scale, at)), rule.share, highest)
    return _Claims.of(concept, concept.counts, rule).rates(scale, level)


def groups_by_cell(counts: Floats) -> float:
    """Return how many groups a cell has on average, from how many cells are empty."""
    return -math.log(max(float(np.mean(counts <= _NEW)), 0.5 / counts.size))


def _proportional(concept: Cells, rows: Floats) -> Floats:
    return np.ones(CELLS)


def _congress(concept: Cells, rows: Floats) -> Floats:
    groups = max(groups_by_cell(concept.counts) * count_min.COLUMNS, 1.0)
    total = max(float(concept.counts.sum()) / count_min.ROWS, 1.0)
    return np.asarray(np.maximum(1.0 / total, 1.0 / (groups * rows)))


def _neyman(concept: Cells, rows: Floats) -> Floats:
    mean, deviation = values_of(concept)
    return np.hypot(mean, deviation)


def _cvopt(concept: Cells, rows: Floats) -> Floats:
    mean, deviation = values_of(concept)
    return deviation / (np.maximum(np.abs(mean), _MEAN_MIN * deviation + 1e-300) * rows)


_STRENGTHS: dict[str, Callable[[Cells, Floats], Floats]] = {
    "proportional": _proportional,
    "congress": _congress,
    "neyman": _neyman,
    "cvopt": _cvopt,
}


def values_of(concept: Cells) -> tuple[Floats, Floats]:
    """Return mean and deviation of the values in every cell, leaning towards the pooled ones.

    The pooled mean is that of all sampled rows, the pooled variance that within the cells.
    """
    rows, mean, deviation = concept.moments
    total = float(rows.sum())
    if not total:
        return np.ones(CELLS), np.ones(CELLS)
    free = np.maximum(rows - 1.0, 0.0)
    squares = rows * np.square(deviation)
    pooled_mean = float(rows @ mean) / total
    pooled = float(squares.sum()) / max(float(free.sum()), 1.0)
    leaning = (rows * mean + ROWS_LEANING * pooled_mean) / (rows + ROWS_LEANING)
    variance = (squares + ROWS_LEANING * pooled) / (free + ROWS_LEANING)
    return leaning[_FOLDED], np.sqrt(variance)[_FOLDED]


def _highest(kept: Callable[[float], float], target: float, highest: float) -> float:
    """Return the highest level at which no more than the target is kept, by bisection.

    Levels differ by orders of magnitude: it is their logarithm that is halved.
    """
    if kept(highest) <= target:
        return highest
    low, high = highest * _LEVEL_MIN, highest
    for _ in range(_STEPS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if kept(middle) <= target else (low, middle)
    return low
