"""Exact costs of the heavy keys beside a sketch of the rest.

A sketch as small as the papers' mixes some eighty keys in every cell. With skewed keys most of the
work belongs to a few of them: kept apart and counted exactly, they neither suffer from the others
nor blur them. Every row is in one of the two parts, so the totals are exact.
"""

from __future__ import annotations

import math
import struct

import numpy as np
from numpy.typing import NDArray

from spillway.cost.sketch import (
    CostSketch,
    Floats,
    Ints,
    SketchShape,
    as_ints,
    as_rows,
    exact_sum,
    sane_ns,
    sealed,
    unsealed,
)
from spillway.kernels import heavy as kernel

_MAGIC = b"SWH1"
_HEADER = struct.Struct(">4sii")  # magic, capacity, places
_CAPACITY_MAX = 1 << 22
_PLACES_MAX = 64
_CHECK_SIZE = 4


class HeavySketch:
    """F and W of one operator with exact costs of up to `capacity` heavy keys.

    Within a bucket of `places` the key of least rank leaves for a new one and goes into the
    sketch, as in space-saving. Capacity 0 is the sketch alone.

    >>> sketch = HeavySketch(SketchShape(columns=1))  # one cell a row: all keys collide
    >>> sketch.update(np.array([1, 1, 2]), np.array([10, 20, 600]))
    >>> sketch.estimate_ns(np.array([1, 2, 3])).tolist()  # 3 is new and costs the mean
    [15.0, 600.0, 210.0]
    """

    def __init__(
        self,
        shape: SketchShape = SketchShape(),  # noqa: B008 (frozen)
        *,
        capacity: int = 1024,
        places: int = 4,
    ) -> None:
        """Start empty; reject a table that is no rectangle or too large."""
        _check_table(capacity, places)
        self.capacity, self.places = capacity, places
        self.sketch = CostSketch(shape)
        self.table: Ints = np.zeros((4, capacity // places, places), dtype=np.int64)
        self._keys, _, self._counts, self._work_ns = self._parts

    @property
    def shape(self) -> SketchShape:
        """Size and hash functions of the sketch."""
        return self.sketch.shape

    @property
    def rows_seen(self) -> int:
        """How many rows were counted, in both parts."""
        return exact_sum(self._counts) + self.sketch.rows_seen

    @property
    def work_total_ns(self) -> int:
        """How much work they took together."""
        return exact_sum(self._work_ns) + self.sketch.work_total_ns

    @property
    def mean_ns(self) -> float:
        """Mean cost of all rows; NaN while there is none."""
        seen = self.rows_seen
        return self.work_total_ns / seen if seen else math.nan

    @property
    def heavy_keys(self) -> Ints:
        """The keys that are counted exactly, in no particular order."""
        return self._keys[self._counts > 0]

    def update(self, keys: Ints, costs_ns: Ints) -> None:
        """Count a batch of rows with what each of them took."""
        kernel.update_rows(*self._parts, *self._cells, *as_rows(keys, costs_ns))

    def update_one(self, key: int, cost_ns: int) -> None:
        """Count one row."""
        kernel.update_row(*self._parts, *self._cells, key, sane_ns(cost_ns))

    def estimate_ns(self, keys: Ints) -> Floats:
        """Estimate the cost of every key; the mean where a key is new, 0 in an empty sketch."""
        keys = as_ints("keys", keys)
        found = np.empty(keys.size, dtype=np.float64)
        mean = self.mean_ns if self.rows_seen else 0.0
        table = self._keys, self._counts, self._work_ns
        kernel.estimate_rows(*table, *self._cells, keys, mean, found)
        return found

    def merge(self, other: HeavySketch) -> None:
        """Add another of the same size: in every bucket the keys of greatest rank stay exact."""
        ours, theirs = self._size, other._size
        if ours != theirs:
            raise ValueError(f"other must have shape, capacity and places {ours}, got {theirs}")
        self.sketch.merge(other.sketch)
        taken = np.zeros(self.places, dtype=np.bool_)
        kernel.merge_tables(*self._parts, *self._cells, *other._parts, taken)

    def copy(self) -> HeavySketch:
        """Return an independent sketch with the same content."""
        twin = HeavySketch(self.shape, capacity=self.capacity, places=self.places)
        twin.sketch.merge(self.sketch)
        twin.table[:] = self.table
        return twin

    def reset(self) -> None:
        """Forget everything."""
        self.sketch.reset()
        self.table[:] = 0

    def to_bytes(self) -> bytes:
        """Serialise: capacity, places, the table, the sketch, a checksum."""
        header = _HEADER.pack(_MAGIC, self.capacity, self.places)
        return sealed(header + self.table.astype(">i8").tobytes() + self.sketch.to_bytes())

    @classmethod
    def from_bytes(cls, data: bytes) -> HeavySketch:
        """Read what `to_bytes` wrote; `ValueError` says what is wrong with anything else."""
        capacity, places = _read_header(data)
        end = _HEADER.size + 8 * 4 * capacity
        body = unsealed(data)
        sketch = CostSketch.from_bytes(body[end:])
        read = cls(sketch.shape, capacity=capacity, places=places)
        read.sketch = sketch
        read.table[:] = _read_table(body[_HEADER.size : end], read.table.shape)
        return read

    @property
    def _size(self) -> tuple[SketchShape, int, int]:
        return self.shape, self.capacity, self.places

    @property
    def _parts(self) -> tuple[Ints, Ints, Ints, Ints]:
        """Keys, ranks, counts and work: views of the table."""
        return self.table[0], self.table[1], self.table[2], self.table[3]

    @property
    def _cells(self) -> tuple[Ints, Ints, Ints]:
        return self.sketch.frequency, self.sketch.work_ns, self.sketch.multipliers


def _check_table(capacity: int, places: int) -> None:
    if not 1 <= places <= _PLACES_MAX:
        raise ValueError(f"places must be in [1, {_PLACES_MAX}], got {places}")
    if not 0 <= capacity <= _CAPACITY_MAX or capacity % places:
        raise ValueError(
            f"capacity must be in [0, {_CAPACITY_MAX}] and a multiple of places ({places}), "
            f"got {capacity}"
        )


def _read_header(data: bytes) -> tuple[int, int]:
    if data[:4] != _MAGIC or len(data) < _HEADER.size:
        raise ValueError("data must be a serialised heavy sketch, got something else")
    _, capacity, places = _HEADER.unpack_from(data)
    _check_table(capacity, places)
    least = _HEADER.size + 8 * 4 * capacity + _CHECK_SIZE
    if len(data) < least:
        raise ValueError(f"data must have at least {least} bytes, got {len(data)}")
    return capacity, places


def _read_table(data: bytes, shape: tuple[int, ...]) -> Ints:
    table = np.frombuffer(data, dtype=">i8").astype(np.int64).reshape(shape)
    keys, ranks, counts, _ = table
    if (table[1:] < 0).any():
        raise ValueError(f"data must hold no negative numbers, got {table[1:].min()}")
    if (ranks < counts).any():
        raise ValueError("data must rank every key at least by its count")
    if table[:, counts == 0].any():
        raise ValueError("data must leave empty places empty")
    _check_places(keys, counts > 0)
    return table


def _check_places(keys: Ints, used: NDArray[np.bool_]) -> None:
    found = keys[used]
    if np.unique(found).size != found.size:
        raise ValueError("data must hold every heavy key once")
    if not np.array_equal(kernel.buckets_of(found, keys.shape[0]), np.nonzero(used)[0]):
        raise ValueError("data must hold every heavy key in its own bucket")
