"""The promises of the loop, checked in every batch of a simulated run.

Accounting: every row is in exactly one batch, and rows in = kept + shed in each stratum. Bounds:
every rate is in [keep_min, 1]. Determinism: a row's fate is the gate's number against its rate,
also when its batch is played again. Time runs forward and the backlog is what has arrived and not
been taken. Calm: below the objective nothing is shed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spillway.cost.average import AverageCost
from spillway.kernels.uniform import uniform
from spillway.loop import Loop
from spillway.overload.controller import HoldLatency
from spillway.sim.conditions import Engine
from spillway.sim.trace import Batch

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

_ALIKE = 3.0  # batches that differ by less show the cost model no fixed cost
_GUESS = 4.0  # how far a size that is not known may be overestimated


class BrokenPromise(AssertionError):
    """A promise was broken; the message has the seed and the batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What the promises are checked against."""

    loop: Loop
    engine: Engine
    arrivals_s: Floats
    seed: int

    @property
    def calm_s(self) -> float:
        """While no batch takes longer and all are alike, nothing may be shed; 0 if not promised.

        From batches of at most d seconds whose sizes differ by less than a factor of 3, the
        average cost forecasts at most d/2 + 3 d for the next (12 d where its size is a guess), and
        its rows have waited at most w d: it fits if that is below margin * limit.
        """
        controller, cost = self.loop.controller, self.loop.cost
        if not (isinstance(controller, HoldLatency) and isinstance(cost, AverageCost)):
            return 0.0
        if cost.fixed_s is not None:
            return 0.0
        guess = 1.0 if self.engine.sizes_known else _GUESS
        most = 0.5 + _ALIKE * guess + controller.objective.wait
        return controller.margin * controller.objective.limit_s / most


class Promises:
    """Follows a run and raises `BrokenPromise` at the first batch that breaks one."""

    def __init__(self, ground: Ground) -> None:
        """Start before the first row."""
        self.ground = ground
        self._batch_id, self._next_row, self._now_s, self._run = -1, 0, 0.0, -1
        self._calm_s, self._longest_s = ground.calm_s, 0.0
        self._rows_least, self._rows_most = np.inf, 0

    def check(
        self, batch: Batch, strata: Ints, kept: Bools, row_rates: Floats | None = None
    ) -> None:
        """Check a finished batch; `strata`, `kept` and `row_rates` speak of its rows one by one."""
        self._batch_id += 1
        self._check_rows(batch)
        self._check_counts(batch, strata, kept)
        self._check_rates(batch, strata, kept, row_rates)
        self._check_time(batch)
        self._check_backlog(batch)
        self._check_calm(batch)
        self._next_row += batch.seen.rows_in
        self._now_s, self._run = batch.end_s, batch.run

    def check_replay(self, before: Bools, again: Bools) -> None:
        """Check that a batch played again keeps the same rows."""
        self._hold(np.array_equal(before, again), "a replay must keep the same rows", again.sum())

    def check_end(self) -> None:
        """Check that no row was left behind."""
        left = len(self.ground.arrivals_s) - self._next_row
        self._hold(left == 0, "no row may be left at the end", left)

    def _check_rows(self, batch: Batch) -> None:
        self._hold(batch.batch_id == self._batch_id, "batch ids must count up", batch.batch_id)
        self._hold(batch.first_row == self._next_row, "no row twice, none lost", batch.first_row)
        self._hold(batch.seen.rows_in > 0, "a batch must have rows", batch.seen.rows_in)
        last = batch.first_row + batch.seen.rows_in
        capped = batch.seen.rows_in == self.ground.engine.rows_max
        complete = capped or self._waits_until_s(last) > batch.planned_s
        self._hold(complete, "a batch must take all rows that have come", last)

    def _check_counts(self, batch: Batch, strata: Ints, kept: Bools) -> None:
        seen, counts = batch.seen, batch.seen.strata
        came = np.bincount(strata, minlength=len(counts))
        shed = np.bincount(strata[~kept], minlength=len(counts))
        for index, count in enumerate(counts):
            sums = (count.rows_in, count.rows_kept + int(shed[index]))
            self._hold(sums == (came[index],) * 2, "rows in must be kept + shed", (count, sums))
        self._hold(sum(c.rows_in for c in counts) == seen.rows_in, "strata must add up", counts)
        self._hold(sum(c.rows_kept for c in counts) == seen.rows_kept, "strata must add up", counts)

    def _check_rates(
        self, batch: Batch, strata: Ints, kept: Bools, row_rates: Floats | None
    ) -> None:
        levels = batch.plan.keep.levels if batch.plan.keep else ()
        rates = (*batch.plan.rates, batch.plan.unrated, *levels)
        low = self.ground.loop.limits.keep_min
        self._hold(all(low <= rate <= 1 for rate in rates), f"rates must be in [{low}, 1]", rates)
        for count, rate in zip(batch.seen.strata, rates, strict=False):
            self._hold(rate < 1 or not count.rows_shed, "rate 1 must keep all", count)
        one = self._batch_id % batch.seen.rows_in  # another place in every batch
        drawn = uniform(batch.pinned.salt, batch.first_row + one)
        decided = drawn < (rates[strata[one]] if row_rates is None else row_rates[one])
        self._hold(bool(kept[one]) == decided, "the gate's number must decide", drawn)

    def _check_time(self, batch: Batch) -> None:
        last = batch.first_row + batch.seen.rows_in - 1
        times = (self._now_s, batch.planned_s, batch.start_s, batch.end_s)
        self._hold(list(times) == sorted(times), "time must run forward", times)
        came_s = float(self.ground.arrivals_s[last])
        self._hold(came_s <= batch.planned_s, "rows must have come before their batch", came_s)
        latency_s = (batch.seen.latency_s_mean, batch.seen.latency_s_p99, batch.seen.latency_s_max)
        known = [value for value in latency_s if value is not None]
        least_s = (batch.end_s - batch.start_s) * (1 - 1e-9)
        self._hold(all(value >= least_s for value in known), "rows must wait", latency_s)

    def _check_backlog(self, batch: Batch) -> None:
        """Between the rows taken and those to come lie exactly the rows of the backlog."""
        first = batch.first_row + batch.seen.rows_in
        after = first + batch.backlog_rows
        self._hold(batch.backlog_rows >= 0, "backlog must be >= 0", batch.backlog_rows)
        self._hold(self._waits_until_s(after) > batch.end_s, "backlog must hold all", after)
        came = after == first or self._waits_until_s(after - 1) <= batch.end_s
        self._hold(came, "backlog must hold no row to come", after)

    def _check_calm(self, batch: Batch) -> None:
        """Until now no batch was long, and all were alike: nothing may have been shed.

        The first batch after a start teaches the cost model nothing, so its size does not count.
        """
        rows, learnt = batch.seen.rows_in, batch.run == self._run
        self._longest_s = max(self._longest_s, batch.whole_duration_s, batch.end_s - batch.start_s)
        least, most = min(self._rows_least, rows), max(self._rows_most, rows)
        calm = self._longest_s <= self._calm_s and most < _ALIKE * least
        self._hold(not (calm and batch.rows_shed), "in calm nothing may be shed", batch.plan)
        if learnt:
            self._rows_least, self._rows_most = least, most

    def _waits_until_s(self, row: int) -> float:
        """When a row arrives; never, if there is none of that number."""
        arrivals_s = self.ground.arrivals_s
        return float(arrivals_s[row]) if row < len(arrivals_s) else np.inf

    def _hold(self, holds: bool, rule: str, got: object) -> None:
        if not holds:
            batch = max(self._batch_id, 0)
            raise BrokenPromise(f"seed {self.ground.seed}, batch {batch}: {rule}, got {got}")
