"""Two count-min matrices over the same cells: how often, and how much work.

`frequency` and `work_ns` are int64 matrices of shape (rows, columns); row i of a key is the cell
that Spark's `CountMinSketch` gives it, by the multiplier of that row. Whole nanoseconds make sums
exact, whatever the order in which sketches are merged.

A cost is first made sane: a negative one (a clock that went back, a NaN cast to an integer) counts
as 0, one of more than a day as a day. A cell of `work_ns` stops at the largest int64, 292 years:
it never turns negative, and since such sums never fall, their order still does not matter.
"""

from __future__ import annotations

import numpy as np
from numba import njit

PRIME = (1 << 31) - 1
COST_NS_MAX = 86_400 * 10**9  # a day
WORK_NS_MAX = (1 << 63) - 1


@njit(cache=True, inline="always")
def cell(key, multiplier, columns):
    """Return the column of a key in the row of a multiplier: Spark's hash of a long."""
    hashed = np.int64(multiplier) * np.int64(key)
    hashed += hashed >> np.int64(32)
    return np.int64(np.uint32(hashed & np.int64(PRIME)) % np.uint32(columns))


@njit(cache=True, inline="always")
def sane(cost_ns):
    """Return a cost between nothing and a day."""
    return min(max(np.int64(cost_ns), np.int64(0)), np.int64(COST_NS_MAX))


@njit(cache=True, inline="always")
def bounded_sum(left_ns, right_ns):
    """Add two sums of work that are not negative; stop at the largest int64."""
    total = np.int64(left_ns) + np.int64(right_ns)
    return total if total >= 0 else np.int64(WORK_NS_MAX)


@njit(cache=True, inline="always")
def add(frequency, work_ns, multipliers, key, count, work):
    """Add `count` rows of a key that took `work` ns together."""
    columns = frequency.shape[1]
    for i in range(frequency.shape[0]):
        j = cell(key, multipliers[i], columns)
        frequency[i, j] += count
        work_ns[i, j] = bounded_sum(work_ns[i, j], work)


@njit(cache=True)
def update_row(frequency, work_ns, multipliers, key, cost_ns):
    """Count one row of a key and the work it took."""
    add(frequency, work_ns, multipliers, key, 1, sane(cost_ns))


@njit(cache=True)
def update_rows(frequency, work_ns, multipliers, keys, costs_ns):
    """Count many rows."""
    for t in range(keys.size):
        add(frequency, work_ns, multipliers, keys[t], 1, sane(costs_ns[t]))


@njit(cache=True, inline="always")
def lightest(frequency, multipliers, key):
    """Return the row, the column and the count of a key's least cell; of equals the first.

    No branch depends on the counts: the processor could not foresee it.
    """
    columns = frequency.shape[1]
    row, at = 0, cell(key, multipliers[0], columns)
    least = frequency[0, at]
    for i in range(1, frequency.shape[0]):
        j = cell(key, multipliers[i], columns)
        count = frequency[i, j]
        row = i if count < least else row
        at = j if count < least else at
        least = min(count, least)
    return row, at, least


@njit(cache=True, inline="always")
def _estimate(frequency, work_ns, multipliers, key, unseen_ns):
    row, at, least = lightest(frequency, multipliers, key)
    return work_ns[row, at] / least if least else unseen_ns


@njit(cache=True)
def estimate_row(frequency, work_ns, multipliers, key, unseen_ns):
    """Estimate the cost of a key in ns: work / frequency in the row of least frequency.

    A key that was never seen costs `unseen_ns`.
    """
    return _estimate(frequency, work_ns, multipliers, key, unseen_ns)


@njit(cache=True)
def estimate_rows(frequency, work_ns, multipliers, keys, unseen_ns, estimates_ns):
    """Estimate many keys into `estimates_ns`."""
    for t in range(keys.size):
        estimates_ns[t] = _estimate(frequency, work_ns, multipliers, keys[t], unseen_ns)


@njit(cache=True)
def frequency_row(frequency, multipliers, key):
    """Estimate how often a key was seen: never less than the truth."""
    return lightest(frequency, multipliers, key)[2]


@njit(cache=True)
def frequency_rows(frequency, multipliers, keys, counts):
    """Estimate how often every key was seen, into `counts`."""
    for t in range(keys.size):
        counts[t] = lightest(frequency, multipliers, keys[t])[2]


@njit(cache=True)
def merge(frequency, work_ns, other_frequency, other_work_ns):
    """Add another sketch, cell by cell."""
    for i in range(frequency.shape[0]):
        for j in range(frequency.shape[1]):
            frequency[i, j] += other_frequency[i, j]
            work_ns[i, j] = bounded_sum(work_ns[i, j], other_work_ns[i, j])


@njit(cache=True, inline="always")
def _mean(work, count):
    return work / count if count else 0.0


@njit(cache=True)
def snapshot(frequency, work_ns, means_ns):
    """Write every cell's mean cost into `means_ns`; an empty cell has 0."""
    for i in range(frequency.shape[0]):
        for j in range(frequency.shape[1]):
            means_ns[i, j] = _mean(work_ns[i, j], frequency[i, j])


@njit(cache=True)
def relative_error(means_ns, frequency, work_ns):
    """Return η: how far the cells' means have moved since the snapshot, over the snapshot's sum.

    Infinite while the snapshot is empty (LAS and POSG, equation 1).
    """
    moved, total = 0.0, 0.0
    for i in range(frequency.shape[0]):
        for j in range(frequency.shape[1]):
            moved += abs(means_ns[i, j] - _mean(work_ns[i, j], frequency[i, j]))
            total += means_ns[i, j]
    return moved / total if total > 0.0 else np.inf
