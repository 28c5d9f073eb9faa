"""One operator behind a load shedder on virtual time: rows arrive, pass or go, wait and are done.

The shedder and the operator are the shipped ones (`kernels.las`, `kernels.operator`); only the
clock, the queue and the messages between them are made here. Messages take `delay_ns`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spillway.cost.sketch import SketchShape
from spillway.kernels import las, one_operator
from spillway.shedders.admission import Admission
from spillway.sim.workloads import Stream

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Policy(IntEnum):
    """Who decides: the paper's four, and LAS as it is shipped."""

    BASE_LINE = one_operator.BASE_LINE
    STRAW_MAN = one_operator.STRAW_MAN
    FULL_KNOWLEDGE = one_operator.FULL_KNOWLEDGE
    PAPER = one_operator.PAPER
    DEFAULT = one_operator.DEFAULT


@dataclass(frozen=True, slots=True, kw_only=True)
class Shedding:
    """How one operator is protected: who decides, and what the operator learns with."""

    policy: Policy = Policy.DEFAULT
    las: Admission = field(default_factory=lambda: Admission(limit_ns=6_400_000))
    shape: SketchShape = field(default_factory=SketchShape)
    window: int = 1024
    tolerance: float = 0.05
    heavy_buckets: int = 256
    share: float = 0.0  # what Base Line drops
    mean_ns: float | None = None  # what Straw-Man takes every row to cost; None: the stream's mean
    prelude: int = 0  # rows that all pass and do not count: time for the paper's LAS to learn
    delay_ns: int = 0

    def __post_init__(self) -> None:
        """Reject what protects nothing."""
        for name in ("delay_ns", "heavy_buckets", "prelude"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be >= 0, got {getattr(self, name)}")
        if not 0 <= self.share < 1:
            raise ValueError(f"share must be in [0, 1), got {self.share}")
        if self.window < 1:
            raise ValueError(f"window must be >= 1, got {self.window}")
        if self.las.faithful != (self.policy == Policy.PAPER):
            raise ValueError(f"the policy PAPER, and no other, has a faithful LAS, got {self.las}")

    @classmethod
    def paper(cls, *, limit_ns: int, epsilon: float = 0.05, **more: Any) -> Shedding:
        """Return the paper's LAS with its factor 1 + ε."""
        las = Admission(limit_ns=limit_ns, faithful=True, margin=1.0, factor=1.0 + epsilon)
        return cls(policy=Policy.PAPER, las=las, **more)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What happened: latency of every row (-1 if dropped), its weight, and the messages."""

    latencies_ns: Ints
    weights: Floats
    sketches: int
    requests: int
    replies: int
    first_run: int  # the row from which on the shedder ran; 0 if from the start

    @property
    def kept(self) -> NDArray[np.bool_]:
        """Which rows were kept."""
        return self.latencies_ns >= 0

    def dropped(self, first: int = 0) -> float:
        """Share of the rows, from the first on, that were dropped."""
        return float(1.0 - self.kept[first:].mean()) if first < self.kept.size else 0.0

    def latency_ms_mean(self, first: int = 0) -> float:
        """Mean queueing latency of the kept rows from the first on."""
        rows = self.latencies_ns[first:]
        rows = rows[rows >= 0]
        return float(rows.mean()) / 1e6 if rows.size else 0.0

    def count_variance(self) -> float:
        """Estimate, without bias, the variance of the count that the weights add up to."""
        weights = self.weights[self.kept]
        return float((weights * (weights - 1.0)).sum())


def simulate(
    stream: Stream, shedding: Shedding, *, seed: int = 0, utilities: Floats | None = None
) -> Run:
    """Run a stream through one operator. The same seed gives the same run."""
    las_config, rows = shedding.las, stream.rows
    latencies, weights = np.full(rows, -1, dtype=np.int64), np.ones(rows)
    counters = np.zeros(4, dtype=np.int64)
    buckets = shedding.heavy_buckets if shedding.policy == Policy.DEFAULT else 0
    shape = shedding.shape
    mean_ns = stream.cost_ns_mean if shedding.mean_ns is None else shedding.mean_ns
    models = tuple(las.new_model(shape.rows, shape.columns, buckets=buckets) for _ in range(3))
    one_operator.run(
        int(shedding.policy),
        int(las_config.aim),
        stream.keys,
        stream.costs_ns,
        stream.arrivals_ns,
        np.ones(rows) if utilities is None else np.ascontiguousarray(utilities, dtype=np.float64),
        np.random.default_rng((3, seed)).random(rows),
        las_config.new_memory(),
        np.zeros(las_config.condition_rows),
        las.new_recent(int(las_config.aim)),
        models,
        shape.multipliers,
        (las_config.aimed_ns, int(las_config.condition)),
        (shedding.window, shedding.tolerance, las_config.factor, las_config.sync_rows),
        (shedding.share, mean_ns, shedding.delay_ns, shedding.prelude),
        latencies,
        weights,
        counters,
    )
    return Run(
        latencies_ns=latencies,
        weights=weights,
        sketches=int(counters[one_operator.SKETCHES]),
        requests=int(counters[one_operator.REQUESTS]),
        replies=int(counters[one_operator.REPLIES]),
        first_run=int(counters[one_operator.FIRST_RUN]),
    )
