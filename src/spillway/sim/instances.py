"""Parallel instances behind a scheduler on virtual time: rows are placed, wait and are done.

The scheduler and the instances' side of it are the shipped ones (`kernels.posg`); only the clock,
the first-in-first-out queues and the messages are made here. Whole ns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spillway.cost.sketch import SketchShape
from spillway.kernels import instances as kernel
from spillway.kernels import las, posg, posg_instance
from spillway.placement.full_knowledge import FullKnowledge
from spillway.placement.least_loaded import LeastLoaded
from spillway.placement.proactive import Proactive
from spillway.placement.round_robin import RoundRobin
from spillway.sim.workloads import Stream

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Placement = RoundRobin | Proactive | FullKnowledge | LeastLoaded


@dataclass(frozen=True, slots=True, kw_only=True)
class Speeds:
    """From row `first_row` on, instance i takes `factors[i]` times a row's cost."""

    first_row: int
    factors: tuple[float, ...]

    def __post_init__(self) -> None:
        """Reject instances that stand still or go back in time."""
        if not all(0 < factor < 1e6 for factor in self.factors):
            raise ValueError(f"factors must be positive, got {self.factors}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What happened to every row, and how many messages it took."""

    stream: Stream
    placed: Ints  # the instance of every row
    costs_ns: Ints  # what the row took there
    done_ns: Ints
    states: Ints  # the scheduler's state when it placed the row
    learnt: Ints  # the sketches that had reached the scheduler by then
    worked_ns: Ints  # by instance
    sketches: int
    requests: int
    replies: int
    stale_replies: int  # of an epoch that was over

    @property
    def completions_ns(self) -> Ints:
        """The paper's l(i): from a row's arrival until it is done."""
        return self.done_ns - self.stream.arrivals_ns

    @property
    def completion_ms_mean(self) -> float:
        """The paper's L̄."""
        return float(self.completions_ns.mean()) / 1e6

    @property
    def messages(self) -> int:
        """Messages beyond the rows: requests travel with rows and count as none."""
        return self.sketches + self.replies

    def first_row_in(self, state: int) -> int:
        """Return the first row placed in a state; the number of rows if there is none."""
        found = np.flatnonzero(self.states == state)
        return int(found[0]) if found.size else self.states.size

    def check(self) -> None:
        """Raise unless every instance did its rows one by one, in order, without a break."""
        if (self.placed < 0).any() or (self.placed >= self.worked_ns.size).any():
            raise AssertionError("a row was placed nowhere")
        for instance in range(self.worked_ns.size):
            rows = np.flatnonzero(self.placed == instance)
            arrivals, costs, done = (
                array[rows] for array in (self.stream.arrivals_ns, self.costs_ns, self.done_ns)
            )
            free = np.concatenate(([0], done[:-1])) if rows.size else done
            if not np.array_equal(done, np.maximum(arrivals, free) + costs):
                raise AssertionError(f"instance {instance} did not do its rows in order")
            if costs.sum() != self.worked_ns[instance]:
                raise AssertionError(f"instance {instance} worked more or less than its rows take")


def simulate(
    stream: Stream,
    placement: Placement,
    *,
    speeds: Sequence[Speeds] = (),
    delay_ns: int = 0,
) -> Run:
    """Run a stream through the instances. Messages to the scheduler take `delay_ns`.

    >>> import numpy as np
    >>> at_s, cost_s = np.array([0, 1, 2]), np.array([10, 1, 10])
    >>> rows = Stream(keys=at_s, costs_ns=cost_s * 10**9, arrivals_ns=at_s * 10**9)
    >>> int(simulate(rows, RoundRobin(instances=2)).completions_ns.sum()) // 10**9
    29
    """
    if delay_ns < 0:
        raise ValueError(f"delay_ns must be >= 0, got {delay_ns}")
    if (np.diff(stream.arrivals_ns) < 0).any():
        raise ValueError("stream must have its rows in order of arrival")
    k, rows = placement.instances, stream.rows
    setup = _setup(placement, delay_ns)
    outcome = _Outcome(*np.full((5, rows), -1, dtype=np.int64))
    counters = np.zeros(4, dtype=np.int64)
    kernel.run(
        setup,
        _Rows(stream.keys, stream.costs_ns, stream.arrivals_ns),
        _speed_table(speeds, k),
        _Queues(
            np.full(k, -1, dtype=np.int64),
            np.full(k, -1, dtype=np.int64),
            np.full(k, kernel.NEVER, dtype=np.int64),
            np.full(rows, -1, dtype=np.int64),
        ),
        _Requests(np.zeros(rows, dtype=np.int64), np.zeros(rows)),
        outcome,
        counters,
    )
    return Run(
        stream=stream,
        worked_ns=setup.instances.worked_ns,
        sketches=int(counters[kernel.SKETCHES]),
        requests=int(counters[kernel.REQUESTS]),
        replies=int(counters[kernel.REPLIES]),
        stale_replies=int(counters[kernel.STALE_REPLIES]),
        **outcome._asdict(),
    )


# ---- what the kernel takes ----


class _Rows(NamedTuple):
    keys: Ints
    costs_ns: Ints
    arrivals_ns: Ints


class _Outcome(NamedTuple):
    placed: Ints
    costs_ns: Ints
    done_ns: Ints
    states: Ints
    learnt: Ints


class _Queues(NamedTuple):
    """Rows not yet seen as done: first and last row by instance, when the first is done, links."""

    first: Ints
    last: Ints
    first_done_ns: Ints
    following: Ints


class _Requests(NamedTuple):
    """The epoch (0: no request) and Ĉ that a row carries."""

    epochs: Ints
    estimates_ns: Floats


class _SpeedTable(NamedTuple):
    first_rows: Ints
    factors: Floats


class _Setup(NamedTuple):
    policy: int
    rules: posg.Rules
    scheduler: posg.Scheduler
    instances: posg_instance.Instances
    sent: las.Model
    delay_ns: int
    report_every_ns: int


def _setup(placement: Placement, delay_ns: int) -> _Setup:
    policy, every_ns = kernel.TURN, 0
    config = placement if isinstance(placement, Proactive) else _idle(placement.instances)
    rules = config.rules
    if isinstance(placement, Proactive):
        policy = kernel.PROACTIVE
    elif isinstance(placement, FullKnowledge):
        policy, rules = kernel.EXACT, rules._replace(mode=placement.mode_number)
    elif isinstance(placement, LeastLoaded):
        policy, every_ns = kernel.LEAST, placement.report_every_ns
        delay_ns += placement.stale_ns
    multipliers, k = config.shape.multipliers, config.instances
    scheduler = posg.new_scheduler(multipliers, config.new_models(k))
    instances = posg_instance.new_instances(multipliers, config.new_models(k))
    sent = posg.model_of.py_func(config.new_models(1), 0)
    return _Setup(policy, rules, scheduler, instances, sent, delay_ns, every_ns)


def _idle(instances: int) -> Proactive:
    """Stand in for a placement that learns nothing."""
    return Proactive(instances=instances, shape=SketchShape(rows=1, columns=1), mode="paper")


def _speed_table(speeds: Sequence[Speeds], instances: int) -> _SpeedTable:
    for change in speeds:
        if len(change.factors) != instances:
            raise ValueError(f"factors must be {instances}, got {len(change.factors)}")
    ordered = sorted(speeds, key=lambda change: change.first_row)
    first_rows = np.array([0, *(change.first_row for change in ordered)], dtype=np.int64)
    factors = np.array([(1.0,) * instances, *(change.factors for change in ordered)])
    return _SpeedTable(first_rows, factors)
