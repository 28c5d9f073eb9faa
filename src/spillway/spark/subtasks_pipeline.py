"""Chooses how subtasks run: natively if Spark computes them all, else in a Python operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql import types as T

from spillway.degrade.accuracy import Measure
from spillway.degrade.subtask import Subtasks
from spillway.spark.operator import checked_schema
from spillway.spark.subtasks import SubtaskOperator, natives
from spillway.spark.subtasks_native import NativeSubtasks


def pipeline_of(
    subtasks: Subtasks,
    *,
    schema: T.StructType | str | None,
    complete: float,
    measure: Measure[Sequence[dict[str, Any]]] | None,
    key: str | None,
    identity: tuple[str, ...],
    seed: Callable[[], int],
) -> SubtaskOperator | NativeSubtasks:
    """Return what runs the subtasks; refuse arguments that it could not heed."""
    if not isinstance(subtasks, Subtasks):
        raise ValueError(f"subtasks must be Subtasks([...]), got {type(subtasks).__name__}")
    if len(natives(subtasks)) < len(subtasks):
        return SubtaskOperator(
            subtasks=subtasks,
            schema=checked_schema(schema),
            identity=identity,
            seed=seed,
            complete=complete,
            measure=measure,
            key=key,
        )
    for name, given in (("schema", schema), ("measure", measure), ("key", key)):
        if given is not None:
            raise ValueError(f"{name} belongs to Python subtasks; all of these are native")
    return NativeSubtasks(subtasks=subtasks, identity=identity, seed=seed)
