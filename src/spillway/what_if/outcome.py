"""What a guard did or would have done: the same numbers from the books and from virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np

from spillway.objective import Latency
from spillway.sim.batches import Trace, Workload, simulate
from spillway.state.ledger import Entry
from spillway.values import Observation
from spillway.what_if.policy import Ask, MadeRows
from spillway.what_if.recording import Conditions
from spillway.workload.rate import Schedule

_ROWS_MAX = 2_000_000  # more are simulated as rows that stand for several


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One batch: when it ended, rows in and kept, duration and mean latency; seconds and rows."""

    end_s: float
    rows_in: float
    rows_kept: float
    duration_s: float
    latency_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A run in numbers: as recorded, or the mean of simulated ones.

    `shed_range` and `latency_range` are the least and the most over seeds. `late` is the share of
    batches that broke the objective, None without one.
    """

    name: str
    objective: Latency | None
    batches: float
    rows_in: int
    rows_shed: float
    shed_range: tuple[float, float]
    latency_s_mean: float | None
    latency_range: tuple[float, float] | None
    latency_s_worst: float | None
    late: float | None
    points: tuple[Point, ...]

    @property
    def share_shed(self) -> float:
        """Share of the rows that was given up."""
        return self.rows_shed / self.rows_in if self.rows_in else 0.0

    @property
    def held(self) -> bool | None:
        """Whether at most one batch in twenty broke the objective."""
        return None if self.late is None else self.late <= 0.05


def recorded(entries: Sequence[Entry], objective: Latency | None) -> Outcome:
    """Tell what the books say, under their own name."""
    timed = sorted(entries, key=lambda entry: entry.started_at_s)
    began_s = timed[0].started_at_s
    seen = [entry.seen for entry in timed]
    points = tuple(
        _point(entry.started_at_s - began_s + entry.seen.duration_s, entry.seen) for entry in timed
    )
    return _outcome("recorded", objective, [(seen, points)])


def answer(
    conditions: Conditions,
    ask: Ask,
    *,
    seeds: int = 5,
) -> Outcome:
    """Run a guard through the conditions, once for each seed; the points are the first run's.

    Where nothing is left to chance one run says it all.
    """
    seeds = seeds if conditions.engine.noise or conditions.feedback.late else 1
    scale = max(1, -(-conditions.arrivals.rows_total // _ROWS_MAX))
    runs = []
    for seed in range(seeds):
        trace = _simulated(conditions, ask, scale, seed)
        seen = [batch.seen for batch in trace.batches]
        points = tuple(_point(batch.end_s, batch.seen, scale) for batch in trace.batches)
        runs.append((seen, points))
    return _outcome(ask.name, ask.objective, runs, scale=scale)


def _simulated(conditions: Conditions, ask: Ask, scale: int, seed: int) -> Trace:
    cost, engine = conditions.cost, conditions.engine
    loop = ask.loop()
    workload = Workload(
        arrivals=_coarse(conditions.arrivals, scale),
        cost_s=cost.row_s * cost.cores * scale / ask.capacity,
        gate_s=cost.gate_s * scale / ask.capacity,
        content=MadeRows() if loop.shedder.score else None,
    )
    if engine.rows_max is not None:
        engine = replace(engine, rows_max=max(engine.rows_max // scale, 1))
    return simulate(loop, workload, engine=engine, feedback=conditions.feedback, seed=seed)


def _coarse(arrivals: Schedule, scale: int) -> Schedule:
    if scale == 1:
        return arrivals
    return Schedule(knots_s=arrivals.knots_s, knots_rows=arrivals.knots_rows / scale)


def _point(end_s: float, seen: Observation, scale: int = 1) -> Point:
    return Point(
        end_s=end_s,
        rows_in=float(seen.rows_in * scale),
        rows_kept=float(seen.rows_kept * scale),
        duration_s=seen.duration_s,
        latency_s=seen.latency_s_mean,
    )


def _outcome(
    name: str,
    objective: Latency | None,
    runs: Sequence[tuple[Sequence[Observation], tuple[Point, ...]]],
    *,
    scale: int = 1,
) -> Outcome:
    shed = [float(scale * sum(each.rows_in - each.rows_kept for each in seen)) for seen, _ in runs]
    means = [mean for seen, _ in runs if (mean := _mean_latency_s(seen)) is not None]
    worst = [worst for seen, _ in runs if (worst := _worst_s(seen)) is not None]
    late = [_late(seen, objective) for seen, _ in runs] if objective else []
    known = [share for share in late if share is not None]
    return Outcome(
        name=name,
        objective=objective,
        batches=fmean(len(seen) for seen, _ in runs),
        rows_in=scale * sum(each.rows_in for each in runs[0][0]),
        rows_shed=fmean(shed),
        shed_range=(min(shed), max(shed)),
        latency_s_mean=fmean(means) if means else None,
        latency_range=(min(means), max(means)) if means else None,
        latency_s_worst=fmean(worst) if worst else None,
        late=fmean(known) if known else None,
        points=runs[0][1],
    )


def _mean_latency_s(seen: Sequence[Observation]) -> float | None:
    known = [(s.latency_s_mean, s.rows_kept) for s in seen if s.latency_s_mean is not None]
    if not any(rows for _, rows in known):
        return None
    means, rows = np.array(known, dtype=np.float64).T
    return float(np.average(means, weights=rows))


def _worst_s(seen: Sequence[Observation]) -> float | None:
    return max((s.latency_s_mean for s in seen if s.latency_s_mean is not None), default=None)


def _late(seen: Sequence[Observation], objective: Latency) -> float | None:
    known = [latency for s in seen if s.rows_kept and (latency := objective.of(s)) is not None]
    return float(np.mean(np.array(known) > objective.limit_s)) if known else None
