"""What a row costs, by its key: two count-min matrices, F of counts and W of work (LAS, POSG).

The cells are those of Spark's own `CountMinSketch`, so F reads and merges on both sides. A key's
cost is W / F in the row where F is least; a key that was never seen costs the mean of all rows.

Costs are whole ns. A negative cost counts as 0 and one of more than a day as a day, the row itself
always counts; floats, which could hide a NaN, are refused. A cell of W stops at the largest int64
(292 years of work): it stays positive, and the means that use it become too small.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spillway.kernels import sketch as kernel

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_MAGIC = b"SWC1"
_START = struct.Struct(">4sq")  # magic and seed
_HEADER = struct.Struct(">iqii")  # Spark's version 1: version, total count, rows, columns
_CELLS_MAX = 1 << 24
_CHECK_SIZE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class SketchShape:
    """Size and hash functions of a sketch: sketches of one shape can be merged.

    >>> SketchShape.for_error(epsilon=0.05, delta=0.1)
    SketchShape(rows=4, columns=54, seed=0)
    """

    rows: int = 4
    columns: int = 54
    seed: int = 0

    def __post_init__(self) -> None:
        """Reject shapes that hold nothing or too much."""
        if self.rows < 1 or self.columns < 1 or self.rows * self.columns > _CELLS_MAX:
            raise ValueError(
                f"rows and columns must be >= 1 and make at most {_CELLS_MAX} cells, "
                f"got {self.rows} x {self.columns}"
            )
        if not -(1 << 63) <= self.seed < 1 << 63:
            raise ValueError(f"seed must be a 64-bit number, got {self.seed}")

    @classmethod
    def for_error(cls, *, epsilon: float, delta: float, seed: int = 0) -> SketchShape:
        """Choose the size by the papers' rule: e / ε columns (rounded), ⌈log₂(1/δ)⌉ rows."""
        if not 0 < epsilon <= 1:
            raise ValueError(f"epsilon must be in (0, 1], got {epsilon}")
        if not 0 < delta < 1:
            raise ValueError(f"delta must be in (0, 1), got {delta}")
        rows, columns = math.ceil(math.log2(1 / delta)), round(math.e / epsilon)
        return cls(rows=rows, columns=columns, seed=seed)

    @property
    def multipliers(self) -> Ints:
        """One multiplier per row, the same that Spark draws from the seed."""
        drawn = _java_ints(self.seed)
        return np.array([next(drawn) for _ in range(self.rows)], dtype=np.int64)


class CostSketch:
    """F and W of one operator. Mutable: it is filled row by row or batch by batch."""

    def __init__(self, shape: SketchShape = SketchShape()) -> None:  # noqa: B008 (frozen)
        """Start empty."""
        self.shape = shape
        self.multipliers = shape.multipliers
        self.frequency: Ints = np.zeros((shape.rows, shape.columns), dtype=np.int64)
        self.work_ns: Ints = np.zeros((shape.rows, shape.columns), dtype=np.int64)

    @property
    def rows_seen(self) -> int:
        """How many rows were counted."""
        return int(self.frequency[0].sum())

    @property
    def work_total_ns(self) -> int:
        """How much work they took together; exact, and a Python integer that cannot overflow."""
        return exact_sum(self.work_ns[0])

    @property
    def mean_ns(self) -> float:
        """Mean cost of all rows; NaN while there is none."""
        seen = self.rows_seen
        return self.work_total_ns / seen if seen else math.nan

    def update(self, keys: Ints, costs_ns: Ints) -> None:
        """Count a batch of rows with what each of them took."""
        keys, costs_ns = as_rows(keys, costs_ns)
        kernel.update_rows(self.frequency, self.work_ns, self.multipliers, keys, costs_ns)

    def update_one(self, key: int, cost_ns: int) -> None:
        """Count one row."""
        kernel.update_row(self.frequency, self.work_ns, self.multipliers, key, sane_ns(cost_ns))

    def estimate_ns(self, keys: Ints) -> Floats:
        """Estimate the cost of every key; the mean where a key is new, 0 in an empty sketch."""
        keys = as_ints("keys", keys)
        found = np.empty(keys.size, dtype=np.float64)
        mean = self.mean_ns if self.rows_seen else 0.0
        kernel.estimate_rows(self.frequency, self.work_ns, self.multipliers, keys, mean, found)
        return found

    def frequencies(self, keys: Ints) -> Ints:
        """Estimate how often every key was seen: never less than the truth."""
        keys = as_ints("keys", keys)
        counts = np.empty(keys.size, dtype=np.int64)
        kernel.frequency_rows(self.frequency, self.multipliers, keys, counts)
        return counts

    def merge(self, other: CostSketch) -> None:
        """Add another sketch of the same shape."""
        if other.shape != self.shape:
            raise ValueError(f"other must have the shape {self.shape}, got {other.shape}")
        kernel.merge(self.frequency, self.work_ns, other.frequency, other.work_ns)

    def copy(self) -> CostSketch:
        """Return an independent sketch with the same content."""
        twin = CostSketch(self.shape)
        twin.merge(self)
        return twin

    def reset(self) -> None:
        """Forget everything."""
        self.frequency[:] = 0
        self.work_ns[:] = 0

    def to_bytes(self) -> bytes:
        """Serialise: seed, then F and W, each as Spark's `CountMinSketch` writes itself; a CRC."""
        parts = (_spark_bytes(table, self.multipliers) for table in (self.frequency, self.work_ns))
        return sealed(b"".join([_START.pack(_MAGIC, self.shape.seed), *parts]))

    @classmethod
    def from_bytes(cls, data: bytes) -> CostSketch:
        """Read what `to_bytes` wrote; `ValueError` says what is wrong with anything else."""
        size = _table_size(data)
        body = unsealed(data)[_START.size :]
        sketch = cls(_read_shape(data))
        sketch.frequency[:] = _read_table(body[:size], sketch.multipliers)
        sketch.work_ns[:] = _read_table(body[size:], sketch.multipliers)
        if sketch.work_ns[sketch.frequency == 0].any():
            raise ValueError("data must hold no work where it counts no rows")
        return sketch

    def spark_frequencies(self) -> bytes:
        """Return F in the format that Spark's `CountMinSketch.readFrom` reads."""
        return _spark_bytes(self.frequency, self.multipliers)


def sealed(body: bytes) -> bytes:
    """Append a checksum."""
    return body + struct.pack(">I", zlib.crc32(body))


def unsealed(data: bytes) -> bytes:
    """Return the data without its checksum; `ValueError` if it does not fit."""
    body, check = data[:-_CHECK_SIZE], data[-_CHECK_SIZE:]
    if check != struct.pack(">I", zlib.crc32(body)):
        raise ValueError("data must match its checksum: it is damaged")
    return body


def _read_shape(data: bytes) -> SketchShape:
    """Read the shape from the header; nothing is allocated for it yet."""
    if data[:4] != _MAGIC or len(data) < _START.size + _HEADER.size:
        raise ValueError("data must be a serialised cost sketch, got something else")
    _, seed = _START.unpack_from(data)
    _, _, rows, columns = _HEADER.unpack_from(data, _START.size)
    return SketchShape(rows=rows, columns=columns, seed=seed)


def _table_size(data: bytes) -> int:
    """Return the bytes of one table; `ValueError` unless the data is as long as its header says."""
    shape = _read_shape(data)
    size = _HEADER.size + 8 * shape.rows * (1 + shape.columns)
    expected = _START.size + 2 * size + _CHECK_SIZE
    if len(data) != expected:
        raise ValueError(f"data must have {expected} bytes, got {len(data)}")
    return size


def _spark_bytes(table: Ints, multipliers: Ints) -> bytes:
    total = min(exact_sum(table[0]), kernel.WORK_NS_MAX)
    header = _HEADER.pack(1, total, *table.shape)
    return header + multipliers.astype(">i8").tobytes() + table.astype(">i8").tobytes()


def _read_table(data: bytes, multipliers: Ints) -> Ints:
    version, total, rows, columns = _HEADER.unpack_from(data)
    if version != 1 or rows != multipliers.size:
        raise ValueError(f"data must be of format 1 with {multipliers.size} rows")
    numbers = np.frombuffer(data, dtype=">i8", offset=_HEADER.size).astype(np.int64)
    if not np.array_equal(numbers[:rows], multipliers):
        raise ValueError("data must have the multipliers of its seed")
    table = numbers[rows:].reshape(rows, columns)
    if (table < 0).any():
        raise ValueError(f"data must hold no negative numbers, got {table.min()}")
    if any(min(exact_sum(row), kernel.WORK_NS_MAX) != total for row in table):
        raise ValueError("data must hold numbers that add up to the total in every row")
    return table


def exact_sum(numbers: Ints) -> int:
    """Sum numbers that are not negative in two halves, so that nothing overflows."""
    return (int((numbers >> 32).sum()) << 32) + int((numbers & 0xFFFF_FFFF).sum())


def sane_ns(cost_ns: int) -> int:
    """Return the cost of one row as it counts: between nothing and a day."""
    return int(min(max(cost_ns, 0), kernel.COST_NS_MAX))


def as_rows(keys: Ints, costs_ns: Ints) -> tuple[Ints, Ints]:
    """Return keys and costs as flat int64 arrays of one length."""
    keys, costs_ns = as_ints("keys", keys), as_ints("costs_ns", costs_ns)
    if keys.shape != costs_ns.shape:
        raise ValueError(
            f"costs_ns must have one entry per key, got {costs_ns.size} for {keys.size}"
        )
    return keys, costs_ns


def as_ints(argument: str, values: Ints) -> Ints:
    """Return a flat int64 array; `ValueError` where values are missing or no whole numbers."""
    if isinstance(values, np.ma.MaskedArray):
        raise ValueError(f"{argument} must have no masked entries: say what they count as")
    array = np.asarray(values)
    if array.dtype == np.uint64:
        array = np.minimum(array, np.uint64((1 << 63) - 1))  # a wrapped one would be negative
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ValueError(
            f"{argument} must be a flat array of integers, got {array.dtype} of {array.ndim} axes"
        )
    return np.ascontiguousarray(array, dtype=np.int64)


def _java_ints(seed: int) -> Iterator[int]:
    """Draw like `new java.util.Random(seed).nextInt(Integer.MAX_VALUE)`, again and again."""
    multiplier, mask = 0x5DEECE66D, (1 << 48) - 1
    state = (seed ^ multiplier) & mask
    while True:
        state = (state * multiplier + 0xB) & mask
        drawn = state >> 17
        if drawn != kernel.PRIME:  # Java draws again where the remainder would be biased
            yield drawn
