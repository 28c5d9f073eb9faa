"""What keys cost, as numbers that a gate can look up without leaving Spark.

Two arrays of int64. `heavy`, bucket by bucket: a key's item in the upper half, its cost in the
lower; 0 is an empty place. `cells`, row by row of the sketch: how often the cell was used in the
upper half, its mean cost in the lower; a cell that was never used holds the mean of all rows. The
least of a key's cells is the one of least F, whose cost is the estimate. Costs in units of 100 ns.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np

from spillway.cost.heavy import HeavySketch
from spillway.cost.sketch import CostSketch, Floats, Ints, as_ints
from spillway.kernels import table as kernel
from spillway.values import CostTable

UNIT_NS = 100
COST_BITS = 32
_COST_MAX = (1 << COST_BITS - 1) - 1
_FREQUENCY_MAX = (1 << 31) - 1


def pack(sketch: HeavySketch, instances: tuple[CostSketch, ...] = ()) -> CostTable:
    """Pack what a sketch knows; `instances` only if they differ in speed."""
    mean_ns = sketch.mean_ns if sketch.rows_seen else 0.0
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
        instances=tuple(_squeezed(_cells(each, mean_ns)) for each in instances),
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
        return cls(heavy, counts, cells, multipliers, table.mean_ns, tuple(instances))

    def estimate_ns(self, items: Ints, instance: int | None = None) -> Floats:
        """Estimate what rows of these items cost; on one instance, where they differ."""
        items = as_ints("items", items)
        found = np.empty(items.size, dtype=np.int64)
        if instance is not None and self.instances:
            none = np.zeros((0, 1), dtype=np.int64)
            kernel.look_up(none, self.instances[instance], self.multipliers, items, found)
        else:
            kernel.look_up(self.heavy, self.cells, self.multipliers, items, found)
        return found.astype(np.float64) * UNIT_NS


def _cells(sketch: CostSketch, mean_ns: float) -> Ints:
    used = np.minimum(sketch.frequency, _FREQUENCY_MAX)
    mean_of_cell = np.full(used.shape, mean_ns)
    np.divide(sketch.work_ns, sketch.frequency, out=mean_of_cell, where=used > 0)
    return (used << COST_BITS) | _units(mean_of_cell)


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
