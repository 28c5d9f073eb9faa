"""Estimators for any aggregation over guarded rows: native columns, corrected by the weights.

The formulas are those of `spillway.estimate.totals` and `spillway.estimate.weighted`.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from spillway.estimate.totals import z_score
from spillway.estimate.weighted import FREQUENCY
from spillway.spark.columns import WEIGHT


def count(*, confidence: float | None = None) -> Column:
    """Estimate how many rows there were; with `confidence` a struct of value, low and high."""
    weight = F.col(WEIGHT)
    variance = F.sum(_excess())
    value = F.coalesce(F.sum(weight), F.lit(0.0))
    if confidence is None:
        return value.alias("count")
    kept = F.count(F.lit(1)).cast("double")
    return _interval(value, variance, confidence, low_min=kept).alias("count")


def sum(column: Column | str, *, confidence: float | None = None) -> Column:
    """Estimate the sum of a column over all rows; NULLs are left out as by Spark's own `sum`."""
    x = _number(column)
    value = F.sum(F.col(WEIGHT) * x)
    name = f"sum({_name(column)})"
    if confidence is None:
        return value.alias(name)
    return _interval(value, F.sum(_excess() * x * x), confidence).alias(name)


def mean(column: Column | str, *, confidence: float | None = None) -> Column:
    """Estimate the mean of a column over all rows; NULLs are left out as by Spark's own `mean`."""
    x = _number(column)
    size = F.sum(F.when(x.isNotNull(), F.col(WEIGHT)))
    value = F.try_divide(F.sum(F.col(WEIGHT) * x), size)
    name = f"mean({_name(column)})"
    if confidence is None:
        return value.alias(name)
    excess = F.when(x.isNotNull(), _excess())
    squares = F.sum(excess * x * x) - value * (2 * F.sum(excess * x) - value * F.sum(excess))
    variance = F.try_divide(F.greatest(squares, F.lit(0.0)), size * size)
    return _interval(value, variance, confidence).alias(name)


def quantile(column: Column | str, q: float) -> Column:
    """Estimate the q-quantile of a column over all rows (0.5: the median); NULLs are left out.

    Rows of equal weights, and so rows of which none was shed, have Spark's own `percentile`. Where
    weights differ, a row counts round(10,000 w) times: the share of rows below the result is off
    by at most 0.005 % for it, and the result is a value of the column, not between two.
    It holds two percentiles in its state.
    """
    if not 0 <= q <= 1:
        raise ValueError(f"q must be in [0, 1], got {q}")
    x = _number(column)
    weight = F.when(x.isNotNull(), F.col(WEIGHT))
    plain = F.percentile(x, F.lit(q))
    weighted = F.percentile(x, F.lit(q), F.round(weight * FREQUENCY).cast("long"))
    value = F.when(F.min(weight) == F.max(weight), plain).otherwise(weighted)
    return value.alias(f"quantile({_name(column)}, {q:g})")


def _interval(
    value: Column, variance: Column, confidence: float, low_min: Column | None = None
) -> Column:
    reach = F.lit(z_score(confidence)) * F.sqrt(variance)
    low = value - reach if low_min is None else F.greatest(value - reach, low_min)
    return F.struct(value.alias("value"), low.alias("low"), (value + reach).alias("high"))


def _excess() -> Column:
    return F.col(WEIGHT) * (F.col(WEIGHT) - 1.0)


def _number(column: Column | str) -> Column:
    return (F.col(column) if isinstance(column, str) else column).cast("double")


def _name(column: Column | str) -> str:
    return column if isinstance(column, str) else str(column)[8:-2]  # Column<'…'>
