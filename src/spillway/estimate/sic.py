"""Source information content (SIC): how much of its input is in a query's results, in [0, 1].

A row of a query with S sources carries 1 / (S · rows of its source in the source time window). Rows
made from rows share what their inputs carried. The SIC of a result is what its rows carry: 1 if
nothing was shed. A filter, an aggregation or a join passes on all that it gets, so the SIC of a
result follows from counts alone: how many rows of each source came, and how many were kept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def row_sic(rows: ArrayLike, queries: ArrayLike = 0) -> Floats:
    """Return what a row of each source carries, by the rows of each source in the window.

    `queries` numbers the query of each source; by default all belong to one. A silent source does
    not count as one: what does not come cannot be lost.

    >>> row_sic([4, 10, 0]).tolist()
    [0.125, 0.05, 0.0]
    >>> row_sic([4, 10, 0], queries=[0, 1, 1]).tolist()
    [0.25, 0.1, 0.0]
    """
    counts = _counts("rows", rows)
    owner = np.broadcast_to(np.asarray(queries, dtype=np.int64), counts.shape)
    active = counts > 0
    sources = np.bincount(owner[active], minlength=int(owner.max(initial=-1)) + 1)
    carried = np.zeros(counts.size)
    carried[active] = 1.0 / (sources[owner[active]] * counts[active])
    return carried


def results_sic(
    rows_in: ArrayLike, rows_kept: ArrayLike, queries: ArrayLike, *, count: int
) -> Floats:
    """Return the SIC of the results of `count` queries, by the rows of each of their sources.

    `queries` numbers the query of each source. 1 where nothing came.

    >>> results_sic([100, 10, 8, 0], [50, 10, 2, 0], [0, 0, 1, 2], count=3).tolist()
    [0.75, 0.25, 1.0]
    """
    came, kept = _counts("rows_in", rows_in), _counts("rows_kept", rows_kept)
    if came.shape != kept.shape:
        raise ValueError(f"rows_kept must have one count per source, {came.size}, got {kept.size}")
    if (kept > came).any():
        raise ValueError(f"rows_kept must be <= rows_in, got {kept} of {came}")
    owner = np.broadcast_to(np.asarray(queries, dtype=np.int64), came.shape)
    active = came > 0
    shares = np.bincount(owner[active], kept[active] / came[active], minlength=count)
    sources = np.bincount(owner[active], minlength=count)
    return np.where(sources > 0, shares / np.maximum(sources, 1), 1.0)


def result_sic(rows_in: ArrayLike, rows_kept: ArrayLike) -> float:
    """Return the SIC of one query's result, by the rows of each source that came and were kept.

    >>> result_sic([100, 10], [50, 10])
    0.75
    """
    return float(results_sic(rows_in, rows_kept, 0, count=1)[0])


# ---- operators, row by row ----


def derived(sic: Floats, sets: Ints, outputs: Ints) -> Floats:
    """Share what the inputs of each set carry equally among the outputs of that set.

    `sets` numbers the set of every input: what is processed together, such as a window; `outputs`
    that of every output. What a set without outputs carried is `unanswered`.
    """
    size = 1 + max(sets.max(initial=-1), outputs.max(initial=-1))
    carried = np.bincount(sets, weights=sic, minlength=size)
    made = np.bincount(outputs, minlength=size)
    return np.asarray(carried[outputs] / made[outputs], dtype=np.float64)


def unanswered(sic: Floats, sets: Ints, outputs: Ints) -> float:
    """Return what sets without outputs carried: processed in full, their answer is "nothing"."""
    return float(sic[~np.isin(sets, outputs)].sum())


def filtered(sic: Floats, passes: Bools, windows: Ints) -> Floats:
    """Return the SIC of the rows that pass; those that do not were looked at all the same."""
    return derived(sic, windows, windows[passes])


def aggregated(sic: Floats, groups: Ints) -> Floats:
    """Return the SIC of one row per group: the sum of its rows'."""
    return np.asarray(np.bincount(groups, weights=sic), dtype=np.float64)


def joined(
    left: Floats, left_windows: Ints, right: Floats, right_windows: Ints, pairs: Ints
) -> Floats:
    """Return the SIC of the pairs (given by their windows): both sides' rows, partner or none."""
    sic, windows = np.concatenate((left, right)), np.concatenate((left_windows, right_windows))
    return derived(sic, windows, pairs)


# ---- over time ----


@dataclass(frozen=True, slots=True, kw_only=True)
class SicState:
    """Rows by slot of time, oldest first: (number of the slot, came by source, kept by source)."""

    slots: tuple[tuple[int, tuple[int, ...], tuple[int, ...]], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SicWindow:
    """Keeps the SIC of one query over a source time window that slides in `slots` steps.

    With `fade_s` rows count for less the older they are, e^(-age / fade_s). Who makes up for what
    was lost plans by that: where all rows count the same until they leave the window at once, an
    uneven moment comes back, as its own echo, whenever it leaves.

    >>> window = SicWindow(window_s=10.0)
    >>> state = window.learn(SicState(), at_s=1.0, rows_in=[100], rows_kept=[100])
    >>> state = window.learn(state, at_s=2.0, rows_in=[300], rows_kept=[100])
    >>> window.sic(state, now_s=3.0), window.sic(state, now_s=11.5), window.sic(state, now_s=60.0)
    (0.5, 0.3333333333333333, 1.0)
    """

    window_s: float = 10.0
    slots: int = 40
    fade_s: float = math.inf

    def __post_init__(self) -> None:
        """Reject windows without length."""
        if not self.fade_s > 0:
            raise ValueError(f"fade_s must be > 0, got {self.fade_s}")
        if not 0 < self.window_s < float("inf"):
            raise ValueError(f"window_s must be finite and > 0, got {self.window_s}")
        if self.slots < 1:
            raise ValueError(f"slots must be >= 1, got {self.slots}")

    def learn(
        self, state: SicState, *, at_s: float, rows_in: Sequence[int], rows_kept: Sequence[int]
    ) -> SicState:
        """Add rows that came at a time, and how many of them were kept, by source."""
        result_sic(rows_in, rows_kept)  # refuses what is no count
        slots = {number: (came, kept) for number, came, kept in state.slots}
        slot = self._slot(at_s)
        came, kept = slots.get(slot, ((), ()))
        slots[slot] = (_added(came, tuple(rows_in)), _added(kept, tuple(rows_kept)))
        oldest = max(slots) - self.slots
        recent = sorted(number for number in slots if number > oldest)
        return SicState(slots=tuple((number, *slots[number]) for number in recent))

    def totals(self, state: SicState, *, now_s: float) -> tuple[Floats, Floats]:
        """Return the rows of the window that came and those that were kept, by source."""
        oldest = self._slot(now_s) - self.slots
        inside = [entry for entry in state.slots if entry[0] > oldest]
        width = max((len(entry[1]) for entry in inside), default=0)
        came, kept = np.zeros(width), np.zeros(width)
        for number, rows_in, rows_kept in inside:
            counts = self._counts_for(number, now_s)
            came[: len(rows_in)] += counts * np.asarray(rows_in)
            kept[: len(rows_kept)] += counts * np.asarray(rows_kept)
        return came, kept

    def sic(self, state: SicState, *, now_s: float) -> float:
        """Return the SIC of the window that ends now; 1 if nothing came in it."""
        return result_sic(*self.totals(state, now_s=now_s))

    def ahead(self, state: SicState, *, now_s: float, rows: Sequence[float]) -> tuple[float, float]:
        """Return the SIC if all `rows` to come (by source) were shed, and what they add if kept.

        >>> window = SicWindow()
        >>> state = window.learn(SicState(), at_s=1.0, rows_in=[300], rows_kept=[100])
        >>> window.ahead(state, now_s=2.0, rows=[100])
        (0.25, 0.25)
        """
        came, kept = self.totals(state, now_s=now_s)
        size = max(came.size, len(rows))
        came, kept, coming = (
            np.pad(np.asarray(counts, dtype=np.float64), (0, size - len(counts)))
            for counts in (came, kept, rows)
        )
        before = result_sic(came + coming, kept)
        return before, result_sic(came + coming, kept + coming) - before

    def _counts_for(self, slot: int, now_s: float) -> float:
        age_s = max(now_s - slot * self.window_s / self.slots, 0.0)
        return math.exp(-age_s / self.fade_s)

    def _slot(self, at_s: float) -> int:
        return int(np.floor(at_s * self.slots / self.window_s))


# ---- over queries ----


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How far the SIC of queries lie apart."""

    minimum: float
    deviation: float
    jain: float

    @classmethod
    def of(cls, sic: ArrayLike) -> Spread:
        """Return least value, standard deviation and Jain's index of one SIC per query.

        >>> Spread.of([1.0, 0.5, 0.0])
        Spread(minimum=0.0, deviation=0.408248290463863, jain=0.6)
        """
        values = np.asarray(sic, dtype=np.float64)
        if not values.size or not np.isfinite(values).all():
            raise ValueError(f"sic must have a number for every query, got {values}")
        return cls(minimum=float(values.min()), deviation=float(values.std()), jain=jain(values))


def jain(values: ArrayLike) -> float:
    """Return Jain's index (Σx)² / (n Σx²): 1 if all are equal, 1/n if one has all."""
    given = np.asarray(values, dtype=np.float64)
    largest = float(given.max(initial=0.0))
    if largest <= 0:
        return 1.0
    scaled = given / largest  # squares of tiny numbers would vanish
    return float(scaled.sum() ** 2 / (scaled.size * (scaled**2).sum()))


def _counts(name: str, values: ArrayLike) -> Floats:
    counts = np.atleast_1d(np.asarray(values, dtype=np.float64))
    if not (np.isfinite(counts) & (counts >= 0)).all():
        raise ValueError(f"{name} must be finite and >= 0, got {values!r}")
    return counts


def _added(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    longer, shorter = (one, other) if len(one) >= len(other) else (other, one)
    return (*(a + b for a, b in zip(longer, shorter, strict=False)), *longer[len(shorter) :])
