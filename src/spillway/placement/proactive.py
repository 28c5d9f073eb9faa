"""Proactive placement: rows go where the least estimated work waits (POSG, section III).

Instances learn what rows cost and publish it; the scheduler estimates every row's cost from what
the instance last published, keeps account of the work it gave away, and asks now and then how far
its account is from the truth. The logic is in `kernels.posg`; these objects hold its arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from spillway.kernels import las, posg, posg_instance
from spillway.placement.round_robin import check_instances

if TYPE_CHECKING:
    from spillway.cost.sketch import SketchShape

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Mode = Literal["paper", "clamped", "default"]


class SchedulerState(IntEnum):
    """The states of the scheduler (figure 3)."""

    ROUND_ROBIN = posg.ROUND_ROBIN
    SEND_ALL = posg.SEND_ALL
    WAIT_ALL = posg.WAIT_ALL
    RUN = posg.RUN


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Asks an instance, with a row, how far the estimate Ĉ is from the truth at that row."""

    instance: int
    epoch: int
    estimate_ns: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An instance's answer: Δ, which the scheduler adds to its Ĉ."""

    instance: int
    epoch: int
    delta_ns: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A copy of what an instance has learnt."""

    instance: int
    model: las.Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """Where many rows go, and the requests that some of them carry, by the row's position."""

    instances: Ints
    requests: dict[int, Request]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proactive:
    """Places rows by estimated cost.

    `mode="paper"` does exactly what the paper says, "clamped" also takes an idle instance for idle:
    Ĉ is then the moment at which an instance is free, never in the past. By default it also starts
    with the first sketch instead of the last, knows heavy keys exactly, takes an unseen key for a
    mean one, looks for the earliest completion where instances differ in speed, and synchronises
    every `sync_rows` rows.
    """

    instances: int
    shape: SketchShape
    mode: Mode = "default"
    window: int = 1024  # the paper's N
    tolerance: float = 0.05  # the paper's μ
    sync_rows: int = 64  # 0: only after a new sketch, as in the paper
    heavy_buckets: int = 64  # of four keys each; 0: the sketch alone

    def __post_init__(self) -> None:
        """Reject what could not place a row."""
        check_instances(self.instances)
        if self.mode not in get_args(Mode):
            raise ValueError(f"mode must be one of {get_args(Mode)}, got {self.mode!r}")
        if self.window < 1:
            raise ValueError(f"window must be >= 1, got {self.window}")
        if not self.tolerance >= 0:
            raise ValueError(f"tolerance must be >= 0, got {self.tolerance}")
        for name in ("sync_rows", "heavy_buckets"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be >= 0, got {getattr(self, name)}")

    @property
    def rules(self) -> posg.Rules:
        """The rules as the kernels know them."""
        mode = posg.DEFAULT if self.mode == "default" else posg.PAPER
        sync_rows = self.sync_rows if self.mode == "default" else 0
        return posg.Rules(mode, self.mode != "paper", self.window, float(self.tolerance), sync_rows)

    def new_models(self, count: int) -> posg.Models:
        """Return empty cost models of the configured size."""
        buckets = self.heavy_buckets if self.mode == "default" else 0
        return posg.new_models(count, self.shape.rows, self.shape.columns, buckets)

    def start(self) -> ProactiveState:
        """Return the state of a scheduler that knows nothing yet."""
        return ProactiveState(self)

    def start_instance(self, instance: int) -> InstanceState:
        """Return the state of one instance that has executed nothing yet."""
        if not 0 <= instance < self.instances:
            raise ValueError(f"instance must be in 0..{self.instances - 1}, got {instance}")
        return InstanceState(self, instance)


class ProactiveState:
    """The scheduler's memory. Mutable: it is fed row by row and message by message."""

    def __init__(self, config: Proactive) -> None:
        """Start in ROUND_ROBIN."""
        self.config = config
        self.arrays: posg.Scheduler = posg.new_scheduler(
            config.shape.multipliers, config.new_models(config.instances)
        )

    @property
    def state(self) -> SchedulerState:
        """Where the scheduler is in figure 3."""
        return SchedulerState(int(self.arrays.machine[posg.STATE]))

    @property
    def epoch(self) -> int:
        """How many synchronisations were begun."""
        return int(self.arrays.machine[posg.EPOCH])

    @property
    def totals_ns(self) -> Floats:
        """Ĉ: the work given to every instance; by default, when each will be free."""
        return self.arrays.totals_ns.copy()

    def place(self, key: int, now_ns: int) -> tuple[int, Request | None]:
        """Return the instance of the next row, and the request to send along, if any."""
        instance, asks = posg.place(self.arrays, self.config.rules, key, now_ns)
        return int(instance), self._request(int(instance)) if asks else None

    def place_all(self, keys: Ints, now_ns: Ints) -> Placed:
        """Place many rows, as `place` would one after the other."""
        instances, epochs = np.empty((2, keys.size), dtype=np.int64)
        requested, estimates_ns = np.empty(keys.size, dtype=np.bool_), np.empty(keys.size)
        posg.place_rows(
            self.arrays,
            self.config.rules,
            keys,
            now_ns,
            instances,
            requested,
            epochs,
            estimates_ns,
        )
        requests = {
            int(row): Request(
                instance=int(instances[row]),
                epoch=int(epochs[row]),
                estimate_ns=float(estimates_ns[row]),
            )
            for row in np.flatnonzero(requested)
        }
        return Placed(instances=instances, requests=requests)

    def published(self, news: Published) -> None:
        """Take in what an instance has published."""
        posg.receive_sketch(self.arrays, self.config.rules, news.instance, news.model)

    def replied(self, reply: Reply) -> bool:
        """Take in a reply; return whether it counted: one of an old epoch does not."""
        return bool(
            posg.receive_reply(
                self.arrays, self.config.rules, reply.instance, reply.epoch, reply.delta_ns
            )
        )

    def estimate_ns(self, key: int, instance: int) -> float:
        """Return what a row of that key is thought to cost on that instance."""
        return float(posg.estimate_on(self.arrays, instance, key, self.config.rules.mode))

    def snapshot(self) -> dict[str, Ints | Floats]:
        """Return a copy of the whole memory, array by array."""
        return {name: array.copy() for name, array in _named_arrays(self.arrays).items()}

    def restore(self, memory: dict[str, Ints | Floats]) -> None:
        """Go back to a snapshot of a scheduler of the same configuration."""
        arrays = _named_arrays(self.arrays)
        for name, array in arrays.items():
            if name not in memory or memory[name].shape != array.shape:
                raise ValueError(f"memory must have {name!r} of the shape {array.shape}")
            array[...] = memory[name]

    def _request(self, instance: int) -> Request:
        estimate_ns = float(self.arrays.totals_ns[instance])
        return Request(instance=instance, epoch=self.epoch, estimate_ns=estimate_ns)


class InstanceState:
    """One instance's memory: what rows cost here, and the work done so far."""

    def __init__(self, config: Proactive, instance: int) -> None:
        """Start with nothing executed."""
        self.config = config
        self.instance = instance
        self.arrays: posg_instance.Instances = posg_instance.new_instances(
            config.shape.multipliers, config.new_models(1)
        )

    def executed(self, key: int, cost_ns: int) -> Published | None:
        """Learn from an executed row; return what is to be published, if it is time."""
        sent: las.Model = posg.model_of.py_func(self.config.new_models(1), 0)
        if not posg_instance.execute(self.arrays, self.config.rules, 0, key, cost_ns, sent):
            return None
        return Published(instance=self.instance, model=sent)

    def reply(self, request: Request, done_ns: int) -> Reply:
        """Answer the request of the row that was executed last, done at `done_ns`."""
        delta_ns = posg_instance.answer(
            self.arrays, self.config.rules, 0, done_ns, request.estimate_ns
        )
        return Reply(instance=self.instance, epoch=request.epoch, delta_ns=float(delta_ns))


def _named_arrays(scheduler: posg.Scheduler) -> dict[str, Ints | Floats]:
    own = {name: array for name, array in scheduler._asdict().items() if name != "models"}
    models = {f"models.{name}": array for name, array in scheduler.models._asdict().items()}
    return own | models
