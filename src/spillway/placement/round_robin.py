"""Every instance in turn: what Spark's `repartition` does, blind to what a row costs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spillway.kernels import posg

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRobin:
    """Row i goes to instance i mod k.

    >>> RoundRobin(instances=2).start().place_all(np.array([7, 7, 9]), np.zeros(3, int))
    array([0, 1, 0])
    """

    instances: int

    def __post_init__(self) -> None:
        """Reject a placement on nothing."""
        check_instances(self.instances)

    def start(self) -> RoundRobinState:
        """Return a state at the first turn."""
        return RoundRobinState(self)


class RoundRobinState:
    """Whose turn it is."""

    def __init__(self, config: RoundRobin) -> None:
        """Start with instance 0."""
        self.config = config
        self.machine: Ints = np.zeros(posg.SCHEDULER_SIZE, dtype=np.int64)

    def place(self, key: int, now_ns: int) -> tuple[int, None]:
        """Return the instance of the next row; it never carries a request."""
        return int(posg.take_turn(self.machine, self.config.instances)), None

    def place_all(self, keys: Ints, now_ns: Ints) -> Ints:
        """Return the instances of many rows."""
        first = int(self.machine[posg.TURN])
        self.machine[posg.TURN] = (first + keys.size) % self.config.instances
        return (first + np.arange(keys.size)) % self.config.instances


def check_instances(instances: int) -> None:
    """Reject fewer than one instance."""
    if instances < 1:
        raise ValueError(f"instances must be >= 1, got {instances}")
