"""The Protocols between the rooms: what a cost model, a controller and a shedder must offer.

"How much" (controller) and "what" (shedder) are two interfaces: any of the one works with any of
the other. A policy is a frozen config; what moves is a state that the loop carries for it.
"""

from __future__ import annotations

from typing import Protocol

from spillway.values import Budget, ControllerState, CostState, Forecast, Observation, Plan


class CostModel(Protocol):
    """Says what a batch costs, learnt from the batches before it."""

    def learn(self, state: CostState, seen: Observation) -> CostState:
        """Return the state after one more finished batch."""
        ...

    def forecast(self, state: CostState, rows: float) -> Forecast | None:
        """Predict what a batch of `rows` rows takes; None while nothing is known."""
        ...


class Controller(Protocol):
    """Says how much of the coming batch may be done."""

    def learn(self, state: ControllerState, seen: Observation) -> ControllerState:
        """Return the state after one more finished batch."""
        ...

    def budget(
        self, state: ControllerState, seen: Observation | None, ahead: Forecast | None
    ) -> Budget:
        """Set the budget of the batch ahead."""
        ...


class Shedder(Protocol):
    """Turns a budget it did not choose into a plan it does not execute."""

    @property
    def score(self) -> str | None:
        """SQL expression whose value places a row in a stratum; None if all rows are alike."""
        ...

    @property
    def strata(self) -> tuple[str, ...]:
        """Names of the strata, lowest score first; every plan has one rate for each."""
        ...

    @property
    def quantiles(self) -> tuple[float, ...]:
        """Which quantiles of the score the gate should observe; may be empty."""
        ...

    def plan(self, seen: Observation | None, budget: Budget) -> Plan:
        """Cut the coming batch down to the budget."""
        ...
