"""Telemetry on against off: throughput of a guarded query with notes, a hook and a live page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from statistics import mean

from pyspark.sql import DataFrame

import spillway as sw
from benchmarks.measure import Bound, Figure, interleaved, ratios
from benchmarks.overhead import kafka_rows, parsed_and_aggregated
from benchmarks.stage import Stage, guarded, wait_for_batch
from spillway.note_values import Note
from spillway.spark import recorder
from spillway.state.ledger import Entry
from spillway.telemetry.events import Event

BATCHES = 12
BOUND = Bound(bound=0.99, at_least=True)
_ROWS, _ROWS_QUICK = 300_000, 50_000


def run(stage: Stage) -> list[Figure]:
    """Compare rows a second of whole streams: bare, and noted, with a hook and a page open."""
    ways = {
        "off": lambda: _rows_per_s(stage, told=False),
        "on": lambda: _rows_per_s(stage, told=True),
    }
    taken = interleaved(ways, repetitions=stage.size(10, 3), tick=stage.tick)
    rows = stage.size(_ROWS, _ROWS_QUICK)
    figure = Figure(
        benchmark="telemetry",
        what=f"telemetry: notes, a hook and a page, batches of {rows:,} rows",
        rival="no telemetry",
        unit="× throughput",
        values=ratios(taken["on"], taken["off"]),
        bound=BOUND,
    )
    return [figure]


def _rows_per_s(stage: Stage, *, told: bool) -> float:
    """Return the throughput of some batches, the first two left out."""
    checkpoint, rows = stage.new_folder(), stage.size(_ROWS, _ROWS_QUICK)
    with _notes(told), guarded(stage, checkpoint, control=sw.FixedRate(0.5)) as guard:
        page = guard.dashboard() if told else None
        heard: list[Event] = []
        if told:
            guard.on_event(heard.append)
        stream = guard.protect(kafka_rows(stage.spark, rows, 10))
        query = _started(stream, str(checkpoint))
        try:
            wait_for_batch(query, BATCHES)
            progress = [p for p in query.recentProgress if 2 <= p["batchId"] <= BATCHES]
        finally:
            query.stop()
            if page is not None:
                page.stop()
    return rows / (mean(p["durationMs"]["triggerExecution"] for p in progress) / 1e3)


def _started(stream: DataFrame, checkpoint: str):  # type: ignore[no-untyped-def]
    writer = parsed_and_aggregated(stream).writeStream.format("noop").outputMode("complete")
    return writer.option("checkpointLocation", checkpoint).start()


@contextmanager
def _notes(wanted: bool) -> Iterator[None]:
    """Take the notes away for a while: the books as they were before telemetry."""
    kept = recorder.Recorder._noted
    if not wanted:
        recorder.Recorder._noted = lambda _, entry, seen: _bare(entry)  # type: ignore[method-assign]
    try:
        yield
    finally:
        recorder.Recorder._noted = kept  # type: ignore[method-assign]


def _bare(entry: Entry) -> Entry:
    assert entry.note == Note()
    return entry
