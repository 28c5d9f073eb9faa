"""DISSP's cost model: the average time per row over a moving window.

A micro-batch engine adds a fixed cost to every batch, which the paper's engine does not have:
it is estimated apart, so that a small batch does not make its rows look expensive.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spillway.values import CostState, Forecast, Observation

_SPREAD_MIN = 1.5  # batches must differ at least so much before a slope is read from them
_FIXED_PRIOR = 0.5  # while batches are alike: this share of the shortest one counts as fixed


@dataclass(frozen=True, slots=True, kw_only=True)
class AverageCost:
    """Average cost of a row, C = sum(t - fixed) / sum(n), over the last `window` batches.

    t is the measured duration of a batch and n its kept rows (DISSP, eq. 5.2, with the measured
    interval and a moving average of 40 values). `fixed_s=0` is the paper's model as it stands.
    A starting engine is several times slower, so the first `samples_trusted` batches count only
    in part: k of them as k / samples_trusted of what they say.

    >>> model = AverageCost(fixed_s=0.0, samples_trusted=1)
    >>> state = CostState(samples=((5000.0, 0.3),))
    >>> round(0.250 / model.forecast(state, 1).work_s)  # rows in 250 ms, as in section 5.3
    4167
    """

    window: int = 40
    fixed_s: float | None = None
    samples_trusted: int = 4

    def __post_init__(self) -> None:
        """Reject windows and fixed costs that mean nothing."""
        if not 1 <= self.samples_trusted <= self.window:
            raise ValueError(
                f"samples_trusted must be in [1, window], "
                f"got {self.samples_trusted} and {self.window}"
            )
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
        cost_s = float(np.maximum(duration_s - fixed_s, 0.0).sum() / kept.sum())
        return Forecast(fixed_s=trust * fixed_s, work_s=trust * rows * cost_s)


def _fixed_s(kept: NDArray[np.float64], duration_s: NDArray[np.float64]) -> float:
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
