"""The Spark loop on virtual time, batch by batch: the shipped policies, no Spark, no waiting.

Batches run back to back: each takes the rows that arrived while the one before it ran, keeps those
that the gate would keep, by the gate's own numbers, and reports what Spark would report. A run is
a seed, and the promises are checked in every batch (`promises.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from spillway.contracts import ConceptShedder, KeyedShedder, by_cost
from spillway.kernels.uniform import salt_of, uniforms
from spillway.loop import Loop
from spillway.sim.conditions import Engine, Feedback, Rows, Workload
from spillway.sim.grouped import Grouped
from spillway.sim.keyed import Keyed, reports
from spillway.sim.news import News
from spillway.sim.promises import BrokenPromise, Ground, Promises
from spillway.sim.taken import Taken, arrivals_s, latencies_s
from spillway.sim.trace import Batch, Trace
from spillway.state import files
from spillway.values import BatchAhead, LoopState, Observation, PinnedPlan, StratumCount

__all__ = [
    "Batch",
    "BrokenPromise",
    "Engine",
    "Feedback",
    "Rows",
    "Trace",
    "Workload",
    "simulate",
]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

UNRATED = "unrated"
_LANE_NOISE, _LANE_NEWS = 1, 2
_STATE = "loop state"


def simulate(
    loop: Loop,
    workload: Workload,
    *,
    engine: Engine | None = None,
    feedback: Feedback | None = None,
    seed: int = 0,
) -> Trace:
    """Run the loop over the workload until its last row is done; raise at a broken promise.

    >>> from spillway.objective import Latency
    >>> from spillway.overload.controller import HoldLatency
    >>> from spillway.workload.rate import parse_rate
    >>> loop = Loop(controller=HoldLatency(objective=Latency(average="2 s")))
    >>> burst = parse_rate("steps:0=1000,60=40000,90=1000", 120)
    >>> trace = simulate(loop, Workload(arrivals=burst, cost_s=1e-4), seed=7)
    >>> trace.rows_in, trace.late(Latency(average="2 s"))
    (1290000, [])
    """
    if seed < 0:
        raise ValueError(f"seed must be >= 0, got {seed}")
    run = _Run(loop, workload, engine or Engine(), feedback or Feedback(), seed)
    return Trace(seed=seed, batches=tuple(run.batches()))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attempt:
    """When a batch ran, how long it took, and how long with all rows kept."""

    start_s: float
    duration_s: float
    whole_s: float

    @property
    def end_s(self) -> float:
        return self.start_s + self.duration_s


class _Run:
    """One run: the clock, the rows taken so far, the loop's state."""

    def __init__(
        self, loop: Loop, workload: Workload, engine: Engine, feedback: Feedback, seed: int
    ) -> None:
        self.loop, self.workload, self.engine, self.seed = loop, workload, engine, seed
        self.arrivals_s = arrivals_s(workload.arrivals)
        self.noise = np.random.default_rng((seed, _LANE_NOISE))
        self.news = News(feedback, np.random.default_rng((seed, _LANE_NEWS)))
        self.promises = Promises(
            Ground(loop=loop, engine=engine, arrivals_s=self.arrivals_s, seed=seed)
        )
        self.restarts_s = sorted(engine.restarts_s)
        self.state, self.now_s, self.taken, self.run, self.cold = LoopState(), 0.0, 0, 0, True

    def batches(self) -> Iterator[Batch]:
        """Run batch after batch until no row is left."""
        batch_id = 0
        while self.taken < len(self.arrivals_s):
            yield self._batch(batch_id)
            batch_id += 1
        self.promises.check_end()

    def _batch(self, batch_id: int) -> Batch:
        self._wait()
        planned_s, rows = self.now_s, self._take()
        pinned = self._decide(batch_id, rows.count)
        rows = self._priced(rows, pinned)
        strata = rows.strata(pinned.plan)
        kept = rows.kept(pinned, strata)
        attempt = self._execute(rows, kept)
        while self._killed(attempt.end_s):
            self._wait()
            self.promises.check_replay(kept, rows.kept(pinned, strata))
            attempt = self._execute(rows, kept)
        seen = self._observe(batch_id, rows, (strata, kept), attempt, planned_s)
        seen = self._reported(seen, rows, pinned, (strata, kept), attempt)
        if rows.grouped is not None:
            seen = replace(seen, groups=rows.grouped.seen(uniforms(pinned.salt, rows.numbers)))
        batch = self._finish(rows, pinned, seen, attempt, planned_s)
        self.promises.check(batch, strata, kept, rows.rates(pinned.plan, strata))
        return batch

    def _wait(self) -> None:
        """Let the clock run to the next row, through the restarts on the way."""
        self.now_s = max(self.now_s, float(self.arrivals_s[self.taken]))
        while self._killed(self.now_s):
            pass

    def _killed(self, until_s: float) -> bool:
        """Die and start again if that happens before `until_s`; the state survives as its file."""
        if not (self.restarts_s and self.restarts_s[0] < until_s):
            return False
        self.now_s = max(self.now_s, self.restarts_s.pop(0) + self.engine.down_s)
        self.run, self.cold = self.run + 1, True
        self.news.lose()
        self.state = files.decode(files.encode(_STATE, self.state), _STATE, LoopState)
        return True

    def _take(self) -> Taken:
        """Take all rows that have arrived, up to the cap."""
        last = self._arrived(self.now_s)
        if self.engine.rows_max is not None:
            last = min(last, self.taken + self.engine.rows_max)
        content = self.workload.content
        columns = content.columns(np.arange(self.taken, last)) if content else {}
        return Taken(
            first=self.taken,
            arrivals_s=self.arrivals_s[self.taken : last],
            cost_s=self.workload.cost_s,
            costs_s=self._costs_s(columns),
            scores=self._scores(columns),
            keyed=self._keyed(columns),
            grouped=self._grouped(columns),
        )

    def _keyed(self, columns: Mapping[str, Ints | Floats]) -> Keyed | None:
        if self.workload.key is None:
            return None
        return Keyed.of(columns, self.workload.key, getattr(self.loop.shedder, "utility", None))

    def _grouped(self, columns: Mapping[str, Ints | Floats]) -> Grouped | None:
        shedder = self.loop.shedder
        return Grouped.of(columns, shedder) if isinstance(shedder, ConceptShedder) else None

    def _priced(self, rows: Taken, pinned: PinnedPlan) -> Taken:
        """Let a load-aware gate look up what the rows cost by the plan's table."""
        shedder = self.loop.shedder
        if not isinstance(shedder, KeyedShedder) or rows.keyed is None:
            return rows
        return replace(rows, scores=rows.keyed.scores(shedder, pinned.plan))

    def _arrived(self, now_s: float) -> int:
        return int(np.searchsorted(self.arrivals_s, now_s, side="right"))

    def _costs_s(self, columns: Mapping[str, Ints | Floats]) -> Floats | None:
        if not columns:
            return None
        return columns["work_us"].astype(np.float64) * 1e-6 + self.workload.cost_s

    def _scores(self, columns: Mapping[str, Ints | Floats]) -> Floats | None:
        score = self.loop.shedder.score
        if score is None or isinstance(self.loop.shedder, KeyedShedder):
            return None
        if score not in columns:
            known = ", ".join(columns) or "none: the workload has no content"
            raise ValueError(f"the shedder's score must be a column ({known}), got {score!r}")
        return columns[score].astype(np.float64)

    def _decide(self, batch_id: int, rows: int) -> PinnedPlan:
        for seen in self.news.due(batch_id):
            self.state = self.loop.learn(self.state, seen, query_id="sim", run_id=str(self.run))
        known = float(rows) if self.engine.sizes_known else None
        plan, faults = self.loop.decide(self.state, BatchAhead(batch_id=batch_id, rows=known))
        return PinnedPlan(
            batch_id=batch_id,
            version=self.state.batch_id,
            salt=salt_of(self.seed, batch_id),
            plan=plan,
            rows_expected=known,
            faults=faults,
        )

    def _execute(self, rows: Taken, kept: Bools) -> _Attempt:
        """Run a batch from now on; a cold engine and noise stretch all of it."""
        stretch = math.exp(self.engine.noise * self.noise.standard_normal())
        stretch *= self.engine.cold if self.cold else self.engine.pace_at(self.now_s)
        per_core = self.workload.factor_at(self.now_s) / self.engine.cores
        fixed_s = self.engine.fixed_s + self.workload.gate_s * rows.count
        return _Attempt(
            start_s=self.now_s,
            duration_s=stretch * (fixed_s + rows.work_s(kept) * per_core),
            whole_s=stretch * (fixed_s + rows.work_s() * per_core),
        )

    def _observe(
        self,
        batch_id: int,
        rows: Taken,
        fate: tuple[Ints, Bools],
        attempt: _Attempt,
        planned_s: float,
    ) -> Observation:
        """Say what Spark would say of the batch; its backlog is that of when it was planned."""
        strata, kept = fate
        mean_s, p99_s, max_s = latencies_s(rows.arrivals_s[kept], attempt.end_s)
        return Observation(
            batch_id=batch_id,
            rows_in=rows.count,
            rows_kept=int(np.count_nonzero(kept)),
            duration_s=attempt.duration_s,
            latency_s_mean=mean_s,
            latency_s_p99=p99_s,
            latency_s_max=max_s,
            backlog_rows=float(self._arrived(planned_s) - rows.first - rows.count),
            offset_span=float(rows.count) if self.engine.sizes_known else None,
            quantiles=rows.quantiles(self.loop.shedder.quantiles),
            strata=self._counts(strata, kept),
        )

    def _reported(
        self,
        seen: Observation,
        rows: Taken,
        pinned: PinnedPlan,
        fate: tuple[Ints, Bools],
        attempt: _Attempt,
    ) -> Observation:
        """Add what a guarded operator reports, and what a load-aware gate observes."""
        if rows.keyed is None or rows.costs_s is None:
            return seen
        strata, kept = fate
        costs_s = rows.costs_s[kept] * self.workload.factor_at(attempt.start_s)
        seen = replace(seen, tasks=reports(rows.keyed.items[kept], costs_s, self.engine.cores))
        shedder = by_cost(self.loop.shedder)
        if shedder is None:
            return seen
        costs_ns = rows.keyed.costs_ns(pinned.plan)
        rated = strata < len(shedder.strata)
        drawn = uniforms(pinned.salt, rows.numbers)
        return replace(
            seen,
            cost_ns_mean=float(costs_ns.mean()),
            cost_ns_kept=float(costs_ns[kept].mean()) if kept.any() else None,
            sample=rows.keyed.sample(drawn, rated) if shedder.worth else (),
        )

    def _counts(self, strata: Ints, kept: Bools) -> tuple[StratumCount, ...]:
        names = (*self.loop.shedder.strata, *((UNRATED,) if self.loop.shedder.score else ()))
        came = np.bincount(strata, minlength=len(names)).tolist()
        stayed = np.bincount(strata[kept], minlength=len(names)).tolist()
        return tuple(
            StratumCount(name=name, rows_in=rows_in, rows_kept=rows_kept)
            for name, rows_in, rows_kept in zip(names, came, stayed, strict=True)
        )

    def _finish(
        self,
        rows: Taken,
        pinned: PinnedPlan,
        seen: Observation,
        attempt: _Attempt,
        planned_s: float,
    ) -> Batch:
        """Move the clock and the position on and send the news."""
        self.now_s = self.engine.next_s(attempt.start_s, attempt.end_s)
        self.taken, self.cold = rows.first + rows.count, False
        self.news.post(seen)
        return Batch(
            run=self.run,
            planned_s=planned_s,
            start_s=attempt.start_s,
            end_s=attempt.end_s,
            first_row=rows.first,
            pinned=pinned,
            seen=seen,
            whole_duration_s=attempt.whole_s,
            whole_latency_s=latencies_s(rows.arrivals_s, attempt.start_s + attempt.whole_s),
            backlog_rows=self._arrived(attempt.end_s) - self.taken,
        )
