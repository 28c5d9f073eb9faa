"""Workers that ran one of our functions collect garbage quickly after every task."""

import gc
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import Observation, SparkSession

from spillway.spark.operator import Operator
from spillway.spark.worker_memory import spare_modules

ROWS = 40


def same(row: dict[str, Any]) -> dict[str, Any]:
    return row


def looked_through(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Tell what a collection would look through, and whether compiled code is loaded."""
    import sys

    for _ in batches:
        pass
    yield pa.RecordBatch.from_pydict(
        {"objects": [len(gc.get_objects())], "compiled": ["numba" in sys.modules]}
    )


def test_a_worker_of_an_operator_has_little_to_look_through(spark: SparkSession) -> None:
    """One partition: the worker that has run the operator is the idle one that comes next."""
    rows = spark.range(0, ROWS, 1, 1).selectExpr("id", "id % 3 AS key")
    operator = Operator(fn=same, schema="id bigint, key bigint", key="key")
    deadline = time.monotonic() + 60
    found: list[tuple[int, bool]] = []
    while not any(compiled for _, compiled in found) and time.monotonic() < deadline:
        assert len(operator.attach(rows, Observation()).collect()) == ROWS
        one = spark.range(0, 1, 1, 1).mapInArrow(looked_through, "objects bigint, compiled boolean")
        found = [(row["objects"], row["compiled"]) for row in one.collect()]
    objects, compiled = found[0]
    assert compiled
    assert objects < 50_000  # 170,000 otherwise


def test_outside_of_a_task_nothing_is_done() -> None:
    before = gc.get_freeze_count()
    spare_modules()
    assert gc.get_freeze_count() == before
