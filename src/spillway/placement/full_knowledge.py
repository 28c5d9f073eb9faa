"""Greedy placement by costs that nobody can know beforehand: what the best scheduler would do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from spillway.kernels import posg
from spillway.placement.round_robin import check_instances

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_MODES = {"paper": posg.PAPER, "default": posg.DEFAULT}


@dataclass(frozen=True, slots=True, kw_only=True)
class FullKnowledge:
    """Each row goes to the instance of least work (paper) or where it is done first (default)."""

    instances: int
    mode: Literal["paper", "default"] = "default"

    def __post_init__(self) -> None:
        """Reject a placement on nothing and unknown modes."""
        check_instances(self.instances)
        if self.mode not in _MODES:
            raise ValueError(f"mode must be 'paper' or 'default', got {self.mode!r}")

    @property
    def mode_number(self) -> int:
        """The mode as the kernels know it."""
        return _MODES[self.mode]

    def start(self, costs_ns: Ints) -> FullKnowledgeState:
        """Return a state that knows the cost of every key on every instance: (keys, instances)."""
        return FullKnowledgeState(self, costs_ns)


class FullKnowledgeState:
    """The work given to every instance so far."""

    def __init__(self, config: FullKnowledge, costs_ns: Ints) -> None:
        """Start with idle instances."""
        if costs_ns.ndim != 2 or costs_ns.shape[1] != config.instances:
            raise ValueError(
                f"costs_ns must have the shape (keys, {config.instances}), got {costs_ns.shape}"
            )
        self.config = config
        self.costs_ns: Floats = costs_ns.astype(np.float64)
        self.totals_ns: Floats = np.zeros(config.instances)

    def place(self, key: int, now_ns: int) -> tuple[int, None]:
        """Return the instance of a row; it never carries a request."""
        costs_ns, mode = self.costs_ns[key], self.config.mode_number
        return int(posg.place_exactly(self.totals_ns, costs_ns, now_ns, mode)), None

    def place_all(self, keys: Ints, now_ns: Ints) -> Ints:
        """Return the instances of many rows."""
        placed = [self.place(key, now)[0] for key, now in zip(keys, now_ns, strict=True)]
        return np.array(placed, dtype=np.int64)
