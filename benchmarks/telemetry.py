"""Telemetry on against off: throughput of a guarded query with notes, a hook and a page looked at.

One stream, in which telemetry is switched on and off every few batches: streams differ from each
other by more than telemetry costs. Batches do too, so that the throughput itself tells a per cent
only after hours. What telemetry does is done by the driver's Python: how much more time of a core
that takes for a batch is told within minutes. If nothing else could be done meanwhile, throughput
would fall by that share of a batch's duration, and by no more.
"""

from __future__ import annotations

import secrets
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import mean
from typing import NamedTuple
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
NOISY = Bound(bound=0.95, goal=0.99, at_least=True)  # a gross loss shows, a per cent does not
_WARM_UP, _BLOCK, _SKIPPED = 30, 12, 4  # batches; a block begins with some that meet the switch
_PAIRS, _PAIRS_QUICK = 16, 3
_ROWS, _ROWS_QUICK = 300_000, 50_000


class Block(NamedTuple):
    """What a batch took on average: its duration, and time of a core in the driver's Python."""

    duration_s: float
    python_s: float


def run(stage: Stage) -> list[Figure]:
    """Compare a stream that is bare with itself, noted, with a hook and a page looked at."""
    rows = stage.size(_ROWS, _ROWS_QUICK)
    off, on = _blocks(stage, rows)
    most = tuple(
        1.0 - (told.python_s - bare.python_s) / bare.duration_s
        for told, bare in zip(on, off, strict=True)
    )
    lasted = ([block.duration_s for block in blocks] for blocks in (off, on))
    what = f"telemetry: notes, a hook and a page, batches of {rows:,} rows"
    return [
        _figure(f"{what}: by the driver's time of a core, at least", most, BOUND),
        _figure(f"{what}: by the clock", ratios(*lasted), NOISY),
    ]


def _figure(what: str, values: tuple[float, ...], bound: Bound) -> Figure:
    return Figure(
        benchmark="telemetry",
        what=what,
        rival="no telemetry",
        unit="× throughput",
        values=values,
        bound=bound,
    )


def _blocks(stage: Stage, rows: int) -> tuple[list[Block], list[Block]]:
    """Return blocks of batches without and with telemetry, in pairs."""
    checkpoint = stage.new_folder()
    taken: dict[bool, list[Block]] = {False: [], True: []}
    with guarded(stage, checkpoint, control=sw.FixedRate(0.5)) as guard:
        query = _started(guard.protect(kafka_rows(stage.spark, rows, 10)), str(checkpoint))
        try:
            wait_for_batch(query, stage.size(_WARM_UP, 2))
            for pair in range(stage.size(_PAIRS, _PAIRS_QUICK)):
                for told in (True, False) if pair % 2 else (False, True):
                    stage.tick("on" if told else "off")
                    taken[told].append(_block(guard, query, told=told))
        finally:
            query.stop()
    return taken[False], taken[True]


def _block(guard: sw.Guard, query: StreamingQuery, *, told: bool) -> Block:
    """Let a block of batches run, and measure those that did not see the switch."""
    with _telemetry(guard) if told else _no_notes():
        wait_for_batch(query, _last(query) + _SKIPPED)
        first, python_s = _last(query), time.process_time()
        wait_for_batch(query, first + _BLOCK)
        last, python_s = _last(query), time.process_time() - python_s
    chosen = [each for each in query.recentProgress if first < each["batchId"] <= last]
    lasted_s = mean(each["durationMs"]["triggerExecution"] for each in chosen) / 1e3
    return Block(duration_s=lasted_s, python_s=python_s / (last - first))


def _last(query: StreamingQuery) -> int:
    progress = query.lastProgress
    assert progress is not None
    return int(progress["batchId"])


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
