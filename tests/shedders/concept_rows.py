"""Rows with groups for tests: what a gate would have observed of them, and what a plan keeps."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from spillway.concept_values import ConceptState, GroupsSeen
from spillway.cost.items import items_of
from spillway.kernels import count_min
from spillway.shedders.concept import ConceptDriven
from spillway.shedders.keep_table import KeepLookup
from spillway.values import Budget, Observation, Plan, StratumCount


@lru_cache(maxsize=64)
def zipf(
    groups: int, rows: int, *, exponent: float = 1.1, seed: int = 0, named: int = 0
) -> np.ndarray:
    """Draw the groups of rows by Zipf's law; `named` otherwise they are other groups."""
    cumulated = np.cumsum(np.arange(1.0, groups + 1.0) ** -exponent)
    drawn = np.random.default_rng(seed).random(rows) * cumulated[-1]
    keys = np.searchsorted(cumulated, drawn, side="right") + 1_000_003 * named
    keys.setflags(write=False)
    return keys


def seen_of(
    keys: np.ndarray,
    *,
    batch_id: int = 0,
    values: np.ndarray | None = None,
    times_s: Sequence[float | None] | np.ndarray | None = None,
    probe: float = 1.0,
    protected: int = 0,
    sample_rows: int = 512,
) -> Observation:
    """Return what a gate observes of a batch with these groups."""
    rng = np.random.default_rng((9, batch_id))
    items, probed = items_of(keys.astype(np.int64)), np.flatnonzero(rng.random(keys.size) < probe)
    picked = rng.permutation(probed)[:sample_rows].tolist()
    sample = tuple((float(items[i]), _at(values, i), _at(times_s, i)) for i in picked)
    counted = count_min.write(count_min.count(items[probed]))
    return Observation(
        batch_id=batch_id,
        rows_in=keys.size + protected,
        rows_kept=keys.size + protected,
        duration_s=1.0,
        groups=GroupsSeen(frequencies=counted, sample=sample),
        strata=(
            StratumCount(name="whole", rows_in=0, rows_kept=0),
            StratumCount(name="thinned", rows_in=keys.size, rows_kept=keys.size),
            StratumCount(name="protected", rows_in=protected, rows_kept=protected),
        ),
    )


def _at(values: Any, index: int) -> float | None:
    found = None if values is None else values[index]
    return None if found is None or not np.isfinite(found) else float(found)


def learnt(shedder: ConceptDriven, *batches: Observation) -> ConceptState:
    """Return the state after some batches."""
    state = ConceptState()
    for seen in batches:
        state = shedder.learn(state, seen)
    return state


def budget(share: float, state: ConceptState | None, *, keep_min: float = 0.001) -> Budget:
    return Budget(
        work_s_max=share, work_s_full=1.0, reason="overload", keep_min=keep_min, concept=state
    )


def rates(plan: Plan, keys: np.ndarray) -> np.ndarray:
    """Return the keep rate of every row, as the gate finds it."""
    return KeepLookup.of(plan).rates(items_of(keys.astype(np.int64)))
