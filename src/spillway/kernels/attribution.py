"""What the keys of a slice of rows cost, where only the time of the whole slice is known.

Every item has a cell, which holds its estimated cost and how much that is doubted. Two items share
a cell rarely; then they share the estimate too. A cell without a cost (NaN) has not been seen.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from spillway.kernels.sketch import cell

_MULTIPLIER = 1_566_083_941  # odd, and none of the sketch's
_SETTLES = 0.3  # how fast doubt falls: less than the filter's 1, which forgets what keys share


@njit(cache=True)
def cells_of(items, columns):
    """Return the cell of every item."""
    found = np.empty(items.size, dtype=np.int64)
    for t in range(items.size):
        found[t] = cell(items[t], _MULTIPLIER, columns)
    return found


@njit(cache=True)
def meet(costs_ns, doubts, cells, prior_ns):
    """Give cells that are new what is known beforehand, and full doubt."""
    for t in range(cells.size):
        if np.isnan(costs_ns[cells[t]]):
            costs_ns[cells[t]] = prior_ns[t]
            doubts[cells[t]] = 1.0


@njit(cache=True)
def learn_slice(costs_ns, doubts, counts, cells, taken_ns, least_ns):
    """Correct the estimates of a slice's keys by what it took; `counts` is all 0, and again so.

    With n rows of a key, doubt d and cost c, and r the slice's time minus the sum of n c:
    c += r n d / Σ n² d and d -= 0.3 d n² d / Σ n² d, but no cost falls below `least_ns`.
    """
    for j in cells:
        counts[j] += 1
    left_ns, weight = float(taken_ns), 0.0
    for j in cells:  # n times each key: Σ n c and Σ n · n d
        left_ns -= costs_ns[j]
        weight += counts[j] * doubts[j]
    for j in cells:
        part = counts[j] * doubts[j] / weight
        if counts[j] > 0:
            costs_ns[j] = max(costs_ns[j] + left_ns * part, least_ns)
            doubts[j] *= 1.0 - _SETTLES * counts[j] * part
            counts[j] = 0
