"""What a run adds up to, from its books alone: pure numbers, no words and no pictures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spillway.objective import Latency
from spillway.state.ledger import Entry
from spillway.values import PinnedPlan

_Z95 = 1.959964
_PROTECTED = "protected"


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """How an objective did: the batches that were judged, and those that broke it."""

    judged: tuple[Entry, ...]
    late: tuple[Entry, ...]
    starts: frozenset[tuple[str, int]]

    @property
    def rows_late(self) -> int:
        """Kept rows of the batches that broke it."""
        return sum(entry.seen.rows_kept for entry in self.late)

    @property
    def while_starting(self) -> int:
        """How many of the late batches were the first after a start of the query."""
        return sum((entry.run_id, entry.batch_id) in self.starts for entry in self.late)


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """The number of rows that came, estimated from the kept ones alone, beside the truth."""

    truth: int
    estimate: float
    margin: float

    @property
    def off(self) -> float:
        """Relative error."""
        return (self.estimate - self.truth) / self.truth if self.truth else 0.0

    @property
    def inside(self) -> bool:
        """Whether the 95 % interval holds the truth."""
        return abs(self.estimate - self.truth) <= self.margin


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """One run in numbers. Latencies are over kept rows; None where none was measured."""

    batches: int
    starts: int
    began_at_s: float
    ended_at_s: float
    rows_in: int
    rows_kept: int
    rows_refused: int
    rows_unsampled: int
    rows_aside: int
    faults: int
    latency_s_mean: float | None
    latency_s_worst: float | None
    held: Held | None
    count: Count | None

    @property
    def rows_shed(self) -> int:
        """Rows given up by gate and operator."""
        return self.rows_in - self.rows_kept

    @property
    def duration_s(self) -> float:
        """From the first batch's begin to the last one's end."""
        return self.ended_at_s - self.began_at_s


def facts_of(entries: Sequence[Entry], objective: Latency | None) -> Facts:
    """Add the batches of a query up; there must be one."""
    seen = [entry.seen for entry in entries]
    worst = [each.latency_s_max for each in seen if each.latency_s_max is not None]
    return Facts(
        batches=len(entries),
        starts=len({entry.run_id for entry in entries}),
        began_at_s=min(entry.started_at_s for entry in entries),
        ended_at_s=max(entry.started_at_s + entry.seen.duration_s for entry in entries),
        rows_in=sum(each.rows_in for each in seen),
        rows_kept=sum(each.rows_kept for each in seen),
        rows_refused=sum(each.rows_refused for each in seen if not each.windowed),
        rows_unsampled=sum(each.rows_refused for each in seen if each.windowed),
        rows_aside=sum(each.rows_aside for each in seen),
        faults=sum(entry.plan.faults for entry in entries if entry.plan),
        latency_s_mean=mean_latency_s(entries),
        latency_s_worst=max(worst, default=None),
        held=held_by(entries, objective) if objective else None,
        count=count_of(entries),
    )


def mean_latency_s(entries: Sequence[Entry]) -> float | None:
    """Return the mean latency of all kept rows, None if none was measured."""
    pairs = [
        (entry.seen.latency_s_mean, entry.seen.rows_kept)
        for entry in entries
        if entry.seen.latency_s_mean is not None and entry.seen.rows_kept
    ]
    rows = sum(kept for _, kept in pairs)
    return sum(mean * kept for mean, kept in pairs) / rows if rows else None


def held_by(entries: Sequence[Entry], objective: Latency) -> Held:
    """Judge every batch whose latency is known by the bound."""
    known = [(entry, objective.of(entry.seen)) for entry in entries if entry.seen.rows_kept]
    judged = [(entry, latency_s) for entry, latency_s in known if latency_s is not None]
    first: dict[str, Entry] = {}
    for entry in entries:
        first.setdefault(entry.run_id, entry)
    return Held(
        judged=tuple(entry for entry, _ in judged),
        late=tuple(entry for entry, latency_s in judged if latency_s > objective.limit_s),
        starts=frozenset((entry.run_id, entry.batch_id) for entry in first.values()),
    )


def count_of(entries: Sequence[Entry]) -> Count | None:
    """Estimate how many rows came from the kept ones, each of weight 1 / rate.

    The variance is Horvitz and Thompson's, Σ kept · (1 - p) / p². None where rates are by group or
    an operator refused rows: then the books do not hold what the estimate needs.
    """
    estimate, variance, truth = 0.0, 0.0, 0
    for entry in entries:
        rates = _rates(entry)
        if rates is None:
            return None
        kept = np.array([stratum.rows_kept for stratum in entry.seen.strata], dtype=np.float64)
        estimate += float((kept / rates).sum())
        variance += float((kept * (1.0 - rates) / rates**2).sum())
        truth += entry.seen.rows_in
    return Count(truth=truth, estimate=estimate, margin=_Z95 * math.sqrt(variance))


def _rates(entry: Entry) -> np.ndarray[tuple[int], np.dtype[np.float64]] | None:
    """The keep rate of each stratum, None if a batch does not tell."""
    names = [stratum.name for stratum in entry.seen.strata]
    if entry.seen.rows_refused or (entry.plan and entry.plan.plan.keep):
        return None
    if not names and entry.rows_shed:
        return None
    rates = [_rate(entry.plan, place, name) for place, name in enumerate(names)]
    return np.array(rates, dtype=np.float64)


def _rate(pinned: PinnedPlan | None, place: int, name: str) -> float:
    if pinned is None or name == _PROTECTED:
        return 1.0
    plan = pinned.plan
    return plan.rates[place] if place < len(plan.rates) else plan.unrated


def shed_by(entries: Sequence[Entry]) -> list[tuple[str, str, int]]:
    """Return stratum, reason and rows of all that was given up, the most first."""
    sums: dict[tuple[str, str], int] = {}
    for entry in entries:
        lines = [((each.name, entry.reason), each.rows_shed) for each in entry.seen.strata]
        for key, rows in (*lines, (entry.refusal, entry.seen.rows_refused)):
            if rows:
                sums[key] = sums.get(key, 0) + rows
    return sorted(((*key, rows) for key, rows in sums.items()), key=lambda line: -line[2])


def strata_of(entries: Sequence[Entry]) -> list[tuple[str, int, int]]:
    """Return name, rows in and rows kept of every stratum."""
    sums: dict[str, tuple[int, int]] = {}
    for stratum in (each for entry in entries for each in entry.seen.strata):
        came, kept = sums.get(stratum.name, (0, 0))
        sums[stratum.name] = (came + stratum.rows_in, kept + stratum.rows_kept)
    return [(name, came, kept) for name, (came, kept) in sums.items()]
