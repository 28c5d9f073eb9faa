"""How fast each instance of an operator is: what its rows took against what they should have taken.

The costs of keys are learnt from all instances together. An instance that is slower by a few per
cent shows in the sum of its rows long before it shows in what single keys cost on it. Sums differ
by chance too: how much is seen from how they vary from batch to batch (James and Stein).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

# Of an instance: rows, ns that they took, ns that they were to take, batches, and the sum over
# these of rows times the squared share by which the batch was off the instance's own pace.
Worked = tuple[float, float, float, float, float]

NOTHING: Worked = (0.0, 0.0, 0.0, 0.0, 0.0)
_ROWS_KEPT = 256.0  # rows of an instance that are remembered: the older fade
_DIFFERENT = 1.01  # less is not worth a thought


def remember(
    before: Sequence[Worked], now: Sequence[tuple[float, float, float]]
) -> tuple[Worked, ...]:
    """Add what the instances did in a batch, as (rows, ns taken, ns meant); the older fades.

    >>> remember([], [(256.0, 4.0, 5.0)])
    ((256.0, 4.0, 5.0, 1.0, 0.0),)
    """
    known = [*before, *[NOTHING] * (len(now) - len(before))]
    added = [*now, *[(0.0, 0.0, 0.0)] * (len(before) - len(now))]
    return tuple(_added(old, new) for old, new in zip(known, added, strict=True))


def _added(old: Worked, new: tuple[float, float, float]) -> Worked:
    rows, took_ns, meant_ns = new
    if not (rows > 0 and meant_ns > 0):
        return old
    share = min(1.0, max(_ROWS_KEPT - rows, 0.0) / old[0]) if old[0] > 0 else 0.0
    off = took_ns / meant_ns - old[1] / old[2] if old[2] > 0 else 0.0
    added = (rows, took_ns, meant_ns, 1.0, rows * off * off)
    return tuple(share * a + b for a, b in zip(old, added, strict=True))  # type: ignore[return-value]


def paces(worked: Sequence[Worked]) -> tuple[float, ...]:
    """Return how much longer than all together each instance takes; none if they are alike.

    >>> paces([(512.0, 12.0, 10.0, 5.0, 0.5), (512.0, 10.0, 10.0, 5.0, 0.5)])
    (1.09, 0.91)
    >>> paces([(512.0, 12.0, 10.0, 5.0, 50.0), (512.0, 10.0, 10.0, 5.0, 50.0)])
    ()
    """
    if len(worked) < 2 or not all(rows > 0 and meant > 0 for rows, _, meant, *_ in worked):
        return ()
    rows, took_ns, meant_ns, batches, squares = np.array(worked).T
    off = took_ns / took_ns.sum() * meant_ns.sum() / meant_ns - 1.0
    chance = float(squares.sum() / batches.sum() / rows.mean())
    true = max(0.0, 1.0 - chance / max(float(np.var(off, ddof=1)), 1e-12))
    each = 1.0 + true * off
    return tuple(each.round(3).tolist()) if each.max() > _DIFFERENT * each.min() else ()
