"""Rows with groups: what a concept-driven gate looks up and observes, on virtual time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spillway.concept_values import GroupsSeen
from spillway.contracts import ConceptShedder
from spillway.cost.items import items_of
from spillway.kernels import count_min
from spillway.shedders.keep_table import KeepLookup
from spillway.values import Plan

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Columns = Mapping[str, Ints | Floats]

_SAMPLE_ROWS = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouped:
    """The groups of a batch's rows, as items; values and event times where they matter."""

    items: Ints
    values: Floats | None = None
    times_s: Floats | None = None

    @classmethod
    def of(cls, columns: Columns, shedder: ConceptShedder) -> Grouped:
        """Read the columns; the simulator groups by one, and values are columns too."""
        if len(shedder.columns) > 1:
            raise ValueError(f"by must be one column on virtual time, got {shedder.columns}")
        return cls(
            items=items_of(_column(columns, shedder.columns[0], "by").astype(np.int64)),
            values=_floats(columns, shedder.value, "value"),
            times_s=_floats(columns, shedder.time, "time"),
        )

    def rates(self, plan: Plan) -> Floats:
        """Return the keep rate that the gate finds for every row."""
        return KeepLookup.of(plan).rates(self.items)

    def seen(self, uniforms: Floats) -> GroupsSeen:
        """Return what the gate observes: all rows counted, those of the least numbers as sample."""
        first = np.argsort(uniforms, kind="stable")[:_SAMPLE_ROWS]
        items = self.items[first].astype(np.float64).tolist()
        values, times_s = _picked(self.values, first), _picked(self.times_s, first)
        sample = zip(items, values, times_s, strict=True)
        frequencies = count_min.write(count_min.count(self.items))
        return GroupsSeen(frequencies=frequencies, sample=tuple(sample))


def _picked(values: Floats | None, which: Ints) -> list[float | None]:
    """Return some values; None where there is no usable one."""
    if values is None:
        return [None] * which.size
    return [value if np.isfinite(value) else None for value in values[which].tolist()]


def _floats(columns: Columns, name: str | None, argument: str) -> Floats | None:
    return None if name is None else _column(columns, name, argument).astype(np.float64)


def _column(columns: Columns, name: str, argument: str) -> NDArray[np.generic]:
    if name not in columns:
        known = ", ".join(columns) or "none: the workload has no content"
        raise ValueError(f"{argument} must be a column ({known}), got {name!r}")
    return columns[name]
