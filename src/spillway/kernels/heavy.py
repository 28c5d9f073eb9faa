"""Exact costs of the heaviest keys, beside the sketch of the rest.

A table of buckets with a few places each; within a bucket, space-saving: a new key takes the place
of least rank and inherits that rank, and what was exact of the old key goes into the sketch.
`ranks` order the places, `counts` and `work_ns` are exact since the key came in; count 0 is empty.
Table and sketch together hold every row once. A table without buckets leaves all to the sketch.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from spillway.kernels.sketch import add, bounded_sum, cell, estimate_row, sane

MULTIPLIER = 1_640_531_527  # any odd number that no row of the sketch is likely to use


@njit(cache=True, inline="always")
def bucket_of(key, buckets):
    """Return the bucket in which a key has its place, if it has one."""
    return cell(key, MULTIPLIER, buckets)


@njit(cache=True)
def buckets_of(keys, buckets):
    """Return the bucket in which every key has its place, if it has one."""
    found = np.empty(keys.size, dtype=np.int64)
    for t in range(keys.size):
        found[t] = bucket_of(keys[t], buckets)
    return found


@njit(cache=True, inline="always")
def _place_of(keys, counts, bucket, key):
    """Return the place of a key, -1 if it has none; no branch depends on what is found."""
    found = -1
    for place in range(keys.shape[1]):
        here = (keys[bucket, place] == key) & (counts[bucket, place] > 0)
        found = place if here else found
    return found


@njit(cache=True, inline="always")
def _least_place(ranks, bucket):
    """Return the place of least rank; of equals the first. Empty places have rank 0."""
    least = 0
    for place in range(1, ranks.shape[1]):
        least = place if ranks[bucket, place] < ranks[bucket, least] else least
    return least


@njit(cache=True, inline="always")
def _flush(keys, counts, heavy_work_ns, frequency, work_ns, multipliers, bucket, place):
    """Move what a place holds into the sketch."""
    count = counts[bucket, place]
    if count > 0:
        work = heavy_work_ns[bucket, place]
        add(frequency, work_ns, multipliers, keys[bucket, place], count, work)


@njit(cache=True, inline="always")
def _update(keys, ranks, counts, heavy_work_ns, frequency, work_ns, multipliers, key, cost_ns):
    bucket = bucket_of(key, keys.shape[0])
    place = _place_of(keys, counts, bucket, key)
    if place < 0:
        place = _least_place(ranks, bucket)
        _flush(keys, counts, heavy_work_ns, frequency, work_ns, multipliers, bucket, place)
        keys[bucket, place] = key
        counts[bucket, place] = 0
        heavy_work_ns[bucket, place] = 0
    ranks[bucket, place] += 1
    counts[bucket, place] += 1
    heavy_work_ns[bucket, place] = bounded_sum(heavy_work_ns[bucket, place], cost_ns)


@njit(cache=True, inline="always")
def _count(keys, ranks, counts, heavy_work_ns, frequency, work_ns, multipliers, key, cost_ns):
    if keys.shape[0] == 0:
        add(frequency, work_ns, multipliers, key, 1, cost_ns)
    else:
        _update(keys, ranks, counts, heavy_work_ns, frequency, work_ns, multipliers, key, cost_ns)


@njit(cache=True)
def update_row(keys, ranks, counts, heavy_work_ns, frequency, work_ns, multipliers, key, cost_ns):
    """Count one row: exactly if its key is in the table or enters it."""
    cost = sane(cost_ns)
    _count(keys, ranks, counts, heavy_work_ns, frequency, work_ns, multipliers, key, cost)


@njit(cache=True)
def update_rows(
    keys, ranks, counts, heavy_work_ns, frequency, work_ns, multipliers, new_keys, costs_ns
):
    """Count many rows."""
    for t in range(new_keys.size):
        key, cost = new_keys[t], sane(costs_ns[t])
        _count(keys, ranks, counts, heavy_work_ns, frequency, work_ns, multipliers, key, cost)


@njit(cache=True, inline="always")
def _estimate(keys, counts, heavy_work_ns, frequency, work_ns, multipliers, key, unseen_ns):
    bucket, place = 0, -1
    if keys.shape[0] > 0:
        bucket = bucket_of(key, keys.shape[0])
        place = _place_of(keys, counts, bucket, key)
    if place >= 0:
        return heavy_work_ns[bucket, place] / counts[bucket, place]
    return estimate_row(frequency, work_ns, multipliers, key, unseen_ns)


@njit(cache=True)
def estimate_row_heavy(
    keys, counts, heavy_work_ns, frequency, work_ns, multipliers, key, unseen_ns
):
    """Return the exact mean of a key in the table, else the sketch's estimate."""
    return _estimate(keys, counts, heavy_work_ns, frequency, work_ns, multipliers, key, unseen_ns)


@njit(cache=True)
def estimate_rows(
    keys, counts, heavy_work_ns, frequency, work_ns, multipliers, wanted, unseen_ns, estimates_ns
):
    """Estimate many keys into `estimates_ns`."""
    for t in range(wanted.size):
        estimates_ns[t] = _estimate(
            keys, counts, heavy_work_ns, frequency, work_ns, multipliers, wanted[t], unseen_ns
        )


@njit(cache=True)
def _heaviest_left(ranks, taken, bucket):
    """Return the place of greatest rank that is not taken yet, -1 if all are."""
    heaviest = -1
    for place in range(ranks.shape[1]):
        if not taken[place] and (heaviest < 0 or ranks[bucket, place] > ranks[bucket, heaviest]):
            heaviest = place
    return heaviest


@njit(cache=True)
def _take_over(
    keys,
    ranks,
    counts,
    heavy_work_ns,
    frequency,
    work_ns,
    multipliers,
    bucket,
    key,
    rank,
    count,
    work,
):
    """Let a key in if it outranks the least place or finds one empty, else into the sketch."""
    place = _least_place(ranks, bucket)
    if counts[bucket, place] > 0 and ranks[bucket, place] >= rank:
        add(frequency, work_ns, multipliers, key, count, work)
        return
    _flush(keys, counts, heavy_work_ns, frequency, work_ns, multipliers, bucket, place)
    keys[bucket, place] = key
    ranks[bucket, place] = rank
    counts[bucket, place] = count
    heavy_work_ns[bucket, place] = work


@njit(cache=True)
def merge_tables(
    keys,
    ranks,
    counts,
    heavy_work_ns,
    frequency,
    work_ns,
    multipliers,
    other_keys,
    other_ranks,
    other_counts,
    other_work_ns,
    taken,
):
    """Add the table of another sketch of the same size: in every bucket the greatest ranks stay.

    A key that both know adds up; then the rest of the other comes in by falling rank, where there
    is room or a lesser rank. What finds no place goes into the sketch. `taken` is room to note the
    places of one bucket.
    """
    for bucket in range(keys.shape[0]):
        for theirs in range(keys.shape[1]):
            taken[theirs] = other_counts[bucket, theirs] == 0
            if taken[theirs]:
                continue
            place = _place_of(keys, counts, bucket, other_keys[bucket, theirs])
            if place >= 0:
                ranks[bucket, place] += other_ranks[bucket, theirs]
                counts[bucket, place] += other_counts[bucket, theirs]
                heavy_work_ns[bucket, place] = bounded_sum(
                    heavy_work_ns[bucket, place], other_work_ns[bucket, theirs]
                )
                taken[theirs] = True
        theirs = _heaviest_left(other_ranks, taken, bucket)
        while theirs >= 0:
            taken[theirs] = True
            _take_over(
                keys,
                ranks,
                counts,
                heavy_work_ns,
                frequency,
                work_ns,
                multipliers,
                bucket,
                other_keys[bucket, theirs],
                other_ranks[bucket, theirs],
                other_counts[bucket, theirs],
                other_work_ns[bucket, theirs],
            )
            theirs = _heaviest_left(other_ranks, taken, bucket)
