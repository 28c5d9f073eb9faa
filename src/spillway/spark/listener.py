"""Hears of finished batches of a streaming plan through Spark's query listener."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

from pyspark.sql.streaming import StreamingQueryListener

from spillway.spark.observe import observation, progress_offsets, progress_timing

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

    from spillway.spark.recorder import Recorder

_log = logging.getLogger("spillway")


class GateListener(StreamingQueryListener):
    """Records every batch that carries the guard's metrics; other queries' events pass by."""

    def __init__(self, *, metric: str, strata: tuple[str, ...], recorder: Recorder) -> None:
        """Listen for batches that were observed under the name `metric`."""
        self._metric = metric
        self._strata = strata
        self._recorder = recorder

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Do nothing."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Record the batch. An error here must not reach Spark's listener bus."""
        try:
            metrics = event.progress.observedMetrics.get(self._metric)
            if metrics is not None:
                self._record(event, metrics.asDict())
        except Exception:
            self._recorder.faults += 1
            _log.exception("a batch could not be recorded")

    def _record(self, event: QueryProgressEvent, metrics: dict[str, object]) -> None:
        progress = event.progress
        report = json.loads(progress.json)
        timing = progress_timing(report)
        self._recorder.record(
            observation(metrics, timing, self._strata),
            query_id=str(progress.id),
            run_id=str(progress.runId),
            offsets=progress_offsets(report),
            started_at_s=timing.started_at_s,
        )
