"""`spillway-burst`, read again: its rows follow from their numbers, and offsets are numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from spillway.spark.burst_source import SCHEMA, BurstReader, RowRange, parse_options
from spillway.spark.retained import BATCH, without
from spillway.state.past import PastBatch

_RANGES = "ranges"
_STREAMS_OWN = frozenset({"clock", "maxrowspertrigger"})


def burst_rows(
    spark: SparkSession, options: Mapping[str, str], batches: Sequence[PastBatch]
) -> DataFrame:
    """Return the rows of the batches: the same numbers and seed, so the same rows."""
    spark.dataSource.register(BurstAgain)
    ranges = json.dumps([[batch.batch_id, batch.start, batch.end] for batch in batches])
    given = without(options, _STREAMS_OWN)
    return spark.read.format(BurstAgain.name()).options(**given, **{_RANGES: ranges}).load()


class BurstAgain(DataSource):
    """Ranges of rows of a `spillway-burst` stream, as a batch."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "spillway-burst-again"

    def schema(self) -> str:
        """The stream's columns and the batch."""
        return f"{SCHEMA}, {BATCH} bigint"

    def reader(self, schema: StructType) -> AgainReader:
        """Read the ranges that the options name."""
        options = dict(self.options)
        ranges = json.loads(options.pop(_RANGES))
        return AgainReader(BurstReader(parse_options(options)), ranges)


@dataclass(frozen=True, slots=True)
class BatchRange(InputPartition):
    """Rows of one batch."""

    batch_id: int
    rows: RowRange


class AgainReader(DataSourceReader):
    """Asks the stream's own reader for rows that it has given before."""

    def __init__(self, reader: BurstReader, ranges: list[tuple[int, object, object]]) -> None:
        self._reader = reader
        self._ranges = ranges

    def partitions(self) -> Sequence[InputPartition]:
        """The partitions of every batch, as the stream had them."""
        found = [
            BatchRange(batch_id, rows)
            for batch_id, start, end in self._ranges
            for rows in self._reader.partitions(start or {**end, "row": 0}, end)  # type: ignore[arg-type, dict-item]
        ]
        return found or [BatchRange(-1, RowRange(0, 0, 0))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows with their batch beside them."""
        assert isinstance(partition, BatchRange)
        for rows in self._reader.read(partition.rows):
            batch = pa.array([partition.batch_id] * rows.num_rows, pa.int64())
            yield rows.append_column(BATCH, batch)
