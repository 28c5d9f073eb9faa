"""Policies for streams under test: what they decide differs every time they are asked."""

from __future__ import annotations

import random
from dataclasses import dataclass

from spillway.values import Budget, ControllerState, Forecast, Observation, Plan

_dice = random.SystemRandom()


@dataclass(frozen=True)
class Wobble:
    """Keeps a share of the batch that nobody can foresee: a plan made twice would show.

    With `dice` of its own a run can be repeated.
    """

    dice: random.Random | None = None

    def learn(self, state: ControllerState, seen: Observation) -> ControllerState:
        """Learn nothing."""
        return state

    def budget(
        self, state: ControllerState, seen: Observation | None, ahead: Forecast | None
    ) -> Budget:
        """Allow any share."""
        share = (self.dice or _dice).uniform(0.05, 0.95)
        return Budget(work_s_max=share, work_s_full=1.0, reason="wobble")


@dataclass(frozen=True)
class Broken:
    """A shedder that from time to time raises, answers nothing, or answers nonsense."""

    dice: random.Random
    faults: float

    score = None
    strata = ("all",)
    quantiles = ()

    def plan(self, seen: Observation | None, budget: Budget) -> Plan:
        """Shed uniformly, or do not do the work."""
        if self.dice.random() >= self.faults:
            return Plan(rates=(budget.share,), reason=budget.reason)
        bad = self.dice.choice(["raise", "hang", "none", "nan", "length", "two", "minus"])
        if bad in ("raise", "hang"):
            raise {"raise": ZeroDivisionError, "hang": TimeoutError}[bad]("\x1b[31mpolicy\n")
        rates = {"nan": (float("nan"),), "length": (0.5, 0.5), "two": (2.0,), "minus": (-1.0,)}
        return None if bad == "none" else Plan(rates=rates[bad], reason="bad")  # type: ignore[return-value]
