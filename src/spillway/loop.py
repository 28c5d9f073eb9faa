"""One step of the loop, as pure functions: observation in, state out; state in, plan out.

Spark and the simulator run this very object. It has no clock and does no I/O.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from spillway.concept_values import ConceptState
from spillway.contracts import (
    ConceptShedder,
    Controller,
    CostModel,
    Degrader,
    KeyedCostModel,
    KeyedShedder,
    Shedder,
)
from spillway.cost.average import AverageCost
from spillway.cost.table import usual
from spillway.shedders.uniform import Uniform
from spillway.values import (
    SCORE_MAX,
    SCORE_MIN,
    BatchAhead,
    Budget,
    CostTable,
    Limits,
    LoopState,
    Observation,
    Plan,
)
from spillway.work_values import WorkMix

_SPANS_MAX = 40
_DURATION_S_MAX = 1e10  # longer is no duration but a broken clock
_SAMPLE_MIN = 64  # a smaller sample of rows does not replace a larger one
_GUESS = 4.0  # a guessed batch is at most so many times larger or smaller than the last


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """Cost model, controller and shedder of one guarded query, within the limits.

    With `degrade` optional work is given up before rows. Cost model and controller then speak of
    complete rows: a row of which half of the work was done counts as half a row.
    """

    controller: Controller
    cost: CostModel = field(default_factory=AverageCost)
    shedder: Shedder = field(default_factory=Uniform)
    degrade: Degrader | None = None
    limits: Limits = field(default_factory=Limits)

    def learn(
        self, state: LoopState, seen: Observation, *, query_id: str = "", run_id: str = ""
    ) -> LoopState:
        """Return the state after one finished batch; old and doubled observations change nothing.

        Where no gate counts rows, a batch without any says nothing (no window ended in it): time
        goes on, and that is all.

        The first batch after a start compiles code and starts workers: it is several times
        slower than the next and is kept out of the cost model.
        """
        state = state_of(state, query_id)
        if seen.batch_id <= state.batch_id or not 0 <= seen.duration_s < _DURATION_S_MAX:
            return state
        if not (seen.rows_in or seen.strata) and state.seen is not None:
            return replace(state, batch_id=seen.batch_id)
        cold = run_id != state.run_id
        if self.degrade is not None:
            state, seen = self._learn_work(self.degrade, state, seen, cold=cold)
        whole = _in_complete_rows(seen)
        return replace(
            state,
            run_id=run_id,
            batch_id=seen.batch_id,
            cost=state.cost if cold else self.cost.learn(state.cost, whole),
            controller=self.controller.learn(state.controller, whole),
            seen=_remember(state.seen, seen),
            before_s=state.seen.duration_s if state.seen else None,
            spans=_spans(state.spans, seen),
            concept=self._concept(state, seen),
        )

    def decide(self, state: LoopState, ahead: BatchAhead) -> tuple[Plan, int]:
        """Return the plan of the batch ahead and the number of nonsensical rates mended in it."""
        guessed = _rows_guessed(state)
        rows = ahead.rows if ahead.rows is not None else guessed
        forecast = self.cost.forecast(state.cost, rows)
        if forecast is not None and guessed > 0:
            forecast = replace(forecast, surge=rows / guessed)
        whole = state.seen and _in_complete_rows(state.seen)
        budget = self.controller.budget(state.controller, whole, forecast)
        costs = self.cost.table(state.cost) if isinstance(self.cost, KeyedCostModel) else None
        budget = replace(
            self._limit(budget, state, ahead),
            sample=self._priced(state, costs),
            concept=state.concept,
        )
        mix, left = self._cut(state, budget)
        plan, faults = self._clamp(self.shedder.plan(state.seen, left))
        return replace(plan, costs=costs, mix=mix, budget=_in_brief(budget)), faults

    def open_plan(self, reason: str) -> Plan:
        """Return the plan that keeps everything."""
        strata = len(self.shedder.strata)
        return Plan(rates=(1.0,) * strata, edges=(SCORE_MAX,) * (strata - 1), reason=reason)

    def fits(self, plan: Plan) -> bool:
        """Say whether a plan has one rate for each of the shedder's strata, in order."""
        strata = len(self.shedder.strata)
        return len(plan.rates) == strata == len(plan.edges) + 1 and _sorted(plan.edges)

    def _limit(self, budget: Budget, state: LoopState, ahead: BatchAhead) -> Budget:
        """Bound the rise of the kept share, and let a stale signal decay to open."""
        share, reason = budget.share, budget.reason
        if state.seen is not None and state.seen.rows_in:
            passed = state.seen.rows_refused / state.seen.rows_in  # the gate had let them through
            before = _in_complete_rows(state.seen).share + passed
            share = min(share, self.limits.rise_max * max(before, self.limits.keep_min))
        missed = ahead.batch_id - 1 - state.batch_id - self.limits.stale_batches
        if share < 1.0 and missed > 0:
            share, reason = 1.0 - (1.0 - share) * 0.5**missed, "no recent observation"
        work_s_max, keep_min = share * budget.work_s_full, self.limits.keep_min
        return replace(budget, work_s_max=work_s_max, reason=reason, keep_min=keep_min)

    def _cut(self, state: LoopState, budget: Budget) -> tuple[WorkMix | None, Budget]:
        """Give up work first; what rows may still cost is left to the shedder."""
        return self.degrade.cut(state.work, budget) if self.degrade else (None, budget)

    def _learn_work(
        self, degrade: Degrader, state: LoopState, seen: Observation, *, cold: bool
    ) -> tuple[LoopState, Observation]:
        """Learn what subtasks take and give, and how much of the work this batch did."""
        work = state.work if cold else degrade.learn(state.work, seen)
        return replace(state, work=work), replace(seen, done=degrade.done(work, seen))

    def _concept(self, state: LoopState, seen: Observation) -> ConceptState:
        """Let a shedder that goes by groups learn how often they come."""
        if not isinstance(self.shedder, ConceptShedder):
            return state.concept
        return self.shedder.learn(state.concept, seen)

    def _priced(self, state: LoopState, costs: CostTable | None) -> tuple[tuple[float, float], ...]:
        """Price the rows of the sample by the table that the gate will look up."""
        sample = state.seen.sample if state.seen else ()
        lookup = usual(costs)
        if not sample or lookup is None or not isinstance(self.shedder, KeyedShedder):
            return ()
        items, worths = np.asarray(sample).T
        costs_ns = lookup.foresee_ns(items.astype(np.int64))
        return tuple(zip(costs_ns.tolist(), worths.tolist(), strict=True))

    def _clamp(self, plan: Plan) -> tuple[Plan, int]:
        """Put every rate into [keep_min, 1]; open what makes no sense, and count it."""
        if not self.fits(plan):
            return self.open_plan("open: the policy's plan does not fit its strata"), 1
        levels = plan.keep.levels if plan.keep else ()
        faults = sum(not 0.0 <= rate <= 1.0 for rate in (*plan.rates, plan.unrated, *levels))
        *bounded, unrated = (self._bound(rate) for rate in (*plan.rates, plan.unrated))
        edges = tuple(float(min(max(edge, SCORE_MIN), SCORE_MAX)) for edge in plan.edges)
        keep = plan.keep and replace(plan.keep, levels=tuple(map(self._bound, levels)))
        bound = replace(plan, edges=edges, rates=tuple(bounded), unrated=unrated, keep=keep)
        return bound, faults

    def _bound(self, rate: float) -> float:
        if math.isnan(rate):
            return 1.0
        return float(min(max(rate, self.limits.keep_min), 1.0))  # NumPy prints its own otherwise


def _in_brief(budget: Budget) -> Budget | None:
    """Return what a plan says of its budget: two amounts of time, if they are finite."""
    finite = math.isfinite(budget.work_s_max) and math.isfinite(budget.work_s_full)
    return replace(budget, sample=(), concept=None) if finite else None


def state_of(state: LoopState, query_id: str) -> LoopState:
    """Return the state as far as it holds for this query: what was learnt, not where it stood."""
    if query_id == state.query_id:
        return state
    fresh = LoopState(query_id=query_id)
    return replace(
        fresh,
        cost=state.cost,
        controller=state.controller,
        concept=state.concept,
        work=state.work,
    )


def batch_rows(state: LoopState, offset_span: float | None) -> float | None:
    """Translate the span of a batch's offsets into rows, by the rows seen per offset so far.

    Exact where offsets count rows or a fixed number of rows each, a prediction elsewhere.
    """
    offsets = sum(span for span, _ in state.spans)
    if offset_span is None or offsets <= 0:
        return None
    return offset_span * sum(rows for _, rows in state.spans) / offsets


def _spans(
    spans: tuple[tuple[float, float], ...], seen: Observation
) -> tuple[tuple[float, float], ...]:
    if seen.offset_span is None or not 0 < seen.offset_span < math.inf:
        return spans
    return (*spans, (seen.offset_span, float(seen.rows_in)))[-_SPANS_MAX:]


def _remember(before: Observation | None, seen: Observation) -> Observation:
    """Keep the last known quantiles and sample when a batch showed none, and no reports."""
    seen = replace(seen, tasks=(), groups=None, work=None)
    if before is None:
        return seen
    larger = len(seen.sample) >= min(len(before.sample), _SAMPLE_MIN)
    return replace(
        seen,
        quantiles=seen.quantiles or before.quantiles,
        sample=seen.sample if larger else before.sample,
    )


def _in_complete_rows(seen: Observation) -> Observation:
    """Count a row of which a part of the work was done as that part of a row."""
    if seen.done >= 1.0 or not seen.rows_kept:
        return seen
    return replace(seen, rows_kept=max(round(seen.rows_kept * seen.done), 1))


def _rows_guessed(state: LoopState) -> float:
    """Guess the size of the batch ahead: rows go on coming as fast as they did."""
    if state.seen is None:
        return 0.0
    longer = state.seen.duration_s / state.before_s if state.before_s else 1.0
    return state.seen.rows_in * min(max(longer, 1.0 / _GUESS), _GUESS)


def _sorted(edges: tuple[float, ...]) -> bool:
    ascending = all(low <= high for low, high in pairwise(edges))
    return ascending and not any(math.isnan(edge) for edge in edges)
