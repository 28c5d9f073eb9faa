"""Hears of a finished batch inside `foreachBatch`, where no listener tells the counts."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pyspark.sql import Observation

from spillway.spark.metrics import Metrics, merged
from spillway.spark.observe import Timing, observation
from spillway.state import offsets

if TYPE_CHECKING:
    from spillway.spark.recorder import Recorder

_POLL_S = 0.01

T = TypeVar("T")


class BatchWatch(threading.Thread):
    """Waits for a guarded batch's commit and for the counts of its first action, then reports.

    A batch that is never acted upon or never committed is not reported: Spark will run it again.
    """

    def __init__(
        self,
        batch: GuardedBatch,
        *,
        report: Callable[[Metrics, float], None],
    ) -> None:
        """Watch a batch; what it is observed by may be added while it runs."""
        super().__init__(daemon=True, name="spillway-batch-watch")
        self.batch = batch
        self._report = report
        self._last_look = threading.Event()

    def run(self) -> None:
        """Poll until both are there or the last look has been taken.

        The commit first: a look at a file does not disturb the running batch, a call to Spark does.
        """
        ended_at_s = self._wait(self.batch.committed_at_s)
        if ended_at_s is None:
            return
        metrics = self._wait(lambda: metrics_of(self.batch.observed))
        metrics = metrics or merged(filter(None, map(_metrics_of, self.batch.observed)))
        if metrics:  # without those that no action ever used
            self._report(metrics, ended_at_s)

    def settle(self) -> None:
        """Take a last look and end the watch."""
        self._last_look.set()
        self.join()

    def _wait(self, look: Callable[[], T | None]) -> T | None:
        while (found := look()) is None:
            if self._last_look.wait(_POLL_S):
                return look()
        return found


def metrics_of(observed: Sequence[Observation]) -> Metrics | None:
    """Return all metrics of the first action, None before its end. Does not block."""
    found = [_metrics_of(each) for each in observed]
    return merged(found) if found and all(found) else None


def _metrics_of(observed: Observation) -> Metrics:
    inner = getattr(observed, "_jo", None)  # classic Spark: `get` would block
    if inner is not None and not inner.future().isCompleted():
        return {}
    return dict(observed.get)


@dataclass(frozen=True, slots=True)
class GuardedBatch:
    """A batch inside `foreachBatch`: which one, of which run, and how its rows are counted."""

    batch_id: int
    run_id: str
    checkpoint: Path | None
    strata: tuple[str, ...]
    observed: list[Observation]  # grows while the batch is described

    def committed_at_s(self) -> float | None:
        """Return the commit time; without a checkpoint the end of the first action must do."""
        if self.checkpoint is None:
            return time.time() if metrics_of(self.observed) else None
        return offsets.committed_at_s(self.checkpoint, self.batch_id)

    def timing(self, watched_at_s: float, ended_at_s: float) -> Timing:
        """Take start and offsets from Spark's offset log where it is known."""
        if self.checkpoint is None:
            return Timing(
                batch_id=self.batch_id,
                started_at_s=watched_at_s,
                duration_s=ended_at_s - watched_at_s,
            )
        started_at_s = offsets.started_at_s(self.checkpoint, self.batch_id) or watched_at_s
        return Timing(
            batch_id=self.batch_id,
            started_at_s=started_at_s,
            duration_s=max(ended_at_s - started_at_s, 0.0),
            offset_span=offsets.batch_span(self.checkpoint, self.batch_id),
        )

    def offsets(self) -> str:
        """Return the start and end offsets as JSON text, as the ledger wants them."""
        if self.checkpoint is None:
            return "[]"
        start = offsets.end_offsets(self.checkpoint, self.batch_id - 1)
        end = offsets.end_offsets(self.checkpoint, self.batch_id) or []
        return json.dumps([[s, e] for s, e in zip(start or [None] * len(end), end, strict=False)])


def watch_batch(batch: GuardedBatch, recorder: Recorder) -> BatchWatch:
    """Start a watch that records the batch when it is done."""
    watched_at_s = time.time()

    def report(metrics: Metrics, ended_at_s: float) -> None:
        timing = batch.timing(watched_at_s, ended_at_s)
        recorder.record(
            observation(metrics, timing, batch.strata),
            query_id=offsets.query_id(batch.checkpoint),
            run_id=batch.run_id,
            offsets=batch.offsets(),
            started_at_s=timing.started_at_s,
        )

    watch = BatchWatch(batch, report=report)
    watch.start()
    return watch
