"""Under which conditions the loop is tried: what comes, how batches run, how news come back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from spillway.workload.rate import Schedule

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_ROWS_MAX = 50_000_000  # their arrival times are held in memory: 400 MB


class Rows(Protocol):
    """What rows hold, by their numbers: `workload.content.Content`, or anything like it."""

    def columns(self, rows: Ints) -> Mapping[str, NDArray[np.int64] | NDArray[np.float64]]:
        """Return the columns of these rows; `work_us` is what each costs."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What comes: rows in time, and what each costs.

    A row costs `cost_s`, plus its `work_us` if there is `content`; from each second named in
    `slower` on, that many times as much. A shedder's score must name a column of the content.
    With a `key` (a column of integers) the rows' operator reports what they took by it, as a
    guarded operator does on Spark; a shedder's key and utility must then be columns as well.
    Reading a row and deciding about it takes `gate_s`, kept or not, whatever the number of cores.
    """

    arrivals: Schedule
    cost_s: float = 0.0
    gate_s: float = 0.0
    content: Rows | None = None
    slower: tuple[tuple[float, float], ...] = ()
    key: str | None = None

    def __post_init__(self) -> None:
        """Reject costs that are none and more rows than fit into memory."""
        _at_least_0("cost_s", self.cost_s)
        _at_least_0("gate_s", self.gate_s)
        for from_s, factor in self.slower:
            _at_least_0("slower", from_s)
            _at_least_0("slower", factor)
        if self.arrivals.rows_total > _ROWS_MAX:
            raise ValueError(
                f"arrivals must bring at most {_ROWS_MAX} rows, got {self.arrivals.rows_total}"
            )

    def factor_at(self, now_s: float) -> float:
        """How many times its usual cost a row takes at this time."""
        return _step_at(self.slower, now_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """How batches run: (fixed_s + gate's time + work of the kept rows / cores) × noise × pace.

    `noise` is the sigma of a lognormal factor, `cold` the factor of the first batch after a start;
    from each second named in `pace` on, all of a batch takes that many times as long. Batches begin
    `gap_s` after the end of the one before, and with `trigger_s` not sooner than so long after
    its begin.
    `rows_max` caps a batch. `sizes_known` says whether the source's offsets count rows. At each of
    `restarts_s` the query dies, is back after `down_s` and plays its unfinished batch again.
    """

    fixed_s: float = 0.2
    cores: int = 1
    noise: float = 0.0
    cold: float = 1.0
    rows_max: int | None = None
    sizes_known: bool = True
    restarts_s: tuple[float, ...] = ()
    down_s: float = 5.0
    gap_s: float = 0.0
    trigger_s: float = 0.0
    pace: tuple[tuple[float, float], ...] = ()

    def __post_init__(self) -> None:
        """Reject an engine that no clock could follow."""
        for name in ("fixed_s", "noise", "cold", "down_s", "gap_s", "trigger_s"):
            _at_least_0(name, getattr(self, name))
        for from_s, factor in self.pace:
            _at_least_0("pace", from_s)
            _at_least_0("pace", factor)
        if self.cores < 1 or (self.rows_max is not None and self.rows_max < 1):
            raise ValueError(
                f"cores and rows_max must be >= 1, got {self.cores} and {self.rows_max}"
            )
        if any(not 0 <= at_s < math.inf for at_s in self.restarts_s):
            raise ValueError(f"restarts_s must be finite and >= 0, got {self.restarts_s}")

    def pace_at(self, now_s: float) -> float:
        """How many times as long as usual a batch takes that begins at this time."""
        return _step_at(self.pace, now_s)

    def next_s(self, start_s: float, end_s: float) -> float:
        """When the next batch may begin.

        >>> Engine(trigger_s=10.0).next_s(3.0, 4.0), Engine(gap_s=0.5).next_s(3.0, 4.0)
        (13.0, 4.5)
        """
        return max(end_s + self.gap_s, start_s + self.trigger_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Feedback:
    """How observations come back: `delay` batches late, some later still, some never, some twice.

    `late`, `dropped` and `doubled` are probabilities; a late or second copy takes 1 to `late_max`
    further batches. With 0 the loop has learnt from a batch when the next one is planned.
    """

    delay: int = 0
    late: float = 0.0
    late_max: int = 3
    dropped: float = 0.0
    doubled: float = 0.0

    def __post_init__(self) -> None:
        """Reject delays and probabilities that are none."""
        if self.delay < 0 or self.late_max < 1:
            raise ValueError(
                f"delay must be >= 0 and late_max >= 1, got {self.delay} and {self.late_max}"
            )
        for name in ("late", "dropped", "doubled"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be in [0, 1], got {getattr(self, name)}")


def _step_at(steps: tuple[tuple[float, float], ...], now_s: float) -> float:
    """Return the last factor that has begun; 1 before the first."""
    return next((by for from_s, by in sorted(steps)[::-1] if from_s <= now_s), 1.0)


def _at_least_0(name: str, value: float) -> None:
    if not 0 <= value < math.inf:  # also rejects NaN
        raise ValueError(f"{name} must be finite and >= 0, got {value}")
