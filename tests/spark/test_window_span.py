"""Windows of event time: the same ones as Spark's own `window`."""

import numpy as np
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spillway.spark.window_span import SPAN, Span

DAY_US = 86_400_000_000


@pytest.mark.parametrize(
    ("size", "slide"),
    [
        ("10 minutes", None),
        ("10 minutes", "10 minutes"),
        ("30 minutes", "10 minutes"),
        ("25 minutes", "10 minutes"),
        ("1 hour", "7 minutes"),
        ("7 days", "1 day"),
    ],
)
def test_rows_are_in_the_windows_that_spark_puts_them_in(
    spark: SparkSession, size: str, slide: str | None
) -> None:
    """On the edges and beside them, before 1970 too; a row without a time is in none."""
    random = np.random.default_rng(1)
    edges = np.arange(-20, 20) * 300_000_000
    drawn = random.integers(-40 * DAY_US, 40 * DAY_US, 300)
    times = np.concatenate([edges - 1, edges, edges + 1, drawn]).tolist()
    lines = [(each, "ab"[i % 2] if i % 5 else None) for i, each in enumerate([*times, None])]
    rows = spark.createDataFrame(lines, "us bigint, route string").selectExpr(
        "timestamp_micros(us) AS at", "route", "CAST(1 AS DOUBLE) AS value"
    )
    span = Span(time="at", size=size, slide=slide)
    counted = span.grouped(rows, ("route",)).agg(F.count("value").alias("rows"))
    start, end = span.bounds
    ours = counted.selectExpr(f"{start} AS s", f"{end} AS e", "route", "rows")
    window = F.window("at", size, *([slide] if slide else []))
    theirs = rows.groupBy("route", window).agg(F.count("value").alias("rows"))
    expected = theirs.selectExpr("window.start AS s", "window.end AS e", "route", "rows")
    found = ours.collect()
    assert sorted(map(str, found)) == sorted(map(str, expected.collect()))
    assert len(found) > 50


def test_a_time_that_makes_groups_too_stays(spark: SparkSession) -> None:
    rows = spark.range(6).selectExpr("timestamp_seconds(20 * id) AS at")
    groups = Span(time="at", size="1 minute").grouped(rows, ("at",)).count()
    assert groups.count() == 6
    assert groups.where(f"{SPAN} = timestamp_seconds(60)").count() == 3


def test_a_slide_longer_than_the_window_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"slide must be at most size, '1 minute', got '2 min'"):
        Span(time="at", size="1 minute", slide="2 min")
