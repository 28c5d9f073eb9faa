"""The gate of a shedder: built over the columns of a stream, or described as the books would."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, SparkSession

from spillway.contracts import ConceptShedder, KeyedShedder, Shedder, by_cost
from spillway.spark import columns
from spillway.spark.batch_column import batch_column
from spillway.spark.concept_sql import GroupColumns
from spillway.spark.control import Planner
from spillway.spark.gate import Gate
from spillway.state.gate_log import GateRecord


def gate_of(
    shedder: Shedder,
    df: DataFrame,
    *,
    arrived: str | None,
    identity: Sequence[str] | None,
    protect: Column | str | None,
    p99: bool,
) -> Gate:
    """Build the gate, or refuse columns that it cannot use."""
    columns.check_columns(df)
    columns.check_arrived(df, arrived)
    if isinstance(shedder, KeyedShedder):
        columns.check_key(df, shedder.key)
    keyed = by_cost(shedder)
    return Gate(
        identity=columns.identity_of(df, identity),
        strata=shedder.strata,
        score=shedder.score,
        quantiles=shedder.quantiles,
        key=keyed.key if keyed else None,
        worth=keyed.worth if keyed else None,
        groups=_groups(shedder, df),
        protect=protect,
        arrived=arrived,
        p99=p99,
    )


def plan_column(spark: SparkSession, planner: Planner, gate: Gate) -> Column:
    """Return the plan of the running batch as the gate reads it, see `batch_column`."""
    travels = ("strata", "score", "key", "groups")
    bare = Gate(identity=(), **{name: getattr(gate, name) for name in travels})
    return batch_column(spark, planner, bare.plan_values, gate.plan_type())


def record_of(shedder: Shedder, protect: object) -> GateRecord:
    """Describe the gate of a shedder, but for the identity, which the books have."""
    keyed = by_cost(shedder)
    return GateRecord(
        identity=(),
        strata=shedder.strata,
        score=shedder.score,
        key=keyed.key if keyed else None,
        by=shedder.columns if isinstance(shedder, ConceptShedder) else (),
        protect=protect if isinstance(protect, str) else None,
        protect_unknown=protect is not None and not isinstance(protect, str),
    )


def _groups(shedder: Shedder, df: DataFrame) -> GroupColumns | None:
    """Return what a concept-driven gate reads of a row."""
    if not isinstance(shedder, ConceptShedder):
        return None
    groups = GroupColumns(by=shedder.columns, value=shedder.value, time=shedder.time)
    groups.check(df)
    return groups
