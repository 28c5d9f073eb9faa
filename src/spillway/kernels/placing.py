"""Places the rows of a micro-batch greedily: all are in hand, and all instances start idle at 0.

The rules are those of `posg`; the moment is always 0, so there is nothing to clamp and no epoch.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from spillway.kernels.posg import DEFAULT, charge, free_first, place_exactly
from spillway.kernels.sketch import cell


@njit(cache=True)
def place_alike(totals_ns, costs_ns, order, placed):
    """Place rows, in this order, on instances of equal speed: each where the least work waits."""
    for row in order:
        placed[row] = free_first(totals_ns, 0, False)
        charge(totals_ns, placed[row], costs_ns[row], 0, False)


@njit(cache=True)
def place_unlike(totals_ns, costs_ns, order, placed):
    """Place rows whose cost differs by instance (second axis): each where it is done first."""
    for row in order:
        placed[row] = place_exactly(totals_ns, costs_ns[row], 0, DEFAULT)


@njit(cache=True)
def columns_of(items, multiplier, columns):
    """Return the column of every item in one row of a sketch."""
    found = np.empty(items.size, dtype=np.int64)
    for t in range(items.size):
        found[t] = cell(items[t], multiplier, columns)
    return found
