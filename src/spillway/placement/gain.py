"""What placing rows by their cost can save in one batch, as far as it can be foreseen."""

from __future__ import annotations

import math
from statistics import NormalDist

_ALIKE = 0.05  # spread of costs, in means, that is no reason to place rows by what they cost
# Less foreseen gain does not pay: placing takes half of that, and costs are not known exactly.
_PLACING_NS = 60e6


def pays(*, spread_ns: float, mean_ns: float, rows: float | None, instances: int) -> bool:
    """Whether placing by cost is foreseen to save more than it takes; `rows` may be unknown.

    >>> [pays(spread_ns=18e6, mean_ns=32e6, rows=rows, instances=5) for rows in (20, 200, None)]
    [False, True, True]
    """
    if spread_ns <= _ALIKE * mean_ns:
        return False
    if rows is None:
        return True
    return foreseen_gain_ns(spread_ns=spread_ns, rows=rows, instances=instances) > _PLACING_NS


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
