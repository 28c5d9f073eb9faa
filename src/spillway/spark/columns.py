"""Which columns a guard may use: checked before any data is read."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import types as T

WEIGHT = "_weight"
PREFIX = "_spillway_"
_KAFKA_IDENTITY = ("topic", "partition", "offset")


def identity_of(df: DataFrame, named: Sequence[str] | None) -> tuple[str, ...]:
    """Choose the columns that tell rows apart: named ones, else Kafka's, else all that hash."""
    schema = df.schema
    if named is not None:
        return _checked_identity(schema, tuple(named))
    if all(name in schema.names for name in _KAFKA_IDENTITY):
        return _KAFKA_IDENTITY
    hashable = tuple(field.name for field in schema if _hashable(field.dataType))
    if not hashable:
        raise ValueError(
            f"identity must name at least one column that can be hashed, got none in {schema.names}"
        )
    return hashable


def check_columns(df: DataFrame, *, weighted: bool = False) -> None:
    """Refuse columns that are doubled or named like the guard's own; `weighted` allows weights."""
    names = df.columns
    lowered = [name.lower() for name in names]
    doubled = sorted({name for name in names if lowered.count(name.lower()) > 1})
    if doubled:
        raise ValueError(f"column names must differ, got {doubled} more than once")
    own = [name for name in names if name.lower().startswith((WEIGHT, PREFIX))]
    if own and not (weighted and own == [WEIGHT]):
        raise ValueError(
            f"columns named {WEIGHT} or {PREFIX}* are the guard's own; rename {own} first"
        )


def check_arrived(df: DataFrame, arrived: str | None, *, argument: str = "arrived") -> None:
    """Refuse an arrival column that is missing or no point in time."""
    if arrived is None:
        return
    kind = _type_of(df.schema, arrived, argument)
    if not isinstance(kind, (T.TimestampType, T.TimestampNTZType, T.NumericType)):
        raise ValueError(
            f"{argument} must be a timestamp or a number of epoch seconds, "
            f"got column {arrived!r} of type {kind.simpleString()}"
        )


def check_key(df: DataFrame, key: str, *, argument: str = "key") -> None:
    """Refuse a key that is no column, or of a type that Spark cannot hash."""
    kind = _type_of(df.schema, key, argument)
    if not _hashable(kind):
        raise ValueError(
            f"{argument} must be a column that hashes, got {key!r} of type {kind.simpleString()}"
        )


def _checked_identity(schema: T.StructType, identity: tuple[str, ...]) -> tuple[str, ...]:
    if not identity:
        raise ValueError("identity must name at least one column, got none")
    for name in identity:
        kind = _type_of(schema, name, "identity")
        if not _hashable(kind):
            raise ValueError(
                f"identity must be columns that hash, got {name!r} of type {kind.simpleString()}"
            )
    return identity


def _type_of(schema: T.StructType, name: str, argument: str) -> T.DataType:
    if name not in schema.names:
        raise ValueError(f"{argument} must be one of the columns {schema.names}, got {name!r}")
    return schema[name].dataType


def _hashable(kind: T.DataType) -> bool:
    """Spark hashes everything but maps and variants, wherever they are nested."""
    if isinstance(kind, T.StructType):
        return all(_hashable(field.dataType) for field in kind)
    if isinstance(kind, T.ArrayType):
        return _hashable(kind.elementType)
    return not isinstance(kind, (T.MapType, T.VariantType))
