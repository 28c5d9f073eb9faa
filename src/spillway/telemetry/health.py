"""How well the cost model foresees: pure functions of its state and of a batch."""

from __future__ import annotations

import math

from spillway.contracts import KeyedCostModel
from spillway.cost.by_key import read_costs
from spillway.loop import Loop
from spillway.note_values import CostHealth
from spillway.values import LoopState, Observation


def health(
    loop: Loop, state: LoopState, seen: Observation
) -> tuple[float | None, CostHealth | None]:
    """Return the time that a batch took for its rows, and how far the model was off.

    By the state from before the batch, so that it foresees and does not remember.
    """
    done = loop.degrade.done(state.work, seen) if loop.degrade else 1.0
    foreseen = loop.cost.forecast(state.cost, seen.rows_kept * done)
    if foreseen is None:
        return (seen.work_span_s if seen.tasks else None), None
    spent_s = seen.work_span_s if seen.tasks else max(seen.duration_s - foreseen.fixed_s, 0.0)
    keys, rows = _known(loop, state)
    return spent_s, CostHealth(error=_error(foreseen.duration_s, seen), keys=keys, rows=rows)


def _error(foreseen_s: float, seen: Observation) -> float | None:
    """Compare whole batches: what a batch takes beside its rows is foreseen too."""
    if not seen.rows_kept or not 0 < seen.duration_s < math.inf:
        return None
    return abs(foreseen_s - seen.duration_s) / seen.duration_s


def _known(loop: Loop, state: LoopState) -> tuple[int, int]:
    """Return how many keys are counted exactly, and of how many rows the model knows."""
    if not isinstance(loop.cost, KeyedCostModel) or not state.cost.costs:
        return 0, sum(int(rows) for rows, _ in state.cost.samples)
    sketch = read_costs(state.cost.costs)
    return (int(sketch.heavy_keys.size), sketch.rows_seen) if sketch else (0, 0)
