"""The native estimators equal their formulas, are unbiased, and their intervals cover."""

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from scipy import stats

import spillway as sw
from spillway.estimate import totals, weighted
from spillway.spark.estimators import quantile
from spillway.spark.uniform import hash_sql, uniform_sql

ROWS, DRAWS = 2_000, 400


@pytest.fixture(scope="module")
def samples(spark: SparkSession) -> DataFrame:
    """The same rows sampled `DRAWS` times, each time with another salt and unequal rates."""
    rate = F.when(F.col("id") % 3 == 0, 0.5).when(F.col("id") % 3 == 1, 0.1).otherwise(1.0)
    value = F.exp(F.sin(F.col("id").cast("double"))) * (1 + F.col("id") % 7)
    rows = spark.range(ROWS).select("id", rate.alias("rate"), value.alias("x"))
    salted = rows.crossJoin(spark.range(DRAWS).withColumnRenamed("id", "draw"))
    keep = f"{uniform_sql(hash_sql('draw', ['id']))} < rate"
    return salted.where(keep).withColumn("_weight", 1 / F.col("rate")).cache()


@pytest.fixture(scope="module")
def truth(spark: SparkSession) -> dict[str, float]:
    value = F.exp(F.sin(F.col("id").cast("double"))) * (1 + F.col("id") % 7)
    row = spark.range(ROWS).agg(F.sum(value).alias("s"), F.avg(value).alias("m")).collect()[0]
    return {"count": float(ROWS), "sum(x)": row["s"], "mean(x)": row["m"]}


@pytest.fixture(scope="module")
def estimates(samples: DataFrame) -> list[dict[str, dict[str, float]]]:
    columns = [sw.count(confidence=0.9), sw.sum("x", confidence=0.9), sw.mean("x", confidence=0.9)]
    rows = samples.groupBy("draw").agg(*columns).collect()
    return [row.asDict(recursive=True) for row in rows]


@pytest.mark.parametrize("name", ["count", "sum(x)", "mean(x)"])
def test_estimates_are_unbiased(
    estimates: list[dict[str, dict[str, float]]], truth: dict[str, float], name: str
) -> None:
    """z-test over 400 independent samples, false-alarm rate 1e-4 each.

    The mean is a ratio: its bias is of order 1 / n and far below the error of 400 samples.
    """
    values = np.array([estimate[name]["value"] for estimate in estimates])
    z = (values.mean() - truth[name]) / (values.std(ddof=1) / len(values) ** 0.5)
    assert len(values) == DRAWS
    assert abs(z) < stats.norm.isf(0.5e-4)


@pytest.mark.parametrize("name", ["count", "sum(x)", "mean(x)"])
def test_ninety_per_cent_intervals_cover_ninety_per_cent(
    estimates: list[dict[str, dict[str, float]]], truth: dict[str, float], name: str
) -> None:
    """Binomial test of the number of intervals that hold the truth, false-alarm rate 1e-4."""
    held = sum(e[name]["low"] <= truth[name] <= e[name]["high"] for e in estimates)
    assert stats.binomtest(held, DRAWS, 0.9).pvalue > 1e-4


def test_native_columns_equal_the_formulas(samples: DataFrame) -> None:
    one = samples.where("draw = 3")
    rows = one.select("x", "_weight").collect()
    x, w = (np.array([row[name] for row in rows]) for name in ("x", "_weight"))
    got = one.agg(
        sw.count(confidence=0.95),
        sw.sum("x", confidence=0.95),
        sw.mean(F.col("x"), confidence=0.95),
    ).collect()[0]
    for native, formula in zip(
        got, (totals.count(w), totals.total(x, w), totals.mean(x, w)), strict=True
    ):
        assert native["value"] == pytest.approx(formula.value, rel=1e-9)
        assert native["low"] == pytest.approx(formula.low, rel=1e-9)
        assert native["high"] == pytest.approx(formula.high, rel=1e-9)


def test_without_shedding_the_estimators_are_sparks_own(spark: SparkSession) -> None:
    """Weights of 1, NULLs among the values, an empty group and no rows at all."""
    values = F.when(F.col("id") % 4 > 0, F.col("id"))
    df = spark.range(100).select(values.alias("x"), F.lit(1.0).alias("_weight"))
    ours = df.agg(sw.count(), sw.sum("x"), sw.mean("x"), sw.mean("x", confidence=0.99)).collect()[0]
    own = df.agg(F.count(F.lit(1)), F.sum("x"), F.avg("x")).collect()[0]
    assert tuple(ours)[:3] == tuple(own)
    assert ours[3]["low"] == ours[3]["high"] == pytest.approx(own[2])
    none = df.where("x < 0").agg(sw.count(confidence=0.9), sw.sum("x"), sw.mean("x")).collect()[0]
    assert none[0]["value"] == 0
    assert none[1] is None
    assert none[2] is None


@pytest.mark.parametrize("q", [0.1, 0.5, 0.95])
def test_native_quantiles_equal_the_formula(samples: DataFrame, q: float) -> None:
    rows = samples.where("draw < 4").select("draw", "x", "_weight").collect()
    got = samples.where("draw < 4").groupBy("draw").agg(quantile("x", q)).collect()
    for draw, native in got:
        of = [row for row in rows if row["draw"] == draw]
        x, w = (np.array([row[name] for row in of]) for name in ("x", "_weight"))
        assert native == pytest.approx(weighted.quantile(x, w, q).value, rel=1e-12)


def test_native_quantiles_are_corrected_for_unequal_rates(
    samples: DataFrame, spark: SparkSession
) -> None:
    """z-test of the share of all rows below the estimated median, false-alarm rate 1e-4.

    Large values are kept more often, so the median of the kept rows is not that of all. A quantile
    is unbiased up to one row of the sample: a tenth of its own spread is allowed for that.
    """
    value = (F.col("id") % 3) * 5 + F.exp(F.sin(F.col("id").cast("double")))
    draws = samples.where("draw < 100").groupBy("draw")
    got = draws.agg(quantile(value, 0.5), F.percentile(value, 0.5)).collect()
    ordered = np.sort([row[0] for row in spark.range(ROWS).select(value).collect()])
    corrected, plain = (np.searchsorted(ordered, [row[i] for row in got]) / ROWS for i in (1, 2))
    spread = corrected.std(ddof=1)
    allowed = (stats.norm.isf(0.5e-4) / len(got) ** 0.5 + 0.1) * spread
    assert abs(corrected.mean() - 0.5) < allowed
    assert abs(plain.mean() - 0.5) > 5 * allowed


def test_without_shedding_a_quantile_is_sparks_own(spark: SparkSession) -> None:
    """Weights of 1, NULLs whose weights differ, equal weights above 1, and no rows at all."""
    values = F.when(F.col("id") % 4 > 0, F.col("id"))
    weight = F.when(F.col("id") % 4 > 0, 1.0).otherwise(7.0)
    df = spark.range(100).select(values.alias("x"), weight.alias("_weight"))
    alike = df.withColumn("_weight", F.lit(1 / 0.3))
    shares = (0.0, 0.25, 0.5, 0.9, 1.0)
    own = df.agg(*(F.percentile("x", q) for q in shares)).collect()[0]
    assert tuple(df.agg(*(quantile("x", q) for q in shares)).collect()[0]) == tuple(own)
    assert tuple(alike.agg(*(quantile(F.col("x"), q) for q in shares)).collect()[0]) == tuple(own)
    assert df.where("x < 0").agg(quantile("x", 0.5)).collect()[0][0] is None


@pytest.mark.parametrize("q", [-0.1, 1.5, 50.0, float("nan")])
def test_a_quantile_that_is_none_is_refused(spark: SparkSession, q: float) -> None:
    with pytest.raises(ValueError, match=r"q must be in \[0, 1\], got"):
        quantile("x", q)


@pytest.mark.parametrize("confidence", [0.0, 1.0, -0.5, 95.0, float("nan")])
def test_a_confidence_that_is_none_is_refused(spark: SparkSession, confidence: float) -> None:
    with pytest.raises(ValueError, match=r"confidence must be in \(0, 1\)"):
        sw.count(confidence=confidence)
