"""Lets a cost model fade: half the rows at the same mean costs, so that new ones count for more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from spillway.cost.heavy import HeavySketch
    from spillway.cost.sketch import CostSketch

Ints = NDArray[np.int64]

_WORK_NS_MAX = 1 << 62  # 146 years: more is a broken clock, and must not overflow


def fade(model: HeavySketch) -> None:
    """Halve both parts of a model; what is in the table and was seen once stays."""
    _, ranks, counts, work_ns = model.table
    left = (counts + 1) // 2
    work_ns[:] = np.divide(work_ns * 1.0, counts, where=counts > 0, out=work_ns * 1.0) * left
    ranks[:], counts[:] = (ranks + 1) // 2, left
    fade_sketch(model.sketch)


def fade_sketch(sketch: CostSketch) -> None:
    """Halve a sketch: every row of F still adds up to one total, every row of W to another."""
    rows_left, work_left = sketch.rows_seen // 2, min(sketch.work_total_ns // 2, _WORK_NS_MAX)
    if not rows_left:
        return
    for frequency, work_ns in zip(sketch.frequency, sketch.work_ns, strict=True):
        left = np.diff(np.cumsum(frequency) // 2, prepend=0)
        work_ns[:] = _shared(work_ns * (left / np.maximum(frequency, 1)), work_left, left)
        frequency[:] = left


def _shared(work_ns: NDArray[np.float64], total: int, counts: Ints) -> Ints:
    """Scale work to a total, and give what rounding leaves over to the cell of most rows."""
    scale = total / work_ns.sum() if work_ns.any() else 0.0
    scaled = np.floor(work_ns * scale).astype(np.int64)
    at = int(np.argmax(counts))
    scaled[at] += total - int(scaled.sum())
    return scaled
