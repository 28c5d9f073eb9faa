"""The plan's values as a column: by the driver, or by a worker where Python does not reach it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import types as T
from pyspark.sql.streaming import StreamingQuery

from spillway.cost.by_key import CostByKey
from spillway.loop import Loop
from spillway.overload.controller import FixedRate
from spillway.shedders.uniform import Uniform
from spillway.spark import batch_column as module
from spillway.spark.batch_column import batch_column
from spillway.spark.control import Planner
from spillway.values import PinnedPlan
from tests.conftest import Driven

NUMBERS = T.StructType(
    [
        T.StructField("batch", T.LongType(), False),
        T.StructField("rate", T.DoubleType(), False),
    ]
)
TABLES = T.StructType(
    [
        *NUMBERS,
        T.StructField("longs", T.ArrayType(T.LongType(), False), False),
        T.StructField("doubles", T.ArrayType(T.DoubleType(), False), False),
    ]
)
LONGS = [-(2**63), 2**63 - 1, *range(5000)]
DOUBLES = [math.inf, -math.inf, 5e-324, 1.7976931348623157e308, 1 / 3, -0.0]


def values(pinned: PinnedPlan) -> dict[str, Any]:
    rate = pinned.plan.rates[0]
    return {"batch": pinned.batch_id, "rate": rate, "longs": LONGS, "doubles": DOUBLES}


def raising(pinned: PinnedPlan) -> dict[str, Any]:
    raise ArithmeticError("no such number")


def planner(driven: Driven) -> Planner:
    loop = Loop(controller=FixedRate(0.3), cost=CostByKey(), shedder=Uniform())
    return Planner(loop=loop, state=driven.state, checkpoint=driven.checkpoint)


def planned(
    driven: Driven,
    make: Callable[[PinnedPlan], dict[str, Any]] = values,
    kind: T.StructType = TABLES,
) -> DataFrame:
    column = batch_column(driven.spark, planner(driven), make, kind)
    return driven.stream().select("id", column.alias("plan"))


def run(driven: Driven, rows: DataFrame, batches: int) -> tuple[StreamingQuery, list[list[Any]]]:
    """Run some batches; return the query and the different plans of the rows of each."""
    found: list[list[Any]] = []

    def note(batch: DataFrame, batch_id: int) -> None:
        found.append(list({repr(row["plan"]): row["plan"] for row in batch.collect()}.values()))

    driven.set_clock(0.1)  # there are rows before the first batch, or it would be an empty one
    query = driven.start_batches(rows, note)
    for batch in range(batches):
        driven.advance(query, to_s=0.1 * (batch + 1))
    return query, found


def jobs(driven: Driven, query: StreamingQuery) -> int:
    tracker = driven.spark.sparkContext.statusTracker()
    return len(tracker.getJobIdsForGroup(str(query.runId)))


@pytest.mark.parametrize("by", ["driver", "worker"])
def test_all_rows_of_a_batch_see_the_values_of_its_own_plan_exactly(
    driven: Driven, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    monkeypatch.setattr(module, "_reaches_driver", lambda spark: by == "driver")
    query, found = run(driven, planned(driven), 3)
    assert [len(plans) for plans in found] == [1, 1, 1]
    for batch_id, (plan,) in enumerate(found):
        assert (plan["batch"], plan["rate"], plan["longs"]) == (batch_id, 0.3, LONGS)
        assert list(map(repr, plan["doubles"])) == list(map(repr, DOUBLES))
    # A worker is asked by a job of its own, beside the one that collects the rows.
    assert jobs(driven, query) == {"driver": 3, "worker": 6}[by]
    query.stop()


@pytest.mark.parametrize("kind", [NUMBERS, TABLES], ids=["numbers", "tables"])
def test_the_driver_is_asked_once_for_a_batch_and_no_code_is_compiled_anew(
    driven: Driven, kind: T.StructType
) -> None:
    calls: list[int] = []

    def counted(pinned: PinnedPlan) -> dict[str, Any]:
        calls.append(pinned.batch_id)
        return {**values(pinned), "rate": 1.0 / (2 + pinned.batch_id)}

    metrics = driven.spark._jvm.org.apache.spark.metrics.source.CodegenMetrics
    compiled: list[int] = []
    rows = planned(driven, counted, kind).selectExpr("id", "plan.rate * id AS _weight")
    driven.set_clock(0.1)
    query = driven.start(rows)
    for batch in range(4):
        before = metrics.METRIC_COMPILATION_TIME().getCount()
        driven.advance(query, to_s=0.1 * (batch + 1))
        compiled.append(metrics.METRIC_COMPILATION_TIME().getCount() - before)
    query.stop()
    assert calls == [0, 1, 2, 3]
    assert compiled[2:] == [0, 0]
    first = {batch: pairs[1] for batch, pairs in driven.kept.items()}
    assert all(weight == id_ / (2 + batch) for batch, (id_, weight) in first.items())


@pytest.mark.parametrize("kind", [NUMBERS, TABLES], ids=["numbers", "tables"])
def test_a_look_at_the_plan_of_a_query_that_does_not_run_pins_nothing_and_shows_no_table(
    driven: Driven, capsys: pytest.CaptureFixture[str], kind: T.StructType
) -> None:
    planned(driven, kind=kind).explain()
    shown = capsys.readouterr().out
    assert ("Subquery" in shown) == (kind is TABLES)
    assert ("[[-1,1.0]]" in shown) == (kind is NUMBERS)  # no batch, all rows are kept
    assert len(shown) < 2_000
    assert not driven.state.exists()


def test_numbers_in_the_plan_bring_no_adaptive_execution_along(driven: Driven) -> None:
    query = driven.start(planned(driven, kind=NUMBERS).selectExpr("id", "plan.rate AS _weight"))
    driven.advance(query, to_s=0.1)
    ran = query._jsq.streamingQuery().lastExecution().executedPlan().toString()
    query.stop()
    assert "0.3" in ran
    assert "Adaptive" not in ran


@pytest.mark.parametrize("kind", [NUMBERS, TABLES], ids=["numbers", "tables"])
def test_values_that_cannot_be_made_stop_the_query_by_name(
    driven: Driven, kind: T.StructType
) -> None:
    query = driven.start_batches(planned(driven, raising, kind), lambda batch, batch_id: None)
    driven.set_clock(0.1)
    with pytest.raises(Exception, match="no such number"):
        query.awaitTermination(60)


@pytest.mark.parametrize("changed", ["rule", "threads"])
def test_where_the_optimizer_would_not_ask_the_driver_a_worker_is_asked(
    driven: Driven, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    rule = "org.apache.spark.sql.catalyst.optimizer.ConstantFolding"
    assert module._reaches_driver(driven.spark)
    if changed == "threads":
        monkeypatch.setenv("PYSPARK_PIN_THREAD", "false")
        assert not module._reaches_driver(driven.spark)
        return
    driven.spark.conf.set("spark.sql.optimizer.excludedRules", rule)
    try:
        query, found = run(driven, planned(driven), 1)
        query.stop()
    finally:
        driven.spark.conf.unset("spark.sql.optimizer.excludedRules")
    assert [plan["batch"] for plans in found for plan in plans] == [0]
