"""Telemetry on against off: throughput of a guarded query with notes, a hook and a page looked at.

One stream, in which telemetry is switched on and off every few batches: streams differ from each
other by more than telemetry costs.
"""

from __future__ import annotations

import secrets
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import mean
from urllib.parse import urljoin

from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

import spillway as sw
from benchmarks.measure import Bound, Figure, ratios
from benchmarks.overhead import kafka_rows, parsed_and_aggregated
from benchmarks.stage import Stage, guarded, wait_for_batch
from spillway.note_values import Note
from spillway.spark import recorder
from spillway.state.ledger import Entry
from spillway.telemetry.events import Event

BOUND = Bound(bound=0.99, at_least=True)
_WARM_UP, _BLOCK, _SKIPPED = 20, 6, 2  # batches; a block begins with some that meet the switch
_PAIRS, _PAIRS_QUICK = 40, 3
_ROWS, _ROWS_QUICK = 300_000, 50_000


def run(stage: Stage) -> list[Figure]:
    """Compare rows a second of a stream: bare, and noted, with a hook and a page looked at."""
    rows = stage.size(_ROWS, _ROWS_QUICK)
    taken_s = _blocks(stage, rows)
    figure = Figure(
        benchmark="telemetry",
        what=f"telemetry: notes, a hook and a page, batches of {rows:,} rows",
        rival="no telemetry",
        unit="× throughput",
        values=ratios(taken_s[False], taken_s[True]),
        bound=BOUND,
    )
    return [figure]


def _blocks(stage: Stage, rows: int) -> dict[bool, list[float]]:
    """Return the mean duration of a batch by block, without and with telemetry, in pairs."""
    checkpoint = stage.new_folder()
    taken: dict[bool, list[float]] = {False: [], True: []}
    with guarded(stage, checkpoint, control=sw.FixedRate(0.5)) as guard:
        query = _started(guard.protect(kafka_rows(stage.spark, rows, 10)), str(checkpoint))
        try:
            wait_for_batch(query, stage.size(_WARM_UP, 2))
            for pair in range(stage.size(_PAIRS, _PAIRS_QUICK)):
                for told in (True, False) if pair % 2 else (False, True):
                    stage.tick("on" if told else "off")
                    taken[told].append(_block_s(guard, query, told=told))
        finally:
            query.stop()
    return taken


def _block_s(guard: sw.Guard, query: StreamingQuery, *, told: bool) -> float:
    """Let a block of batches run; return the mean duration of those that did not see the switch."""
    with _telemetry(guard) if told else _no_notes():
        begun: int = query.lastProgress["batchId"]  # type: ignore[index]
        first, last = begun + 1 + _SKIPPED, begun + _SKIPPED + _BLOCK
        wait_for_batch(query, last)
    chosen = [each for each in query.recentProgress if first <= each["batchId"] <= last]
    return mean(each["durationMs"]["triggerExecution"] for each in chosen)


def _started(stream: DataFrame, checkpoint: str) -> StreamingQuery:
    writer = parsed_and_aggregated(stream).writeStream.format("noop").outputMode("complete")
    return writer.option("checkpointLocation", checkpoint).start()


@contextmanager
def _telemetry(guard: sw.Guard) -> Iterator[None]:
    """Serve the page, look at it, and hear every event."""
    heard: list[Event] = []
    token = secrets.token_urlsafe(24)
    page, silence = guard.dashboard(token=token), guard.on_event(heard.append)
    viewer = threading.Thread(target=_look_at, args=(page.url, token), daemon=True)
    viewer.start()
    try:
        yield
    finally:
        silence()
        page.stop()
        viewer.join()
    if not heard:
        raise RuntimeError("no event was heard: telemetry was not on")


def _look_at(url: str, token: str) -> None:
    """Read the live events of a page until it ends, as a browser does."""
    address = urljoin(url, "/api/events")
    asked = urllib.request.Request(address, headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(asked, timeout=60) as stream:
        for _ in stream:
            pass


@contextmanager
def _no_notes() -> Iterator[None]:
    """Take the notes away for a while: the books as they were before telemetry."""
    kept = recorder.Recorder._noted
    recorder.Recorder._noted = lambda _, entry, seen: _bare(entry)  # type: ignore[method-assign]
    try:
        yield
    finally:
        recorder.Recorder._noted = kept  # type: ignore[method-assign]


def _bare(entry: Entry) -> Entry:
    assert entry.note == Note()
    return entry
