"""The shortest queue, as it was last heard of: reactive scheduling, the usual rival of POSG."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spillway.kernels import posg
from spillway.placement.round_robin import check_instances

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastLoaded:
    """Each row goes to the instance of fewest waiting rows; among equals, the next in turn.

    The queues are known as they were `stale_ns` ago; if they are reported only every
    `report_every_ns`, as they were `stale_ns` before the last report.
    """

    instances: int
    stale_ns: int = 0
    report_every_ns: int = 0

    def __post_init__(self) -> None:
        """Reject a placement on nothing, and news from the future."""
        check_instances(self.instances)
        for name in ("stale_ns", "report_every_ns"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be >= 0, got {getattr(self, name)}")

    def start(self) -> LeastLoadedState:
        """Return a state that has heard of no backlog."""
        return LeastLoadedState(self)


class LeastLoadedState:
    """The backlog of every instance, as last reported."""

    def __init__(self, config: LeastLoaded) -> None:
        """Start with idle instances."""
        self.config = config
        self.machine: Ints = np.zeros(posg.SCHEDULER_SIZE, dtype=np.int64)
        self.backlogs: Ints = np.zeros(config.instances, dtype=np.int64)

    def reported(self, backlogs: Ints) -> None:
        """Take a report of the rows waiting at every instance."""
        if backlogs.shape != self.backlogs.shape or (backlogs < 0).any():
            raise ValueError(
                f"backlogs must be {self.config.instances} counts >= 0, got {backlogs}"
            )
        self.backlogs[:] = backlogs

    def place(self, key: int, now_ns: int) -> tuple[int, None]:
        """Return the instance of a row; it never carries a request."""
        return int(posg.fewest(self.backlogs, self.machine)), None

    def place_all(self, keys: Ints, now_ns: Ints) -> Ints:
        """Return the instances of many rows that come between two reports."""
        placed = [self.place(key, now)[0] for key, now in zip(keys, now_ns, strict=True)]
        return np.array(placed, dtype=np.int64)
