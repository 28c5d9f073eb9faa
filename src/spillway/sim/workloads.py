"""Streams of rows on virtual time: keys, what each row costs, when each arrives. Whole ns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

MS = 1_000_000  # ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """Rows in order of arrival."""

    keys: Ints
    costs_ns: Ints
    arrivals_ns: Ints

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return self.keys.size

    @property
    def cost_ns_mean(self) -> float:
        """Mean cost of a row."""
        return float(self.costs_ns.mean())

    def arriving_every(self, gap_ns: float) -> Stream:
        """Return the same rows, one every `gap_ns` from time 0 on."""
        arrivals = np.floor(np.arange(self.rows) * gap_ns).astype(np.int64)
        return replace(self, arrivals_ns=arrivals)

    def under_provisioned(self, share: float, *, instances: int = 1) -> Stream:
        """Let rows come so fast that `share` of their work is too much; below 0 there is room.

        LAS's under-provisioning of 25 % is share 0.25: the operator can do three quarters.
        """
        if not share < 1:
            raise ValueError(f"share must be below 1, got {share}")
        return self.arriving_every(self.cost_ns_mean * (1.0 - share) / instances)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How LAS and POSG make their streams (both papers, section V-A).

    `cost_values` durations at equal distances in [cost_ns_min, cost_ns_max], each given to as many
    of the `keys` as any other; keys drawn independently, key 0 the most frequent.
    """

    rows: int = 32_768
    keys: int = 4_096
    zipf: float = 1.0  # 0 is uniform
    cost_values: int = 64
    cost_ns_min: int = MS // 10
    cost_ns_max: int = 64 * MS // 10

    def __post_init__(self) -> None:
        """Reject recipes that make no stream."""
        if self.rows < 1 or self.keys < 1 or self.cost_values < 1:
            raise ValueError(
                f"rows, keys and cost_values must be >= 1, "
                f"got {self.rows}, {self.keys} and {self.cost_values}"
            )
        if not 0 <= self.zipf < 100:
            raise ValueError(f"zipf must be in [0, 100), got {self.zipf}")
        if not 0 < self.cost_ns_min <= self.cost_ns_max:
            raise ValueError(
                f"costs must be positive and in order, got {self.cost_ns_min}..{self.cost_ns_max}"
            )

    def cost_by_key(self, association: int) -> Ints:
        """Return the cost of every key; another association gives the costs to other keys."""
        values = np.linspace(self.cost_ns_min, self.cost_ns_max, self.cost_values)
        dealt = np.resize(np.rint(values).astype(np.int64), self.keys)
        return np.random.default_rng((1, association)).permutation(dealt)

    def draw_keys(self, order: int) -> Ints:
        """Draw the keys of all rows."""
        uniform = np.random.default_rng((2, order)).random(self.rows)
        return np.searchsorted(_cdf(self.keys, self.zipf), uniform, side="right").astype(np.int64)

    def stream(self, association: int, order: int) -> Stream:
        """Make a stream whose rows all arrive at time 0; see `Stream.under_provisioned`."""
        keys = self.draw_keys(order)
        costs = self.cost_by_key(association)[keys]
        return Stream(keys=keys, costs_ns=costs, arrivals_ns=np.zeros(self.rows, dtype=np.int64))


@lru_cache(maxsize=16)
def _cdf(keys: int, zipf: float) -> Floats:
    weights = np.arange(1, keys + 1, dtype=np.float64) ** -zipf
    total = np.cumsum(weights)
    total /= total[-1]
    total[-1] = 1.0
    return total
