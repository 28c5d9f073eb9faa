"""One replay from beginning to end, as the command line runs it: read, write, compare."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from spillway.spark.columns import WEIGHT
from spillway.spark.replay import Replay, replay_of
from spillway.spark.retained import Retained
from spillway.state.past import Past

_ROWS = "rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is wanted: which batches of which state folder, from where, and where to."""

    state: Path
    checkpoint: Path | None
    batches: tuple[int, ...]
    source: Retained
    protect: str | None = None
    corrections: bool = False
    to: str = ""
    to_format: str = "parquet"
    mode: str = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How many rows were shed by the books and found, and what is to be told."""

    batches: int
    rows_booked: int
    rows_found: int
    told: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether all shed rows were found."""
        return not self.told


class ReplayFailed(RuntimeError):
    """Spark could not read or write what was wanted; the message is the first line of its own."""


def run(spark: SparkSession, order: Order) -> Outcome:
    """Find the rows and write them, if they are wanted; compare with the books."""
    try:
        return _run(spark, order)
    except (PySparkException, Py4JError) as error:
        raise ReplayFailed(str(error).splitlines()[0]) from error


def _run(spark: SparkSession, order: Order) -> Outcome:
    past = Past(state=order.state, checkpoint=order.checkpoint, source=order.source.index)
    replay = replay_of(spark, past, order.source, order.batches, order.protect)
    found = replay.find_corrections() if order.corrections else replay.find_shed()
    rows = _written(found.rows, order) if order.to else None
    told = [] if rows == replay.rows_booked else replay.told(found)  # batch by batch only then
    if rows is None:
        rows = _found(replay, found.rows, told)
    return Outcome(
        batches=len(replay.batches),
        rows_booked=replay.rows_booked,
        rows_found=rows,
        told=tuple(told),
        remarks=tuple(replay.remarks),
    )


def checkpoint_of(state: Path) -> Path | None:
    """Return the checkpoint around a state folder, if it is one."""
    return state.parent if (state.parent / "offsets").is_dir() else None


def imported(name: str) -> Callable[[DataFrame], DataFrame]:
    """Return the function that `module:function` names; modules of this folder can be named."""
    module, _, function = name.partition(":")
    if not module or not function:
        raise ValueError(f"prepare must be MODULE:FUNCTION, got {name!r}")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Callable[[DataFrame], DataFrame] = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"prepare must be MODULE:FUNCTION, got {name!r}: {error}") from error
    return found


def _written(rows: DataFrame, order: Order) -> int:
    """Write the rows and return how many of them are shed ones, counted on their way."""
    observed = Observation("spillway:replay")
    counted = rows.observe(observed, F.count_if(F.col(WEIGHT) == 1.0).alias(_ROWS))
    counted.write.format(order.to_format).mode(order.mode).save(order.to)
    return int(observed.get.get(_ROWS, 0))


def _found(replay: Replay, rows: DataFrame, told: list[str]) -> int:
    return replay.rows_booked if not told else rows.where(f"{WEIGHT} = 1.0D").count()
