"""The gate: a projection and a filter that Spark compiles. No row crosses into Python.

A row is kept if uniform(row) < p, where p is the keep rate of its stratum, and carries the
weight 1 / p. What came in and what was kept is counted by Spark's own `observe` on the way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spillway.spark.uniform import _quoted, hash_column, leftover_column, uniform_column
from spillway.values import PinnedPlan

WEIGHT = "_weight"
UNRATED, PROTECTED = "unrated", "protected"
_PREFIX = "_spillway_"
_KAFKA_IDENTITY = ("topic", "partition", "offset")
_QUANTILE_ACCURACY = 2000


@dataclass(frozen=True, kw_only=True)
class Gate:
    """Where the rows come from and how they are told apart; the plan says what happens to them.

    `strata` are the shedder's; `score`, `protect` and `arrived` may be missing.
    """

    identity: tuple[str, ...]
    strata: tuple[str, ...]
    score: str | None = None
    quantiles: tuple[float, ...] = ()
    protect: Column | str | None = None
    arrived: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all strata, in the order in which they are numbered and counted."""
        unrated = (UNRATED,) if self.score else ()
        return (*self.strata, *unrated, *((PROTECTED,) if self.protect is not None else ()))

    def attach(self, df: DataFrame, plan: Column, observation: str | Observation) -> DataFrame:
        """Return the kept rows of `df` with their weight, counted under `observation`."""
        decided = self._decide(df.select("*", *self._plan_fields(plan)))
        counted = decided.observe(observation, *self._metrics())
        kept = counted.where(_own("keep"))
        weight = (F.lit(1.0) / _own("rate")).alias(WEIGHT)
        return kept.select(*(F.col(_quoted(name)) for name in df.columns), weight)

    def plan_type(self) -> T.StructType:
        """Return the type of the plan as the gate reads it."""
        doubles = [*self._rate_names(), *self._edge_names(), "probe"]
        fields = [T.StructField(name, T.DoubleType(), False) for name in doubles]
        return T.StructType([T.StructField("salt", T.LongType(), False), *fields])

    def plan_values(self, pinned: PinnedPlan) -> dict[str, float | int]:
        """Return the plan's numbers by the names of `plan_type`."""
        rates = (*pinned.plan.rates, *((pinned.plan.unrated,) if self.score else ()))
        return {
            "salt": pinned.salt,
            **dict(zip(self._rate_names(), rates, strict=True)),
            **dict(zip(self._edge_names(), pinned.plan.edges, strict=True)),
            "probe": pinned.probe,
        }

    def plan_literal(self, pinned: PinnedPlan) -> Column:
        """Return the plan as a literal, for delivery inside `foreachBatch`."""
        values = self.plan_values(pinned)
        types = {field.name: field.dataType for field in self.plan_type()}
        return F.struct(*(F.lit(v).cast(types[name]).alias(name) for name, v in values.items()))

    def _rate_names(self) -> list[str]:
        rated = len(self.strata) + (1 if self.score else 0)
        return [f"rate_{index}" for index in range(rated)]

    def _edge_names(self) -> list[str]:
        return [f"edge_{index}" for index in range(len(self.strata) - 1)]

    def _plan_fields(self, plan: Column) -> list[Column]:
        return [plan.getField(name).alias(_PREFIX + name) for name in self.plan_type().fieldNames()]

    def _decide(self, df: DataFrame) -> DataFrame:
        """Add hash, stratum, keep rate and decision, each computed once per row."""
        df = df.withColumn(_PREFIX + "hash", hash_column(_own("salt"), self.identity))
        df = df.withColumn(_PREFIX + "stratum", self._stratum())
        df = df.withColumn(_PREFIX + "rate", self._rate())
        return df.withColumn(_PREFIX + "keep", uniform_column(_own("hash")) < _own("rate"))

    def _stratum(self) -> Column:
        """Number the row's stratum: protected first, then unrated, then by the score."""
        by_score = F.lit(len(self.strata) - 1)
        for index in reversed(range(len(self.strata) - 1)):
            by_score = F.when(self._score() < _own(f"edge_{index}"), index).otherwise(by_score)
        if self.score:
            rated = F.coalesce(F.abs(self._score()) < F.lit(float("inf")), F.lit(False))
            rated = rated & ~F.isnan(self._score())
            by_score = F.when(rated, by_score).otherwise(self.names.index(UNRATED))
        if self.protect is None:
            return by_score
        protected = F.expr(self.protect) if isinstance(self.protect, str) else self.protect
        return F.when(protected, self.names.index(PROTECTED)).otherwise(by_score)

    def _score(self) -> Column:
        return F.expr(self.score or "0").try_cast("double")

    def _rate(self) -> Column:
        rates = [_own(name) for name in self._rate_names()]
        if self.protect is not None:
            rates.append(F.lit(1.0))
        if len(rates) == 1:
            return rates[0]
        chosen = enumerate(rates[1:-1], start=1)
        start = F.when(_own("stratum") == 0, rates[0])
        return reduce(lambda c, r: c.when(_own("stratum") == r[0], r[1]), chosen, start).otherwise(
            rates[-1]
        )

    def _metrics(self) -> list[Column]:
        """Aggregate what the control path needs: counts, arrival times, quantiles of the score."""
        keep = _own("keep")
        metrics = [F.max(_own("salt")).alias("salt")]
        for index in range(len(self.names)):
            inside = _own("stratum") == index
            metrics.append(F.count_if(inside).alias(f"in_{index}"))
            metrics.append(F.count_if(inside & keep).alias(f"kept_{index}"))
        if self.arrived:
            at_s = F.when(keep, _epoch_s(F.col(_quoted(self.arrived))))
            metrics += [F.avg(at_s).alias("arrived_mean"), F.min(at_s).alias("arrived_min")]
            first = F.percentile_approx(F.when(_probed(), at_s), F.lit(0.01), F.lit(1000))
            metrics.append(first.alias("arrived_first"))
        if self.quantiles:
            probed = F.when(_probed(), self._finite_score())
            which = F.array(*(F.lit(q) for q in self.quantiles))
            found = F.percentile_approx(probed, which, F.lit(_QUANTILE_ACCURACY))
            metrics.append(found.alias("quantiles"))
        return metrics

    def _finite_score(self) -> Column:
        return F.when(_own("stratum") < len(self.strata), self._score())


def identity_of(df: DataFrame, named: Sequence[str] | None) -> tuple[str, ...]:
    """Choose the columns that tell rows apart: named ones, else Kafka's, else all that hash."""
    columns = list(df.columns)
    if named is not None:
        return _checked_identity(df, tuple(named))
    if all(name in columns for name in _KAFKA_IDENTITY):
        return _KAFKA_IDENTITY
    hashable = tuple(field.name for field in df.schema if _hashable(field.dataType))
    if not hashable:
        raise ValueError(
            f"identity must name at least one column that can be hashed, got none in {columns}"
        )
    return hashable


def check_columns(df: DataFrame, **named: str | None) -> None:
    """Refuse columns that are missing, doubled or named like the guard's own."""
    lowered = [name.lower() for name in df.columns]
    doubled = sorted({name for name in df.columns if lowered.count(name.lower()) > 1})
    if doubled:
        raise ValueError(f"column names must differ, got {doubled} more than once")
    own = [name for name in df.columns if name.lower().startswith((WEIGHT, _PREFIX))]
    if own:
        raise ValueError(
            f"columns named {WEIGHT} or {_PREFIX}* are the guard's own; rename {own} first"
        )
    for argument, name in named.items():
        if name is not None and name not in df.columns:
            raise ValueError(f"{argument} must be one of the columns {df.columns}, got {name!r}")


def check_arrived(df: DataFrame, arrived: str | None) -> None:
    """Refuse an arrival column that is no point in time."""
    if arrived is None:
        return
    kind = df.schema[arrived].dataType
    if not isinstance(kind, (T.TimestampType, T.TimestampNTZType, T.NumericType)):
        raise ValueError(
            f"arrived must be a timestamp or a number of epoch seconds, "
            f"got column {arrived!r} of type {kind.simpleString()}"
        )


def _checked_identity(df: DataFrame, identity: tuple[str, ...]) -> tuple[str, ...]:
    if not identity:
        raise ValueError("identity must name at least one column, got none")
    for name in identity:
        check_columns(df, identity=name)
        if not _hashable(df.schema[name].dataType):
            kind = df.schema[name].dataType.simpleString()
            raise ValueError(f"identity must be columns that hash, got {name!r} of type {kind}")
    return identity


def _hashable(kind: T.DataType) -> bool:
    """Spark hashes everything but maps and variants, wherever they are nested."""
    if isinstance(kind, T.StructType):
        return all(_hashable(field.dataType) for field in kind)
    if isinstance(kind, T.ArrayType):
        return _hashable(kind.elementType)
    return not isinstance(kind, (T.MapType, T.VariantType))


def _epoch_s(arrived: Column) -> Column:
    # unix_micros is undefined for numbers, a cast of a timestamp to double keeps the microseconds.
    return arrived.cast("timestamp").cast("double")


def _probed() -> Column:
    """Pick a small share of the rows, independently of what is kept: quantiles need no more."""
    return leftover_column(_own("hash")) < _own("probe")


def _own(name: str) -> Column:
    return F.col(_PREFIX + name)
