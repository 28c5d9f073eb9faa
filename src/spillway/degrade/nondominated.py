"""Subsets that no other beats in duration and loss, found subtask by subtask.

Dynamic programming (Nemhauser and Ullmann's for the knapsack): the nondominated partial selections
are extended by one more subtask, on or off, and those that another beats are dropped. Two partial
selections are compared only if what they leave open is the same: which subtasks are blocked because
an input is off, and which of those that are off have yet to meet a partner they interact with. The
subtasks are taken in an order that keeps such open ends few.

Sums are compared in steps of 1e-12 of the total, so that rounding makes no differences. If there
are more than `size_max` partial selections, those whose durations fall into the same cell of a grid
are represented by the best of them; each such step adds the width of a cell to `resolution_s`.
30 subtasks of random cost and worth have a few hundred entries, and a few thousand if the worth
follows the cost within 10 %; only where it follows exactly are there too many to be exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SIZE_MAX = 65_536
ITEMS_MAX = 62  # one bit each in a signed 64-bit number, and one to spare
TICKS = 1e12
TINY = 1e-200  # what is less is nothing, and its reciprocal would overflow


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """Optional subtasks by bit: what each takes, loses and is needed by (masks).

    Those in `gone` are off, those in `free` may be; all others are on unless an input is off.
    """

    durations_s: tuple[float, ...]
    lost: tuple[float, ...]
    dependents: tuple[int, ...]
    together: Mapping[tuple[int, int], float]
    free: int
    gone: int = 0

    def __post_init__(self) -> None:
        """Reject more than there are bits."""
        if len(self.lost) > ITEMS_MAX:
            raise ValueError(f"optional subtasks must be <= {ITEMS_MAX}, got {len(self.lost)}")

    @property
    def partners(self) -> list[int]:
        """The mask of those that each interacts with."""
        masks = [0] * len(self.lost)
        for one, other in self.together:
            masks[one] |= 1 << other
            masks[other] |= 1 << one
        return masks


@dataclass(frozen=True, slots=True, kw_only=True)
class Subsets:
    """Selections: what is off, what is blocked by that, what the others take, what is lost."""

    off: Ints
    blocked: Ints
    durations_s: Floats
    lost: Floats
    resolution_s: float = 0.0

    def __len__(self) -> int:
        """Count them."""
        return len(self.off)

    def at(self, where: NDArray[np.bool_] | Ints) -> Subsets:
        """Return some of them."""
        return Subsets(
            off=self.off[where],
            blocked=self.blocked[where],
            durations_s=self.durations_s[where],
            lost=self.lost[where],
            resolution_s=self.resolution_s,
        )


def nondominated(items: Items, *, size_max: int = SIZE_MAX) -> Subsets:
    """Return the selections that no other beats, by growing duration and falling loss."""
    if not size_max >= 2:
        raise ValueError(f"size_max must be >= 2, got {size_max}")
    found, left, partners = _nothing(), (1 << len(items.lost)) - 1, items.partners
    for item in _order(items):
        left &= ~(1 << item)
        waiting = sum(1 << bit for bit, mask in enumerate(partners) if mask & left)
        grown = _extended(found, items, item)
        keys = (grown.blocked & left) | (grown.off & (waiting & ~left))
        found = _thinned(*_pruned(grown, keys, items), items, size_max)
    return found


def _nothing() -> Subsets:
    none = np.zeros(1, dtype=np.int64)
    return Subsets(off=none, blocked=none, durations_s=np.zeros(1), lost=np.zeros(1))


def _extended(found: Subsets, items: Items, item: int) -> Subsets:
    """Return every selection twice, with the item on and off, as far as either is allowed."""
    bit = 1 << item
    blocked = (found.blocked & bit) != 0
    if items.gone & bit:
        blocked[:] = True
    on, off = found.at(~blocked), found if items.free & bit else found.at(blocked)
    return Subsets(
        off=np.concatenate((on.off, off.off | bit)),
        blocked=np.concatenate((on.blocked, off.blocked | items.dependents[item])),
        durations_s=np.concatenate((on.durations_s + items.durations_s[item], off.durations_s)),
        lost=np.concatenate((on.lost, off.lost + _lost(off, items, item))),
        resolution_s=found.resolution_s,
    )


def _lost(found: Subsets, items: Items, item: int) -> Floats:
    """Return what is lost with the item, beside what is off already."""
    lost = np.full(len(found), items.lost[item])
    for (one, other), more in items.together.items():
        if item in (one, other):
            partner = other if item == one else one
            lost += more * ((found.off >> partner) & 1)
    return lost


def _pruned(found: Subsets, keys: Ints, items: Items) -> tuple[Subsets, Ints]:
    """Drop what another of the same key beats; sort by key, then by duration."""
    ticks = np.rint(found.durations_s * _scale(items.durations_s)).astype(np.int64)
    order = np.argsort(ticks, kind="stable") if _alike(keys) else np.lexsort((ticks, keys))
    found, keys, ticks = found.at(order), keys[order], ticks[order]
    kept = np.flatnonzero(_improves(found.lost, keys, items))
    same = (ticks[kept][1:] == ticks[kept][:-1]) & (keys[kept][1:] == keys[kept][:-1])
    kept = kept[np.append(~same, True)]  # of equal durations the last improves most
    return found.at(kept), keys[kept]


def _improves(lost: Floats, keys: Ints, items: Items) -> NDArray[np.bool_]:
    """Return which lose less than all before them that have the same key."""
    ticks = np.rint(lost * _scale((*items.lost, *items.together.values()))).astype(np.int64)
    groups = np.cumsum(np.diff(keys, prepend=keys[0]) != 0)
    ticks -= groups * (int(ticks.max()) - int(ticks.min()) + 1)  # each group starts below the last
    least = np.minimum.accumulate(ticks)
    return np.append(True, ticks[1:] < least[:-1])


def _thinned(found: Subsets, keys: Ints, items: Items, size_max: int) -> Subsets:
    """Keep one selection for each cell of a grid of durations, if there are too many."""
    if len(found) <= size_max:
        return found
    starts = np.append(True, np.diff(keys) != 0)
    cells = size_max // int(starts.sum()) - 1
    if cells < 1:
        raise ValueError(
            f"dependencies and interactions must leave at most {size_max // 2} cases open at a "
            f"time, got {int(starts.sum())}: let fewer subtasks depend on each other"
        )
    width_s = sum(items.durations_s) / cells
    cell = np.minimum((found.durations_s / width_s).astype(np.int64), cells - 1)
    ends = np.append((np.diff(cell) != 0) | starts[1:], True)  # the last of a cell loses least
    return replace(found.at(starts | ends), resolution_s=found.resolution_s + width_s)


def _order(items: Items) -> list[int]:
    """Return an order, inputs first, that leaves few ends open: greedily, one by one."""
    order: list[int] = []
    left = (1 << len(items.lost)) - 1
    while left:
        needing = _union(items.dependents[item] for item in _bits(left))
        ready = _bits(left & ~needing)
        order.append(min(ready, key=lambda item: (_open_ends(items, left & ~(1 << item)), item)))
        left &= ~(1 << order[-1])
    return order


def _open_ends(items: Items, left: int) -> int:
    """Count what is left and has an input done, and what is done and has a partner left."""
    done = (1 << len(items.lost)) - 1 & ~left
    blocked = _union(items.dependents[item] for item in _bits(done)) & left
    waiting = sum((left >> one ^ left >> other) & 1 for one, other in items.together)
    return blocked.bit_count() + waiting


def _union(masks: Iterable[int]) -> int:
    return reduce(or_, masks, 0)


def _bits(mask: int) -> list[int]:
    return [bit for bit in range(mask.bit_length()) if mask >> bit & 1]


def _scale(amounts: Iterable[float]) -> float:
    return TICKS / max(sum(map(abs, amounts)), TINY)


def _alike(keys: Ints) -> bool:
    return bool((keys == keys[0]).all())
