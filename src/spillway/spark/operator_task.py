"""What every task of an operator keeps count of, and what it is told about its columns."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spillway.spark.columns import PREFIX, WEIGHT
from spillway.spark.operator_results import Results
from spillway.spark.task_report import encode
from spillway.spark.worker_memory import spare_modules
from spillway.state.memory import Memory
from spillway.values import TaskReport
from spillway.work_values import WorkDone

if TYPE_CHECKING:
    from spillway.cost.heavy import HeavySketch

Ints = NDArray[np.int64]

ITEM, ARRIVED = PREFIX + "item", PREFIX + "arrived_us"
_US_MAX = (1 << 62) // 1000
NEVER_NS = 1 << 62  # the arrival of a row that has none: it waits 0 and is never refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Which columns an operator sees, what it returns, and what stands beside them in a batch."""

    columns: tuple[str, ...]
    results: Results
    keyed: bool = False
    arrived: bool = False

    def seen(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the user's columns."""
        return batch.select(list(self.columns))

    def items(self, batch: pa.RecordBatch) -> Ints | None:
        """Return the items of the key; None without one."""
        return batch.column(ITEM).to_numpy(zero_copy_only=False) if self.keyed else None

    def arrivals_ns(self, batch: pa.RecordBatch) -> Ints | None:
        """Return when rows arrived, in ns since 1970; None where no column was named."""
        if not self.arrived:
            return None
        arrived_us = batch.column(ARRIVED)
        at_ns: Ints = np.clip(arrived_us.fill_null(0).to_numpy(), -_US_MAX, _US_MAX) * 1000
        if arrived_us.null_count:
            at_ns[arrived_us.is_null().to_numpy(zero_copy_only=False)] = NEVER_NS
        return at_ns

    def weights(self, batch: pa.RecordBatch) -> pa.Array | None:
        """Return the weights that are carried along; None if none are."""
        return batch.column(WEIGHT) if self.results.weighted else None


class Tally:
    """Adds up what a task did."""

    def __init__(self, *, keyed: bool) -> None:
        """Start with nothing done."""
        self._keyed = keyed
        self._rows_in, self._refused, self._busy_ns = 0, 0, 0
        self._waited_ns, self._waited_ns_max = 0, 0
        self._begun_at_ns = 0
        self._costs: HeavySketch | None = None

    def begin(self) -> None:
        """Note when the first rows came."""
        self._begun_at_ns = self._begun_at_ns or time.time_ns()

    def came(self, rows: int, *, refused: int = 0) -> None:
        """Count rows that came in, and those of them that were refused."""
        self._rows_in += rows
        self._refused += refused

    def worked(self, costs_ns: Ints, items: Ints | None) -> None:
        """Count what rows took."""
        self._busy_ns += int(costs_ns.sum())
        if items is not None and items.size:
            self._sketch().update(items, costs_ns)

    def waited(self, starts_ns: Ints | int, arrivals_ns: Ints) -> None:
        """Count how long rows waited from their arrival to their start."""
        waits = np.maximum(starts_ns - arrivals_ns, 0)
        self._waited_ns += int(waits.sum())
        self._waited_ns_max = max(self._waited_ns_max, int(waits.max(initial=0)))

    def report(self, work: WorkDone | None = None, *, windows: bool = False) -> bytes:
        """Return the report of the task as it travels.

        `work` is what its subtasks did; `windows` says that its rows are those of windows.
        """
        spare_modules()
        return encode(
            TaskReport(
                instance=_instance(),
                rows_in=self._rows_in,
                rows_refused=self._refused,
                busy_ns=self._busy_ns,
                latency_ns_sum=self._waited_ns,
                latency_ns_max=self._waited_ns_max,
                begun_at_ns=self._begun_at_ns,
                ended_at_ns=time.time_ns() if self._begun_at_ns else 0,
                costs=self._costs.to_bytes() if self._costs is not None else b"",
                work=work,
                windows=windows,
            )
        )

    def _sketch(self) -> HeavySketch:
        if self._costs is None:
            from spillway.cost.heavy import HeavySketch

            self._costs = HeavySketch()
        return self._costs


def known_costs(state: Path | None) -> HeavySketch:
    """Read what the driver knew last; an empty sketch if that is nothing or not readable."""
    from spillway.cost.by_key import read_costs
    from spillway.cost.heavy import HeavySketch

    try:
        costs = Memory(folder=state).load()[0].cost.costs if state is not None else b""
    except (OSError, ValueError):
        costs = b""
    return read_costs(costs) or HeavySketch()


def wall_offset_ns() -> int:
    """Return what to add to `perf_counter_ns` to know the time of day."""
    return time.time_ns() - time.perf_counter_ns()


def _instance() -> int:
    """Return the number of the task's partition; 0 outside of a task."""
    from pyspark import TaskContext

    context: Any = TaskContext.get()
    return int(context.partitionId()) if context is not None else 0
