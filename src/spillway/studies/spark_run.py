"""Runs a stream through one policy on a real Spark, and says what became of every row.

Rows come from a file, each at its time; the operator works for as long as the row says and notes
when it began and ended, so that nothing of what is measured passes through what is tested.
"""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from spillway.sim.workloads import Stream
from spillway.spark.session import local_session
from spillway.studies.run import CACHE
from spillway.studies.spark_source import open_trace, write_trace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

OUT = "id bigint, started_us bigint, ended_us bigint"
_PRELUDE_S = 4.0  # time to learn, before what is measured
_COLD_TIMES = 6  # how often the warm-up is played in a new process: Java compiles what is hot
_POLL_S = 0.2
_STALL_S = 120.0
_SINK = "spillway_study"
# Hadoop starts a process for every file of a checkpoint, to set its mode, and writes checksums: a
# tenth of a second in every batch that has nothing to do with what is studied.
PLAIN_FILES = {
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
}

# A policy: the rows of a stream and a folder of its own in, the operator's rows (`OUT`) out.
Policy = Callable[["DataFrame", Path], "DataFrame"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What became of every row: seconds since the replay began, NaN for a row that was dropped.

    `batch_rows` is the first row after each batch, `batch_s` how long the batch took.
    """

    arrived_s: Floats
    started_s: Floats
    ended_s: Floats
    batch_rows: Ints
    batch_s: Floats

    def numbers(self, first: int = 0) -> dict[str, list[float]]:
        """Return what a study keeps of it, from a row on."""
        late = self.batch_rows > first
        return {
            "waited_s": (self.started_s - self.arrived_s)[first:].tolist(),
            "completed_s": (self.ended_s - self.arrived_s)[first:].tolist(),
            "batch_rows": (self.batch_rows[late] - first).tolist(),
            "batch_s": self.batch_s[late].tolist(),
        }


def with_prelude(stream: Stream, *, gap_ns: float) -> tuple[Stream, int]:
    """Put seconds of slower rows, the first ones again, before a stream; say where that begins."""
    first = round(_PRELUDE_S * 1e9 / gap_ns)
    before = np.arange(first) % stream.rows
    slow_ns = (np.arange(1, first + 1) * gap_ns).astype(np.int64)
    whole = Stream(
        keys=np.concatenate([stream.keys[before], stream.keys]),
        costs_ns=np.concatenate([stream.costs_ns[before], stream.costs_ns]),
        arrivals_ns=np.concatenate([slow_ns, stream.arrivals_ns + round((first + 1) * gap_ns)]),
    )
    return whole, first


def play(
    stream: Stream,
    policy: Policy,
    *,
    cores: int,
    admitted: Bools | None = None,
    warm_rows: int = 0,
    warm_alike: bool = False,
    config: Mapping[str, str] = MappingProxyType({}),
) -> Played:
    """Play a stream through a policy, after its first `warm_rows` rows in queries of their own.

    The first batches compile code and start workers: that is not what is studied. `warm_alike`
    warms every policy up as a new process, also one whose rivals have played before.
    """
    passed = np.ones(stream.rows, dtype=np.bool_) if admitted is None else admitted
    with _folder() as folder, interruptible():
        times = 1 if _spark is not None and not warm_alike else _COLD_TIMES
        spark = _session(cores, config)
        start = Stream(
            keys=stream.keys[:warm_rows],
            costs_ns=stream.costs_ns[:warm_rows],
            arrivals_ns=stream.arrivals_ns[:warm_rows],
        )
        for turn in range(times if warm_rows else 0):
            replay(spark, start, passed[:warm_rows], policy, folder / f"warm-{turn}")
        return replay(spark, stream, passed, policy, folder / "run")


def replay(
    spark: SparkSession, stream: Stream, admitted: Bools, policy: Policy, folder: Path
) -> Played:
    """Play a stream once through a policy, in a folder that does not exist yet."""
    folder.mkdir()
    write_trace(folder / "trace.npz", stream, admitted)
    rows = policy(open_trace(spark, folder / "trace.npz"), folder)
    query = (
        rows.writeStream.format("memory")
        .queryName(_SINK)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )
    try:
        _wait(query, stream)
        reports = [json.loads(report.json) for report in query.recentProgress]
    finally:
        query.stop()
    done = spark.table(_SINK).toPandas()
    return _played(stream, done, [report for report in reports if report["numInputRows"]])


def _wait(query: StreamingQuery, stream: Stream) -> None:
    """Wait until the batch of the last row has ended; a query that fails or stalls raises."""
    deadline = time.monotonic() + _STALL_S + 4 * float(stream.arrivals_ns[-1]) / 1e9
    pause = threading.Event()
    while _rows_read(query) < stream.rows:
        error = query.exception()
        if error is not None:
            raise failure(error)
        if time.monotonic() > deadline:
            raise RuntimeError(f"the query read {_rows_read(query)} of {stream.rows} rows only")
        pause.wait(_POLL_S)


def failure(error: BaseException) -> RuntimeError:
    """Return an error that tells, in a line each, why a query failed, down to the last cause.

    >>> str(failure(ValueError("a row too many")))
    'the query failed: a row too many'
    """
    told: list[str] = []
    cause: BaseException | None = error
    while cause is not None:
        told.append(str(cause).partition("\n")[0] or type(cause).__name__)
        cause = getattr(cause, "_cause", None)  # Spark's own errors, which leave `__cause__` empty
    return RuntimeError(f"the query failed: {' <- '.join(told)}")


def _rows_read(query: StreamingQuery) -> int:
    report = query.lastProgress
    return _end(json.loads(report.json))["row"] if report is not None else 0


def _end(report: dict[str, Any]) -> dict[str, int]:
    offset = report["sources"][0]["endOffset"]
    found: dict[str, int] | None = json.loads(offset) if isinstance(offset, str) else offset
    return found or {"row": 0, "epoch_us": 0}


def _played(stream: Stream, done: Any, reports: list[dict[str, Any]]) -> Played:
    epoch_us = _end(reports[-1])["epoch_us"]
    started, ended = (np.full(stream.rows, np.nan) for _ in range(2))
    started[done["id"]] = (done["started_us"] - epoch_us) / 1e6
    ended[done["id"]] = (done["ended_us"] - epoch_us) / 1e6
    return Played(
        arrived_s=stream.arrivals_ns / 1e9,
        started_s=started,
        ended_s=ended,
        batch_rows=np.array([_end(report)["row"] for report in reports]),
        batch_s=np.array([report["batchDuration"] / 1e3 for report in reports]),
    )


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C be what it is: Spark's own calls end in another error if it strikes them."""
    try:
        yield
    except Exception as error:
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, KeyboardInterrupt):
                raise KeyboardInterrupt from error
            cause = cause.__context__
        raise


_spark: tuple[int, SparkSession] | None = None


def _session(cores: int, config: Mapping[str, str] = MappingProxyType({})) -> SparkSession:
    """Return a session with so many cores; Spark's own log stands beside the study's results.

    One study has one `config`: a session that runs is taken for what it is.
    """
    global _spark
    if _spark is not None and _spark[0] == cores:
        return _spark[1]
    log = None if _spark is not None else CACHE / "spark.log"
    close()
    CACHE.mkdir(exist_ok=True)
    own = {"spark.sql.streaming.numRecentProgressUpdates": "10000", **config}
    _spark = cores, local_session("spillway study", cores=cores, config=own, log=log)
    return _spark[1]


@atexit.register
def close() -> None:
    """Stop Spark if it runs."""
    global _spark
    if _spark is not None:
        _spark[1].stop()
        _spark = None


@contextmanager
def _folder() -> Iterator[Path]:
    """A folder that is gone afterwards, whatever a stopped query still writes."""
    folder = Path(tempfile.mkdtemp(prefix="spillway-study-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
