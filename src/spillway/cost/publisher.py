"""When an operator's sketch is worth sending: as soon as its means stand still (LAS, POSG).

The operator counts its rows in a sketch. Every `window` rows it compares the cells' means with
those at the end of the window before; if they have moved by at most `tolerance`, the sketch is
published and a new one begun. Changed costs are thus known after two windows of calm.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from spillway.cost.sketch import (
    CostSketch,
    Floats,
    Ints,
    SketchShape,
    as_rows,
    sane_ns,
    sealed,
    unsealed,
)
from spillway.kernels import operator as kernel

_MAGIC = b"SWP1"
_MACHINE = struct.Struct(">4s3q")  # magic, then phase, rows executed, sketches published


class Phase(IntEnum):
    """START: the first window fills. STABILIZING: the means are compared."""

    START = kernel.START
    STABILIZING = kernel.STABILIZING


@dataclass(frozen=True, slots=True, kw_only=True)
class Publishing:
    """Window N, tolerance μ and size of the sketch; the defaults are the papers'."""

    window: int = 1024
    tolerance: float = 0.05
    shape: SketchShape = field(default_factory=SketchShape)

    def __post_init__(self) -> None:
        """Reject a window without rows and a tolerance that no sketch can meet."""
        if self.window < 1:
            raise ValueError(f"window must be >= 1, got {self.window}")
        if not self.tolerance >= 0:  # also rejects NaN
            raise ValueError(f"tolerance must be >= 0, got {self.tolerance}")


class Publisher:
    """Takes executed rows and gives back a sketch when one is worth sending.

    >>> publisher = Publisher(Publishing(window=4))
    >>> sent = [publisher.executed(key=7, cost_ns=100) for _ in range(8)]
    >>> publisher.phase.name, [sketch.rows_seen for sketch in sent if sketch]
    ('START', [7])
    """

    def __init__(self, config: Publishing = Publishing()) -> None:  # noqa: B008 (frozen)
        """Start with an empty sketch."""
        self.config = config
        self._filling = CostSketch(config.shape)
        self._sent = CostSketch(config.shape)  # where the next published sketch goes
        self._machine: Ints = np.zeros(kernel.MACHINE_SIZE, dtype=np.int64)
        self._means_ns: Floats = np.zeros(self._filling.work_ns.shape, dtype=np.float64)

    @property
    def phase(self) -> Phase:
        """In which of its two states the machine is."""
        return Phase(int(self._machine[kernel.PHASE]))

    @property
    def rows_executed(self) -> int:
        """How many rows were taken since the start."""
        return int(self._machine[kernel.EXECUTED])

    @property
    def published(self) -> int:
        """How many sketches were published since the start."""
        return int(self._machine[kernel.PUBLISHED])

    def executed(self, key: int, cost_ns: int) -> CostSketch | None:
        """Take one executed row; return the sketch if this was the moment to publish it."""
        row = key, sane_ns(cost_ns)
        done = kernel.executed(*self._state, *row, *self._rule, *self._cells)
        return self._handed_over() if done else None

    def executed_rows(self, keys: Ints, costs_ns: Ints) -> list[CostSketch]:
        """Take a batch of executed rows in their order; return every sketch published on the way.

        A reader that is interested in now uses the last.
        """
        rows = as_rows(keys, costs_ns)
        published: list[CostSketch] = []
        begin = 0
        while True:
            begin = kernel.executed_rows(*self._state, *rows, begin, *self._rule, *self._cells)
            if begin < 0:
                return published
            published.append(self._handed_over())

    def snapshot(self) -> bytes:
        """Serialise the state, for a checkpoint; the config is not part of it."""
        machine = _MACHINE.pack(_MAGIC, *self._machine.tolist())
        means = self._means_ns.astype(">f8").tobytes()
        return sealed(machine + means + self._filling.to_bytes())

    @classmethod
    def restore(cls, data: bytes, config: Publishing = Publishing()) -> Publisher:  # noqa: B008
        """Go on from a snapshot; `ValueError` says what is wrong with anything else."""
        publisher = cls(config)
        end = _MACHINE.size + publisher._means_ns.nbytes
        body = _checked(data)
        publisher._machine[:] = _read_machine(body)
        publisher._means_ns[:] = _read_means(body[_MACHINE.size : end], publisher._means_ns.shape)
        publisher._filling = CostSketch.from_bytes(body[end:])
        if publisher._filling.shape != config.shape:
            raise ValueError(
                f"data must be of the shape {config.shape}, got {publisher._filling.shape}"
            )
        return publisher

    @property
    def _state(self) -> tuple[Ints, Ints, Ints, Floats, Ints]:
        filling = self._filling
        cells = filling.frequency, filling.work_ns
        return self._machine, *cells, self._means_ns, filling.multipliers

    @property
    def _cells(self) -> tuple[Ints, Ints]:
        return self._sent.frequency, self._sent.work_ns

    def _handed_over(self) -> CostSketch:
        sent, self._sent = self._sent, CostSketch(self.config.shape)
        return sent

    @property
    def _rule(self) -> tuple[int, float]:
        return self.config.window, self.config.tolerance


def _checked(data: bytes) -> bytes:
    if data[:4] != _MAGIC or len(data) < _MACHINE.size:
        raise ValueError("data must be a snapshot of a publisher, got something else")
    return unsealed(data)


def _read_machine(body: bytes) -> list[int]:
    _, phase, executed, published = _MACHINE.unpack_from(body)
    if phase not in tuple(Phase) or executed < 0 or not 0 <= published <= executed:
        raise ValueError(
            f"data must hold a phase and counts in order, got {phase}, {executed}, {published}"
        )
    return [phase, executed, published]


def _read_means(data: bytes, shape: tuple[int, ...]) -> Floats:
    if len(data) != 8 * shape[0] * shape[1]:
        raise ValueError(f"data must hold {shape[0]} x {shape[1]} means, got {len(data)} bytes")
    means = np.frombuffer(data, dtype=">f8").astype(np.float64).reshape(shape)
    if not (np.isfinite(means) & (means >= 0)).all():
        raise ValueError("data must hold finite means that are not negative")
    return means
