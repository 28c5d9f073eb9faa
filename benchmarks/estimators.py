"""Weighted sums, means and counts with intervals against Spark's own, grouped."""

from __future__ import annotations

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.dataframe import DataFrame

import spillway as sw
from benchmarks.measure import Figure, interleaved, ratios, seconds
from benchmarks.stage import Stage, to_noop

CONFIDENCE = 0.95


def run(stage: Stage) -> list[Figure]:
    """Time the same grouped aggregation three ways over rows that carry weights."""
    rows = stage.size(16_000_000, 4_000_000)
    path = stage.written(f"weighted-{rows}", lambda spark: _weighted(spark, rows))

    def aggregate(*columns: Column) -> float:
        grouped = stage.spark.read.parquet(path).groupBy("key")
        return seconds(lambda: to_noop(grouped.agg(*columns)))

    taken = interleaved(
        {
            "Spark": lambda: aggregate(F.sum("value"), F.avg("value"), F.count("*")),
            "without intervals": lambda: aggregate(sw.sum("value"), sw.mean("value"), sw.count()),
            "with intervals": lambda: aggregate(
                sw.sum("value", confidence=CONFIDENCE),
                sw.mean("value", confidence=CONFIDENCE),
                sw.count(confidence=CONFIDENCE),
            ),
        },
        repetitions=stage.size(7, 3),
        warmups=2,
        tick=stage.tick,
    )
    return [
        Figure(
            benchmark="estimators",
            what=f"sum, mean and count by 1,000 keys, {name}",
            rival="Spark's sum, avg and count",
            unit="×",
            values=ratios(taken[name], taken["Spark"]),
        )
        for name in ("without intervals", "with intervals")
    ]


def _weighted(spark: SparkSession, rows: int) -> DataFrame:
    return spark.range(0, rows, 1, 2).selectExpr(
        "pmod(xxhash64(id), 1000) AS key",
        "pmod(xxhash64(id, 1), 100000) / 1e5D AS value",
        "IF(id % 3 = 0, 1D, 2D) AS _weight",
    )
