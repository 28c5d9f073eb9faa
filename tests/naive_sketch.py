"""The sketches' slow twins: plain lists and dicts, written to be obvious, Python's own integers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

DAY_NS = 24 * 60 * 60 * 1_000_000_000
INT64_MAX = 2**63 - 1
HEAVY_MULTIPLIER = 1_640_531_527


def java_ints(seed: int) -> Iterator[int]:
    """`new java.util.Random(seed).nextInt(Integer.MAX_VALUE)` from its public specification."""
    state = (seed ^ 0x5DEECE66D) % 2**48
    while True:
        state = (state * 0x5DEECE66D + 0xB) % 2**48
        bits = state // 2**17
        value = bits % (2**31 - 1)
        if bits - value + (2**31 - 2) < 2**31:
            yield value


def as_long(number: int) -> int:
    """Wrap like Java's long."""
    return (number + 2**63) % 2**64 - 2**63


def column_of(key: int, multiplier: int, columns: int) -> int:
    hashed = as_long(multiplier * key)
    hashed = as_long(hashed + (hashed >> 32))
    return (hashed & (2**31 - 1)) % columns


def sane(cost_ns: int) -> int:
    return min(max(cost_ns, 0), DAY_NS)


@dataclass
class NaiveSketch:
    """F and W as dicts from (row, column); a cell that is missing is empty."""

    multipliers: Sequence[int]
    columns: int
    count: dict[tuple[int, int], int] = field(default_factory=dict)
    work: dict[tuple[int, int], int] = field(default_factory=dict)

    def cells(self, key: int) -> list[tuple[int, int]]:
        return [(i, column_of(key, m, self.columns)) for i, m in enumerate(self.multipliers)]

    def add(self, key: int, count: int, work: int) -> None:
        for at in self.cells(key):
            self.count[at] = self.count.get(at, 0) + count
            self.work[at] = min(self.work.get(at, 0) + work, INT64_MAX)

    def update(self, key: int, cost_ns: int) -> None:
        self.add(key, 1, sane(cost_ns))

    def frequency(self, key: int) -> int:
        return min(self.count.get(at, 0) for at in self.cells(key))

    def estimate(self, key: int, unseen_ns: float) -> float:
        if self.frequency(key) == 0:
            return unseen_ns
        at = min(self.cells(key), key=lambda cell: self.count[cell])  # of equals the first
        return float(Fraction(self.work[at], self.count[at]))

    def mean(self, at: tuple[int, int]) -> Fraction:
        return Fraction(self.work[at], self.count[at]) if self.count.get(at) else Fraction(0)

    def snapshot(self) -> dict[tuple[int, int], Fraction]:
        rows = range(len(self.multipliers))
        return {(i, j): self.mean((i, j)) for i in rows for j in range(self.columns)}

    def relative_error(self, before: dict[tuple[int, int], Fraction]) -> float:
        total = sum(before.values())
        if total == 0:
            return math.inf
        moved = sum(abs(mean - self.mean(at)) for at, mean in before.items())
        return float(moved / total)


@dataclass
class Place:
    """What the table knows of one key."""

    key: int
    rank: int
    count: int
    work: int


@dataclass
class NaiveHeavy:
    """Buckets as lists of at most `places` entries, None where a place is empty."""

    sketch: NaiveSketch
    buckets: int
    places: int
    table: list[list[Place | None]] = field(init=False)

    def __post_init__(self) -> None:
        self.table = [[None] * self.places for _ in range(self.buckets)]

    def bucket(self, key: int) -> list[Place | None]:
        return self.table[column_of(key, HEAVY_MULTIPLIER, self.buckets)]

    def find(self, key: int) -> Place | None:
        return next((p for p in self.bucket(key) if p is not None and p.key == key), None)

    def least(self, bucket: list[Place | None]) -> int:
        return min(range(self.places), key=lambda at: entry.rank if (entry := bucket[at]) else 0)

    def update(self, key: int, cost_ns: int) -> None:
        if self.buckets == 0:
            self.sketch.update(key, cost_ns)
            return
        place = self.find(key) or self.let_in(key)
        place.rank += 1
        place.count += 1
        place.work = min(place.work + sane(cost_ns), INT64_MAX)

    def let_in(self, key: int) -> Place:
        bucket = self.bucket(key)
        at = self.least(bucket)
        leaves = bucket[at]
        self.flush(leaves)
        entry = Place(key, leaves.rank if leaves else 0, 0, 0)
        bucket[at] = entry
        return entry

    def flush(self, place: Place | None) -> None:
        if place is not None:
            self.sketch.add(place.key, place.count, place.work)

    def estimate(self, key: int, unseen_ns: float) -> float:
        place = self.find(key) if self.buckets else None
        if place is not None:
            return float(Fraction(place.work, place.count))
        return self.sketch.estimate(key, unseen_ns)

    def merge(self, other: NaiveHeavy) -> None:
        for at, count in other.sketch.count.items():
            self.sketch.count[at] = self.sketch.count.get(at, 0) + count
        for at, work in other.sketch.work.items():
            self.sketch.work[at] = min(self.sketch.work.get(at, 0) + work, INT64_MAX)
        for ours, theirs in zip(self.table, other.table, strict=True):
            self.merge_bucket(ours, [place for place in theirs if place is not None])

    def merge_bucket(self, ours: list[Place | None], theirs: list[Place]) -> None:
        for place in theirs:
            if known := self.find(place.key):
                known.rank += place.rank
                known.count += place.count
                known.work = min(known.work + place.work, INT64_MAX)
        new = [place for place in theirs if not self.find(place.key)]
        for place in sorted(new, key=lambda place: -place.rank):  # stable: of equals the first
            at = self.least(ours)
            leaves = ours[at]
            if leaves is not None and leaves.rank >= place.rank:
                self.flush(place)
            else:
                self.flush(leaves)
                ours[at] = Place(place.key, place.rank, place.count, place.work)


@dataclass
class NaiveOperator:
    """LAS listing III.1, line by line."""

    multipliers: Sequence[int]
    columns: int
    window: int
    tolerance: float
    rows: int = 0
    state: str = "START"

    def __post_init__(self) -> None:
        self.sketch = self.empty()
        self.before: dict[tuple[int, int], Fraction] = {}

    def empty(self) -> NaiveSketch:
        return NaiveSketch(self.multipliers, self.columns)

    def executed(self, key: int, cost_ns: int) -> NaiveSketch | None:
        sent = None
        self.rows += 1
        if self.state == "START" and self.rows % self.window == 0:
            self.before = self.sketch.snapshot()
            self.state = "STABILIZING"
        elif self.state == "STABILIZING" and self.rows % self.window == 0:
            if self.sketch.relative_error(self.before) <= self.tolerance:
                sent, self.sketch = self.sketch, self.empty()
                self.state = "START"
            else:
                self.before = self.sketch.snapshot()
        self.sketch.update(key, cost_ns)
        return sent
