"""Overload detectors of a node that runs many queries: how much of the input buffer may stay.

At the end of every interval a detector hears what was done in it and says how much can be done in
the next: DISSP's in rows of the average cost, ours in seconds with a cost for every query.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Interval:
    """What was done between two looks at the buffer; rows and busy seconds by query.

    `elapsed_s` is the measured length, `locked_s` how long the shedder held the buffer in it.
    """

    elapsed_s: float
    rows: Ints
    busy_s: Floats
    locked_s: float = 0.0


History = tuple[Interval, ...]  # the latest intervals, oldest first


@dataclass(frozen=True, slots=True, kw_only=True)
class RowDetector:
    """DISSP's detector: N = δ / C rows fit into an interval δ, at C = t / n seconds a row.

    t is the measured time between two looks and n the rows done in it (eq. 5.2, 5.3); both are
    averaged over the last `window` intervals. What waits beyond N must go (eq. 5.1).

    >>> done = Interval(elapsed_s=0.3, rows=np.array([3000, 2000]), busy_s=np.array([0.1, 0.2]))
    >>> detector = RowDetector()
    >>> round(detector.capacity(detector.learn((), done)))  # the example of section 5.3
    4167
    """

    interval_s: float = 0.25
    window: int = 40

    def __post_init__(self) -> None:
        """Reject intervals without length and averages of nothing."""
        _check(self.interval_s, self.window)

    def learn(self, history: History, done: Interval) -> History:
        """Return the history with one more interval."""
        return (*history, done)[-self.window :]

    def capacity(self, history: History) -> float:
        """Return how many rows fit into the next interval; no limit before any was done."""
        rows = sum(int(done.rows.sum()) for done in history)
        elapsed_s = sum(done.elapsed_s for done in history)
        return self.interval_s * rows / elapsed_s if rows else float("inf")

    def sizes(self, history: History, queries: Ints, rows: Ints) -> Floats:
        """Return what each batch takes of the capacity: its rows."""
        return rows.astype(np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkDetector:
    """Measures in seconds: an interval δ, less the shedder's own time, holds so much work.

    What a row costs is averaged for every query by itself over the last `window` intervals, by the
    time that the node was busy with it: idle time makes no row expensive, and when other queries'
    rows are kept the estimate need not be learnt anew. A query of which no row was done yet costs
    the mean.
    """

    interval_s: float = 0.25
    window: int = 40

    def __post_init__(self) -> None:
        """Reject intervals without length and averages of nothing."""
        _check(self.interval_s, self.window)

    def learn(self, history: History, done: Interval) -> History:
        """Return the history with one more interval."""
        return (*history, done)[-self.window :]

    def capacity(self, history: History) -> float:
        """Return how many seconds of work fit into the next interval."""
        locked_s = sum(done.locked_s for done in history) / max(len(history), 1)
        return max(self.interval_s - locked_s, 0.0)

    def sizes(self, history: History, queries: Ints, rows: Ints) -> Floats:
        """Return the seconds that each batch will take; nothing before anything is known."""
        if not history:
            return np.zeros(rows.size)
        return np.asarray(rows * self.costs_s(history)[queries], dtype=np.float64)

    def costs_s(self, history: History) -> Floats:
        """Return what a row of each query costs."""
        rows: Floats = np.sum([done.rows for done in history], axis=0, dtype=np.float64)
        busy_s: Floats = np.sum([done.busy_s for done in history], axis=0)
        mean_s = busy_s.sum() / max(rows.sum(), 1.0)
        return np.asarray(np.where(rows > 0, busy_s / np.maximum(rows, 1.0), mean_s))


def _check(interval_s: float, window: int) -> None:
    if not 0 < interval_s < float("inf"):
        raise ValueError(f"interval_s must be finite and > 0, got {interval_s}")
    if window < 1:
        raise ValueError(f"window must be >= 1, got {window}")
