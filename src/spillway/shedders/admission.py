"""Load-aware shedding, row by row: keep the queue of an operator within a latency limit (LAS).

The shedder foresees how long a row would wait from what the rows before it cost, by their keys,
and refuses rows that would break the limit. The operator tells it from time to time what rows cost
(a model) and how far its estimates are off (a correction).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from spillway.kernels import las
from spillway.kernels.las import Model

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Aim(IntEnum):
    """What goes when not all can stay.

    FAITHFUL: rows as they come while the limit would be broken, as in the paper.
    FEWEST: the costliest for their worth, so that the fewest rows (the least worth) are lost.
    UNBIASED: costly rows by chance, with weights, so that totals can be estimated.
    """

    FAITHFUL = las.FAITHFUL
    FEWEST = las.FEWEST
    UNBIASED = las.UNBIASED


class Condition(IntEnum):
    """What is limited: the mean over the stream, every row, the mean over the latest rows."""

    AVERAGE = las.AVERAGE
    EACH = las.EACH
    WINDOW = las.WINDOW


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """The limit on the queueing latency, and how it is held.

    `margin` of the limit is aimed at; `condition_rows` are the latest rows of Condition.WINDOW;
    every `sync_rows` rows the shedder asks the operator how far it is. `faithful` is the paper's
    shedder: it lets everything pass before the first model, multiplies costs by `factor` (1 + ε)
    and asks once after every new model.
    """

    limit_ns: int
    condition: Condition = Condition.AVERAGE
    condition_rows: int = 1024
    aim: Aim = Aim.FAITHFUL
    margin: float = 0.97
    sync_rows: int = 16
    faithful: bool = False
    factor: float = 1.0

    def __post_init__(self) -> None:
        """Reject limits that cannot be held."""
        if self.limit_ns < 0:
            raise ValueError(f"limit_ns must be >= 0, got {self.limit_ns}")
        for name in ("condition_rows", "sync_rows"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be >= 1, got {getattr(self, name)}")
        if not 0 < self.margin <= 1:
            raise ValueError(f"margin must be in (0, 1], got {self.margin}")
        if not self.factor >= 1:
            raise ValueError(f"factor must be >= 1, got {self.factor}")
        if self.faithful and self.aim != Aim.FAITHFUL:
            raise ValueError(f"the paper's shedder has no other aim, got {self.aim.name}")
        if self.aim != Aim.FAITHFUL and self.limit_ns == 0:
            raise ValueError(f"limit_ns must be > 0 for the aim {self.aim.name}, got 0")

    @property
    def aimed_ns(self) -> float:
        """What the shedder keeps to."""
        return self.limit_ns * self.margin

    def new_memory(self) -> Floats:
        """Return the shedder's memory at the start.

        Of an unknown row the whole limit is feared; but where chance decides, the first rows
        would pass so rarely that their weights spoil the totals, and nothing is feared.
        """
        memory = np.zeros(las.SHEDDER_SIZE)
        memory[las.STATE] = las.NOP if self.faithful else las.RUN
        memory[las.UNSEEN_NS] = 0 if self.aim == Aim.UNBIASED else self.limit_ns
        return memory


class LoadShedder:
    """A load shedder at work. Times are ns on one clock; rows come in order of arrival."""

    def __init__(self, config: Admission, model: Model, multipliers: Ints) -> None:
        """Start with a model (may be empty) whose cells follow from the multipliers."""
        self.config = config
        self._multipliers = multipliers
        self._memory = config.new_memory()
        self._ring = np.zeros(config.condition_rows)
        self._recent = las.new_recent(int(config.aim))
        self._model = model
        if las.mean_ns(model) > 0:
            self.receive(model)

    @property
    def state(self) -> str:
        """NOP, SEND or RUN."""
        return ("NOP", "SEND", "RUN")[int(self._memory[las.STATE])]

    @property
    def busy_until_ns(self) -> float:
        """When the operator will have done all admitted rows, by the estimates."""
        return float(self._memory[las.BUSY_UNTIL])

    def offer(
        self,
        keys: Ints,
        arrivals_ns: Ints,
        *,
        worths: Floats | None = None,
        uniforms: Floats | None = None,
    ) -> Floats:
        """Decide about rows: the weight of each, 0 for those that go.

        `worths` are utilities (sizes, for UNBIASED); `uniforms` in [0, 1) decide by chance and
        should follow from the rows' identity, so that a replay decides alike.
        """
        if self.config.aim == Aim.UNBIASED and uniforms is None:
            raise ValueError("uniforms must be given for the aim UNBIASED, got None")
        weights = np.empty(keys.size)
        if self.config.aim == Aim.FAITHFUL:
            las.admit_rows(
                self._memory,
                self._ring,
                self._model,
                self._multipliers,
                keys,
                arrivals_ns,
                self.config.factor,
                self.config.aimed_ns,
                int(self.config.condition),
                weights,
            )
            return weights
        ones = np.ones(keys.size)
        las.offer_rows(
            int(self.config.aim),
            self._recent,
            self._memory,
            self._ring,
            self._model,
            self._multipliers,
            keys,
            arrivals_ns,
            ones if worths is None else worths,
            np.zeros(keys.size) if uniforms is None else uniforms,
            self.config.factor,
            self.config.aimed_ns,
            int(self.config.condition),
            weights,
        )
        return weights

    def receive(self, model: Model) -> None:
        """Use a new model from now on."""
        self._model = model
        las.received(self._memory, las.mean_ns(model), self.config.faithful)

    def sync(self, now_ns: float) -> None:
        """Set the clock: by now the operator has done what was admitted, whatever was foreseen."""
        self._memory[las.BUSY_UNTIL] = now_ns
        self._memory[las.BUSY_FIX] = 0.0

    def asks(self) -> tuple[float, float] | None:
        """After an admitted row: the estimates that it carries to the operator, if it does.

        They are (busy until, sum of the latencies so far), both without corrections.
        """
        if not las.asks(self._memory, self.config.sync_rows, self.config.faithful):
            return None
        memory = self._memory
        busy = memory[las.BUSY_UNTIL] - memory[las.BUSY_FIX]
        return float(busy), float(memory[las.LATENCY_SUM] - memory[las.LATENCY_FIX])

    def correct(self, *, busy_ns: float, latency_ns: float = 0.0) -> None:
        """Take the operator's reply: truth minus estimate, of both."""
        kept = latency_ns if self.config.condition == Condition.AVERAGE else 0.0
        las.corrected(self._memory, busy_ns, kept)
