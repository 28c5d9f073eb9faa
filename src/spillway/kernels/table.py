"""Looks keys up in a packed cost table: the twin of the gate's expression in Spark.

A number holds two: an item or a frequency in the upper half, a cost in the lower.
"""

from __future__ import annotations

from numba import njit

from spillway.kernels.heavy import bucket_of
from spillway.kernels.sketch import add, cell

COST_MASK = (1 << 32) - 1


@njit(cache=True)
def look_up(heavy, cells, multipliers, items, found):
    """Write the cost of every item: the exact one if it has a place, else that of least F."""
    rows, columns = cells.shape
    for t in range(items.size):
        item = items[t]
        least = cells[0, cell(item, multipliers[0], columns)]
        for row in range(1, rows):
            least = min(least, cells[row, cell(item, multipliers[row], columns)])
        if heavy.shape[0] > 0:
            bucket = bucket_of(item, heavy.shape[0])
            for place in range(heavy.shape[1]):
                if heavy[bucket, place] >> 32 == item and heavy[bucket, place] != 0:
                    least = heavy[bucket, place]
        found[t] = least & COST_MASK


@njit(cache=True)
def add_keys(frequency, work_ns, multipliers, keys, counts, works_ns):
    """Add many keys to a sketch, each with how often it came and the work it took."""
    for t in range(keys.size):
        add(frequency, work_ns, multipliers, keys[t], counts[t], works_ns[t])
