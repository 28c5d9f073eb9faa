"""Hears of a finished batch inside `foreachBatch`, where no listener tells the counts."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql import Observation

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
        observed: Sequence[Observation],
        *,
        committed_at_s: Callable[[], float | None],
        report: Callable[[dict[str, Any], float], None],
    ) -> None:
        """Watch a batch; `committed_at_s` says when it was committed, None before."""
        super().__init__(daemon=True, name="spillway-batch-watch")
        self._observed = observed
        self._committed_at_s = committed_at_s
        self._report = report
        self._last_look = threading.Event()

    def run(self) -> None:
        """Poll until both are there or the last look has been taken.

        The commit first: a look at a file does not disturb the running batch, a call to Spark does.
        """
        ended_at_s = self._wait(self._committed_at_s)
        metrics = self._wait(lambda: metrics_of(self._observed)) if ended_at_s else None
        if metrics and ended_at_s:
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


def metrics_of(observed: Sequence[Observation]) -> dict[str, Any] | None:
    """Return all metrics of the first action, None before its end. Does not block."""
    metrics: dict[str, Any] = {}
    for each in observed:
        inner = getattr(each, "_jo", None)  # classic Spark: `get` would block
        if inner is not None and not inner.future().isCompleted():
            return None
        found = dict(each.get)
        if not found:
            return None
        metrics |= found
    return metrics


@dataclass(frozen=True, slots=True)
class GuardedBatch:
    """A batch inside `foreachBatch`: which one, of which run, and how its rows are counted."""

    batch_id: int
    run_id: str
    checkpoint: Path | None
    strata: tuple[str, ...]
    observed: tuple[Observation, ...]

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

    def report(metrics: dict[str, Any], ended_at_s: float) -> None:
        timing = batch.timing(watched_at_s, ended_at_s)
        recorder.record(
            observation(metrics, timing, batch.strata),
            query_id=offsets.query_id(batch.checkpoint),
            run_id=batch.run_id,
            offsets=batch.offsets(),
            started_at_s=timing.started_at_s,
        )

    watch = BatchWatch(batch.observed, committed_at_s=batch.committed_at_s, report=report)
    watch.start()
    return watch
