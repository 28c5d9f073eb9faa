"""Guards to try: an objective, a policy and a capacity, as parts of the shipped loop."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from spillway.contracts import Controller, Shedder
from spillway.cost.by_key import CostByKey
from spillway.loop import Loop
from spillway.objective import Latency
from spillway.overload.controller import FixedRate, HoldLatency
from spillway.shedders.semantic import Semantic
from spillway.shedders.uniform import Uniform
from spillway.state.description import Description
from spillway.values import Limits

SCORE = "score"  # the column of a made utility: as good as any, rows are told apart by rank
MARGIN = 0.85  # a guard's own, unless it says otherwise
POLICIES = ("uniform", "semantic", "none", "fixed:RATE")

_LIKE_UNIFORM = {
    "ConceptDriven": "which rows go depends on groups that the books do not hold: "
    "as many go as with uniform",
    "LoadAware": "which rows go depends on costs by key, which the books do not hold: "
    "simulated as uniform, which sheds more rows for the same time",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One guard to try, by name. `capacity` divides the time that rows take."""

    name: str
    objective: Latency | None
    policy: str = "uniform"
    capacity: float = 1.0
    limits: Limits = field(default_factory=Limits)
    margin: float = MARGIN

    def __post_init__(self) -> None:
        """Reject a policy that is not known, and a capacity that is none."""
        if not 0 < self.capacity < float("inf"):
            raise ValueError(f"capacity must be finite and > 0, got {self.capacity}")
        if self.objective is None and not self.policy.startswith(("none", "fixed:")):
            raise ValueError(f"the policy {self.policy!r} needs an objective: --average, ...")
        _ = self.loop()

    def loop(self) -> Loop:
        """Build the loop that a guard of this kind runs."""
        return Loop(
            controller=self._controller(),
            cost=CostByKey(),
            shedder=self._shedder(),
            limits=self.limits,
        )

    def _controller(self) -> Controller:
        if self.policy == "none":
            return FixedRate(1.0)
        if self.policy.startswith("fixed:"):
            return FixedRate(_rate(self.policy))
        assert self.objective is not None
        return HoldLatency(objective=self.objective, margin=self.margin)

    def _shedder(self) -> Shedder:
        kind, _, bins = self.policy.partition(":")
        if kind == "semantic":
            return Semantic(utility=SCORE, bins=int(bins) if bins.isdigit() else 140)
        if kind in ("uniform", "none", "fixed"):
            return Uniform()
        raise ValueError(f"policy must be one of {', '.join(POLICIES)}, got {self.policy!r}")


def as_it_ran(guard: Description, name: str) -> tuple[Ask, list[str]]:
    """Describe the guard that really ran, as far as the books allow; say where they do not."""
    notes = []
    bins = guard.shed.options.get("bins", 140)
    policy = f"semantic:{bins}" if guard.shed.name == "Semantic" else "uniform"
    if guard.shed.name in _LIKE_UNIFORM:
        notes.append(f"{guard.shed.name}: {_LIKE_UNIFORM[guard.shed.name]}")
    elif guard.shed.name not in ("Uniform", "Semantic"):
        notes.append(f"{guard.shed.name} is not known here: simulated as uniform")
    if guard.degrade is not None:
        notes.append("optional work is not simulated: only rows are given up")
    if guard.control.name == "FixedRate":
        policy = f"fixed:{guard.control.options.get('rate', 1.0)}"
    elif guard.control.name != "HoldLatency":
        notes.append(f"{guard.control.name} is not known here: simulated as HoldLatency")
    margin = guard.control.options.get("margin")
    ask = Ask(
        name=name,
        objective=guard.objective,
        policy=policy,
        limits=guard.limits,
        margin=margin if isinstance(margin, float) else MARGIN,
    )
    return ask, notes


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeRows:
    """Rows with a made utility, uniform and the same for the same row, and no work of their own."""

    seed: int = 0

    def columns(
        self, rows: NDArray[np.int64]
    ) -> dict[str, NDArray[np.int64] | NDArray[np.float64]]:
        """Return score and work of rows by number."""
        from spillway.kernels.uniform import uniforms

        return {SCORE: uniforms(self.seed, rows), "work_us": np.zeros(len(rows), np.int64)}


def _rate(policy: str) -> float:
    try:
        return float(policy.partition(":")[2])
    except ValueError as error:
        raise ValueError(f"policy must be fixed:RATE, such as fixed:0.2, got {policy!r}") from error
