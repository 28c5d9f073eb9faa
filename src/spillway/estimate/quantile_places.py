"""The places that bound a quantile, as a table by the rows of a group: for where Python is not.

Of a group that has more rows than are held of it, always equally many are held. Then the places of
the bounds in the sorted sample depend on the number of its rows alone, and a look into a table
replaces hypergeometric probabilities. It has an entry for each of the first 256 numbers of rows
beyond the sample, and then one for every 5 % more rows beyond it; between two entries the second
counts, whose interval is the wider one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spillway.estimate.order_statistics import bounds
from spillway.estimate.totals import z_score

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_ROWS_MAX = 10_000_000  # more rows widen no interval that can be told from the last one's
_FINE_KEPT_MAX = 1024  # the table of a larger sample would take long to make: it is coarser
_DIGITS = 1e6
_PHASES_MAX = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantilePlaces:
    """Where the bounds are in the sorted sample of `kept` rows, from 1 on.

    Entry i is for `kept + i + 1` rows up to i = `singly - 1`, then for `growth` times more rows
    beyond the sample each.
    """

    kept: int
    singly: int
    growth: float
    low: Floats
    high: Floats

    def entries(self, rows: Ints) -> Ints:
        """Return which entry is for so many rows; a group that is held whole has none, -1.

        >>> QuantilePlaces.of(0.5, kept=64).entries(np.array([64, 65, 320, 321, 10**12])).tolist()
        [-1, 0, 255, 256, 472]
        """
        more = np.maximum(rows - self.kept, 0)
        steps = np.ceil(np.log(np.maximum(more, 1) / self.singly) / math.log(self.growth))
        far = np.minimum(self.singly - 1 + steps, self.low.size - 1).astype(np.int64)
        return np.where(more <= self.singly, more - 1, far)

    @classmethod
    def of(cls, q: float, *, kept: int, confidence: float = 0.95) -> QuantilePlaces:
        """Make the table for a quantile, a size of the sample and a confidence."""
        if not 0 < q < 1:
            raise ValueError(f"q must be in (0, 1), got {q}")
        if kept < 1:
            raise ValueError(f"kept must be >= 1, got {kept}")
        z_score(confidence)  # refuses what is no probability
        singly, growth = (256, 1.05) if kept <= _FINE_KEPT_MAX else (16, 1.3)
        steps = math.ceil(math.log(_ROWS_MAX / singly) / math.log(growth))
        near = kept + np.arange(1, singly + 1)
        far = kept + np.ceil(singly * growth ** np.arange(1.0, steps + 1)).astype(np.int64)
        risk = (1.0 - confidence) / 2
        parts = _bounds(near, kept, q, risk, 1), _bounds(far, kept, q, risk, _phases(q))
        low, high = (_DIGITS * np.concatenate(sides) for sides in zip(*parts, strict=True))
        low, high = np.floor(low) / _DIGITS, np.ceil(high) / _DIGITS
        return cls(kept=kept, singly=singly, growth=growth, low=low, high=high)


def _phases(q: float) -> int:
    """Return after how many rows more the quantile lies between two of them as it does now."""
    return min(math.ceil(1.0 / min(q, 1.0 - q)), _PHASES_MAX)


def _bounds(rows: Ints, kept: int, q: float, risk: float, phases: int) -> tuple[Floats, Floats]:
    """Return the widest bounds of the given numbers of rows and those just beyond them."""
    low, high = np.full(rows.size, np.inf), np.full(rows.size, -np.inf)
    for i, phase in np.ndindex(rows.size, phases):
        one = bounds(rows[i : i + 1] + phase, np.array([kept]), q, risk)
        low[i], high[i] = min(low[i], one[0].item()), max(high[i], one[1].item())
    return low, high
