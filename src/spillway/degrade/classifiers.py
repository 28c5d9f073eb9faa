"""The load classifiers of CS: each walks the plan in its own way to an entry that is on time.

| here | thesis | order of the plan | how it is searched |
|---|---|---|---|
| `duration` | CS-D, 3.5 | longest first | one by one: rows × seconds / limit ≤ 1 (eq. 3.3) |
| `accuracy` | CS-A, 3.6 | most accurate first | the same |
| `cost` | CS-C, 3.7 | longest first | one by one, against limit / rows (eq. 3.7) |
| `binary` | CS-B, 3.8 | longest first | by halves, against limit / rows |

All fall back to the mandatory subtasks alone if nothing fits.

Where the thesis slips: eq. 3.5, o = 1 - l, is negative under overload; its example (50 % too much
at l = 1.5) and its measured amounts are l - 1. Eq. 3.4 calls l = 1 an overload, its text and
eq. 3.6 do not; nor do we. Eq. 3.8 has ≥ where the text and the example have ≤. Section 3.8 goes to
the right half for a greater limit, which holds in an ascending table; the plan is descending. And
section 3.8.1 takes 200 ms / 75 rows for 3 ms: it is 2.67, for which entry 5 (3 ms) is too long.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Protocol

from spillway.degrade.execution_plan import Entry, ExecutionPlan


def load(*, rows: float, row_s: float, limit_s: float) -> float:
    """Return l_total = rows × row_s / limit_s: the work in hand over the time for it (3.2, 3.3)."""
    if not limit_s > 0:
        raise ValueError(f"limit_s must be > 0, got {limit_s}")
    return rows * row_s / limit_s


def overloaded(load: float) -> bool:
    """Whether the work does not fit (eq. 3.4, without equality)."""
    return load > 1.0


def overload_amount(load: float) -> float:
    """Return by which share the work is too much; 0 if it fits (eq. 3.5 with its sign turned).

    >>> round(overload_amount(load(rows=50, row_s=0.006, limit_s=0.2)), 9)
    0.5
    """
    return max(load - 1.0, 0.0)


class Classifier(Protocol):
    """Selects the entry by which the rows in hand are done on time."""

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The plan, in the order in which it is gone through."""
        ...

    def select(self, *, rows: float, limit_s: float) -> Entry:
        """Return the entry for this many rows in this time, or the mandatory subtasks alone."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkByLoad:
    """Tries one entry after the other; for each the load is worked out anew (3.4.7, eq. 3.3)."""

    entries: tuple[Entry, ...]
    fallback: Entry

    def select(self, *, rows: float, limit_s: float) -> Entry:
        """Return the first entry with which the rows are no overload."""
        _check(rows, limit_s)
        for entry in self.entries:
            if rows * entry.local_duration_s / limit_s <= 1.0:
                return entry
        return self.fallback


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkByRow:
    """Tries one entry after the other against the time for one row (eq. 3.7 and 3.8)."""

    entries: tuple[Entry, ...]
    fallback: Entry

    def select(self, *, rows: float, limit_s: float) -> Entry:
        """Return the first entry that is short enough."""
        _check(rows, limit_s)
        row_s_max = limit_s / rows if rows else math.inf
        for entry in self.entries:
            if entry.local_duration_s <= row_s_max:
                return entry
        return self.fallback


@dataclass(frozen=True, slots=True, kw_only=True)
class Halving:
    """Searches by halves, but first where it found the last entry (section 6.3.1).

    `ascending` begins with the fallback, which no duration precedes. While the load stays between
    the same two entries nothing is searched; what is remembered changes no answer.
    """

    ascending: tuple[Entry, ...]
    durations_s: tuple[float, ...]
    _edges_s: tuple[float, ...] = field(init=False, repr=False, compare=False)
    _last: tuple[float, float, Entry] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Prepare the search."""
        object.__setattr__(self, "_edges_s", (-math.inf, *self.durations_s, math.inf))
        object.__setattr__(self, "_last", (0.0, 0.0, self.ascending[0]))

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The plan, the longest first."""
        return self.ascending[:0:-1]

    def select(self, *, rows: float, limit_s: float) -> Entry:
        """Return the longest entry that is short enough."""
        if rows > 0 < limit_s:  # first and without a call, because this is asked most often
            low_s, high_s, entry = self._last
            row_s_max = limit_s / rows
            return entry if low_s <= row_s_max < high_s else self._search(row_s_max)
        _check(rows, limit_s)
        return self.ascending[-1]

    def _search(self, row_s_max: float) -> Entry:
        place = bisect_right(self.durations_s, row_s_max)
        entry, edges_s = self.ascending[place], self._edges_s
        object.__setattr__(self, "_last", (edges_s[place], edges_s[place + 1], entry))
        return entry


def duration(plan: ExecutionPlan) -> Classifier:
    """CS-D: the longest entry that is on time, found by trying all that are longer."""
    return WalkByLoad(entries=plan.by_duration(), fallback=plan.mandatory)


def accuracy(plan: ExecutionPlan) -> Classifier:
    """CS-A: the most accurate entry that is on time, found by trying all that are more accurate."""
    return WalkByLoad(entries=plan.by_accuracy(), fallback=plan.mandatory)


def cost(plan: ExecutionPlan) -> Classifier:
    """CS-C: the choice of CS-D, with one division for the whole walk."""
    return WalkByRow(entries=plan.by_duration(), fallback=plan.mandatory)


def binary(plan: ExecutionPlan) -> Classifier:
    """CS-B: the choice of CS-D by binary search; of equally long entries the most accurate.

    (The thesis stops at the first middle entry that matches, whichever of the equals that is.)
    """
    ascending = plan.by_duration()[::-1]
    durations_s = tuple(entry.local_duration_s for entry in ascending)
    return Halving(ascending=(plan.mandatory, *ascending), durations_s=durations_s)


def _check(rows: float, limit_s: float) -> None:
    if not rows >= 0 < limit_s:  # also rejects NaN
        raise ValueError(f"rows must be >= 0 and limit_s > 0, got {rows} and {limit_s}")
