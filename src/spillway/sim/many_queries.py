"""Queries that share a node, and the batches that their sources send it. Seeded; whole ns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SECOND = 1_000_000_000  # ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Sends a batch every `every_s` seconds; how many rows a second, `steps` says.

    A step is (from this second on, rows per second); before the first nothing comes. Batches of
    more than `batch_rows` rows are sent in parts.
    """

    steps: tuple[tuple[float, float], ...]
    every_s: float = 0.2
    batch_rows: int = 50

    def __post_init__(self) -> None:
        """Reject steps out of order, rates that are none, and batches without length."""
        times = [at_s for at_s, _ in self.steps]
        if not times or times != sorted(times):
            raise ValueError(f"steps must be one or more, in order of time, got {self.steps}")
        if not all(0 <= rate < inf for _, rate in self.steps):
            raise ValueError(f"rates must be finite and >= 0, got {self.steps}")
        if not 0 < self.every_s < inf:
            raise ValueError(f"every_s must be finite and > 0, got {self.every_s}")
        if self.batch_rows < 1:
            raise ValueError(f"batch_rows must be >= 1, got {self.batch_rows}")

    def batches(self, seconds: float, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """Draw when batches come, and their rows: Poisson numbers, at a phase of its own."""
        at_s = np.arange(rng.random() * self.every_s, seconds, self.every_s)
        starts, rates = np.array(self.steps).T
        step = np.searchsorted(starts, at_s, side="right") - 1
        rows = rng.poisson(np.where(step >= 0, rates[step], 0.0) * self.every_s)
        at_ns = np.rint(at_s * SECOND).astype(np.int64)
        return _in_parts(at_ns[rows > 0], rows[rows > 0], self.batch_rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A query of a node: its sources, what one of its rows costs there, and what it deserves.

    From second `dies_s` on it is gone: its sources are closed, and what waits for it is abandoned
    at the detector's next look.
    """

    sources: tuple[Source, ...]
    cost_s: float
    weight: float = 1.0
    dies_s: float = inf

    def __post_init__(self) -> None:
        """Reject queries without sources or work, and weights that are none."""
        if not self.sources:
            raise ValueError("sources must be one or more, got none")
        if not 0 < self.cost_s < inf:
            raise ValueError(f"cost_s must be finite and > 0, got {self.cost_s}")
        if not 0 <= self.weight < inf:
            raise ValueError(f"weight must be finite and >= 0, got {self.weight}")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Arrivals:
    """Batches in order of arrival: when, for which query, from which source, rows, true cost.

    Sources are numbered through all queries; `query_of_source` says whose each is.
    """

    at_ns: Ints
    queries: Ints
    sources: Ints
    rows: Ints
    costs_ns: Ints
    query_of_source: Ints


def arrivals(
    queries: Sequence[Query], *, seconds: float, noise: float = 0.1, seed: int = 0
) -> Arrivals:
    """Draw all batches of a run. Costs scatter log-normally by `noise` around rows · cost_s."""
    if not queries:
        raise ValueError("queries must be one or more, got none")
    rng = np.random.default_rng((5, seed))
    owners = [number for number, query in enumerate(queries) for _ in query.sources]
    sent = [source.batches(seconds, rng) for query in queries for source in query.sources]
    at_ns = np.concatenate([times for times, _ in sent])
    rows = np.concatenate([counts for _, counts in sent])
    sources = np.repeat(np.arange(len(sent)), [times.size for times, _ in sent])
    query = np.array(owners)[sources]
    alive = at_ns < _ns([each.dies_s for each in queries])[query]
    order = np.flatnonzero(alive)[np.argsort(at_ns[alive], kind="stable")]
    cost_s = np.array([each.cost_s for each in queries])[query] * rows
    scatter = rng.lognormal(-(noise**2) / 2.0, noise, size=rows.size)
    costs_ns = np.maximum(np.rint(cost_s * scatter * SECOND), 1.0).astype(np.int64)
    return Arrivals(
        at_ns=at_ns[order],
        queries=query[order],
        sources=sources[order],
        rows=rows[order],
        costs_ns=costs_ns[order],
        query_of_source=np.array(owners),
    )


def _in_parts(at_ns: Ints, rows: Ints, rows_max: int) -> tuple[Ints, Ints]:
    """Cut large batches into parts whose sizes differ by at most one row."""
    parts = -(-rows // rows_max)
    batch = np.repeat(np.arange(rows.size), parts)
    place = np.arange(batch.size) - (np.cumsum(parts) - parts)[batch]
    sizes = (rows // np.maximum(parts, 1))[batch] + (place < (rows % np.maximum(parts, 1))[batch])
    return at_ns[batch], sizes


def _ns(times_s: Sequence[float]) -> Floats:
    return np.asarray(times_s) * SECOND
