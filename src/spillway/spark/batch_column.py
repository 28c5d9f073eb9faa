"""What the plan of the running batch says, as one column of a streaming query.

A streaming query is planned once by the user and run batch by batch by Spark. The column has one
value for all rows of a batch, and another one in the next.

On classic Spark the driver itself fills it: the column calls a Java function without arguments,
which Spark's optimizer evaluates while it plans the batch, in the thread of the stream, and which
is a Python method here. No job runs, and what the method returns stands in the plan as a value.
Where Python has no such way into the driver (Spark Connect), a scalar subquery asks a Python
worker, by a job of its own in every batch.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as ClassicColumn
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, StructType

from spillway.spark.control import BATCH_ID, QUERY_ID, Planner, pinned_of, pinned_of_task

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column

    from spillway.values import PinnedPlan

Values = Callable[["PinnedPlan"], dict[str, Any]]
_EVALUATES, _EXCLUDED = "ConstantFolding", "spark.sql.optimizer.excludedRules"
_STRICT = {"mode": "FAILFAST"}  # a plan that cannot be read must not become NULL, which sheds


def batch_column(spark: SparkSession, planner: Planner, values: Values, kind: StructType) -> Column:
    """Return what `values` makes of the running batch's plan, as a struct of this kind.

    `values` may travel to a worker: it must not hold what lives in the driver alone.
    """
    return (_by_driver if _reaches_driver(spark) else _by_worker)(spark, planner, values, kind)


def _reaches_driver(spark: SparkSession) -> bool:
    """Whether Spark's threads can call Python, and Python then sees what the thread knows."""
    pinned = os.environ.get("PYSPARK_PIN_THREAD", "true").lower() == "true"
    classic = isinstance(spark, SparkSession)  # that of Connect is another class
    return classic and pinned and _EVALUATES not in (spark.conf.get(_EXCLUDED, "") or "")


def _by_driver(spark: SparkSession, planner: Planner, values: Values, kind: StructType) -> Column:
    """Let the driver fill it: numbers in the plan itself, tables in a subquery over one row.

    A subquery brings along adaptive execution, some 10 ms of every batch. But Spark writes values
    that stand in a plan into its log and keeps them for its pages, batch by batch.
    """
    asked = _called(spark, PlanInDriver(spark.sparkContext, planner, values)).cast("string")
    plan = F.from_json(asked, kind, _STRICT)
    if any(isinstance(field.dataType, ArrayType) for field in kind):
        # A table of one row, since a row without a table would be written into the plan.
        return spark.sql("SELECT * FROM VALUES (1)").select(plan.alias("plan")).scalar()
    # In an array, and by an index that Spark cannot know: it would write the numbers into the
    # expressions that use them, and compile those anew in every batch.
    return F.get(F.array(plan), F.expr("0 * spark_partition_id()"))


class PlanInDriver:
    """A Java function without arguments that returns what the running batch's plan says."""

    def __init__(self, context: SparkContext, planner: Planner, values: Values) -> None:
        """Answer for the batches of one query."""
        self._context, self._planner, self._values = context, planner, values

    def call(self) -> bytes:
        """Return the values of the batch as JSON; Java calls this in the thread of its stream."""
        return json.dumps(self._values(self._pinned())).encode()

    def _pinned(self) -> PinnedPlan:
        batch_id = self._context.getLocalProperty(BATCH_ID)
        query_id = self._context.getLocalProperty(QUERY_ID)
        if query_id is None:  # nothing runs: somebody looks at the plan (`explain`)
            return self._planner.opened(-1, "no batch runs")
        return pinned_of(self._planner, query_id, batch_id)

    class Java:
        """Says which Java interface this is."""

        implements = ("org.apache.spark.sql.api.java.UDF0",)


def _called(spark: SparkSession, function: PlanInDriver) -> Column:
    """Return the bytes that a Java function returns, as a column.

    Spark's own expression for such a call sends functions of users to the executors; `Invoke` is
    what it folds into a value.
    """
    from pyspark.java_gateway import ensure_callback_server_started

    gateway, jvm = spark.sparkContext._gateway, spark.sparkContext._jvm
    assert gateway is not None
    assert jvm is not None
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    sql = jvm.org.apache.spark.sql
    kind = spark._jsparkSession.parseDataType('"binary"')
    # Scala's function stands in between: Spark prints and compares it without asking Python.
    called = sql.functions.udf(function, kind).f()
    callable_kind = sql.types.ObjectType(jvm.java.lang.Class.forName("scala.Function0"))
    held = sql.catalyst.expressions.Literal.fromObject(called, callable_kind)
    none = jvm.PythonUtils.toSeq(jvm.java.util.ArrayList())
    invoke = sql.catalyst.expressions.objects.Invoke
    made = invoke(held, "apply", kind, none, none, True, True, True)
    return ClassicColumn(sql.classic.ExpressionUtils.column(made))


def _by_worker(spark: SparkSession, planner: Planner, values: Values, kind: StructType) -> Column:
    table = spark.range(0, 1, 1, 1).mapInArrow(_reader(planner, values, kind), kind)
    return table.select(F.struct("*").alias("plan")).scalar()


def _reader(
    planner: Planner, values: Values, kind: StructType
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that a Python worker runs once in every batch."""
    schema = to_arrow_schema(kind)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from spillway.spark.worker_memory import spare_modules

        pinned = pinned_of_task(planner)
        for _ in batches:
            pass
        yield pa.RecordBatch.from_pylist([values(pinned)], schema=schema)
        spare_modules()

    return read
