"""The work of all keys on a line of length 1, cut into one piece for each instance.

Every entry (a heavy key, or a cell of the sketch's first row for the other keys) lies on the line
for its share of the work. A row of an entry goes to the piece in which `start + u * length` falls,
with u uniform on [0, 1): so only entries that a cut divides are split among instances, and every
instance expects the same work, or as much as its speed allows. A key of which nothing is known lies
on the whole line: its rows go anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NOBODY = -1  # the item of an empty place
# Cuts lie on a grid: where a point belongs is then one lookup, however unequal the pieces.
_STEPS_EACH, _STEPS_MIN, _STEPS_MAX = 256, 8, 1 << 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Where entries lie and whom the line belongs to.

    `items` are the heavy keys by bucket and place. `starts` and `lengths` are those of the places,
    then those of the cells; `owners` are the instances along the line, in equal steps.
    """

    items: Ints
    starts: Floats
    lengths: Floats
    owners: Ints
    multiplier: int

    @property
    def cells(self) -> int:
        """How many cells the row of the sketch has."""
        return self.starts.size - self.items.size

    def place(self, items: Ints, uniforms: Floats) -> Ints:
        """Return the instances of rows: what Spark's expression finds."""
        entries = self._entries(items)
        points = self.starts[entries] + uniforms * self.lengths[entries]
        steps = (points * self.owners.size).astype(np.int64)
        placed: Ints = self.owners[np.minimum(steps, self.owners.size - 1)]
        return placed

    def _entries(self, items: Ints) -> Ints:
        from spillway.kernels.heavy import buckets_of  # who lays a line needs no compiled code
        from spillway.kernels.placing import columns_of

        buckets, places = self.items.shape
        bucket = buckets_of(items, buckets)
        here = self.items[bucket] == items[:, None]
        cell = self.items.size + columns_of(items, self.multiplier, self.cells)
        found = np.where(here.any(axis=1), bucket * places + here.argmax(axis=1), cell)
        return np.asarray(found)


def lay(
    *, items: Ints, item_work: Floats, cell_work: Floats, multiplier: int, speeds: Floats
) -> Line:
    """Lay work on the line, and cut it by the instances' speeds."""
    if not items.size:
        items, item_work = np.full((1, 1), NOBODY, dtype=np.int64), np.zeros((1, 1))
    work = np.concatenate([np.where(items == NOBODY, 0.0, item_work).ravel(), cell_work])
    ends = np.cumsum(work)
    scale = 1.0 / ends[-1] if ends[-1] > 0 else 0.0
    starts, lengths = (ends - work) * scale, work * scale
    known = lengths > 0
    return Line(
        items=items,
        starts=np.where(known, starts, 0.0),
        lengths=np.where(known, lengths, 1.0),
        owners=_owners(speeds),
        multiplier=multiplier,
    )


def unknown(instances: int) -> Line:
    """Return the line of which nothing is known: every row goes anywhere."""
    nobody, nothing = np.zeros((0, 1), dtype=np.int64), np.zeros((0, 1))
    return lay(
        items=nobody,
        item_work=nothing,
        cell_work=np.zeros(1),
        multiplier=1,
        speeds=np.ones(instances),
    )


def _owners(speeds: Floats) -> Ints:
    """Return the instance of every step; each gets its share to half a step at either end."""
    each = min(max(_STEPS_MAX // speeds.size, _STEPS_MIN), _STEPS_EACH)
    middles = np.arange(speeds.size * each) + 0.5
    cuts = np.cumsum(speeds) / speeds.sum() * middles.size
    return np.minimum(np.searchsorted(cuts, middles, side="right"), speeds.size - 1)
