"""What a query may do that shares with others: its fair share; and how much all may do together."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from spillway.contracts import Controller
from spillway.objective import Latency
from spillway.overload.controller import HoldLatency
from spillway.values import Budget, ControllerState, Forecast, Observation


@dataclass(frozen=True, slots=True, kw_only=True)
class FairBudget:
    """Gives a query the share that fairness leaves it, whatever its own controller thinks.

    The share comes with the state: it is worked out from what all queries need, which is not the
    business of a pure decision. What a controller foresees for its own query alone is mostly time
    in which others work; were each cut by it, heavy queries would lose more than light ones. The
    objectives hold all the same: they set how much all do together (`Capacity`).

    The own controller decides where no share is known, or all may be kept; and if it holds no
    latency but, say, a fixed rate, the smaller budget counts.
    """

    own: Controller

    def learn(self, state: ControllerState, seen: Observation) -> ControllerState:
        """Let the own controller learn."""
        return replace(self.own.learn(state, seen), share=state.share)

    def budget(
        self, state: ControllerState, seen: Observation | None, ahead: Forecast | None
    ) -> Budget:
        """Return the fair budget, or the own one where that counts."""
        own = self.own.budget(state, seen, ahead)
        fair_s = state.share * own.work_s_full
        holds = isinstance(self.own, HoldLatency)
        if state.share >= 1.0 or (own.work_s_max < fair_s and not holds):
            return own
        return replace(own, work_s_max=fair_s, reason="fair share")


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """How much work queries may do in a second of a core, as their latencies show.

    Nobody knows beforehand what Spark itself takes of the cores, nor what seconds are worth that
    were measured while others ran. So the capacity is `gain` · cores, and the gain is corrected
    after every batch by (margin · limit / latency) ^ feedback: longer latency than the objective
    allows, less work for all.

    >>> Capacity().corrected(0.8, latency_s=20.0, limit_s=10.0, most=9.0) < 0.8
    True
    """

    start: float = 1.0
    margin: float = 0.85
    feedback: float = 0.3
    feedback_broken: float = 0.5
    fall_max: float = 0.6  # one batch lowers the gain at most to so much of it
    least: float = 0.05

    def corrected(self, gain: float, *, latency_s: float, limit_s: float, most: float) -> float:
        """Return the gain after a batch, not above `most`; without a sane latency as it was."""
        if not (0.0 < latency_s < math.inf and 0.0 < limit_s < math.inf):
            return gain
        feedback = self.feedback_broken if latency_s > limit_s else self.feedback
        change = math.pow(self.margin * limit_s / latency_s, feedback)
        return max(min(gain * max(change, self.fall_max), most), self.least)

    def latency_s(self, objective: Latency, seen: Observation) -> float:
        """Return what latency will be if batches go on like this one; measured where that is less.

        Rows of a batch that piled up behind a long one waited for that one. It is over: to give up
        more work now would not help them.
        """
        due_s = self.due_s(objective)
        foreseen_s = objective.wait * max(seen.duration_s, due_s) + seen.duration_s
        measured_s = objective.of(seen)
        return foreseen_s if measured_s is None else min(measured_s, foreseen_s)

    def due_s(self, objective: Latency | None) -> float:
        """Return how long a batch may take: rows wait for the one before, and leave at its end."""
        if objective is None:
            return math.inf
        return self.margin * objective.limit_s / (1.0 + objective.wait)
