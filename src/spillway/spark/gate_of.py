"""The gate of a shedder: built over the columns of a stream, or described as the books would."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame

from spillway.contracts import ConceptShedder, KeyedShedder, Shedder
from spillway.spark import columns
from spillway.spark.concept_sql import GroupColumns
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
    keyed = shedder if isinstance(shedder, KeyedShedder) else None
    if keyed is not None:
        columns.check_key(df, keyed.key)
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


def record_of(shedder: Shedder, protect: object) -> GateRecord:
    """Describe the gate of a shedder, but for the identity, which the books have."""
    return GateRecord(
        identity=(),
        strata=shedder.strata,
        score=shedder.score,
        key=shedder.key if isinstance(shedder, KeyedShedder) else None,
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
