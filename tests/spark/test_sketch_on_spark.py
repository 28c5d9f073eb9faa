"""Our F is Spark's own `CountMinSketch`, byte for byte, and keys hash to the same items."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from spillway.cost.items import item_of, item_sql, items_of
from spillway.cost.sketch import CostSketch, SketchShape
from spillway.sim.workloads import Recipe

EPSILON, CONFIDENCE = 0.0371, 0.9  # Spark: ⌈2 / 0.0371⌉ = 54 columns, ⌈-log₂(0.1)⌉ = 4 rows


def keys_of(order: int) -> np.ndarray:
    return items_of(Recipe(rows=5000, keys=700).draw_keys(order))


def sketched(keys: np.ndarray, seed: int) -> CostSketch:
    sketch = CostSketch(SketchShape(rows=4, columns=54, seed=seed))
    sketch.update(keys, np.ones_like(keys))
    return sketch


def aggregated(spark: SparkSession, keys: np.ndarray, seed: int) -> bytes:
    """What Spark's aggregate returns, computed in several partitions and merged by Spark."""
    rows = spark.createDataFrame(pa.table({"key": keys})).repartition(3)
    sql = f"count_min_sketch(key, {EPSILON}D, {CONFIDENCE}D, {seed})"
    return bytes(rows.selectExpr(f"{sql} AS sketch").first()["sketch"])  # type: ignore[index]


def read_by_spark(spark: SparkSession, data: bytes) -> Any:
    sketches = spark._jvm.org.apache.spark.util.sketch  # type: ignore[union-attr]
    return sketches.CountMinSketch.readFrom(bytearray(data))


@pytest.mark.parametrize("seed", [0, 42, -7])
def test_our_frequencies_are_the_bytes_of_sparks_aggregate(spark: SparkSession, seed: int) -> None:
    keys = np.concatenate([keys_of(1), [0, 1, -1, 2**63 - 1, -(2**63)]])
    assert aggregated(spark, keys, seed) == sketched(keys, seed).spark_frequencies()


def test_spark_reads_our_frequencies_and_answers_alike(spark: SparkSession) -> None:
    keys = keys_of(2)
    ours = sketched(keys, seed=3)
    theirs = read_by_spark(spark, ours.spark_frequencies())
    wanted = np.concatenate([np.unique(keys)[:40], [1, 2, 3]])
    counts = [theirs.estimateCount(int(key)) for key in wanted]
    assert counts == ours.frequencies(wanted).tolist()
    assert theirs.totalCount() == ours.rows_seen
    assert (theirs.depth(), theirs.width()) == (4, 54)


def test_merges_agree_on_both_sides(spark: SparkSession) -> None:
    ours, other = sketched(keys_of(4), seed=5), sketched(keys_of(6), seed=5)
    theirs = read_by_spark(spark, ours.spark_frequencies())
    theirs.mergeInPlace(read_by_spark(spark, other.spark_frequencies()))
    ours.merge(other)
    assert bytes(theirs.toByteArray()) == ours.spark_frequencies()
    both = np.concatenate([keys_of(4), keys_of(6)])
    assert aggregated(spark, both, 5) == ours.spark_frequencies()


def test_the_work_is_a_sketch_that_spark_reads_too(spark: SparkSession) -> None:
    ours = sketched(keys_of(8), seed=1)
    ours.update_one(99, 1_000_000)
    size = struct.calcsize(">iqii") + 8 * 4 * 55
    theirs = read_by_spark(spark, ours.to_bytes()[12 + size : 12 + 2 * size])
    assert theirs.totalCount() == ours.work_total_ns
    assert theirs.estimateCount(99) >= 1_000_000


COLUMNS = {
    "text": pa.array(["", "a", "Αθήνα", "x" * 31, "y" * 32, "z" * 100, None]),
    "binary": pa.array([b"", b"\0", b"\xff" * 33, None]),
    "bigint": pa.array([0, 1, -1, 2**63 - 1, -(2**63), None], type=pa.int64()),
    "int": pa.array([0, 1, -1, 2**31 - 1, -(2**31), None], type=pa.int32()),
    "smallint": pa.array([0, -3, None], type=pa.int16()),
    "tinyint": pa.array([0, -3, None], type=pa.int8()),
    "boolean": pa.array([True, False, None]),
    "double": pa.array([0.0, -0.0, 1.5, float("nan"), float("inf"), None]),
    "float": pa.array([0.0, -0.0, 1.5, float("nan"), None], type=pa.float32()),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_spark_and_python_make_the_same_item_of_a_key(spark: SparkSession, name: str) -> None:
    column = COLUMNS[name]
    rows = spark.createDataFrame(pa.table({"a key": column})).coalesce(1)
    found = [row[0] for row in rows.selectExpr(item_sql("`a key`")).collect()]
    assert found == items_of(column).tolist()
    if name in ("text", "binary", "bigint", "boolean", "double"):
        assert found == [item_of(key) for key in column.to_pylist()]
