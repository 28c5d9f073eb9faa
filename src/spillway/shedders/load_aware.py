"""Load-aware shedding at the gate: what a row costs, by its key, decides about it (LAS).

The gate looks the cost of every row up and keeps rows by their stratum (with the aim `faithful` it
keeps them by chance and looks nothing up); the plan is cut from a sample of the rows that came in,
priced at the costs that the gate will see. It is cut while a batch waits, against a time limit, so
NumPy must do: `allocation` is what the tests compare it with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from spillway.values import SCORE_MAX, Budget, Observation, Plan

Floats = NDArray[np.float64]

COST = "_spillway_cost"  # the gate's column: estimated cost of the row in ns
_STRATA = 16
_KEPT_MIN = 0.01  # of the costliest some are kept, or nobody would see them become cheap
_STEPS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadAware:
    """Keeps the work of a batch, not the number of its rows, within the budget.

    key:     column whose value says what a row costs in the guarded operator.
    aim:     `faithful` keeps every row with the same chance, as the load shedder of the paper
             drops rows as they come; `fewest` gives up the least worth for its cost first, so
             that the fewest rows (the least utility) are lost; `unbiased` keeps a row with a
             chance ∝ worth / √cost, so that weighted totals vary least for the work.
    utility: SQL expression of what a row is worth, by default the same for all. Rows without a
             usable one (missing, negative, infinite, not a number) go by chance.

    >>> budget = Budget(work_s_max=3.5, work_s_full=7.0, reason="overload",
    ...                 sample=((1.0, 1.0), (2.0, 1.0), (4.0, 1.0)))
    >>> [round(rate, 2) for rate in LoadAware(key="city").plan(None, budget).rates]
    [0.01, 0.12, 1.0]
    """

    key: str
    aim: Literal["faithful", "fewest", "unbiased"] = "fewest"
    utility: str | None = None

    def __post_init__(self) -> None:
        """Reject an empty key or utility and an unknown aim."""
        if not self.key:
            raise ValueError("key must name a column, got ''")
        if self.aim not in ("faithful", "fewest", "unbiased"):
            raise ValueError(f"aim must be 'faithful', 'fewest' or 'unbiased', got {self.aim!r}")
        if self.utility is not None and not self.utility:
            raise ValueError("utility must be None, a column or an SQL expression, got ''")
        if self.utility is not None and self.aim == "faithful":
            raise ValueError(f"utility has no use for the aim 'faithful', got {self.utility!r}")

    @property
    def worth(self) -> str | None:
        """The utility where it is not negative; the same for all if there is none."""
        if self.aim == "faithful":
            return None
        if self.utility is None:
            return "1.0D"
        value = f"try_cast(({self.utility}) AS DOUBLE)"
        return f"(CASE WHEN {value} >= 0.0D THEN {value} END)"

    @property
    def score(self) -> str | None:
        """Worth for the cost, by which rows are placed; None where all rows are alike."""
        if self.aim == "faithful":
            return None
        return f"{self.worth} / " + (COST if self.aim == "fewest" else f"sqrt({COST})")

    @property
    def strata(self) -> tuple[str, ...]:
        """Names of the strata, least worth for its cost first."""
        if self.aim == "faithful":
            return ("all",)
        if self.aim == "fewest":
            return ("below", "boundary", "above")
        return tuple(f"worth_{index:02d}" for index in range(_STRATA))

    @property
    def quantiles(self) -> tuple[float, ...]:
        """Nothing: the sample says more."""
        return ()

    def scores(self, costs_ns: Floats, worths: Floats) -> Floats:
        """Compute what `score` says in SQL; NaN where the worth is negative."""
        usable = np.where(worths >= 0, worths, np.nan)
        return usable / (costs_ns if self.aim == "fewest" else np.sqrt(costs_ns))

    def plan(self, seen: Observation | None, budget: Budget) -> Plan:
        """Cut the sample down to the budget's share of its work."""
        share, strata = budget.share, len(self.strata)
        if share >= 1.0 or self.aim == "faithful" or not budget.sample:
            edges = (SCORE_MAX,) * (strata - 1)
            reason = self._reason(budget, alike=True)
            return Plan(rates=(share,) * strata, edges=edges, unrated=share, reason=reason)
        costs, worths = np.asarray(budget.sample).T
        scores, floor = self.scores(costs, worths), max(budget.keep_min, min(_KEPT_MIN, share))
        cut = _fewest if self.aim == "fewest" else _unbiased
        edges, rates = cut(scores, costs, share, floor)
        return Plan(rates=rates, edges=edges, unrated=share, reason=self._reason(budget))

    def _reason(self, budget: Budget, *, alike: bool = False) -> str:
        if budget.share >= 1.0:
            return budget.reason
        if self.aim == "faithful":
            return f"{budget.reason}: rows as they come"
        if alike:
            return f"{budget.reason}: rows as they come, costs not known yet"
        return f"{budget.reason}: {self._words}"

    @property
    def _words(self) -> str:
        what = "costliest keys" if self.utility is None else "least worth for its cost"
        return f"{what} {'first' if self.aim == 'fewest' else 'by chance'}"


def _fewest(
    scores: Floats, costs: Floats, share: float, floor: float
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Keep what lies above the cut, a part of what lies at it, and the floor of the rest."""
    order = np.argsort(-scores)
    spare = np.cumsum(costs[order]) * (1.0 - floor)  # what keeping these for certain costs more
    target = (share - floor) * costs.sum()
    at = scores[order[min(int(np.searchsorted(spare, target)), scores.size - 1)]]
    above = scores > at
    upper = float(scores[above].min(initial=SCORE_MAX))
    left = target - (1.0 - floor) * costs[above].sum()
    rate = floor + left / costs[scores == at].sum()
    return (float(at), upper), (floor, min(max(float(rate), floor), 1.0), 1.0)


def _unbiased(
    scores: Floats, costs: Floats, share: float, floor: float
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Keep min(1, κ score), at least the floor, with one rate for each of the strata.

    A stratum's rate is the mean over its work, so that the strata spend what their rows would.
    """
    wanted = _rooted(scores, costs, share * costs.sum(), floor)
    free = np.sort(scores[wanted < 1.0])
    edges = free[(np.arange(1, _STRATA) * free.size) // _STRATA] if free.size else np.zeros(15)
    # The last stratum is that of the rows which are kept for certain.
    edges[-1] = np.nextafter(free[-1], np.inf) if free.size else edges[-1]
    at = np.searchsorted(edges, scores, side="right")
    work = np.bincount(at, weights=costs, minlength=_STRATA)
    spent = np.bincount(at, weights=costs * wanted, minlength=_STRATA)
    rates = np.full(_STRATA, wanted.min())
    rates[-1] = 1.0
    np.divide(spent, work, out=rates, where=work > 0)
    return tuple(edges.tolist()), tuple(rates.tolist())


def _rooted(scores: Floats, costs: Floats, budget: float, floor: float) -> Floats:
    """Return clip(κ score, floor, 1) with the κ that spends the budget, by bisection.

    What is left when all that is worth something is kept goes to the rest.
    """
    low, high = 0.0, 1.0 / max(float(scores[scores > 0].min(initial=np.inf)), 1e-300)
    for _ in range(_STEPS):
        middle = (low + high) / 2.0
        spent = costs @ np.clip(middle * scores, floor, 1.0)
        low, high = (middle, high) if spent <= budget else (low, middle)
    wanted = np.clip(low * scores, floor, 1.0)
    left, room = float(budget - costs @ wanted), float(costs @ (1.0 - wanted))
    return wanted + (1.0 - wanted) * min(max(left, 0.0) / room, 1.0) if room > 0 else wanted
