"""A controller that keeps within its query's fair share, and within its own objective."""

from __future__ import annotations

from dataclasses import dataclass, replace

from spillway.contracts import Controller
from spillway.values import Budget, ControllerState, Forecast, Observation


@dataclass(frozen=True, slots=True, kw_only=True)
class FairBudget:
    """Asks a controller of its own, and gives no more than the share that fairness leaves.

    The share comes with the state: it is worked out from what all queries need, which is not the
    business of a pure decision. The objective of the query itself still holds: the smaller counts.
    """

    own: Controller

    def learn(self, state: ControllerState, seen: Observation) -> ControllerState:
        """Let the own controller learn."""
        return replace(self.own.learn(state, seen), share=state.share)

    def budget(
        self, state: ControllerState, seen: Observation | None, ahead: Forecast | None
    ) -> Budget:
        """Return the smaller of the two budgets."""
        own = self.own.budget(state, seen, ahead)
        fair_s = state.share * own.work_s_full
        if own.work_s_max <= fair_s:
            return own
        return replace(own, work_s_max=fair_s, reason="fair share")
