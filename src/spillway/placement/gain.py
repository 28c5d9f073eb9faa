"""What placing rows by their cost can save in one batch, as far as it can be foreseen."""

from __future__ import annotations

import math
from statistics import NormalDist


def foreseen_gain_ns(*, spread_ns: float, rows: float, instances: int) -> float:
    """Return by how much the slowest of k instances exceeds the mean if rows are dealt out in turn.

    Each gets rows / k rows, whose costs deviate by `spread_ns` (one standard deviation), their sum
    by √(rows / k) times that. The largest of k such sums is about Φ⁻¹((k - 3/8) / (k + 1/4))
    deviations above the mean (Blom). A perfect placement saves all of it.

    >>> round(foreseen_gain_ns(spread_ns=18e6, rows=50, instances=5) / 1e6)
    67
    """
    deviations = NormalDist().inv_cdf((instances - 0.375) / (instances + 0.25))
    return deviations * spread_ns * math.sqrt(rows / instances)
