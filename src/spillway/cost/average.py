"""DISSP's cost model: the average time per row over a moving window.

A micro-batch engine adds a fixed cost to every batch, which the paper's engine does not have:
it is estimated apart, so that a small batch does not make its rows look expensive.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spillway.values import CostState, Forecast, Observation

Floats = NDArray[np.float64]

_SPREAD_MIN = 3.0  # batches must differ at least so much before a slope is read from them
_OUTLIER = 4.0  # a batch's cost per row counts at most this many times the median
_FIXED_PRIOR = 0.5  # while batches are alike: this share of the shortest one counts as fixed


@dataclass(frozen=True, slots=True, kw_only=True)
class AverageCost:
    """Average cost of a row, C = sum(t - fixed) / sum(n), over the last `window` batches.

    t is the measured duration of a batch and n its kept rows (DISSP, eq. 5.2, with the measured
    interval and a moving average of 40 values). A batch counts `decay` times as much as the next,
    so that a changed cost is followed within a few batches; `decay=1, fixed_s=0` is the paper's.
    A starting engine is several times slower, so the first `samples_trusted` batches count only
    in part: k of them as k / samples_trusted of what they say.

    >>> model = AverageCost(decay=1.0, fixed_s=0.0, samples_trusted=1)
    >>> state = CostState(samples=((5000.0, 0.3),))
    >>> round(0.250 / model.forecast(state, 1).work_s)  # rows in 250 ms, as in section 5.3
    4167
    """

    window: int = 40
    decay: float = 0.9
    fixed_s: float | None = None
    samples_trusted: int = 4

    def __post_init__(self) -> None:
        """Reject windows and fixed costs that mean nothing."""
        if not 1 <= self.samples_trusted <= self.window:
            raise ValueError(
                f"samples_trusted must be in [1, window], "
                f"got {self.samples_trusted} and {self.window}"
            )
        if not 0 < self.decay <= 1:
            raise ValueError(f"decay must be in (0, 1], got {self.decay}")
        if self.fixed_s is not None and not self.fixed_s >= 0:
            raise ValueError(f"fixed_s must be >= 0, got {self.fixed_s}")

    def learn(self, state: CostState, seen: Observation) -> CostState:
        """Append the batch; one without rows or without a sane duration teaches nothing."""
        if not (seen.rows_kept > 0 and 0 < seen.duration_s < float("inf")):
            return state
        sample = (float(seen.rows_kept), seen.duration_s)
        return CostState(samples=(*state.samples, sample)[-self.window :])

    def forecast(self, state: CostState, rows: float) -> Forecast | None:
        """Predict `fixed + rows * C`; None before the first sample."""
        if not state.samples:
            return None
        trust = min(1.0, len(state.samples) / self.samples_trusted)
        kept, duration_s = np.asarray(state.samples).T
        fixed_s = _fixed_s(kept, duration_s) if self.fixed_s is None else self.fixed_s
        weights = np.power(self.decay, np.arange(len(kept), dtype=np.float64)[::-1])
        cost_s = mean_cost(kept, duration_s - fixed_s, weights)
        return Forecast(fixed_s=trust * fixed_s, work_s=trust * rows * cost_s)


def mean_cost(kept: Floats, work_s: Floats, weights: Floats) -> float:
    """Average the cost of a row; a batch that took absurdly long (a clock jump) counts for less."""
    per_row_s = np.maximum(work_s, 0.0) / kept
    bounded_s = np.minimum(per_row_s, _OUTLIER * np.median(per_row_s))
    return float(np.average(bounded_s, weights=kept * weights))


def _fixed_s(kept: Floats, duration_s: Floats) -> float:
    """Estimate the part of a batch's duration that does not depend on its rows.

    Robust line through the batches (Theil-Sen: median of the pairwise slopes) where their sizes
    differ enough to show one, a prior where they do not; never more than the shortest batch.
    """
    shortest_s = float(duration_s.min())
    if kept.max() < _SPREAD_MIN * kept.min():
        return _FIXED_PRIOR * shortest_s
    i, j = np.triu_indices(len(kept), 1)
    apart = np.abs(kept[j] - kept[i]) > 0.2 * kept.max()
    i, j = i[apart], j[apart]
    slope = float(np.median((duration_s[j] - duration_s[i]) / (kept[j] - kept[i])))
    return float(np.clip(np.median(duration_s - slope * kept), 0.0, shortest_s))
