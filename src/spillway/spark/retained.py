"""The source of a stream, read again: the rows of past batches, each with its batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from spillway.spark.columns import PREFIX
from spillway.state.offsets import Offset, is_burst, is_files, is_kafka
from spillway.state.past import PastBatch

BATCH = PREFIX + "batch"
_SINGLY_MAX = 200  # so many scans Spark can still plan as one query
_APART_MAX = 16  # to plan so many takes no longer than to tell their rows apart


@dataclass(frozen=True, slots=True)
class Found:
    """The rows of some batches, and what is known to be missing of them, in words."""

    rows: DataFrame
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Retained:
    """The stream's source as the stream described it, to be read over past offsets.

    format:  as given to `readStream.format`: Kafka, a format of files, or `spillway-burst`.
    options: as given to the stream; those that only a stream has are left out here.
    schema:  as given to the stream, if it was.
    prepare: what was done to the stream before `protect`, as a function of a DataFrame. It is
             quicker if it leaves the column `_spillway_batch` in; otherwise every batch is read by
             itself.
    read:    in place of format and options, for any other source: a function that returns the
             rows after the start offset up to the end offset, both as in Spark's offset log.
    index:   which source of the query it is, in the order of the offset log; needed if it has more
             than one.
    """

    format: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    schema: StructType | str | None = None
    prepare: Callable[[DataFrame], DataFrame] | None = None
    read: Callable[[Offset, Offset], DataFrame] | None = None
    index: int | None = None

    def __post_init__(self) -> None:
        """Reject a source that is not named, or named twice."""
        if bool(self.format) == (self.read is not None):
            raise ValueError(
                f"a source is named by format or by read, got {self.format!r} and {self.read!r}"
            )
        if self.index is not None and self.index < 0:
            raise ValueError(f"index must be >= 0, got {self.index}")

    def rows(
        self, spark: SparkSession, batches: Sequence[PastBatch], checkpoint: Path | None
    ) -> Found:
        """Return the prepared rows of the batches, with the column `_spillway_batch`."""
        found = self._raw(spark, batches, checkpoint)
        if self.prepare is None:
            return found
        prepared = self.prepare(found.rows)
        if BATCH not in prepared.columns:
            prepared = self._singly(spark, batches, checkpoint, self.prepare)
        return Found(prepared, found.missing)

    def rows_apart(
        self, spark: SparkSession, batches: Sequence[PastBatch], checkpoint: Path | None
    ) -> tuple[dict[int, DataFrame], tuple[str, ...]] | None:
        """Return the prepared rows batch by batch, and what is missing; None if `rows` is quicker.

        That is so for few batches of files whose schema is known: each is a scan of its own.
        """
        if self.schema is None or len(batches) > _APART_MAX or not is_files(batches[0].end):
            return None
        from spillway.spark.retained_files import file_rows_apart

        found, missing = file_rows_apart(spark, self, batches, checkpoint)
        if not found:
            return None
        prepare = self.prepare or (lambda rows: rows)
        return {
            batch: prepare(rows).withColumn(BATCH, F.lit(batch).cast("bigint"))
            for batch, rows in found.items()
        }, missing

    def _singly(
        self,
        spark: SparkSession,
        batches: Sequence[PastBatch],
        checkpoint: Path | None,
        prepare: Callable[[DataFrame], DataFrame],
    ) -> DataFrame:
        """Prepare every batch by itself, where the column that names the batch would be lost."""
        if len(batches) > _SINGLY_MAX:
            raise ValueError(
                f"prepare must leave the column {BATCH} in for more than {_SINGLY_MAX} batches, "
                f"got {len(batches)}"
            )
        raw = ((batch, self._raw(spark, [batch], checkpoint).rows) for batch in batches)
        return _union(
            [prepare(df.drop(BATCH)).withColumn(BATCH, _id_of(batch)) for batch, df in raw]
        )

    def _raw(
        self, spark: SparkSession, batches: Sequence[PastBatch], checkpoint: Path | None
    ) -> Found:
        """Choose by the shape of the offsets how they are read."""
        if self.read is not None:
            each = [(batch, self.read(batch.start, batch.end)) for batch in batches]
            return Found(_union([df.withColumn(BATCH, _id_of(batch)) for batch, df in each]))
        end = batches[0].end
        if is_kafka(end):
            from spillway.spark.retained_kafka import kafka_rows

            return kafka_rows(spark, self.options, batches)
        if is_files(end):
            from spillway.spark.retained_files import file_rows

            return file_rows(spark, self, batches, checkpoint)
        if is_burst(end):
            from spillway.spark.retained_burst import burst_rows

            return Found(burst_rows(spark, self.options, batches))
        raise ValueError(
            f"offsets like {end!r} are not those of Kafka, files or spillway-burst: "
            "give read, a function that reads a range of them"
        )


def _id_of(batch: PastBatch) -> F.Column:
    return F.lit(batch.batch_id).cast("bigint")


def _union(parts: Sequence[DataFrame]) -> DataFrame:
    return reduce(DataFrame.unionByName, parts)


def without(options: Mapping[str, str], names: frozenset[str]) -> dict[str, str]:
    """Leave out the options of these names, whatever their case."""
    return {name: value for name, value in options.items() if name.lower() not in names}
