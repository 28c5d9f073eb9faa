"""Rows go to the instance that will have done them first: POSG's rule, in a micro-batch.

Every task places the rows of its own input partition, with no word from the others. Where many
instances are as good as each other, each task starts with another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from spillway.kernels import placing as kernel
from spillway.kernels.sketch import COST_NS_MAX
from spillway.placement.round_robin import check_instances

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Order = Literal["arrival", "longest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Greedy:
    """Places rows in the order of their arrival (the paper), or the longest in hand first.

    The slowest instance then has at most (2 - 1/k) times what the best placement would give it
    (theorem 4.2); with all rows in hand and the longest first, (4/3 - 1/3k) times (Graham).
    """

    instances: int
    order: Order = "arrival"

    def __post_init__(self) -> None:
        """Reject a placement on nothing and unknown orders."""
        check_instances(self.instances)
        if self.order not in ("arrival", "longest"):
            raise ValueError(f"order must be 'arrival' or 'longest', got {self.order!r}")

    def start(self, first: int = 0, delays_ns: Sequence[float] = ()) -> GreedyState:
        """Return a state with idle instances; of equals, `first` (modulo k) comes first.

        With `delays_ns` they are idle only after that.

        >>> Greedy(instances=2).start().place(np.array([9.0, 1.0, 1.0, 9.0]))
        array([0, 1, 1, 1])
        """
        return GreedyState(self, first, delays_ns or [0.0] * self.instances)


class GreedyState:
    """When every instance will have done what was given to it so far."""

    def __init__(self, config: Greedy, first: int, delays_ns: Sequence[float]) -> None:
        """Start with instances that have nothing to do, from their delays on."""
        self.config = config
        self._first = first % config.instances
        # That of `first` comes first.
        self._totals_ns: Floats = np.roll(np.array(delays_ns, dtype=np.float64), -self._first)

    @property
    def totals_ns(self) -> Floats:
        """When every instance will be done: its delay and its work."""
        return np.roll(self._totals_ns, self._first)

    def place(self, costs_ns: Floats) -> Ints:
        """Return the instances of rows of these costs: by row, or by row and instance.

        A cost that is missing or negative counts as 0, one of more than a day as a day.
        """
        costs_ns = np.clip(np.nan_to_num(costs_ns, nan=0.0), 0.0, COST_NS_MAX)
        placed = np.empty(costs_ns.shape[0], dtype=np.int64)
        if costs_ns.ndim == 1:
            kernel.place_alike(self._totals_ns, costs_ns, self._order(costs_ns), placed)
        else:
            turned = np.roll(costs_ns, -self._first, axis=1)
            order = self._order(costs_ns.mean(axis=1))
            kernel.place_unlike(self._totals_ns, turned, order, placed)
        return (placed + self._first) % self.config.instances

    def _order(self, costs_ns: Floats) -> Ints:
        if self.config.order == "arrival":
            return np.arange(costs_ns.size)
        return np.argsort(-costs_ns, kind="stable")
