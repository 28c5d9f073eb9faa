"""Which batches of many queries stay: DISSP's fair choice (algorithm 1) and its rivals.

The source information content (SIC) of a query is the share of its input that reaches its results,
in [0, 1]. Fair is what brings all queries to the same SIC, or to SIC in proportion to weights.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from spillway.kernels import fair

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Last(IntEnum):
    """What becomes of a batch that no longer fits into the capacity.

    `PART` keeps as many of its rows as fit, and stops: the capacity is used to the last row and
    never exceeded. `OVER` keeps all of it and stops, as the paper's loop does. `WITHIN` passes it
    over and goes on with whole batches that fit: queries of small batches gain by that.
    """

    WITHIN = fair.WITHIN
    OVER = fair.OVER
    PART = fair.PART


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Backlog:
    """What waits in the input buffer: batches in order of arrival, and the queries they are for.

    queries:   number of each batch's query.
    sizes:     what each batch takes of the capacity: rows, or seconds of work.
    sic:       what each batch adds to the SIC of its query.
    projected: SIC of every query if none of its batches were processed.
    weights:   what queries deserve, relative to each other; by default the same. A query of
               weight 0 gets what the others leave.
    """

    queries: Ints
    sizes: Floats
    sic: Floats
    projected: Floats
    weights: Floats = field(default_factory=lambda: np.ones(0))

    def __post_init__(self) -> None:
        """Reject lengths that do not match, queries that are none, and what is no amount."""
        if not self.weights.size:
            object.__setattr__(self, "weights", np.ones(self.projected.size))
        for name in ("sizes", "sic"):
            _check_size(name, getattr(self, name), self.queries.size, "batch")
        _check_size("weights", self.weights, self.projected.size, "query")
        for name in ("sizes", "sic", "projected", "weights"):
            _check_amounts(name, getattr(self, name))
        count = self.projected.size
        if self.queries.size and not 0 <= self.queries.min() <= self.queries.max() < count:
            numbers = f"{self.queries.min()} to {self.queries.max()}"
            raise ValueError(f"queries must be in [0, {count}), got {numbers}")

    def sic_after(self, kept: Floats) -> Floats:
        """Return the SIC of every query once these shares of the batches are processed."""
        gained = np.bincount(self.queries, kept * self.sic, minlength=self.projected.size)
        return np.asarray(self.projected + gained, dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fair:
    """Algorithm 1: the query of least projected SIC first, of its batches the one of highest SIC.

    With weights the query of least SIC / weight comes first. Of equal queries the first by number,
    of equal batches the first to arrive. O(n log n) for n batches.

    >>> waiting = Backlog(queries=np.array([0, 0, 1, 1]), sizes=np.array([4.0, 4.0, 1.0, 1.0]),
    ...                   sic=np.array([0.4, 0.6, 0.5, 0.5]), projected=np.zeros(2))
    >>> Fair().keep(waiting, capacity=5.5).tolist()
    [0.0, 1.0, 1.0, 0.5]
    """

    last: Last = Last.PART

    def keep(self, waiting: Backlog, capacity: float, turn: int = 0) -> Floats:
        """Return the share of every batch that stays. `turn` has no part in it."""
        return _fairly(waiting, waiting.sic, waiting.projected, capacity, self.last)


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualWork:
    """Gives every query the same part of the capacity, whatever it needs: light ones gain.

    What section 5.1 of the paper warns of; here as a rival. What a query has used of the source
    time window so far is told by its SIC and by what its batches take for theirs.
    """

    def keep(self, waiting: Backlog, capacity: float, turn: int = 0) -> Floats:
        """Return the share of every batch that stays: next is the query with the least so far."""
        count = waiting.projected.size
        sizes, sic = (
            np.bincount(waiting.queries, values, minlength=count)
            for values in (waiting.sizes, waiting.sic)
        )
        used = waiting.projected * np.where(sic > 0, sizes / np.where(sic > 0, sic, 1.0), 0.0)
        return _fairly(waiting, waiting.sizes, used, capacity, Last.PART)


@dataclass(frozen=True, slots=True, kw_only=True)
class Random:
    """Keeps batches in random order up to the capacity; the same seed and turn keep the same."""

    seed: int = 0
    last: Last = Last.PART

    def keep(self, waiting: Backlog, capacity: float, turn: int = 0) -> Floats:
        """Return the share of every batch that stays."""
        _check_capacity(capacity)
        order = np.random.default_rng((4, self.seed, turn)).permutation(waiting.queries.size)
        kept = np.zeros(waiting.queries.size)
        fair.keep_in_order(order, waiting.sizes, float(capacity), int(self.last), kept)
        return kept


def _fairly(
    waiting: Backlog, worth: Floats, projected: Floats, capacity: float, last: Last
) -> Floats:
    _check_capacity(capacity)
    kept = np.zeros(waiting.queries.size)
    counts = np.bincount(waiting.queries, minlength=projected.size)
    fair.keep_fairly(
        np.lexsort((-worth, waiting.queries)),
        np.cumsum(counts),
        np.ascontiguousarray(waiting.sizes, dtype=np.float64),
        np.ascontiguousarray(worth, dtype=np.float64),
        projected.astype(np.float64),  # a copy: the kernel adds to it
        np.ascontiguousarray(waiting.weights, dtype=np.float64),
        float(capacity),
        int(last),
        kept,
    )
    return kept


def _check_capacity(capacity: float) -> None:
    if not capacity >= 0:  # also rejects NaN
        raise ValueError(f"capacity must be >= 0, got {capacity}")


def _check_size(name: str, values: Floats, size: int, what: str) -> None:
    if values.shape != (size,):
        raise ValueError(f"{name} must have one value per {what}, {size}, got {values.shape}")


def _check_amounts(name: str, values: Floats) -> None:
    wrong = ~(np.isfinite(values) & (values >= 0))
    if wrong.any():
        raise ValueError(f"{name} must be finite and >= 0, got {values[wrong][0]}")
