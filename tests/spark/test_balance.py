"""Placement on Spark: no row is lost, k partitions, as the twins say, and again the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spillway.cost.heavy import HeavySketch
from spillway.cost.items import items_of
from spillway.cost.sketch import CostSketch, SketchShape
from spillway.cost.table import CostLookup, pack
from spillway.placement.greedy import Greedy
from spillway.spark.balance import (
    SALT,
    Balance,
    costs_of,
    delays_of,
    instances_of,
    line_of,
    speeds_of,
)
from spillway.spark.columns import check_columns, check_key
from spillway.spark.uniform import salt_of, uniform
from spillway.values import CostTable, PinnedPlan, Plan
from tests.conftest import Driven

K, ROWS = 5, 3000
WAYS = ("greedy", "longest", "table")
KEYS = [*(f"k{i}" for i in range(40)), None]


def cost_ns(key: str | None) -> int:
    return 1_000_000 * (1 + 7 * KEYS.index(key) % 64)


def learnt(
    keys: list[Any], *, capacity: int = 16, cost: Callable[[Any], int] = cost_ns
) -> CostTable:
    """What an operator that has seen these rows would have told; few keys are heavy."""
    sketch = HeavySketch(SketchShape(columns=8), capacity=capacity)
    sketch.update(items_of(np.array(keys, dtype=object)), np.array([cost(key) for key in keys]))
    return pack(sketch)


def pinned(costs: CostTable | None, rows: float | None = None) -> PinnedPlan:
    plan = Plan(rates=(1.0,), costs=costs)
    return PinnedPlan(batch_id=0, salt=salt_of(7, 0), plan=plan, rows_expected=rows)


class NoPlanner:
    """Inside `foreachBatch` the plan is known."""


def balance(way: str = "greedy", planner: Any = None, **given: Any) -> Balance:
    described = {"instances": K, "key": "key", "identity": ("id",), **given}
    return Balance(way=way, planner=planner or NoPlanner(), **described)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    """Skewed keys, some of them missing, in three partitions."""
    rng = np.random.default_rng(3)
    drawn = np.minimum(rng.zipf(1.6, ROWS) - 1, len(KEYS) - 1)
    data = [(i, KEYS[(k * 13) % len(KEYS)], float(i)) for i, k in enumerate(drawn)]
    return spark.createDataFrame(data, "id bigint, key string, `a.b` double").repartition(3).cache()


@pytest.fixture(scope="module")
def table(rows: DataFrame) -> CostTable:
    return learnt([row["key"] for row in rows.collect()])


def where(df: DataFrame) -> dict[int, int]:
    """Return the partition of every row."""
    placed = df.select("id", F.spark_partition_id().alias("p")).collect()
    return {row["id"]: row["p"] for row in placed}


def by_twin(df: DataFrame, way: str, costs: CostTable | None) -> dict[int, int]:
    """Place the rows in this process, without Spark."""
    numbered = df.select("id", "key", F.spark_partition_id().alias("p")).collect()
    parts = [[row for row in numbered if row["p"] == part] for part in range(3)]
    placed: dict[int, int] = {}
    for part, mine in enumerate(parts):
        items = items_of(np.array([row["key"] for row in mine], dtype=object))
        if way == "table":
            drawn = np.array([uniform(pinned(costs).salt, SALT, row["id"]) for row in mine])
            found = line_of(costs, K).place(items, drawn)
        else:
            order = {"greedy": "arrival", "longest": "longest"}[way]
            state = Greedy(instances=K, order=order).start(part)  # type: ignore[arg-type]
            found = instances_of(state, costs_of(costs), items)
        placed |= {row["id"]: int(to) for row, to in zip(mine, found, strict=True)}
    return placed


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("way", WAYS)
def test_every_row_goes_where_the_twin_puts_it(
    rows: DataFrame, table: CostTable, way: str, known: bool
) -> None:
    """All rows once, unchanged, on k partitions; after a second run on the same ones."""
    costs = table if known else None
    placed = balance(way).attach_batch(rows, pinned(costs))
    assert placed.columns == rows.columns
    got = placed.rdd.glom().collect()
    assert len(got) == K
    assert Counter(row for part in got for row in part) == Counter(rows.collect())
    once = {row["id"]: part for part, mine in enumerate(got) for row in mine}
    if known or way == "table":  # where nothing is known Spark itself deals them out
        assert once == by_twin(rows, way, costs)
    assert balance(way).attach_batch(rows, pinned(costs)).rdd.glom().collect() == got


def is_placed(df: DataFrame) -> bool:
    """Whether rows go where Python says; if not, they must be dealt out by Spark, evenly."""
    if "ArrowEvalPython" in df._jdf.queryExecution().toString():
        return True
    sizes = Counter(where(df).values())
    assert len(sizes) == K
    assert max(sizes.values()) - min(sizes.values()) <= 3  # one for each input task
    return False


@pytest.mark.parametrize("way", ["greedy", "longest"])
def test_rows_are_dealt_out_in_turn_where_placing_them_would_not_pay(
    rows: DataFrame, table: CostTable, way: str
) -> None:
    """They cost alike, nothing is known, or the batch is small: in Spark alone, as its own."""
    equal = learnt([row["key"] for row in rows.collect()], cost=lambda key: 32_000_000)
    dealt = balance(way)
    assert not is_placed(dealt.attach_batch(rows, pinned(None)))
    assert not is_placed(dealt.attach_batch(rows, pinned(equal)))
    assert is_placed(
        dealt.attach_batch(rows, pinned(replace(equal, paces=(1.0, 1.1, 0.9, 1.0, 1.0))))
    )
    assert is_placed(dealt.attach_batch(rows, pinned(table)))
    assert is_placed(dealt.attach_batch(rows, pinned(table, rows=1e9)))
    assert not is_placed(dealt.attach_batch(rows, pinned(table, rows=1)))


def test_a_table_places_a_row_alike_on_any_partitioning(rows: DataFrame, table: CostTable) -> None:
    once = where(balance("table").attach_batch(rows, pinned(table)))
    spread = rows.repartition(7, "`a.b`")
    assert where(balance("table").attach_batch(spread, pinned(table))) == once


@pytest.mark.parametrize("way", ["greedy", "longest"])
def test_the_operators_work_is_equal_to_one_row_per_task(rows: DataFrame, way: str) -> None:
    """Three tasks place exactly known costs: each leaves instances at most one row apart."""
    keys = {row["id"]: row["key"] for row in rows.collect()}
    exact = learnt(list(keys.values()), capacity=256)
    placed = where(balance(way).attach_batch(rows, pinned(exact)))
    loads = [sum(cost_ns(keys[i]) for i in placed if placed[i] == p) for p in range(K)]
    longest = max(cost_ns(key) for key in keys.values())
    assert max(loads) - min(loads) <= 3 * longest
    assert max(loads) <= 1.02 * sum(loads) / K


def test_rows_keep_their_order_within_task_and_instance(spark: SparkSession) -> None:
    rows = spark.range(0, 4000, 1, 2).selectExpr("id", "id % 11 AS key")
    costs = learnt(list(range(11)), cost=lambda key: 1000 * (key + 1))
    got = balance("greedy").attach_batch(rows, pinned(costs)).rdd.glom().collect()
    for part in got:
        for task in (range(2000), range(2000, 4000)):
            mine = [row["id"] for row in part if row["id"] in task]
            assert mine
            assert mine == sorted(mine)


@pytest.mark.parametrize(("way", "adaptive"), [("greedy", "true"), ("table", "false")])
def test_few_rows_and_many_instances_are_still_k_partitions(
    spark: SparkSession, way: str, adaptive: str
) -> None:
    """Adaptive execution merges small partitions, but not those that were asked for by number."""
    spark.conf.set("spark.sql.adaptive.enabled", adaptive)
    try:
        few = spark.range(0, 3, 1, 1).selectExpr("id", "'k1' AS key")
        placed = balance(way, instances=64).attach_batch(few, pinned(None)).rdd
        assert placed.getNumPartitions() == 64
        assert sorted(row["id"] for row in placed.collect()) == [0, 1, 2]
    finally:
        spark.conf.unset("spark.sql.adaptive.enabled")


def planner_of(costs: CostTable | None) -> Any:
    """Return a planner that has pinned one plan for all; its class travels with it."""

    class Pinned:
        checkpoint = None
        plan = pinned(costs)

        def plan_for(self, batch_id: int, query_id: str = "") -> PinnedPlan:
            return replace(self.plan, batch_id=batch_id)

    return Pinned()


@pytest.mark.parametrize("way", ["greedy", "table"])
def test_a_stream_is_placed_and_a_replayed_batch_alike(driven: Driven, way: str) -> None:
    """The sink fails once after it has seen the rows; the batch is run again by another query."""
    attempts: list[dict[int, int]] = []

    def each(batch: DataFrame, batch_id: int) -> None:
        assert batch.rdd.getNumPartitions() == K
        placed = {row["id"]: row["p"] for row in batch.collect()}
        if placed:
            attempts.append(placed)
            if len(attempts) == 1:
                raise RuntimeError("the sink is away")

    costs = learnt(list(range(50)), cost=lambda key: 1000 * (key + 1))
    for attempt in (1, 2):
        spread = balance(way, planner_of(costs)).attach_stream(driven.stream())
        numbered = spread.select("id", F.spark_partition_id().alias("p"))
        query = driven.start_batches(numbered, each)
        if attempt == 1:
            with pytest.raises(StreamingQueryException, match="the sink is away"):
                driven.advance(query, to_s=2.0)
        else:
            driven.advance(query, to_s=2.0)
            query.stop()
    assert len(attempts) == 2
    assert sorted(attempts[0]) == list(range(2000))
    assert set(attempts[0].values()) == set(range(K))
    assert attempts[0] == attempts[1]


def test_unequal_instances_get_work_by_their_speed() -> None:
    """The second instance takes thrice as long for everything: it gets a quarter of the work."""
    keys = np.random.default_rng(1).integers(0, 500, 20_000)
    items, base = items_of(keys), 1000 * (1 + keys % 64)
    whole, parts = HeavySketch(capacity=1 << 14), []
    whole.update(items, base)
    for factor in (1, 3):
        parts.append(CostSketch())
        parts[-1].update(items, base * factor)
    costs = CostLookup.of(pack(whole, tuple(parts)))
    speeds = speeds_of(costs, 2)
    assert speeds[1] / speeds.sum() == pytest.approx(0.25, abs=0.002)
    drawn = np.random.default_rng(2).random(items.size)
    by_line = line_of(pack(whole, tuple(parts)), 2).place(items, drawn)
    greedy = instances_of(Greedy(instances=2).start(), costs, items)
    # 5 sigma of the line's own draw; the greedy adapts to the rows it sees.
    spread = 5 * np.sqrt((base.astype(float) ** 2).sum() * 0.25 * 0.75) / base.sum()
    assert base[by_line == 1].sum() / base.sum() == pytest.approx(0.25, abs=spread)
    assert base[greedy == 1].sum() / base.sum() == pytest.approx(0.25, abs=0.02)


def test_speeds_of_another_number_of_instances_are_not_used(table: CostTable) -> None:
    other = replace(table, instances=(table.cells,) * 3)
    costs = CostLookup.of(other)
    assert speeds_of(costs, K).tolist() == [1.0] * K
    items = np.arange(100)
    placed = instances_of(Greedy(instances=K).start(), costs, items)
    alike = instances_of(Greedy(instances=K).start(), costs_of(table), items)
    assert placed.tolist() == alike.tolist()


def test_late_instances_get_less_from_one_input_task_alone(table: CostTable) -> None:
    """Otherwise every input task would make up for all of it."""
    late = replace(table, delays_ns=(0.0, 0.0, 9e6, *(0.0,) * (K - 3)))
    assert delays_of(late, K, 0) == late.delays_ns
    assert [delays_of(*other) for other in ((late, K, 1), (late, K + 1, 0), (None, K, 0))] == [
        ()
    ] * 3


def test_a_damaged_table_places_rows_blindly_and_says_so(table: CostTable) -> None:
    with pytest.warns(RuntimeWarning, match="rows are placed without costs"):
        laid = line_of(replace(table, cells=b"?"), K)
    assert np.bincount(laid.owners).tolist() == [laid.owners.size // K] * K


@pytest.mark.parametrize("instances", [0, -1, 4097, 2.0, "2", True, None])
def test_what_is_no_number_of_instances_is_refused(instances: Any) -> None:
    with pytest.raises(ValueError, match=r"instances must be an int in \[1, 4096\], got"):
        balance(instances=instances)


def test_an_unknown_way_is_refused() -> None:
    with pytest.raises(ValueError, match="way must be one of greedy, longest, table, got 'best'"):
        balance("best")


def usable(df: DataFrame) -> None:
    check_columns(df, weighted=True)
    check_key(df, "key")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("1 AS id", r"key must be one of the columns \['id'\], got 'key'"),
        ("map('a', 1) AS key", "key must be a column that hashes, got 'key' of type map"),
        (
            "1 AS key, 2 AS _SPILLWAY_x",
            r"named _weight or _spillway_\* are the guard's own",
        ),
        ("1 AS key, 2 AS Key", "column names must differ"),
    ],
)
def test_unusable_columns_are_refused_before_data_is_read(
    spark: SparkSession, columns: str, message: str
) -> None:
    df = spark.sql(f"SELECT {columns}")
    with pytest.raises(ValueError, match=message):
        usable(df)


def test_a_guards_weight_is_no_obstacle(spark: SparkSession) -> None:
    usable(spark.sql("SELECT 1 AS key, 1.0D AS _weight"))
