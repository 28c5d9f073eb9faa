"""Semantic shedding: the rows of lowest utility go first (LS-S of CS)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass

from spillway.values import SCORE_MAX, SCORE_MIN, Budget, Observation, Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Semantic:
    """Sheds whole utility bins from the bottom up, and just the needed part of the boundary bin.

    The bins are the `bins` quantiles of the utility seen in the batch before, so each holds the
    same number of rows; a value shared by many rows widens its bin. The paper drops the boundary
    bin whole, and so more than it must.

    >>> seen = Observation(batch_id=0, rows_in=4, rows_kept=4, duration_s=1.0,
    ...                    quantiles=(10.0, 20.0, 30.0))
    >>> budget = Budget(work_s_max=0.625, work_s_full=1.0, reason="overload")
    >>> plan = Semantic(utility="importance", bins=4).plan(seen, budget)
    >>> plan.edges, plan.rates
    ((10.0, 20.0), (0.0, 0.5, 1.0))
    """

    utility: str
    bins: int = 140

    def __post_init__(self) -> None:
        """Reject an empty utility and fewer than two bins."""
        if not self.utility:
            raise ValueError("utility must name a column or an SQL expression, got ''")
        if not 2 <= self.bins <= 1000:
            raise ValueError(f"bins must be in [2, 1000], got {self.bins}")

    @property
    def score(self) -> str | None:
        """The utility places a row in its stratum."""
        return self.utility

    @property
    def strata(self) -> tuple[str, ...]:
        """Below the boundary bin, in it, above it."""
        return ("below", "boundary", "above")

    @property
    def quantiles(self) -> tuple[float, ...]:
        """The inner edges of the bins."""
        return tuple(i / self.bins for i in range(1, self.bins))

    def plan(self, seen: Observation | None, budget: Budget) -> Plan:
        """Find the boundary bin and the share of it that the budget still buys."""
        share = budget.share
        lower, upper, kept = self._boundary(seen.quantiles if seen else (), share)
        rates = (0.0, kept, 1.0) if share < 1.0 else (1.0, 1.0, 1.0)
        return Plan(edges=(lower, upper), rates=rates, unrated=share, reason=budget.reason)

    def _boundary(self, quantiles: tuple[float, ...], share: float) -> tuple[float, float, float]:
        """Return the boundary bin [lower, upper) and the share of it to keep."""
        edges = (SCORE_MIN, *quantiles, SCORE_MAX)
        bins = len(edges) - 1
        dropped = (1.0 - share) * bins
        lower = edges[min(int(dropped), bins - 1)]
        first, after = bisect_left(edges, lower), min(bisect_right(edges, lower), bins)
        return lower, edges[after], (after - dropped) / (after - first)
