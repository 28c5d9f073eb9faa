"""The gate decides by plan, salt and identity alone, natively, and counts exactly."""

import math
import random
import struct
from typing import Any

import pytest
import xxhash
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from scipy import stats

from spillway.spark.columns import check_arrived, check_columns, identity_of
from spillway.spark.gate import Gate
from spillway.spark.uniform import hash_sql, leftover_sql, salt_of, uniform, uniform_sql
from spillway.values import PinnedPlan, Plan

ROWS = 10_000


def pinned(*rates: float, edges: tuple[float, ...] = (), unrated: float = 1.0) -> PinnedPlan:
    plan = Plan(rates=rates, edges=edges, unrated=unrated)
    return PinnedPlan(batch_id=0, salt=salt_of(11, 0), plan=plan)


class Observed:
    """All that was observed of one batch; an open gate counts once."""

    def __init__(self, *observed: Observation) -> None:
        self.observed = observed

    @property
    def get(self) -> dict[str, Any]:
        metrics = {name: value for each in self.observed for name, value in each.get.items()}
        came = {
            name.replace("rows_in", "rows_kept"): metrics[name]
            for name in metrics
            if name.startswith("rows_in")
        }
        return {**came, **metrics} if len(self.observed) == 1 else metrics


def attach(df: DataFrame, gate: Gate, plan: PinnedPlan) -> tuple[DataFrame, Observed]:
    kept, observed = gate.attach_batch(df, plan, "test")
    return kept, Observed(*observed)


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    """Rows with identities of several types, NULLs among them."""
    rng = random.Random(5)
    data = [
        (
            i if rng.random() > 0.2 else None,
            f"näme-{i}" if rng.random() > 0.2 else None,
            rng.choice([0.0, -0.0, 1.5 * i, None]),
            bytes([i % 256, 7]),
        )
        for i in range(ROWS)
    ]
    return spark.createDataFrame(data, "i bigint, s string, d double, b binary").cache()


def test_spark_and_python_draw_the_same_number_for_every_row(rows: DataFrame) -> None:
    salt = salt_of(3, 9)
    drawn = rows.selectExpr("*", f"{uniform_sql(hash_sql(f'{salt}L', rows.columns))} AS u")
    other = [row for row in drawn.collect() if row["u"] != uniform(salt, *tuple(row)[:-1])]
    assert other == []


def test_the_number_is_uniform_and_independent_of_the_probe(spark: SparkSession) -> None:
    """Chi-square over a 20 x 8 grid of both numbers, false-alarm rate 1e-4."""
    hashed = hash_sql(f"{salt_of(1, 1)}L", ["id"])
    cell = f"floor({uniform_sql(hashed)} * 20) * 8 + floor({leftover_sql(hashed)} * 8) AS cell"
    counts = spark.range(200_000).selectExpr(cell).groupBy("cell").count().collect()
    assert len(counts) == 160
    assert stats.chisquare([row["count"] for row in counts]).pvalue > 1e-4


def test_kept_rows_carry_the_inverse_of_their_keep_rate(spark: SparkSession) -> None:
    gate = Gate(identity=("id",), strata=("all",))
    kept, observed = attach(spark.range(ROWS), gate, pinned(0.25))
    assert {row["_weight"] for row in kept.collect()} == {4.0}
    assert kept.columns == ["id", "_weight"]
    assert observed.get["rows_in"] == ROWS
    assert observed.get["rows_kept"] == kept.count()
    # binomial, false-alarm rate 1e-4
    assert stats.binomtest(kept.count(), ROWS, 0.25).pvalue > 1e-4


@pytest.mark.parametrize("partitions", [1, 2, 7, 33])
def test_no_decision_flips_on_another_partitioning(
    spark: SparkSession, rows: DataFrame, partitions: int
) -> None:
    gate = Gate(identity=tuple(rows.columns), strata=("all",))
    once = {tuple(row)[:4] for row in attach(rows, gate, pinned(0.5))[0].collect()}
    spark.conf.set("spark.sql.adaptive.enabled", str(partitions % 2 == 0).lower())
    try:
        again, _ = attach(rows.repartition(partitions), gate, pinned(0.5))
        assert {tuple(row)[:4] for row in again.collect()} == once
    finally:
        spark.conf.unset("spark.sql.adaptive.enabled")


def test_rows_with_null_identity_are_kept_or_shed_but_never_lost(rows: DataFrame) -> None:
    """Kept by the plan plus kept by its complement is every row, once."""
    gate = Gate(identity=("i", "s"), strata=("all",))
    kept, observed = attach(rows, gate, pinned(0.5))
    drawn = uniform_sql(hash_sql(f"{pinned(0.5).salt}L", gate.identity))
    shed = rows.where(f"NOT ({drawn} < 0.5D)")
    assert kept.drop("_weight").unionByName(shed).exceptAll(rows).isEmpty()
    assert kept.count() + shed.count() == ROWS
    assert observed.get["rows_in"] - observed.get["rows_kept"] == shed.count()


def test_protected_rows_always_pass_and_a_null_predicate_protects_nothing(
    spark: SparkSession,
) -> None:
    vip = F.when(F.col("id") % 10 == 0, True).when(F.col("id") % 10 == 1, None).otherwise(False)
    df = spark.range(ROWS).withColumn("vip", vip)
    gate = Gate(identity=("id",), strata=("all",), protect="vip")
    kept, observed = attach(df, gate, pinned(0.001))
    got = kept.where("vip").collect()
    assert len(got) == ROWS // 10
    assert {row["_weight"] for row in got} == {1.0}
    assert gate.names == ("all", "protected")
    counted = observed.get
    assert counted["rows_in_protected"] == counted["rows_kept_protected"] == ROWS // 10
    assert counted["rows_in_all"] == ROWS - ROWS // 10


def test_scores_place_rows_and_unusable_ones_are_unrated(spark: SparkSession) -> None:
    usable = [(i, str(i)) for i in range(100)]
    odd = [(100 + i, s) for i, s in enumerate([None, "NaN", "Infinity", "-Infinity", "soon"])]
    df = spark.createDataFrame(usable + odd, "id bigint, score string")
    quantiles = (0.25, 0.5, 0.75)
    strata = ("below", "boundary", "above")
    gate = Gate(identity=("id",), strata=strata, score="score", quantiles=quantiles)
    plan = pinned(0.001, 0.5, 1.0, edges=(40.0, 60.0), unrated=1.0)
    kept, observed = attach(df, gate, plan)
    got = {row["id"]: row["_weight"] for row in kept.collect()}
    assert all(got[i] == 1.0 for i in range(60, 105))
    assert all(got[i] == 2.0 for i in got if 40 <= i < 60)
    assert [observed.get[f"rows_in_{name}"] for name in gate.names] == [40, 20, 40, 5]
    assert observed.get["quantiles"] == [24.0, 49.0, 74.0]


def test_arrival_times_are_those_of_the_kept_rows(spark: SparkSession) -> None:
    df = spark.range(100).select("id", F.timestamp_seconds(F.col("id") + 0.5).alias("at"))
    gate = Gate(identity=("id",), strata=("all",), arrived="at", protect="id >= 50")
    _, observed = attach(df, gate, pinned(1e-9))
    _.collect()
    assert observed.get["arrived_min"] == 50.5
    assert observed.get["arrived_mean"] == 75.0


def test_the_gate_stands_before_parsing_and_stays_out_of_python(spark: SparkSession) -> None:
    """On Kafka-shaped rows: the filter is below the JSON projection, nothing runs in Python."""
    raw = spark.range(1000).select(
        F.lit("rides").alias("topic"),
        F.lit(0).alias("partition"),
        F.col("id").alias("offset"),
        F.to_json(F.struct(F.col("id").alias("ride"))).cast("binary").alias("value"),
    )
    gate = Gate(identity=identity_of(raw, None), strata=("all",))
    assert gate.identity == ("topic", "partition", "offset")
    kept, _ = attach(raw.localCheckpoint(), gate, pinned(0.5))
    parsed = kept.select(F.from_json(F.col("value").cast("string"), "ride bigint").alias("r"))
    plan = parsed._jdf.queryExecution().executedPlan().toString()
    assert plan.index("from_json") < plan.index("Filter")
    assert "Python" not in plan
    assert "Arrow" not in plan
    rides = [row["r"]["ride"] for row in parsed.collect()]
    salt = pinned(0.5).salt

    def decide(offset: int) -> bool:
        """`partition` is an int of 4 bytes, which the Python twin takes as a bigint."""
        h = xxhash.xxh64_intdigest(struct.pack("<q", salt), seed=42)
        h = xxhash.xxh64_intdigest(b"rides", seed=h)
        h = xxhash.xxh64_intdigest(struct.pack("<i", 0), seed=h)
        return (xxhash.xxh64_intdigest(struct.pack("<q", offset), seed=h) >> 11) * 2**-53 < 0.5

    assert rides == [offset for offset in range(1000) if decide(offset)]


@pytest.mark.parametrize(
    ("columns", "rule"),
    [
        (["id", "_weight"], "guard's own"),
        (["id", "_SPILLWAY_keep"], "guard's own"),
        (["id", "ID"], "must differ"),
    ],
)
def test_column_names_that_clash_are_refused(
    spark: SparkSession, columns: list[str], rule: str
) -> None:
    df = spark.range(1).select(*(F.col("id").alias(name) for name in columns))
    with pytest.raises(ValueError, match=rule):
        check_columns(df)


def test_identity_leaves_out_what_does_not_hash_and_refuses_it_by_name(spark: SparkSession) -> None:
    df = spark.range(1).select("id", F.create_map(F.lit("a"), F.lit(1)).alias("m"))
    assert identity_of(df, None) == ("id",)
    with pytest.raises(ValueError, match="'m' of type map"):
        identity_of(df, ["m"])
    with pytest.raises(ValueError, match="identity must be one of the columns"):
        identity_of(df, ["other"])
    with pytest.raises(ValueError, match="at least one column"):
        identity_of(df.select("m"), None)
    with pytest.raises(ValueError, match="at least one column"):
        identity_of(df, [])


def test_an_arrival_column_must_be_a_point_in_time(spark: SparkSession) -> None:
    df = spark.range(1).select("id", F.lit("noon").alias("at"))
    with pytest.raises(ValueError, match="'at' of type string"):
        check_arrived(df, "at")
    check_arrived(df, "id")  # epoch seconds
    check_arrived(df, None)


def test_odd_column_names_pass_through(spark: SparkSession) -> None:
    df = spark.range(10).select(F.col("id").alias("a.b"), F.lit(math.pi).alias("ü `x`"))
    gate = Gate(identity=identity_of(df, None), strata=("all",))
    kept, _ = attach(df, gate, pinned(1.0))
    assert kept.columns == ["a.b", "ü `x`", "_weight"]
    assert kept.count() == 10
