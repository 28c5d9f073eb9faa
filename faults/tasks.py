"""What runs inside tasks: a source and an operator that fail or die by script."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from faults import points
from faults.policies import Wobble
from spillway.spark.burst_source import BurstReader, BurstSource, RowRange, parse_options
from spillway.values import Budget, ControllerState, Forecast, Observation

if TYPE_CHECKING:
    import pyarrow as pa


_STRAGGLES_S = 5.0


class FlakySource(BurstSource):
    """The burst source, whose partitions fail now and then."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "flaky-burst"

    def streamReader(self, schema: StructType) -> BurstReader:  # noqa: N802  Spark's name
        """Return a reader that fails by script."""
        return FlakyReader(parse_options(self.options))


class FlakyReader(BurstReader):
    """Fails after it has handed out all rows of a partition."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Hand out the rows; then it turns out that it was in vain, perhaps."""
        assert isinstance(partition, RowRange)
        yield from super().read(partition)
        if points.worker_strikes("in the source", partition.first, points._attempt()):
            raise RuntimeError("the source fails by script")


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
    if current is not None and current.happens("straggler", *which):
        _straggle()
    if current is not None and weights != {1.0}:  # an open gate keeps all, which is no decision
        line = json.dumps({"batch": which[0], "ids": ids}).encode() + b"\n"
        points.append(Path(current.folder) / "tasks.log", line)
    if points.worker_strikes("at the end of a task", *which):
        raise RuntimeError("the task fails by script")


def _straggle() -> None:
    """Take so long that Spark starts the task a second time; whoever is first counts."""
    points.note("straggler", "began")
    time.sleep(_STRAGGLES_S)
    points.note("straggler", "was not overtaken")


def _batch() -> int:
    from pyspark import TaskContext

    task = TaskContext.get()
    return int((task.getLocalProperty("streaming.sql.batchId") if task else None) or -1)
