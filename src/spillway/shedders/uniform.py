"""Uniform shedding: every row has the same chance (LS-R of CS, Uniform of CoD)."""

from __future__ import annotations

from dataclasses import dataclass

from spillway.values import Budget, Observation, Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Uniform:
    """Keeps each row with the probability that the budget allows.

    >>> budget = Budget(work_s_max=1.0, work_s_full=4.0, reason="overload")
    >>> Uniform().plan(None, budget).rates
    (0.25,)
    """

    @property
    def score(self) -> str | None:
        """All rows are alike."""
        return None

    @property
    def strata(self) -> tuple[str, ...]:
        """One stratum holds every row."""
        return ("all",)

    @property
    def quantiles(self) -> tuple[float, ...]:
        """Nothing to observe."""
        return ()

    def plan(self, seen: Observation | None, budget: Budget) -> Plan:
        """Keep the budget's share of all rows."""
        return Plan(rates=(budget.share,), reason=budget.reason)
