"""What became of the batches of many queries on one node: fates, SIC over time, latency."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from spillway.estimate.sic import results_sic
from spillway.sim.many_queries import SECOND, Arrivals, Query

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Fate(IntEnum):
    """What became of a batch, or of what the shedder left of it."""

    WAITING = 0
    DONE = 1
    SHED = 2
    ABANDONED = 3  # its query died


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Run:
    """What became of every batch; when the shedder held the buffer; how much waited at each look.

    `rows` and `costs_ns` are what was not shed of each batch: all, a part, or nothing. `done_ns` is
    -1 where a batch was not done, `shed_ns` (of the last pass that cut it) where none was.
    `locks_ns` has begin and end of every pass of the shedder, `waiting` the rows in the buffer
    after every look.
    """

    queries: tuple[Query, ...]
    came: Arrivals
    window_s: float
    seconds: float
    rows: Ints
    costs_ns: Ints
    fates: Ints
    done_ns: Ints
    shed_ns: Ints
    locks_ns: Ints
    waiting: Ints

    @property
    def totals(self) -> dict[str, int]:
        """Count the rows by what became of them; they add up to those that came."""
        counts = {
            fate.name.lower(): int(self.rows[self.fates == fate].sum())
            for fate in (Fate.WAITING, Fate.DONE, Fate.ABANDONED)
        }
        return {**counts, "shed": int((self.came.rows - self.rows).sum())}

    def sic(self, *, every_s: float = 1.0) -> tuple[Floats, Floats]:
        """Return times, and the SIC of every query over the window before each (time, query).

        A row counts if it was done within the length of the window: what comes later is of no use
        to it. NaN where a query had no rows in the window, or was dead.
        """
        steps = round(self.window_s / every_s)
        times = np.arange(steps, int(self.seconds / every_s) + 1) * every_s
        came, kept = (
            self._slid(rows, steps, every_s) for rows in (self.came.rows, self.rows * self.in_time)
        )
        owner, count = self.came.query_of_source, len(self.queries)
        sic = np.array(
            [results_sic(*rows, owner, count=count) for rows in zip(came, kept, strict=True)]
        )
        any_came = np.array([np.bincount(owner, rows, minlength=count) > 0 for rows in came])
        alive = times[:, None] <= np.array([query.dies_s for query in self.queries])
        return times.astype(np.float64), np.where(any_came & alive, sic, np.nan)

    @property
    def in_time(self) -> Bools:
        """Which batches were done within the length of the window."""
        taken_ns = np.where(self.fates == Fate.DONE, self.done_ns - self.came.at_ns, np.inf)
        return np.asarray(taken_ns <= self.window_s * SECOND, dtype=np.bool_)

    def latency_s(self, quantile: float = 0.5) -> float:
        """Return a quantile of the time from arrival to the end of its work, over rows done."""
        done = self.fates == Fate.DONE
        taken = (self.done_ns - self.came.at_ns)[done]
        order = np.argsort(taken)
        rows = np.cumsum(self.rows[done][order])
        at = np.searchsorted(rows, quantile * rows[-1]) if rows.size else 0
        return float(taken[order][at]) / SECOND if rows.size else 0.0

    def useful_s(self) -> float:
        """Return the seconds of work on batches that were done in time."""
        return float(self.costs_ns[self.in_time].sum()) / SECOND

    def check(self) -> None:
        """Raise unless every batch has one fate, and runner and shedder kept their rules."""
        for rule, holds in (self._runner() | self._shedder()).items():
            if not holds:
                raise AssertionError(f"broken: {rule}")

    def _runner(self) -> dict[str, bool]:
        done = np.flatnonzero(self.fates == Fate.DONE)
        ended_ns, at_ns = self.done_ns[done], self.came.at_ns[done]
        begun_ns = ended_ns - self.costs_ns[done]
        lock = np.searchsorted(self.locks_ns[:, 0], begun_ns, side="right") - 1
        unlocked_ns = np.append(self.locks_ns[:, 1], -1)[lock]
        return {
            "done batches, and no others, have an end": np.array_equal(
                np.flatnonzero(self.done_ns >= 0), done
            ),
            "work begins after arrival": bool((begun_ns >= at_ns).all()),
            "one batch at a time, in order": bool((begun_ns[1:] >= ended_ns[:-1]).all()),
            "no work begins under lock": bool((begun_ns >= unlocked_ns).all()),
        }

    def _shedder(self) -> dict[str, bool]:
        shed = np.flatnonzero(self.rows < self.came.rows)
        shed_ns = self.shed_ns[shed]
        return {
            "cut batches, and no others, have a pass": np.array_equal(
                np.flatnonzero(self.shed_ns >= 0), shed
            ),
            "shed batches, and no others, are empty": np.array_equal(
                self.fates == Fate.SHED, self.rows == 0
            ),
            "what is shed had arrived": bool((shed_ns >= self.came.at_ns[shed]).all()),
            "what is shed is shed in a pass": bool(np.isin(shed_ns, self.locks_ns[:, 0]).all()),
        }

    def _slid(self, rows: Ints, steps: int, every_s: float) -> Floats:
        """Count rows by source in windows of so many steps, one for each step (step, source)."""
        count = self.came.query_of_source.size
        slots = int(self.seconds / every_s)
        slot = (self.came.at_ns // round(every_s * SECOND)).astype(np.int64)
        inside = slot < slots
        cell = slot[inside] * count + self.came.sources[inside]
        table = np.bincount(cell, weights=rows[inside], minlength=slots * count)
        total = np.cumsum(table.reshape(slots, count), axis=0)
        total = np.concatenate((np.zeros((1, count)), total))
        return np.asarray(total[steps:] - total[:-steps], dtype=np.float64)
