"""What keys cost, as numbers that a gate can look up without leaving Spark.

Two arrays of int64. `heavy`, bucket by bucket: a key's item in the upper half, its cost in the
lower; 0 is an empty place. `cells`, row by row of the sketch: how often the cell was used in the
upper half, its mean cost in the lower; a cell that was never used holds the mean of all rows. The
least of a key's cells is the one of least F, whose cost is the estimate. Costs in units of 100 ns.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from spillway.values import CostTable

if TYPE_CHECKING:
    from spillway.cost.heavy import HeavySketch
    from spillway.cost.sketch import CostSketch

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

UNIT_NS = 100
COST_BITS = 32
COST_MASK = (1 << COST_BITS) - 1
# The sketch's hash again, for a gate's worker, which must not wait for numba.
BUCKET_MULTIPLIER = 1_640_531_527
PRIME = (1 << 31) - 1
# The usual sizes, those of `HeavySketch()`: a stream's gate is built for them once and for all.
BUCKETS, PLACES, COLUMNS = 256, 4, 54
MULTIPLIERS = (1_569_741_360, 1_785_505_948, 516_548_029, 1_302_116_447)
_COST_MAX = (1 << COST_BITS - 1) - 1
_FREQUENCY_MAX = (1 << 31) - 1
_ROWS_LEANING = 8


def pack(
    sketch: HeavySketch,
    instances: tuple[CostSketch, ...] = (),
    *,
    unseen_ns: float | None = None,
) -> CostTable:
    """Pack what a sketch knows; `instances` only if they differ in speed.

    A key that was never seen costs `unseen_ns`, by default the mean of those that were.
    """
    mean_ns = sketch.mean_ns if sketch.rows_seen else 0.0
    mean_ns = mean_ns if unseen_ns is None else unseen_ns
    keys, _, counts, work_ns = sketch.table
    mean_of_key = np.divide(work_ns, counts, out=np.zeros(keys.shape), where=counts > 0)
    heavy = np.where(counts > 0, (keys << COST_BITS) | _units(mean_of_key), 0)
    return CostTable(
        heavy=_squeezed(heavy),
        counts=_squeezed(counts),
        cells=_squeezed(_cells(sketch.sketch, mean_ns)),
        multipliers=tuple(sketch.sketch.multipliers.tolist()),
        places=sketch.places,
        mean_ns=mean_ns,
        instances=tuple(_squeezed(_cells(each, _own_mean(each, mean_ns))) for each in instances),
    )


@dataclass(frozen=True, slots=True)
class CostLookup:
    """A table ready for use."""

    heavy: Ints
    counts: Ints
    cells: Ints
    multipliers: Ints
    mean_ns: float
    instances: tuple[Ints, ...]
    paces: tuple[float, ...] = ()

    @classmethod
    def of(cls, table: CostTable) -> CostLookup:
        """Unpack a table; `ValueError` if its arrays do not fit together."""
        rows = len(table.multipliers)
        heavy, counts = (
            _unsqueezed(each, (-1, table.places)) for each in (table.heavy, table.counts)
        )
        cells, *instances = (
            _unsqueezed(each, (rows, -1)) for each in (table.cells, *table.instances)
        )
        multipliers = np.array(table.multipliers, dtype=np.int64)
        return cls(heavy, counts, cells, multipliers, table.mean_ns, tuple(instances), table.paces)

    def estimate_ns(self, items: Ints, instance: int | None = None) -> Floats:
        """Estimate what rows of these items cost; on one instance, where they differ much."""
        from spillway.cost.sketch import as_ints
        from spillway.kernels import table as kernel

        items = as_ints("items", items)
        found = np.empty(items.size, dtype=np.int64)
        if instance is not None and self.instances:
            none = np.zeros((0, 1), dtype=np.int64)
            kernel.look_up(none, self.instances[instance], self.multipliers, items, found)
        else:
            kernel.look_up(self.heavy, self.cells, self.multipliers, items, found)
        return found.astype(np.float64) * UNIT_NS

    def by_instance_ns(self, items: Ints, instances: int) -> Floats:
        """Estimate what rows cost on every instance; one number for a row if those are alike."""
        if len(self.instances) == instances:
            each = [self.estimate_ns(items, instance=i) for i in range(instances)]
            return np.stack(each, axis=1)
        costs_ns = self.estimate_ns(items)
        return np.outer(costs_ns, self.paces) if len(self.paces) == instances else costs_ns

    def differ(self, instances: int) -> bool:
        """Whether so many instances are known to differ in speed."""
        return instances in (len(self.instances), len(self.paces))

    def spread_ns(self) -> float:
        """Return the standard deviation of what rows cost, by what is known of their keys."""
        used = self.counts > 0
        costs = np.concatenate([(self.heavy & COST_MASK)[used], self.cells[0] & COST_MASK]) * 1.0
        rows = np.concatenate([self.counts[used], self.cells[0] >> COST_BITS]) * 1.0
        mean = (costs @ rows) / max(rows.sum(), 1)
        return float(np.sqrt((costs - mean) ** 2 @ rows / max(rows.sum(), 1)) * UNIT_NS)

    def foresee_ns(self, items: Ints) -> Floats:
        """Estimate what the next rows of a batch like these items will be found to cost.

        A key that came once is one of the many that come once: the next of them will be new. In
        NumPy, for a few items: the gate's worker must not wait for compiled code.
        """
        rows, columns = self.cells.shape
        at = [cells_of(items, m, columns) for m in self.multipliers.tolist()]
        found = np.min([self.cells[row, at[row]] for row in range(rows)], axis=0)
        if self.heavy.size:
            bucket = cells_of(items, BUCKET_MULTIPLIER, self.heavy.shape[0])
            places, counts = self.heavy[bucket], self.counts[bucket]
            here = (places >> COST_BITS == items[:, None]) & (counts > 1)
            found = np.where(here.any(axis=1), (places * here).max(axis=1), found)
        return np.asarray((found & COST_MASK).astype(np.float64) * UNIT_NS)


def usual(table: CostTable | None) -> CostLookup | None:
    """Return a table of the usual sizes ready for use; None if it is another, or damaged."""
    if table is None or table.multipliers != MULTIPLIERS or table.places != PLACES:
        return None
    try:
        lookup = CostLookup.of(table)
    except ValueError:
        return None
    sizes = lookup.heavy.shape, lookup.cells.shape
    return lookup if sizes == ((BUCKETS, PLACES), (len(MULTIPLIERS), COLUMNS)) else None


def gate_array(table: CostTable | None) -> Ints:
    """Return places and cells in one flat array, as a gate wants it; alike without a table."""
    lookup = usual(table)
    if lookup is not None:
        return np.concatenate([lookup.heavy.ravel(), lookup.cells.ravel()])
    none = np.zeros(BUCKETS * PLACES, dtype=np.int64)
    return np.concatenate([none, np.ones(len(MULTIPLIERS) * COLUMNS, dtype=np.int64)])


def cells_of(items: Ints, multiplier: int, columns: int) -> Ints:
    """Return the column of every item in the row of a multiplier; items have 31 bits."""
    hashed = items * multiplier
    return ((hashed + (hashed >> 32)) & PRIME) % columns


def _own_mean(sketch: CostSketch, mean_ns: float) -> float:
    return sketch.mean_ns if sketch.rows_seen else mean_ns


def _cells(sketch: CostSketch, mean_ns: float) -> Ints:
    """Return counts and mean costs; a cell of few rows leans towards the mean of all.

    What a few keys cost says little about the next one in their cell.
    """
    used = np.minimum(sketch.frequency, _FREQUENCY_MAX)
    leaning = (sketch.work_ns + _ROWS_LEANING * mean_ns) / (sketch.frequency + _ROWS_LEANING)
    return (used << COST_BITS) | _units(leaning)


def _units(costs_ns: Floats) -> Ints:
    """Return costs as whole units, at least one: nothing is free, and no cost is divided by 0."""
    return np.clip(np.rint(costs_ns / UNIT_NS), 1, _COST_MAX).astype(np.int64)


def _squeezed(numbers: Ints) -> bytes:
    return zlib.compress(numbers.astype("<i8").tobytes(), level=1)


def _unsqueezed(data: bytes, shape: tuple[int, int]) -> Ints:
    try:
        numbers = np.frombuffer(zlib.decompress(data), dtype="<i8").astype(np.int64)
        return numbers.reshape(shape)
    except (zlib.error, ValueError) as error:
        raise ValueError(f"table must hold whole arrays, got {error}") from error
