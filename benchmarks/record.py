"""Real guarded streams on two local cores, whose books can be simulated again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import spillway as sw
from benchmarks.stage import raise_if_failed
from spillway.contracts import Shedder
from spillway.spark import burst_source
from spillway.state.ledger import Ledger
from spillway.workload.rate import parse_rate

if TYPE_CHECKING:
    import pyarrow as pa

_POLL_S, _STALL_S = 0.2, 120.0
WORK_US = "100..700"  # two cores can do about 5,000 rows a second


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A stream and the guard that protects it."""

    name: str
    rate: str
    duration_s: float
    average: str = "4 s"
    shed: Shedder | None = None
    seed: int = 1

    @property
    def rows(self) -> int:
        """All rows that come."""
        return parse_rate(self.rate, self.duration_s).rows_total

    def options(self) -> dict[str, str]:
        """Return the options of the burst source."""
        return {
            "rate": self.rate,
            "duration": f"{self.duration_s:g}",
            "work_us": WORK_US,
            "seed": str(self.seed),
            "partitions": "2",
        }


def record(spark: SparkSession, folder: Path, case: Case) -> Path:
    """Let the stream run to its end, in real time; return the guard's state folder."""
    burst_source.register(spark)
    stream = spark.readStream.format("spillway-burst").options(**case.options()).load()
    guard = sw.Guard(
        case.name,
        objective=sw.Latency(average=case.average),
        shed=case.shed,
        state=folder / "spillway",
    )
    query = _start(_worked(guard, stream, case), folder)
    try:
        _wait(query, guard.ledger(), case.rows)
    finally:
        query.stop()
        guard.live.leave(spark)
    return guard.state


def _worked(guard: sw.Guard, stream: DataFrame, case: Case) -> DataFrame:
    """Put an operator behind the gate that waits for a slow service; load-aware ones are told."""
    kept = guard.protect(stream, arrived="arrived", identity=["id"])
    if isinstance(case.shed, sw.LoadAware):
        return guard.map(kept, _ask, "id bigint", key="key")
    return kept.mapInArrow(_ask_all, kept.schema)


def _ask(row: dict[str, Any]) -> dict[str, Any]:
    time.sleep(row["work_us"] / 1e6)
    return {"id": row["id"]}


def _ask_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        time.sleep(sum(batch.column("work_us").to_pylist()) / 1e6)
        yield batch


def _start(rows: DataFrame, folder: Path) -> StreamingQuery:
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(folder))
    return writer.start()


def _wait(query: StreamingQuery, ledger: Ledger, rows: int) -> None:
    """Wait until every row is in the books."""
    came, since = -1, time.monotonic()
    while came < rows:
        raise_if_failed(query)
        time.sleep(_POLL_S)
        now = ledger.totals().rows_in
        if now != came:
            came, since = now, time.monotonic()
        if time.monotonic() - since > _STALL_S:
            raise RuntimeError(f"no batch for {_STALL_S:g} s at {came} of {rows} rows")
