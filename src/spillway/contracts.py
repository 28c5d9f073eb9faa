"""The Protocols between the rooms: what a cost model, a controller and a shedder must offer.

"How much" (controller) and "what" (shedder) are two interfaces: any of the one works with any of
the other. A policy is a frozen config; what moves is a state that the loop carries for it.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from spillway.concept_values import ConceptState
from spillway.values import (
    Budget,
    ControllerState,
    CostState,
    CostTable,
    Forecast,
    Observation,
    Plan,
)
from spillway.work_values import WorkMix, WorkState

Floats = NDArray[np.float64]


class CostModel(Protocol):
    """Says what a batch costs, learnt from the batches before it."""

    def learn(self, state: CostState, seen: Observation) -> CostState:
        """Return the state after one more finished batch."""
        ...

    def forecast(self, state: CostState, rows: float) -> Forecast | None:
        """Predict what a batch of `rows` rows takes; None while nothing is known."""
        ...


@runtime_checkable
class KeyedCostModel(CostModel, Protocol):
    """A cost model that also says what each key costs."""

    def table(self, state: CostState) -> CostTable | None:
        """Return what keys cost, for the gate and the placement; None while nothing is known."""
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


@runtime_checkable
class KeyedShedder(Shedder, Protocol):
    """A shedder that tells rows apart by what their key costs.

    The gate gives its `score` a column with the estimated cost, and observes a sample of the rows
    that come in: item of the key, and worth.
    """

    @property
    def key(self) -> str:
        """Column whose value says what a row costs."""
        ...

    @property
    def worth(self) -> str | None:
        """SQL expression of what a row is worth, never negative; None if no sample is needed."""
        ...

    def scores(self, costs_ns: Floats, worths: Floats) -> Floats:
        """Compute what `score` says in SQL."""
        ...


def by_cost(shedder: Shedder) -> KeyedShedder | None:
    """Return the shedder if its gate tells rows apart by their cost; else nobody looks it up."""
    if isinstance(shedder, KeyedShedder) and shedder.score is not None:
        return shedder
    return None


@runtime_checkable
class ConceptShedder(Shedder, Protocol):
    """A shedder that tells rows apart by their group, and learns how often groups come.

    The gate observes a sketch of the groups' frequencies and a sample of the rows that come in:
    item of the group, value, event time. Its plans have two strata, kept whole and thinned.
    """

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns whose values make the group."""
        ...

    @property
    def value(self) -> str | None:
        """SQL expression of what is aggregated; None if it does not matter."""
        ...

    @property
    def time(self) -> str | None:
        """Column with the event time; None if the concept goes by batches."""
        ...

    def learn(self, state: ConceptState, seen: Observation) -> ConceptState:
        """Return the state after one more finished batch."""
        ...


class Degrader(Protocol):
    """Gives up work before rows: takes its part of the budget, and leaves the rest to a shedder."""

    def learn(self, state: WorkState, seen: Observation) -> WorkState:
        """Return the state after one more finished batch."""
        ...

    def done(self, state: WorkState, seen: Observation) -> float:
        """Return the share of the kept rows' complete work that was done, in [0, 1]."""
        ...

    def cut(self, state: WorkState, budget: Budget) -> tuple[WorkMix | None, Budget]:
        """Return which subtasks run, and the budget for the rows with that work on each.

        The given budget speaks of complete rows. None while nothing is known: all subtasks run.
        """
        ...
