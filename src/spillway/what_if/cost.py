"""What batches took, read from the books: a fixed time, a time per row, and how the pace went.

A batch takes pace × (fixed + gate · rows in + row · rows kept). Shares of shed rows differ from
batch to batch, so the two times per row can be told apart; where all batches are alike they cannot,
and the fixed time is assumed, as the guard itself assumes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from spillway.values import Observation

Floats = NDArray[np.float64]

_SPREAD_MIN = 3.0  # batches must differ so much before a line is read from them
_FIXED_PRIOR = 0.5  # else this share of the shortest batch counts as fixed
_ROUNDS = 8
_OUTLIER = 1.5  # batches further off than so many usual deviations count for less
_SMOOTH = 3  # the pace is the median over so many batches
_PACE_MAX = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCost:
    """Seconds of a batch: `fixed_s + gate_s · rows in + row_s · rows kept`.

    `assumed` says that the fixed time could not be read from the batches; `cores` how many of the
    operator's tasks worked at a time, where it reported (`row_s` is the time of the batch, not the
    sum over tasks).
    """

    fixed_s: float
    row_s: float
    gate_s: float = 0.0
    cores: int = 1
    assumed: bool = False

    def duration_s(self, rows_in: Floats, rows_kept: Floats) -> Floats:
        """Foresee what batches take."""
        return self.fixed_s + self.gate_s * rows_in + self.row_s * rows_kept


def fit(batches: Sequence[Observation]) -> BatchCost:
    """Fit the times to batches that had rows, the first after each start left out.

    >>> seen = [Observation(batch_id=n, rows_in=n, rows_kept=n // 2, duration_s=0.2 + n * 3e-3)
    ...         for n in (10, 50, 100, 400, 1000)]
    >>> cost = fit(seen)
    >>> round(cost.fixed_s, 3), round(cost.gate_s + cost.row_s / 2, 4)
    (0.2, 0.003)
    """
    rows_in, kept, took_s = _columns(batches)
    span_s = np.array([seen.work_span_s for seen in batches])
    if (span_s > 0).all():
        return _with_reports(batches, rows_in, kept, took_s, span_s)
    if kept.max() < _SPREAD_MIN * max(kept.min(), 1.0) and rows_in.max() < _SPREAD_MIN * (
        rows_in.min()
    ):
        return _alike(kept, took_s)
    fixed_s, row_s, gate_s = _non_negative(_terms(rows_in, kept), took_s)
    return BatchCost(fixed_s=fixed_s, row_s=row_s, gate_s=gate_s)


def paces(cost: BatchCost, batches: Sequence[Observation]) -> Floats:
    """Return how many times longer than foreseen each batch took, smoothed over its neighbours."""
    rows_in, kept, took_s = _columns(batches)
    raw = np.clip(took_s / cost.duration_s(rows_in, kept), 1 / _PACE_MAX, _PACE_MAX)
    half = _SMOOTH // 2
    padded = np.pad(raw, half, mode="edge")
    windows = np.lib.stride_tricks.sliding_window_view(padded, _SMOOTH)
    return np.asarray(np.median(windows, axis=1))


def noise(cost: BatchCost, batches: Sequence[Observation]) -> float:
    """Return the sigma of what neither rows nor pace explain, as a lognormal factor."""
    rows_in, kept, took_s = _columns(batches)
    left = np.log(took_s / (cost.duration_s(rows_in, kept) * paces(cost, batches)))
    return float(min(np.median(np.abs(left)) * 1.4826, 0.5)) if len(left) > 2 else 0.0


def _columns(batches: Sequence[Observation]) -> tuple[Floats, Floats, Floats]:
    rows = [(seen.rows_in, seen.rows_kept, max(seen.duration_s, 1e-3)) for seen in batches]
    rows_in, kept, took_s = np.array(rows, dtype=np.float64).T
    return rows_in, kept, took_s


def _with_reports(
    batches: Sequence[Observation], rows_in: Floats, kept: Floats, took_s: Floats, span_s: Floats
) -> BatchCost:
    """The operator's own clock tells its time from the rest of the batch."""
    busy_s = np.array([seen.work_s for seen in batches])
    terms = np.stack([np.ones(len(rows_in)), np.zeros(len(rows_in)), rows_in], axis=1)
    fixed_s, _, gate_s = _non_negative(terms, np.maximum(took_s - span_s, 1e-3))
    return BatchCost(
        fixed_s=fixed_s,
        gate_s=gate_s,
        row_s=float(span_s.sum() / max(kept.sum(), 1.0)),
        cores=max(round(float(busy_s.sum() / span_s.sum())), 1),
    )


def _alike(kept: Floats, took_s: Floats) -> BatchCost:
    fixed_s = _FIXED_PRIOR * float(took_s.min())
    row_s = float((took_s - fixed_s).sum() / max(kept.sum(), 1.0))
    return BatchCost(fixed_s=fixed_s, row_s=row_s, assumed=True)


def _terms(rows_in: Floats, kept: Floats) -> Floats:
    return np.stack([np.ones(len(kept)), kept, rows_in], axis=1)


def _non_negative(terms: Floats, took_s: Floats) -> tuple[float, float, float]:
    """Fit by least relative squares, in rounds that trust outliers less; no time is negative.

    Three terms have seven subsets: the best fit is among those whose times are all positive.
    """
    weights = 1.0 / took_s
    times = np.zeros(3)
    for _ in range(_ROUNDS):
        times = _best_subset(terms * weights[:, None], took_s * weights)
        off = np.abs(terms @ times / took_s - 1.0)
        usual = max(float(np.median(off)) * 1.4826, 1e-6)
        weights = np.sqrt(np.minimum(1.0, _OUTLIER * usual / np.maximum(off, 1e-12))) / took_s
    fixed_s, row_s, gate_s = times.tolist()
    return fixed_s, row_s, gate_s


def _best_subset(terms: Floats, took: Floats) -> Floats:
    """Return the best fit; of two that are as good the one with the earlier terms."""
    best, least, better = np.zeros(3), np.inf, 1e-9 * float((took**2).sum())
    for size in (1, 2, 3):
        for chosen in map(list, combinations(range(3), size)):
            if not terms[:, chosen].any(axis=0).all():
                continue
            found = np.linalg.lstsq(terms[:, chosen], took, rcond=None)[0]
            left = float(((terms[:, chosen] @ found - took) ** 2).sum())
            if (found >= 0).all() and left < least - better:
                best, least = np.zeros(3), left
                best[chosen] = found
    return best
