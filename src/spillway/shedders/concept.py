"""Concept-driven shedding at the gate: rare groups stay whole, frequent ones are thinned (CoD).

How often groups come is counted natively in a sketch of fixed size, whatever their number, and
merged over the batches of a window: the window's own concept, not that of the one before. Before
each batch it becomes one keep rate for each cell of the sketch, which the gate looks up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from statistics import median

import numpy as np
from numpy.typing import NDArray

from spillway.concept_values import Concept, ConceptState
from spillway.kernels import count_min
from spillway.objective import seconds
from spillway.shedders.concept_cells import (
    CELLS,
    Cells,
    Sample,
    cells_seen,
    items_in,
    packed,
    unpacked,
)
from spillway.shedders.concept_rates import Ahead, Rule, keep_rates
from spillway.shedders.group_sizes import Allocation
from spillway.shedders.keep_table import pack
from spillway.values import SCORE_MAX, Budget, Observation, Plan

Ints = NDArray[np.int64]

_BY_VALUE = ("neyman", "cvopt")
_ALLOCATIONS = ("proportional", "congress", *_BY_VALUE)
_ROWS_ENOUGH = 1_000.0  # a new window's concept stands on its own
_LATEST_MIN = 64  # a smaller batch does not replace a larger one as what is to come
_COLUMNS_MAX = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ConceptDriven:
    """Keeps rare groups whole and thins frequent ones, by how often groups come in this window.

    by:         column, or columns, whose values make the group; NULL is a value like others.
    value:      SQL expression of what is aggregated.
    allocation: how rows are shared out beyond `rows_min`: by frequency ("proportional", the
                paper's, and the default without a value), half and half ("congress"), for the least
                relative errors of the means of a value ("cvopt", the default with one), or for the
                least variance of its total over all groups ("neyman").
    rows_min:   of every group at least so many rows are kept in expectation, as far as the budget
                goes: they may take half of it, more where most is kept anyway.
    time, size: column with the event time, and the length of windows. A window has a concept of
                its own; the one before counts only until it has rows enough.
    decay:      without `time` a batch counts so many times as much as the next.

    A group that was not seen yet is kept whole, unless new ones are so many that the budget forbids
    it. Weights are 1 / rate: totals are unbiased.

    >>> budget = Budget(work_s_max=0.1, work_s_full=1.0, reason="overload")
    >>> ConceptDriven(by="route").plan(None, budget).rates  # whole, thinned: no groups known yet
    (1.0, 0.1)
    """

    by: str | Sequence[str]
    value: str | None = None
    allocation: Allocation | None = None
    rows_min: float = 2
    time: str | None = None
    size: str | timedelta | None = None
    decay: float = 0.7

    def __post_init__(self) -> None:
        """Reject what names no groups, no allocation or no window."""
        self._check_by()
        if not isinstance(self.by, str):
            object.__setattr__(self, "by", tuple(self.by))  # a list does not hash
        self._check_value()
        self._check_window()
        if not 0 <= self.rows_min < math.inf:
            raise ValueError(f"rows_min must be finite and >= 0, got {self.rows_min}")
        if not 0 <= self.decay < 1:
            raise ValueError(f"decay must be in [0, 1), got {self.decay}")

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns whose values make the group."""
        return (self.by,) if isinstance(self.by, str) else tuple(self.by)

    @property
    def score(self) -> str | None:
        """None: a row goes by its group's rate."""
        return None

    @property
    def strata(self) -> tuple[str, ...]:
        """Rows of groups that are kept whole, and those of groups that are not."""
        return ("whole", "thinned")

    @property
    def quantiles(self) -> tuple[float, ...]:
        """Nothing: the groups say more."""
        return ()

    def learn(self, state: ConceptState, seen: Observation) -> ConceptState:
        """Add a batch to the concept of its window; a damaged or empty sketch changes nothing.

        A batch belongs to the window of its median row: absurd times of a few do not matter.
        """
        groups = seen.groups
        counts = count_min.read(groups.frequencies) if groups else None
        if groups is None or counts is None or not counts.any():
            return state
        rows = self._rows(seen)
        cells = cells_seen(counts, rows, groups.sample if self.value else ())
        if self.time is None:
            learnt = replace(state, now=self._faded(state.now, cells, rows), before=None)
        else:
            window = self._window(groups.sample, state.now.window)
            learnt = _windowed(state, cells, rows, window)
        return _with_latest(learnt, counts, rows, groups.sample)

    def plan(self, seen: Observation | None, budget: Budget) -> Plan:
        """Set the rates by which the rows to come keep the budget's share."""
        share, state = budget.share, budget.concept
        ahead = _rows_ahead(state) if state and share < 1.0 else None
        if state is None or ahead is None:
            reason = self._reason(budget, known=False)
            return Plan(rates=(1.0, share), edges=(SCORE_MAX,), reason=reason)
        rule = Rule(
            share=share,
            allocation=self.allocation or ("cvopt" if self.value else "proportional"),
            rows_min=self.rows_min,
            keep_min=budget.keep_min,
        )
        rates = keep_rates(_concept(state), ahead, rule)
        thinned = np.where(rates < 1.0, ahead.counts, 0.0)
        mean = float(thinned @ rates) / float(thinned.sum()) if thinned.any() else share
        table, reason = pack(rates, ahead.counts), self._reason(budget, known=True)
        return Plan(rates=(1.0, mean), edges=(SCORE_MAX,), keep=table, reason=reason)

    def _rows(self, seen: Observation) -> float:
        """Return how many rows came in, without those that are protected."""
        told = [count.rows_in for count in seen.strata if count.name in self.strata]
        return float(sum(told) or seen.rows_in)

    def _faded(self, now: Concept, cells: Cells, rows: float) -> Concept:
        merged = cells.plus(Cells.of(now), share=self.decay)
        return merged.packed(window=None, rows=rows + self.decay * now.rows)

    def _window(self, sample: Sample, last: int | None) -> int | None:
        """Return the window of the median row; without any event times that of the batch before."""
        times_s = [at_s for _, _, at_s in sample if at_s is not None]
        return math.floor(median(times_s) / self._size_s) if times_s else last

    @property
    def _size_s(self) -> float:
        return seconds(self.size) if self.size is not None else math.inf

    def _reason(self, budget: Budget, *, known: bool) -> str:
        if budget.share >= 1.0:
            return budget.reason
        how = "frequent groups thinned" if known else "rows as they come, groups not known yet"
        return f"{budget.reason}: {how}"

    def _check_by(self) -> None:
        named = isinstance(self.by, Sequence) and all(
            isinstance(name, str) and name for name in self.columns
        )
        if not named or not 1 <= len(set(self.columns)) == len(self.columns) <= _COLUMNS_MAX:
            raise ValueError(f"by must name 1 to {_COLUMNS_MAX} different columns, got {self.by!r}")

    def _check_value(self) -> None:
        if self.allocation not in (None, *_ALLOCATIONS):
            raise ValueError(f"allocation must be one of {_ALLOCATIONS}, got {self.allocation!r}")
        if self.value == "" or (self.allocation in _BY_VALUE and self.value is None):
            raise ValueError(
                f"value must be a column or an SQL expression (allocation {self.allocation!r}), "
                f"got {self.value!r}"
            )
        if self.value is not None and self.allocation not in (None, *_BY_VALUE):
            raise ValueError(
                f"value has no use for the allocation {self.allocation!r}, got {self.value!r}"
            )

    def _check_window(self) -> None:
        if (self.time is None) != (self.size is None):
            raise ValueError(
                f"time and size must be given together, got {self.time!r} and {self.size!r}"
            )
        if self.time is not None and not (isinstance(self.time, str) and self.time):
            raise ValueError(f"time must name a column, got {self.time!r}")
        if self.size is not None and not _length_s(self.size) > 0:
            raise ValueError(f"size must be > 0, got {self.size!r}")


def _length_s(size: str | timedelta) -> float:
    try:
        return seconds(size)
    except ValueError as error:
        raise ValueError(f"size must be the length of a window: {error}") from error


def _windowed(state: ConceptState, cells: Cells, rows: float, window: int | None) -> ConceptState:
    """Add a batch to its window, or begin another; keep the one before while this one is small."""
    if window == state.now.window or not state.now.rows:
        merged, total = Cells.of(state.now).plus(cells), state.now.rows + rows
        before = state.before
    else:
        merged, total = cells, rows
        small = state.before is not None and state.now.rows < _ROWS_ENOUGH
        before = state.before if small else state.now
    now = merged.packed(window=window, rows=total)
    return replace(state, now=now, before=before if total < _ROWS_ENOUGH else None)


def _with_latest(state: ConceptState, counts: Ints, rows: float, sample: Sample) -> ConceptState:
    """Put the batch itself into the state: the next one will be like it."""
    counted = int(counts.sum()) // count_min.ROWS
    if state.latest and counted < _LATEST_MIN:
        return state
    return replace(
        state,
        latest=packed(counts, "<u4"),
        items=packed(items_in(sample), "<u4"),
        each=rows / counted,
    )


def _concept(state: ConceptState) -> Cells:
    """Return the concept; one of few rows is filled up by that of the window before."""
    cells = Cells.of(state.now)
    if state.before is None:
        return cells
    missing = max(_ROWS_ENOUGH - state.now.rows, 0.0)
    return cells.plus(Cells.of(state.before), share=missing / max(state.before.rows, 1.0))


def _rows_ahead(state: ConceptState) -> Ahead | None:
    """Return rows like those to come; None while none were seen."""
    counts, items = unpacked(state.latest, "<u4", CELLS), unpacked(state.items, "<u4")
    if counts is None or not counts.any():
        return None
    sampled = np.zeros(0) if items is None else items
    cells = count_min.cells_of(sampled.astype(np.int64))
    return Ahead(counts=counts, sampled=cells, each=state.each)
