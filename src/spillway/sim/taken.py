"""The rows of a simulated batch: when they came, what they cost, which the gate keeps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from spillway.kernels.uniform import uniforms
from spillway.sim.grouped import Grouped
from spillway.sim.keyed import Keyed
from spillway.sim.trace import Latencies
from spillway.values import PinnedPlan, Plan
from spillway.workload.rate import Schedule

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

_SLICE_ROWS = 1 << 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """The rows of a batch: where they stand, when they came, what they cost and score.

    The scores of a load-aware shedder depend on the plan: `keyed` is what they follow from, as the
    rates of a concept-driven one follow from `grouped`.
    """

    first: int
    arrivals_s: Floats
    cost_s: float
    costs_s: Floats | None
    scores: Floats | None
    keyed: Keyed | None = None
    grouped: Grouped | None = None

    @property
    def count(self) -> int:
        """How many rows there are."""
        return len(self.arrivals_s)

    @property
    def numbers(self) -> Ints:
        """The numbers of the rows, their identity."""
        return np.arange(self.first, self.first + self.count)

    def strata(self, plan: Plan) -> Ints:
        """Number every row's stratum; rows without a usable score come last."""
        if self.grouped is not None:
            return (self.grouped.rates(plan) < 1.0).astype(np.int64)
        if self.scores is None:
            return np.zeros(self.count, np.int64)
        placed = np.searchsorted(np.asarray(plan.edges), self.scores, side="right")
        return np.where(np.isfinite(self.scores), placed, len(plan.rates))

    def kept(self, pinned: PinnedPlan, strata: Ints) -> Bools:
        """Say of every row whether the gate lets it pass."""
        if not pinned.plan.sheds:
            return np.ones(self.count, np.bool_)
        return uniforms(pinned.salt, self.numbers) < self.rates(pinned.plan, strata)

    def rates(self, plan: Plan, strata: Ints) -> Floats:
        """Return the keep rate of every row."""
        if self.grouped is not None:
            return self.grouped.rates(plan)
        return np.array([*plan.rates, plan.unrated])[strata]

    def work_s(self, kept: Bools | None = None) -> float:
        """Return the work of the kept rows, or of all."""
        if self.costs_s is None:
            count = self.count if kept is None else int(np.count_nonzero(kept))
            return self.cost_s * count
        return float((self.costs_s if kept is None else self.costs_s[kept]).sum())

    def quantiles(self, wanted: tuple[float, ...]) -> tuple[float, ...]:
        """Return quantiles of the usable scores."""
        usable = self.scores[np.isfinite(self.scores)] if self.scores is not None else np.empty(0)
        if not wanted or not usable.size:
            return ()
        return tuple(np.quantile(usable, wanted, method="inverted_cdf").tolist())


@lru_cache(maxsize=1)  # a schedule is usually run with many seeds
def arrivals_s(schedule: Schedule) -> Floats:
    """Return when every row comes; by the slice, because slices stay in the processor's cache."""
    times_s = np.empty(schedule.rows_total)
    for first in range(0, len(times_s), _SLICE_ROWS):
        slice_s = times_s[first : first + _SLICE_ROWS]
        slice_s[:] = schedule.arrival_s(np.arange(first, first + len(slice_s)))
    times_s.setflags(write=False)
    return times_s


def latencies_s(arrivals_s: Floats, end_s: float) -> Latencies:
    """Return mean, 99th percentile and maximum of the latency; rows are in order of arrival.

    >>> latencies_s(np.array([0.0, 1.0, 2.0]), 4.0)
    (3.0, 4.0, 4.0)
    """
    if not len(arrivals_s):
        return None, None, None
    first = arrivals_s[math.ceil(0.01 * len(arrivals_s)) - 1]
    return end_s - float(arrivals_s.mean()), end_s - float(first), end_s - float(arrivals_s[0])
