"""Which selection of the plan's mix a row takes: by its own hash, natively and in Python alike.

Spark hashes the identity of a row with the guard's seed; that number is hashed once more with a
salt of the batch. The salts are not the gate's: the rows that a gate keeps have small numbers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import xxhash
from numpy.typing import NDArray

from spillway.degrade.subtask import Subtasks
from spillway.kernels.uniform import SPARE_BITS, salt_of
from spillway.spark.columns import PREFIX
from spillway.values import PinnedPlan
from spillway.work_values import Selection, WorkMix

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

ROW = PREFIX + "row"  # the column with the hash of a row's identity
ACCURACY, SELECTION = "_accuracy", "_selection"
LESS, MORE, COMPLETE = "less", "more", "complete"

_MIX, _COMPLETE = 1, 2  # which salt
_SPARK_SEED, _MASK = 42, (1 << 64) - 1
_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def mix_salt(pinned: PinnedPlan) -> int:
    """Return the salt that decides between the two selections."""
    return salt_of(pinned.salt, _MIX)


def complete_salt(pinned: PinnedPlan) -> int:
    """Return the salt that decides which rows always run complete."""
    return salt_of(pinned.salt, _COMPLETE)


def uniforms_of(salt: int, hashes: Ints) -> Floats:
    """Return xxhash64(salt, hash) as numbers in [0, 1): `kernels.uniform.uniforms` in NumPy.

    A task does this once for every Arrow batch; compiled code would take a second to load.

    >>> from spillway.kernels.uniform import uniform
    >>> uniforms_of(7, np.array([12])).tolist() == [uniform(7, 12)]
    True
    """
    seed = xxhash.xxh64_intdigest(struct.pack("<q", salt), seed=_SPARK_SEED)
    words = np.ascontiguousarray(hashes, dtype=np.int64).view(np.uint64)
    lane = _rotated(words * np.uint64(_P2), 31) * np.uint64(_P1)
    mixed = np.uint64((seed + _P5 + 8) & _MASK) ^ lane
    mixed = _rotated(mixed, 27) * np.uint64(_P1) + np.uint64(_P4)
    mixed = (mixed ^ (mixed >> np.uint64(33))) * np.uint64(_P2)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(_P3)
    mixed = mixed ^ (mixed >> np.uint64(32))
    return (mixed >> np.uint64(SPARE_BITS)).astype(np.float64) * 2.0**-53


@dataclass(slots=True)
class Group:
    """The rows of an Arrow batch that take one selection; `alive` are those not dropped yet."""

    kind: str
    off: frozenset[str]
    accuracy: float
    places: list[int]
    alive: list[int] = field(init=False)

    def __post_init__(self) -> None:
        """Start with all of them."""
        self.alive = self.places


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """The selections of a batch, and what decides between them."""

    pinned: PinnedPlan
    mix: WorkMix
    off: dict[str, frozenset[str]]

    @classmethod
    def of(cls, pinned: PinnedPlan, subtasks: Subtasks, complete: float) -> Chosen:
        """Read a plan; without a mix, or for subtasks that are not there, nothing is left out."""
        whole = Selection()
        mix = pinned.plan.mix or WorkMix(less=whole, more=whole, fraction=0.0, complete=complete)
        off = {LESS: closed(subtasks, mix.less), MORE: closed(subtasks, mix.more)}
        return cls(pinned=pinned, mix=mix, off={**off, COMPLETE: frozenset()})

    def turn(self, subtasks: Subtasks) -> str | None:
        """Return the optional subtask that is judged in this batch; they take turns."""
        optional = subtasks.optional
        return optional[self.pinned.batch_id % len(optional)] if optional else None

    def groups(self, hashes: Ints) -> Iterator[Group]:
        """Split the rows of an Arrow batch; a selection without rows is left out."""
        less, more = self.mix.less, self.mix.more
        accuracy = {LESS: less.accuracy, MORE: more.accuracy, COMPLETE: 1.0}
        complete = uniforms_of(complete_salt(self.pinned), hashes) < self.mix.complete
        greater = uniforms_of(mix_salt(self.pinned), hashes) < self.mix.fraction
        taken = {LESS: ~complete & ~greater, MORE: ~complete & greater, COMPLETE: complete}
        for kind, rows in taken.items():
            if places := np.flatnonzero(rows).tolist():
                yield Group(kind, self.off[kind], accuracy[kind], places)


def closed(subtasks: Subtasks, selection: Selection) -> frozenset[str]:
    """Return what is off by a selection; names of another application are passed over."""
    return subtasks.closed(name for name in selection.off if name in subtasks.optional)


def _rotated(words: NDArray[np.uint64], bits: int) -> NDArray[np.uint64]:
    return (words << np.uint64(bits)) | (words >> np.uint64(64 - bits))
