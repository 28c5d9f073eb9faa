"""What runs inside tasks: it notes which rows passed the gate, and fails or dies by script."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from faults import points
from faults.policies import Wobble
from spillway.values import Budget, ControllerState, Forecast, Observation

if TYPE_CHECKING:
    import pyarrow as pa


class ArmedWobble(Wobble):
    """The unforeseeable policy, which arms the process that it decides in."""

    def budget(
        self, state: ControllerState, seen: Observation | None, ahead: Forecast | None
    ) -> Budget:
        """Allow any share, unless the script says otherwise."""
        points.arm()
        if points.worker_strikes("before the pin", points._attempt(), _batch()):
            raise ZeroDivisionError("the policy fails by script")
        return super().budget(state, seen, ahead)


def pass_through(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Hand all rows on; fail or die after the first batch, or after the last."""
    from pyspark import TaskContext

    task = TaskContext.get()
    which = (_batch(), task.partitionId(), task.attemptNumber())
    ids: list[int] = []
    weights: set[float] = set()
    for number, batch in enumerate(batches):
        ids += batch.column("id").to_pylist()
        weights |= set(batch.column("_weight").to_pylist())
        yield batch
        if number == 0:
            points.worker_strikes("in mid-task", *which)
    current = points.script()
    if current is not None and weights != {1.0}:  # an open gate keeps all, which is no decision
        line = json.dumps({"batch": which[0], "ids": ids}).encode() + b"\n"
        points.append(Path(current.folder) / "tasks.log", line)
    if points.worker_strikes("at the end of a task", *which):
        raise RuntimeError("the task fails by script")


def _batch() -> int:
    from pyspark import TaskContext

    task = TaskContext.get()
    return int((task.getLocalProperty("streaming.sql.batchId") if task else None) or -1)
