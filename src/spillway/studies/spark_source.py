"""A stream that was made beforehand, replayed at its own pace: the data source `spillway-trace`.

Arrivals, keys and costs come from a file; `admitted` is what a policy that needs no clock decided.
All else is the burst source: offsets count rows, a row has arrived when its time has come.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spillway.sim.workloads import Stream
from spillway.spark.burst_source import Burst, BurstReader, BurstSource, RowRange, parse_options
from spillway.workload.rate import Schedule

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import InputPartition

SCHEMA = "id bigint, key bigint, cost_us bigint, admitted boolean, arrived timestamp"
_ARROW = pa.schema(
    [
        ("id", pa.int64()),
        ("key", pa.int64()),
        ("cost_us", pa.int64()),
        ("admitted", pa.bool_()),
        ("arrived", pa.timestamp("us", tz="UTC")),
    ]
)


def write_trace(path: Path, stream: Stream, admitted: NDArray[np.bool_]) -> None:
    """Write a stream down for the source; its rows must arrive one after the other."""
    np.savez(
        path,
        key=stream.keys,
        cost_us=stream.costs_ns // 1000,
        arrived_s=stream.arrivals_ns / 1e9,
        admitted=admitted,
    )


def open_trace(spark: SparkSession, path: Path) -> DataFrame:
    """Start the replay when a query starts; one partition, rows in order of arrival."""
    spark.dataSource.register(TraceSource)
    return spark.readStream.format("spillway-trace").option("path", str(path)).load()


class TraceSource(BurstSource):
    """Rows of a file, each at its time. Option: `path`."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "spillway-trace"

    def schema(self) -> str:
        """The columns."""
        return SCHEMA

    def streamReader(self, schema: Any) -> TraceReader:  # noqa: N802
        """A reader of the file."""
        return TraceReader(self.options["path"])


class TraceReader(BurstReader):
    """Reads ranges of the file; the offsets are those of the burst source."""

    def __init__(self, path: str) -> None:
        super().__init__(_burst(path))
        self._path = path

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of the range as one Arrow batch."""
        assert isinstance(partition, RowRange)
        trace, rows = _trace(self._path), slice(partition.first, partition.stop)
        arrived_us = partition.epoch_us + np.floor(trace["arrived_s"][rows] * 1e6).astype(np.int64)
        columns = [
            np.arange(partition.first, partition.stop),
            *(trace[name][rows] for name in ("key", "cost_us", "admitted")),
            arrived_us,
        ]
        arrays = [pa.array(c, field.type) for c, field in zip(columns, _ARROW, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=_ARROW)


@lru_cache(maxsize=2)
def _trace(path: str) -> dict[str, NDArray[Any]]:
    with np.load(path) as arrays:
        return {name: arrays[name] for name in arrays.files}


def _burst(path: str) -> Burst:
    arrived_s = _trace(path)["arrived_s"]
    schedule = Schedule(
        knots_s=np.concatenate([[0.0], arrived_s]),
        knots_rows=np.arange(arrived_s.size + 1, dtype=np.float64),
    )
    whole = parse_options({})
    return Burst(
        schedule=schedule,
        content=whole.content,
        partitions=1,
        rows_per_trigger_max=None,
        clock="",
    )
