"""Observations on their way from a simulated batch to the loop: late, lost or doubled, by seed."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from spillway.sim.conditions import Feedback
from spillway.values import Observation


@dataclass(slots=True)
class News:
    """Observations on their way to the loop."""

    feedback: Feedback
    random: np.random.Generator
    _due: list[tuple[int, Observation]] = field(default_factory=list)

    def post(self, seen: Observation) -> None:
        """Send an observation; five draws each, so that one setting does not move the others."""
        dropped, late, doubled = self.random.random(3) < (
            self.feedback.dropped,
            self.feedback.late,
            self.feedback.doubled,
        )
        later, again = self.random.integers(1, self.feedback.late_max + 1, size=2)
        due = seen.batch_id + 1 + self.feedback.delay + (int(later) if late else 0)
        copies = [] if dropped else [due, due + int(again)] if doubled else [due]
        self._due += [(due, seen) for due in copies]

    def due(self, batch_id: int) -> list[Observation]:
        """Hand out what has arrived when a batch is planned."""
        arrived = [seen for due, seen in self._due if due <= batch_id]
        self._due = [(due, seen) for due, seen in self._due if due > batch_id]
        return arrived

    def lose(self) -> None:
        """Forget what is on its way: its query died."""
        self._due.clear()
