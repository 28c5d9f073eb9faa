"""Lets a cost model fade: half the rows at the same mean costs, so that new ones count for more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from spillway.cost.heavy import HeavySketch
    from spillway.cost.sketch import CostSketch

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_WORK_NS_MAX = 1 << 62  # 146 years: more is a broken clock, and must not overflow


def fade(model: HeavySketch) -> None:
    """Halve both parts of a model; what is in the table and was seen once stays."""
    _halve(model, np.ones(model.table.shape[1:], dtype=np.bool_))
    model.table[1] = (model.table[1] + 1) // 2
    fade_sketch(model.sketch)


def fade_contradicted(model: HeavySketch, batch: HeavySketch, changed: float) -> None:
    """Halve what is known of the heavy keys whose cost in a batch is off by more than a share.

    A key that is mostly shed has few rows to tell that it has become cheap: they must count.
    """
    (ours, _, counts, work_ns), (theirs, _, their_counts, their_work_ns) = model.table, batch.table
    same = (ours[:, :, None] == theirs[:, None, :]) & (their_counts[:, None, :] > 0)
    their_means = (same * _means(their_work_ns, their_counts)[:, None, :]).sum(axis=2)
    means = _means(work_ns, counts)
    _halve(model, same.any(axis=2) & (np.abs(their_means - means) > changed * means))


def _halve(model: HeavySketch, which: NDArray[np.bool_]) -> None:
    """Halve the counts of some places of the table, at the same mean costs."""
    counts, work_ns = model.table[2], model.table[3]
    left = np.where(which, (counts + 1) // 2, counts)
    work_ns[which] = (_means(work_ns, counts) * left)[which]
    counts[:] = left


def _means(work_ns: Ints, counts: Ints) -> Floats:
    return np.asarray(work_ns / np.maximum(counts, 1))


def fade_sketch(sketch: CostSketch) -> None:
    """Halve a sketch: every row of F still adds up to one total, every row of W to another."""
    rows_left, work_left = sketch.rows_seen // 2, min(sketch.work_total_ns // 2, _WORK_NS_MAX)
    if not rows_left:
        return
    for frequency, work_ns in zip(sketch.frequency, sketch.work_ns, strict=True):
        left = np.diff(np.cumsum(frequency) // 2, prepend=0)
        work_ns[:] = _shared(work_ns * (left / np.maximum(frequency, 1)), work_left, left)
        frequency[:] = left


def _shared(work_ns: Floats, total: int, counts: Ints) -> Ints:
    """Scale work to a total, and give what rounding leaves over to the cell of most rows."""
    scale = total / work_ns.sum() if work_ns.any() else 0.0
    scaled = np.floor(work_ns * scale).astype(np.int64)
    at = int(np.argmax(counts))
    scaled[at] += total - int(scaled.sum())
    return scaled
