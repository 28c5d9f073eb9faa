"""A recorded run as conditions that can be played again: what came when, and what batches took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from spillway.sim.conditions import Engine, Feedback
from spillway.state.ledger import Entry
from spillway.what_if import cost as costs
from spillway.what_if.cost import BatchCost
from spillway.workload.rate import Schedule

Floats = NDArray[np.float64]

_BATCHES_MIN = 4
_CAPPED_SHARE = 0.3  # so many batches of one size, with rows left behind, mean that it is capped
_NEVER_S = 1e-6


class TooShort(ValueError):
    """The books hold too few batches with rows to learn from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What a run met, whatever its guard did: arrivals, cost of batches, how news came back."""

    arrivals: Schedule
    cost: BatchCost
    engine: Engine
    feedback: Feedback = Feedback()  # noqa: RUF009 (frozen)
    notes: tuple[str, ...] = ()


def conditions_of(entries: Sequence[Entry]) -> Conditions:
    """Read the conditions from the books of one query, in order."""
    timed = sorted(entries, key=lambda entry: entry.started_at_s)
    warm = _warm(timed)
    if len(warm) < _BATCHES_MIN:
        raise TooShort(
            f"the books must hold at least {_BATCHES_MIN} batches with rows beside the first, "
            f"got {len(warm)}"
        )
    cost = costs.fit([entry.seen for entry in warm])
    began_s = _began_s(timed[0])
    return Conditions(
        arrivals=arrivals_of(timed, began_s),
        cost=cost,
        engine=_engine(timed, warm, cost, began_s),
        feedback=_feedback(timed),
        notes=_notes(cost, timed),
    )


def arrivals_of(entries: Sequence[Entry], began_s: float) -> Schedule:
    """Return when rows came: those of a batch between the begins of the one before and its own.

    What a batch left behind had come too. Within that time rows come evenly, or earlier or later
    in it as their mean latency says.
    """
    knots, rows, before_s, taken = [0.0], [0.0], 0.0, 0.0
    for entry in entries:
        taken += entry.seen.rows_in
        now_s = max(entry.started_at_s - began_s, before_s + 1e-6)
        came = max(taken + _left_rows(entry), rows[-1])
        middle = rows[-1] + _first_half(entry, began_s, before_s, now_s) * (came - rows[-1])
        knots += [(before_s + now_s) / 2, now_s]
        rows += [middle, came]
        before_s = now_s
    rows[-1] = taken  # what was left behind in the end was never seen
    return Schedule(knots_s=np.array(knots), knots_rows=np.minimum(np.array(rows), taken))


def _first_half(entry: Entry, began_s: float, before_s: float, now_s: float) -> float:
    """Return the share of rows that came in the first half, from the mean of their latencies."""
    mean_s = entry.seen.latency_s_mean
    if mean_s is None:
        return 0.5
    came_s = entry.started_at_s + entry.seen.duration_s - mean_s - began_s
    return min(max(2.0 * (0.75 - (came_s - before_s) / (now_s - before_s)), 0.0), 1.0)


def _left_rows(entry: Entry) -> float:
    """Return the rows that had come and were left for later batches."""
    seen = entry.seen
    if not seen.backlog_rows or not seen.offset_span or not seen.rows_in:
        return 0.0
    return seen.backlog_rows * seen.rows_in / seen.offset_span


def _began_s(first: Entry) -> float:
    """Return when the first row came, a moment before the first batch at least."""
    seen = first.seen
    waited_s = (seen.latency_s_max or 0.0) - seen.duration_s
    return first.started_at_s - max(waited_s, 1e-3)


def _warm(entries: Sequence[Entry]) -> list[Entry]:
    """Leave out the first batch after every start, and those without rows."""
    started: set[str] = set()
    warm = []
    for entry in entries:
        if entry.run_id in started and entry.seen.rows_kept:
            warm.append(entry)
        started.add(entry.run_id)
    return warm


def _engine(
    entries: Sequence[Entry], warm: Sequence[Entry], cost: BatchCost, began_s: float
) -> Engine:
    seen = [entry.seen for entry in warm]
    pace = costs.paces(cost, seen).tolist()
    starts_s = [entry.started_at_s - began_s for entry in warm]
    ends = _ends(entries)
    return Engine(
        fixed_s=cost.fixed_s,
        cores=cost.cores,
        noise=costs.noise(cost, seen),
        cold=_cold(entries[0], cost),
        rows_max=_rows_max(entries),
        sizes_known=_sizes_known(entries),
        gap_s=_gap_s(entries),
        trigger_s=_trigger_s(entries),
        pace=tuple(zip(starts_s, pace, strict=True)),
        restarts_s=tuple(end_s - began_s + _NEVER_S for end_s, _ in ends),
        down_s=float(np.mean([down_s for _, down_s in ends])) if ends else 0.0,
    )


def _cold(first: Entry, cost: BatchCost) -> float:
    """Return how many times longer the first batch took than it should have."""
    rows = np.array([float(first.seen.rows_in)]), np.array([float(first.seen.rows_kept)])
    return float(first.seen.duration_s / max(float(cost.duration_s(*rows)[0]), 1e-3))


def _ends(entries: Sequence[Entry]) -> list[tuple[float, float]]:
    """Return when runs ended, but the last, and how long the query was down then."""
    ends = []
    for before, after in pairwise(entries):
        if before.run_id != after.run_id:
            end_s = before.started_at_s + before.seen.duration_s
            ends.append((end_s, max(after.started_at_s - end_s, 0.0)))
    return ends


def _gaps_s(entries: Sequence[Entry]) -> Floats:
    """Return the pauses between batches of one run that had rows to wait for."""
    pairs = pairwise(entries)
    gaps = [
        after.started_at_s - before.started_at_s - before.seen.duration_s
        for before, after in pairs
        if before.run_id == after.run_id
    ]
    return np.asarray(np.maximum(gaps or [0.0], 0.0), dtype=np.float64)


def _gap_s(entries: Sequence[Entry]) -> float:
    return float(np.quantile(_gaps_s(entries), 0.25))


def _trigger_s(entries: Sequence[Entry]) -> float:
    """Return the interval of a trigger: batches that were shorter began so long after another."""
    pairs = pairwise(entries)
    apart = [(b.started_at_s - a.started_at_s, a.seen.duration_s) for a, b in pairs]
    paused = [every_s for every_s, took_s in apart if took_s < 0.9 * every_s]
    if len(paused) < 0.5 * len(apart) or len(paused) < _BATCHES_MIN:
        return 0.0
    usual_s = float(np.median(paused))
    steady = np.mean(np.abs(np.array(paused) - usual_s) < 0.05 * usual_s)
    return usual_s if steady > 0.8 else 0.0


def _rows_max(entries: Sequence[Entry]) -> int | None:
    """Return the cap of a batch (such as maxOffsetsPerTrigger), if the batches show one."""
    most = max(entry.seen.rows_in for entry in entries)
    full = [e for e in entries if e.seen.rows_in >= 0.98 * most and _left_rows(e) > 0.1 * most]
    return most if len(full) >= _CAPPED_SHARE * len(entries) else None


def _sizes_known(entries: Sequence[Entry]) -> bool:
    """Say whether most plans knew the size of their batch."""
    plans = [entry.plan for entry in entries if entry.plan]
    known = sum(plan.rows_expected is not None for plan in plans)
    return not plans or known >= 0.5 * len(plans)


def _feedback(entries: Sequence[Entry]) -> Feedback:
    """Return how often a batch was planned without the report of the one before it."""
    lags = [e.batch_id - 1 - e.plan.version for e in entries if e.plan and e.plan.version >= 0]
    return Feedback(late=float(np.mean(np.array(lags) > 0)), late_max=1) if lags else Feedback()


def _notes(cost: BatchCost, entries: Sequence[Entry]) -> tuple[str, ...]:
    told = []
    if cost.assumed:
        told.append("all batches were alike: half of the shortest is taken as their fixed time")
    if all(entry.seen.latency_s_mean is None for entry in entries):
        told.append("no arrival column was named: rows are taken to come evenly between batches")
    return tuple(told)
