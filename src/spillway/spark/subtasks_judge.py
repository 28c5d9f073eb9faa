"""What leaving a subtask out loses, tried on rows that run complete.

In every batch one optional subtask has its turn: the rows of the always-complete share run once
more without it, and a measure compares what comes out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SameColumns:
    """Rows by their columns: the mean of 1 - the relative error, or of whether they are equal.

    A number is wrong by at most 1; anything else is right or wrong.

    >>> SameColumns(columns=("n", "mood")).accuracy(
    ...     [{"n": 8, "mood": "glad"}], [{"n": 6, "mood": None}]
    ... )
    0.375
    """

    columns: tuple[str, ...]

    def accuracy(self, ideal: Sequence[Row], seen: Sequence[Row]) -> float:
        """Return a number from 0 to 1."""
        rights = [
            _right(whole.get(name), part.get(name))
            for whole, part in zip(ideal, seen, strict=True)
            for name in self.columns
        ]
        return math.fsum(rights) / len(rights) if rights else 1.0


def _right(ideal: object, seen: object) -> float:
    if ideal == seen:
        return 1.0
    if not (_number(ideal) and _number(seen)) or not ideal:
        return 0.0
    error = abs(float(seen) - float(ideal)) / abs(float(ideal))  # type: ignore[arg-type]
    return max(1.0 - error, 0.0) if error == error else 0.0  # NaN is lost


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
