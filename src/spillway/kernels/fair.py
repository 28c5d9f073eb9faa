"""Keeps batches one by one for the query that is worst off: the loop of DISSP's algorithm 1.

Queries wait in a binary heap by their level, projected SIC over weight; the least is on top.
"""

from __future__ import annotations

import numpy as np
from numba import njit

# What becomes of a batch that no longer fits.
WITHIN, OVER, PART = range(3)


@njit(cache=True)
def keep_fairly(order, ends, sizes, sic, projected, weights, capacity, last, kept):
    """Write into `kept` the share of every batch that is kept, and add its SIC to `projected`.

    `order` holds the batches query by query, the highest SIC first; those of query q end before
    `ends[q]`.
    """
    following = np.concatenate((np.zeros(1, dtype=ends.dtype), ends[:-1]))
    levels = np.where(weights > 0.0, projected / weights, np.inf)
    heap = np.flatnonzero(ends > following)
    left = heap.size
    for place in range(left // 2 - 1, -1, -1):
        _sink(heap, left, place, levels, projected)
    spent = 0.0
    while left > 0 and (last == WITHIN or spent < capacity):
        query = heap[0]
        batch = order[following[query]]
        following[query] += 1
        kept[batch] = _share(sizes[batch], capacity - spent, last)
        spent = _spent(spent, sizes[batch], kept[batch], capacity)
        projected[query] += kept[batch] * sic[batch]
        if weights[query] > 0.0:
            levels[query] = projected[query] / weights[query]
        if following[query] == ends[query]:
            left -= 1
            heap[0] = heap[left]
        _sink(heap, left, 0, levels, projected)


@njit(cache=True)
def keep_in_order(order, sizes, capacity, last, kept):
    """Write into `kept` the share of every batch that is kept, taking them in this order."""
    spent = 0.0
    for batch in order:
        if last != WITHIN and spent >= capacity:
            break
        kept[batch] = _share(sizes[batch], capacity - spent, last)
        spent = _spent(spent, sizes[batch], kept[batch], capacity)


@njit(cache=True)
def _share(size, left, last):
    """Return the share of a batch that is kept when so much of the capacity is left."""
    if last == OVER or size <= left:
        return 1.0
    return left / size if last == PART else 0.0


@njit(cache=True)
def _spent(spent, size, share, capacity):
    """Add what is kept; a part fills the capacity to the brim, whatever the rounding."""
    return capacity if 0.0 < share < 1.0 else spent + share * size


@njit(cache=True)
def _sink(heap, size, place, levels, projected):
    """Let the query at a place sink below all that come before it."""
    query = heap[place]
    while 2 * place + 1 < size:
        child = 2 * place + 1
        if child + 1 < size and _first(heap[child + 1], heap[child], levels, projected):
            child += 1
        if not _first(heap[child], query, levels, projected):
            break
        heap[place] = heap[child]
        place = child
    if size > 0:
        heap[place] = query


@njit(cache=True)
def _first(a, b, levels, projected):
    """Whether query a comes before b; of equals the one of less SIC, then of less number."""
    if levels[a] != levels[b]:
        return levels[a] < levels[b]
    if projected[a] != projected[b]:
        return projected[a] < projected[b]
    return a < b
