"""The load-aware gate on Spark decides and counts as its twin does, and compiles its code once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spillway.cost.by_key import CostByKey
from spillway.cost.heavy import HeavySketch
from spillway.cost.items import items_of
from spillway.cost.table import CostLookup, pack
from spillway.kernels.uniform import salt_of, uniforms
from spillway.loop import Loop
from spillway.overload.controller import FixedRate
from spillway.shedders.load_aware import LoadAware
from spillway.sim.workloads import Recipe
from spillway.spark.control import Planner
from spillway.spark.gate import Gate
from spillway.spark.gate_of import plan_column
from spillway.spark.observe import Timing, observation
from spillway.state.memory import Memory
from spillway.state.plan_log import PlanLog
from spillway.values import (
    BatchAhead,
    CostState,
    CostTable,
    LoopState,
    Observation,
    PinnedPlan,
    Plan,
)
from spillway.workload.content import Content
from tests.conftest import Driven

ROWS = 6_000
RECIPE = Recipe(rows=ROWS, keys=2_000)
KEYS = RECIPE.draw_keys(1)
COSTS = RECIPE.cost_by_key(1)
WORTHS = 1.0 + np.arange(ROWS) % 5


def table(factor: float = 1.0) -> CostTable:
    sketch = HeavySketch()
    sketch.update(items_of(KEYS), np.rint(COSTS[KEYS] * factor).astype(np.int64))
    return pack(sketch)


def gate_of(shedder: LoadAware, **changes: Any) -> Gate:
    return Gate(
        identity=("id",),
        strata=shedder.strata,
        score=shedder.score,
        key=shedder.key,
        worth=shedder.worth,
        **changes,
    )


def worths_of(shedder: LoadAware) -> np.ndarray:
    return WORTHS if shedder.utility else np.ones(ROWS)


def pinned_for(shedder: LoadAware, share: float, batch_id: int = 0) -> PinnedPlan:
    """A plan that the loop cuts from all rows, at costs that differ from batch to batch."""
    sample = tuple(zip(items_of(KEYS).tolist(), worths_of(shedder).tolist(), strict=True))
    seen = Observation(batch_id=0, rows_in=1, rows_kept=1, duration_s=1.0, sample=sample)
    state = LoopState(seen=seen, cost=CostState(table=table(1.0 + batch_id / 10)))
    loop = Loop(controller=FixedRate(share), cost=CostByKey(), shedder=shedder)
    plan, faults = loop.decide(state, BatchAhead(batch_id=batch_id, rows=float(ROWS)))
    assert faults == 0
    return PinnedPlan(batch_id=batch_id, salt=salt_of(3, batch_id), plan=plan)


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    data = [(i, int(KEYS[i]), float(WORTHS[i])) for i in range(ROWS)]
    return spark.createDataFrame(data, "id bigint, city bigint, u double").repartition(3).cache()


def twin(shedder: LoadAware, pinned: PinnedPlan) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return estimated costs, rates and fates of all rows, by the simulator's functions."""
    assert pinned.plan.costs is not None
    costs = CostLookup.of(pinned.plan.costs).estimate_ns(items_of(KEYS))
    if shedder.score is None:
        rates = np.full(ROWS, pinned.plan.rates[0])
    else:
        scores = shedder.scores(costs, worths_of(shedder))
        at = np.searchsorted(np.asarray(pinned.plan.edges), scores, side="right")
        rates = np.asarray(pinned.plan.rates)[at]
    return costs, rates, uniforms(pinned.salt, np.arange(ROWS)) < rates


@pytest.mark.parametrize(
    "shedder",
    [
        LoadAware(key="city", aim="faithful"),
        LoadAware(key="city", utility="u"),
        LoadAware(key="city", aim="unbiased"),
    ],
    ids=lambda shedder: shedder.aim,
)
def test_a_batch_keeps_weighs_and_counts_what_the_twin_does(
    rows: DataFrame, shedder: LoadAware
) -> None:
    pinned = pinned_for(shedder, 0.4)
    costs, rates, kept = twin(shedder, pinned)
    guarded, observed = gate_of(shedder).attach_batch(rows, pinned, "load-aware")
    got = {row["id"]: row["_weight"] for row in guarded.collect()}
    assert guarded.columns == ["id", "city", "u", "_weight"]
    assert got == {i: 1.0 / rates[i] for i in np.flatnonzero(kept).tolist()}
    seen = seen_of(observed, gate_of(shedder))
    assert (seen.rows_in, seen.rows_kept) == (ROWS, int(kept.sum()))
    assert seen.cost_ns_mean == pytest.approx(costs.mean())
    assert seen.cost_ns_kept == pytest.approx(costs[kept].mean())
    # The work, not the rows; keys that came once are foreseen to be new, and are not.
    assert costs @ rates / costs.sum() == pytest.approx(0.4, abs=0.02)
    check_sample(seen, shedder)


def metrics_of(observed: tuple[Any, ...]) -> dict[str, Any]:
    return {name: value for each in observed for name, value in each.get.items()}


def seen_of(observed: tuple[Any, ...], gate: Gate) -> Observation:
    timing = Timing(batch_id=0, started_at_s=0.0, duration_s=1.0)
    return observation(metrics_of(observed), timing, gate.names)


def check_sample(seen: Observation, shedder: LoadAware) -> None:
    if shedder.worth is None:
        assert seen.sample == ()
        return
    assert len(seen.sample) == 512
    assert {item for item, _ in seen.sample} <= set(items_of(KEYS).tolist())
    worths = {worth for _, worth in seen.sample}
    assert worths == (set(WORTHS.tolist()) if shedder.utility else {1.0})


def test_an_open_gate_observes_the_costs_too(rows: DataFrame) -> None:
    shedder = LoadAware(key="city")
    pinned = pinned_for(shedder, 1.0)
    assert not pinned.plan.sheds
    guarded, observed = gate_of(shedder).attach_batch(rows, pinned, "open")
    assert guarded.count() == ROWS
    seen = seen_of(observed, gate_of(shedder))
    assert seen.cost_ns_kept == seen.cost_ns_mean == pytest.approx(twin(shedder, pinned)[0].mean())
    assert len(seen.sample) == 512


def test_rows_of_no_usable_utility_are_unrated(spark: SparkSession) -> None:
    texts = ["1", "0", "-1", "NaN", "Infinity", "-Infinity", "soon", None]
    data = [(i, i % 7, text) for i, text in enumerate(texts)]
    df = spark.createDataFrame(data, "id bigint, city bigint, u string").coalesce(1)
    shedder = LoadAware(key="city", utility="u")
    plan = Plan(rates=(0.0, 0.5, 1.0), edges=(1e-9, 2e-9), unrated=1.0, costs=table())
    pinned = PinnedPlan(batch_id=0, salt=1, plan=plan)
    guarded, observed = gate_of(shedder).attach_batch(df, pinned, "odd")
    assert {row["u"] for row in guarded.collect()} >= {"1", *texts[2:]}
    metrics = metrics_of(observed)
    names = ("below", "boundary", "above", "unrated")
    assert [metrics[f"rows_in_{name}"] for name in names] == [1, 0, 1, 6]
    assert sorted(worth for _, worth in metrics["sample"]) == [0.0, 1.0]


def test_other_tables_and_rates_leave_the_generated_code_the_same(
    spark: SparkSession, rows: DataFrame
) -> None:
    """Spark compiles nothing for the second, third and fourth batch."""
    shedder = LoadAware(key="city", utility="u * 2")
    gate = gate_of(shedder)
    metrics = spark._jvm.org.apache.spark.metrics.source.CodegenMetrics  # type: ignore[union-attr]

    def compiled(batch_id: int) -> int:
        before = metrics.METRIC_COMPILATION_TIME().getCount()
        pinned = pinned_for(shedder, 0.3 + batch_id / 10, batch_id)
        guarded, _ = gate.attach_batch(rows, pinned, f"code {batch_id}")
        guarded.write.format("noop").mode("overwrite").save()
        return int(metrics.METRIC_COMPILATION_TIME().getCount() - before)

    first, *others = [compiled(batch_id) for batch_id in range(4)]
    assert first > 0
    assert others == [0, 0, 0]


def test_a_stream_looks_costs_up_by_the_table_of_its_pinned_plan(driven: Driven) -> None:
    """The planner runs while Spark plans, the table stands in the plan, books are exact."""
    shedder = LoadAware(key="key")
    loop = Loop(controller=FixedRate(0.4), cost=CostByKey(), shedder=shedder)
    Memory(folder=driven.state).save(LoopState(cost=CostState(table=burst_table())))
    planner = Planner(loop=loop, state=driven.state, checkpoint=driven.checkpoint)
    gate = gate_of(shedder)
    source = driven.stream()
    kept = gate.attach_stream(source, plan_column(driven.spark, planner, gate), "load-aware")
    query = driven.start(kept)
    driven.advance(query, to_s=2.0)
    progress = json.loads(query.lastProgress.json)  # type: ignore[union-attr]
    batch_id, metrics = progress["batchId"], progress["observedMetrics"]["load-aware"]
    query_id = progress["id"]
    pinned = PlanLog.of(driven.state, query_id).read(batch_id)
    assert pinned is not None
    assert pinned.plan.costs == burst_table()
    timing = Timing(batch_id=batch_id, started_at_s=0.0, duration_s=1.0)
    seen = observation(metrics, timing, gate.names)
    numbers = np.arange(2_000)
    items = items_of(Content(keys=50).columns(numbers)["key"].astype(np.int64))
    costs = CostLookup.of(burst_table()).estimate_ns(items)
    assert seen.rows_in == 2_000
    assert seen.cost_ns_mean == pytest.approx(costs.mean())
    assert seen.rows_kept == len(driven.kept[batch_id])
    assert {int(item) for item, _ in seen.sample} <= set(items.tolist())
    chosen = np.array([id_ for id_, _ in driven.kept[batch_id]])
    assert seen.cost_ns_kept == pytest.approx(costs[chosen].mean())
    assert set(chosen.tolist()) == set(
        numbers[uniforms(pinned.salt, numbers) < pinned.plan.rates[0]].tolist()
    )
    query.stop()


def burst_table() -> CostTable:
    keys = np.arange(50)
    sketch = HeavySketch()
    sketch.update(items_of(keys), (keys + 1) * 100_000)
    return pack(sketch)


def test_the_plan_s_file_stays_small(tmp_path: Path) -> None:
    """4,096 keys, 1,024 of them heavy: below 16 kB."""
    stream, sketch = Recipe(rows=60_000).stream(1, 1), HeavySketch()
    sketch.update(items_of(stream.keys), stream.costs_ns)
    plan = Plan(rates=(0.1, 0.5, 1.0), edges=(1.0, 2.0), costs=pack(sketch))
    log = PlanLog(folder=tmp_path)
    log.pin(PinnedPlan(batch_id=3, salt=2**60, plan=plan))
    assert log.read(3) is not None
    assert (tmp_path / "3.json").stat().st_size < 16_000


def test_odd_key_columns_are_looked_up(spark: SparkSession) -> None:
    df = spark.range(100).select("id", F.col("id").cast("string").alias("a `key`"))
    shedder = LoadAware(key="a `key`", aim="faithful")
    plan = Plan(rates=(0.5,), costs=table())
    guarded, observed = gate_of(shedder).attach_batch(
        df, PinnedPlan(batch_id=0, salt=5, plan=plan), "odd key"
    )
    guarded.collect()
    keys = items_of(np.array([str(i) for i in range(100)]))
    metrics = metrics_of(observed)
    assert metrics["cost_mean"] == pytest.approx(CostLookup.of(table()).estimate_ns(keys).mean())


LONG = "repeat('k', 1048576)"
ODD_KEYS = {
    "text": f"CASE id WHEN 0 THEN {LONG} WHEN 1 THEN CAST(unhex('FFFE80') AS STRING) "
    "WHEN 2 THEN NULL ELSE 'k' END",
    "binary": f"CASE id WHEN 0 THEN CAST({LONG} AS BINARY) ELSE unhex('FF00') END",
    "nested": "named_struct('a', id, 'b', array(id, NULL))",
}


@pytest.mark.parametrize("key", ODD_KEYS.values(), ids=ODD_KEYS)
def test_keys_of_a_megabyte_invalid_text_binary_and_nested_ones_count_exactly(
    spark: SparkSession, key: str
) -> None:
    df = spark.range(100).selectExpr("id", f"{key} AS key")
    plan = PinnedPlan(batch_id=0, salt=5, plan=Plan(rates=(0.5,), costs=table()))
    gate = gate_of(LoadAware(key="key", aim="faithful"))
    guarded, observed = gate.attach_batch(df, plan, "odd key")
    kept = guarded.select("id", "_weight").collect()
    metrics = metrics_of(observed)
    assert sum(n for name, n in metrics.items() if name.startswith("rows_in")) == 100
    assert sum(n for name, n in metrics.items() if name.startswith("rows_kept")) == len(kept)
    assert 0.0 < metrics["cost_mean"] < np.inf
