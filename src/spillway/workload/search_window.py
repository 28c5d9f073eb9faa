"""The ranked window: what the search has found, in order of its score at any time.

CS, sections 4.3.8 and 4.6.1.12 to 13. The window is stateful: it grows, and every new row may move
the largest values, and with them the scores of all others. score = Σ metric / (its largest in the
window), so each metric counts at most 1; equal scores share the mean of their places.

A metric that was not measured, because its subtask was off, is NaN. The thesis counts it 0, which
puts tweets of a busy second behind others. By the mean of those that have it, tweets that lack
metrics crowd in the middle and push all others outwards. So they are scaled, too: the scores of
tweets that have everything, with and without those metrics, tell what a score without is worth.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from spillway.workload.search_work import METRICS

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Objects = NDArray[np.object_]
Missing = Literal["scaled", "mean", "zero"]

WHOLE_MIN = 20  # so many tweets that have everything tell what the scores of others are worth


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Window:
    """Found tweets, in the order in which they came in. Adding returns a new window.

    rows_max: the oldest beyond so many are let go of.
    keep_s:   those that arrived longer ago than this, before the newest, are let go of; none stay
              for ever, as in the thesis.
    missing:  what a metric counts that was not measured: "zero" as in the thesis, the "mean", or
              the mean and then "scaled".
    """

    ids: Ints
    arrived_s: Floats
    metrics: Floats  # a row for each tweet, a column for each of METRICS
    shown: Objects  # whatever is to be shown of a tweet
    rows_max: int = 50_000
    keep_s: float | None = None
    missing: Missing = "scaled"

    def __post_init__(self) -> None:
        """Reject a window that holds nothing."""
        if self.rows_max < 1:
            raise ValueError(f"rows_max must be >= 1, got {self.rows_max}")
        if self.keep_s is not None and not self.keep_s > 0:
            raise ValueError(f"keep_s must be > 0, got {self.keep_s}")

    def __len__(self) -> int:
        """Count the tweets."""
        return self.ids.size

    def with_rows(
        self,
        ids: Sequence[int],
        arrived_s: Sequence[float],
        metrics: Sequence[Sequence[float]],
        shown: Sequence[Any],
    ) -> Window:
        """Return the window with more tweets, and without those whose time is over."""
        table = np.array(metrics, dtype=np.float64).reshape(len(ids), len(METRICS))
        if (np.isinf(table) | (table < 0)).any():
            raise ValueError("metrics must be finite and >= 0, or NaN if not measured")
        grown = replace(
            self,
            ids=np.concatenate([self.ids, np.array(ids, dtype=np.int64)]),
            arrived_s=np.concatenate([self.arrived_s, np.array(arrived_s, dtype=np.float64)]),
            metrics=np.concatenate([self.metrics, table]),
            shown=np.concatenate([self.shown, _objects(shown)]),
        )
        return grown.only(grown._staying())

    def ranking(self) -> Ranking:
        """Return all tweets of the window with score and rank, the best first."""
        return ranked(self, scores_of(normalised(self.metrics), self.missing))

    def only(self, stay: NDArray[np.bool_]) -> Window:
        """Return the window with some of its tweets alone."""
        if stay.all():
            return self
        return replace(
            self,
            ids=self.ids[stay],
            arrived_s=self.arrived_s[stay],
            metrics=self.metrics[stay],
            shown=self.shown[stay],
        )

    def _staying(self) -> NDArray[np.bool_]:
        stay = np.ones(len(self), dtype=np.bool_)
        if self.keep_s is not None and len(self):
            stay = self.arrived_s >= self.arrived_s.max() - self.keep_s
        newest = np.cumsum(stay[::-1])[::-1]
        result: NDArray[np.bool_] = stay & (newest <= self.rows_max)
        return result


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ranking:
    """Tweets, the best first; of equals the one that came first."""

    ids: Ints
    scores: Floats
    ranks: Floats
    metrics: Floats
    shown: Objects

    def __len__(self) -> int:
        """Count the tweets."""
        return self.ids.size

    def by_id(self) -> dict[Hashable, float]:
        """Return the rank of every tweet, as `Footrule` compares them."""
        return dict(zip(self.ids.tolist(), self.ranks.tolist(), strict=True))


def empty(
    *, rows_max: int = 50_000, keep_s: float | None = None, missing: Missing = "scaled"
) -> Window:
    """Return a window that has found nothing yet.

    >>> window = empty().with_rows([7, 8], [0.0, 1.0], [[4.0] + [0.0] * 8, [2.0] + [0.0] * 8], "ab")
    >>> window.ranking().scores.tolist()
    [1.0, 0.5]
    """
    return Window(
        ids=np.empty(0, dtype=np.int64),
        arrived_s=np.empty(0),
        metrics=np.empty((0, len(METRICS))),
        shown=np.empty(0, dtype=object),
        rows_max=rows_max,
        keep_s=keep_s,
        missing=missing,
    )


def normalised(metrics: Floats) -> Floats:
    """Return the metrics by the largest of each; one of which all are 0 stays 0 (subtask 12).

    >>> normalised(np.array([[4.0, 0.0], [1.0, 0.0]])).tolist()
    [[1.0, 0.0], [0.25, 0.0]]
    """
    largest = np.fmax.reduce(metrics, axis=0, initial=0.0)  # passes NaN over
    return metrics / np.where(largest > 0, largest, 1.0)


def filled(metrics: Floats, missing: Missing) -> Floats:
    """Return the metrics with a number for each that was not measured.

    >>> filled(np.array([[1.0], [0.5], [np.nan]]), "mean").tolist()
    [[1.0], [0.5], [0.75]]
    """
    by = 0.0 if missing == "zero" else _means(metrics)
    return np.where(np.isnan(metrics), by, metrics)


def _means(metrics: Floats) -> Floats:
    """Return the mean of each metric over the tweets that have it; 0 if none does."""
    measured = ~np.isnan(metrics)
    sums = np.where(measured, metrics, 0.0).sum(axis=0)
    means: Floats = sums / np.maximum(measured.sum(axis=0), 1)
    return means


def scores_of(metrics: Floats, missing: Missing) -> Floats:
    """Return the sums of normalised metrics (subtask 13), whatever of them was measured.

    >>> half = np.array([[k, k] for k in np.linspace(0, 1, 21)] + [[0.25, np.nan]])
    >>> float(scores_of(half, "mean")[-1]), float(scores_of(half, "scaled")[-1])
    (0.75, 0.5)
    """
    sums = filled(metrics, missing).sum(axis=1)
    return _scaled(sums, metrics) if missing == "scaled" else sums


def _scaled(sums: Floats, metrics: Floats) -> Floats:
    """Bring the sums of tweets that lack metrics to the scale of those that have all."""
    lacks = np.isnan(metrics)
    whole = ~lacks.any(axis=1)
    if whole.all() or whole.sum() < WHOLE_MIN:
        return sums
    scaled, means = sums.copy(), _means(metrics)
    for lacking in np.unique(lacks[~whole], axis=0):
        alike = (lacks == lacking).all(axis=1)
        without = np.where(lacking, means, metrics[whole]).sum(axis=1)
        scaled[alike] = _worth(sums[alike], without, sums[whole])
    return scaled


def _worth(scores: Floats, without: Floats, whole: Floats) -> Floats:
    """Map scores so that the distribution of `without` becomes that of `whole`.

    Both are of the same tweets, so that the chance by which they were picked cancels out.
    """
    levels, place = np.unique(np.sort(without), return_inverse=True)
    worth = np.bincount(place, np.sort(whole)) / np.bincount(place)
    beyond = scores - np.clip(scores, levels[0], levels[-1])
    result: Floats = np.interp(scores, levels, worth) + beyond
    return result


def ranked(window: Window, scores: Floats) -> Ranking:
    """Return a window's tweets by their scores."""
    order = np.argsort(-scores, kind="stable")
    return Ranking(
        ids=window.ids[order],
        scores=scores[order],
        ranks=fractional(scores[order]),
        metrics=window.metrics[order],
        shown=window.shown[order],
    )


def fractional(scores: Floats) -> Floats:
    """Return the ranks of falling scores; equals share the mean of their places.

    >>> fractional(np.array([9.0, 5.0, 5.0, 1.0])).tolist()
    [1.0, 2.5, 2.5, 4.0]
    """
    _, first, counts = np.unique(-scores, return_index=True, return_counts=True)
    return np.repeat(first + (counts + 1) / 2.0, counts)


@dataclass(frozen=True, slots=True)
class Score:
    """What a tweet is worth beside a whole window, by the largest of every metric there."""

    largest: tuple[float, ...]

    def __call__(self, row: Mapping[str, Any]) -> float:
        """Return the sum of its metrics; one that was not measured counts nothing."""
        pairs = zip(row["metrics"], self.largest, strict=True)
        parts = (min(value / most, 1.0) for value, most in pairs if most > 0 and value == value)
        return math.fsum(parts)


def _objects(shown: Sequence[Any]) -> Objects:
    """Return an array of the things themselves, whatever they are."""
    return np.fromiter(shown, dtype=object, count=len(shown))
