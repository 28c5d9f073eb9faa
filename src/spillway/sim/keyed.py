"""Rows with keys of unequal cost: the operator's reports, and the gate's lookup on virtual time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spillway.contracts import KeyedShedder
from spillway.cost.heavy import HeavySketch
from spillway.cost.items import items_of
from spillway.cost.table import UNIT_NS, CostLookup, usual
from spillway.values import Plan, TaskReport

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

_SAMPLE_ROWS = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Keyed:
    """The keys of a batch's rows, as items, and what the rows are worth to a load-aware shedder."""

    items: Ints
    worths: Floats

    @classmethod
    def of(cls, columns: Mapping[str, Ints | Floats], key: str, utility: str | None) -> Keyed:
        """Read the columns; a utility is worth what it is where it is not negative."""
        items = items_of(_column(columns, key, "key").astype(np.int64))
        if utility is None:
            return cls(items=items, worths=np.ones(items.size))
        values = _column(columns, utility, "utility").astype(np.float64)
        return cls(items=items, worths=np.where(values >= 0, values, np.nan))

    def costs_ns(self, plan: Plan) -> Floats:
        """Return what the gate finds for every row."""
        lookup: CostLookup | None = usual(plan.costs)
        if lookup is None:
            return np.full(self.items.size, float(UNIT_NS))
        return lookup.estimate_ns(self.items)

    def scores(self, shedder: KeyedShedder, plan: Plan) -> Floats | None:
        """Return where the gate places every row."""
        if shedder.score is None:
            return None
        return shedder.scores(self.costs_ns(plan), self.worths)

    def sample(self, uniforms: Floats, usable: Bools) -> tuple[tuple[float, float], ...]:
        """Return items and worths of the usable rows with the least numbers, as the gate does."""
        first = np.argsort(np.where(usable, uniforms, np.inf), kind="stable")
        first = first[: min(_SAMPLE_ROWS, int(np.count_nonzero(usable)))]
        items = self.items[first].astype(np.float64).tolist()
        return tuple(zip(items, self.worths[first].tolist(), strict=True))


def reports(items: Ints, costs_s: Floats, tasks: int) -> tuple[TaskReport, ...]:
    """Return what the tasks of an operator report of the rows they took, dealt in turn."""
    costs_ns = np.rint(costs_s * 1e9).astype(np.int64)
    return tuple(_report(items[task::tasks], costs_ns[task::tasks], task) for task in range(tasks))


def _report(items: Ints, costs_ns: Ints, task: int) -> TaskReport:
    sketch = HeavySketch()
    sketch.update(items, costs_ns)
    return TaskReport(
        instance=task, rows_in=items.size, busy_ns=int(costs_ns.sum()), costs=sketch.to_bytes()
    )


def _column(columns: Mapping[str, Ints | Floats], name: str, argument: str) -> NDArray[np.generic]:
    if name not in columns:
        known = ", ".join(columns) or "none: the workload has no content"
        raise ValueError(f"the {argument} must be a column ({known}), got {name!r}")
    return columns[name]
