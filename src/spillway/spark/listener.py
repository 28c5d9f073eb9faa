"""Hears of finished batches through Spark's query listener, at little cost.

PySpark turns every event into Python objects with hundreds of calls into the JVM, which takes long
enough for the next batch to be planned without it. The report comes as JSON text instead, in a few
calls, once for all guards of a session.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from pyspark.sql.streaming import StreamingQueryListener

from spillway.spark.metrics import merged
from spillway.spark.observe import observation, progress_offsets, progress_timing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

    from spillway.spark.recorder import Recorder

Report = dict[str, Any]
Subscriber = Callable[[Report], None]

_PIECE = 4000  # characters: Java sends longer answers in parts, and waits 40 ms before the second

_log = logging.getLogger("spillway")


def subscribe(spark: SparkSession, subscriber: Subscriber) -> Callable[[], None]:
    """Let a function hear of every finished batch of a session; return what ends that."""
    if spark not in _listeners:
        _listeners[spark] = ReportListener()
        spark.streams.addListener(_listeners[spark])
    listener = _listeners[spark]
    listener.subscribers.append(subscriber)

    def unsubscribe() -> None:
        if subscriber in listener.subscribers:
            listener.subscribers.remove(subscriber)

    return unsubscribe


class ReportListener(StreamingQueryListener):
    """Calls functions with the report of every finished batch of every query."""

    def __init__(self, *subscribers: Subscriber) -> None:
        """Listen; an error in a subscriber is logged and does not reach Spark or another one.

        They share a report, and leave it as it is.
        """
        self.subscribers = list(subscribers)

    def hear(self, text: str) -> None:
        """Take one report as JSON, which is read once for all."""
        try:
            report = json.loads(text)
        except ValueError:
            _log.exception("the report of a batch could not be read")
            return
        for subscriber in tuple(self.subscribers):
            try:
                subscriber(report)
            except Exception:
                _log.exception("the report of a batch could not be taken")

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Take the event of Spark Connect, which is JSON inside."""
        self.hear(event.progress.json)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Do nothing."""

    @property
    def _jlistener(self) -> Any:
        """Return what classic Spark calls: a listener that takes the JSON and nothing else."""
        from pyspark import SparkContext

        if not hasattr(self, "_jlistenerobj"):
            wrapper = SparkContext._jvm.PythonStreamingQueryListenerWrapper  # type: ignore[union-attr]
            self._jlistenerobj = wrapper(_JavaListener(self))
        return self._jlistenerobj


class _JavaListener:
    """The Java interface of a Python listener, as py4j wants it."""

    def __init__(self, listener: ReportListener) -> None:
        self._listener = listener

    def onQueryProgress(self, event: Any) -> None:
        self._listener.hear(_text(event.progress()))

    def onQueryStarted(self, event: Any) -> None:
        pass

    def onQueryIdle(self, event: Any) -> None:
        pass

    def onQueryTerminated(self, event: Any) -> None:
        pass

    class Java:
        """Says which Java interface this is."""

        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)


def _text(progress: Any) -> str:
    """Return a Java object's text, which for a report is JSON, piece by piece."""
    from pyspark import SparkContext

    text = SparkContext._jvm.java.lang.StringBuilder().append(progress)  # type: ignore[union-attr]
    length = text.length()
    ends = range(_PIECE, length + _PIECE, _PIECE)
    return "".join(text.substring(end - _PIECE, min(end, length)) for end in ends)


class GuardListener:
    """Records every batch that carries the guard's metrics; other queries' reports pass by."""

    def __init__(self, *, gate: str, strata: tuple[str, ...], recorder: Recorder) -> None:
        """Listen for batches that a gate counted under this name, or one of the `operators`."""
        self.query_id = ""  # of the last batch heard
        self.operators: list[str] = []
        self._gate = gate
        self._strata = strata
        self._recorder = recorder

    def take(self, report: Report) -> None:
        """Record a batch."""
        observed = report.get("observedMetrics", {})
        own = [observed[name] for name in (self._gate, *self.operators) if name in observed]
        if not own:
            return
        self.query_id = report["id"]
        self._check_one_gate(observed)
        timing = progress_timing(report)
        self._recorder.record(
            observation(merged(own), timing, self._strata),
            query_id=report["id"],
            run_id=report["runId"],
            offsets=progress_offsets(report),
            started_at_s=timing.started_at_s,
        )

    def _check_one_gate(self, observed: Report) -> None:
        guard = self._gate.rpartition("#")[0] + "#"
        if sum(name.startswith(guard) for name in observed) > 1:
            self._recorder.complain("a guard stands twice in one query: only the last is booked")


_listeners: WeakKeyDictionary[SparkSession, ReportListener] = WeakKeyDictionary()
