"""The overflow output: a batch's shed rows are written aside at once, inside `foreachBatch`.

The rows follow from the batch's pinned plan, and they go to a place of the batch's own: a batch
that runs again writes the same rows over those of the attempt before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from spillway.spark.batch_watch import metrics_of
from spillway.spark.columns import PREFIX
from spillway.spark.gate import Gate
from spillway.spark.metrics import ASIDE
from spillway.spark.replay import shed_of
from spillway.spark.retained import BATCH
from spillway.values import PinnedPlan

Target = str | Path | Callable[[DataFrame, int], None]
QUERY = PREFIX + "query"


@dataclass(frozen=True, slots=True)
class Written:
    """What counted the rows written aside, and what went wrong, if anything."""

    observed: tuple[Observation, ...] = ()
    complaint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overflow:
    """Where shed rows go: a folder of Parquet files, or a function of the rows and the batch id.

    `on_error` says whether the batch fails if they cannot be written, or whether that is counted.
    """

    to: Target
    on_error: Literal["fail", "count"] = "fail"

    def __post_init__(self) -> None:
        """Reject a place that is none, and an unknown way out."""
        if not callable(self.to) and not str(self.to).strip():
            raise ValueError(f"overflow must be a path or a function, got {self.to!r}")
        if self.on_error not in ("fail", "count"):
            raise ValueError(f"on_overflow_error must be 'fail' or 'count', got {self.on_error!r}")

    def write(self, df: DataFrame, gate: Gate, pinned: PinnedPlan, query_id: str) -> Written:
        """Write the rows that the gate does not keep; an open gate writes nothing."""
        if not pinned.plan.sheds:
            return Written()
        observed = Observation(f"spillway:overflow:{pinned.batch_id}")
        named = df.withColumn(BATCH, F.lit(pinned.batch_id).cast("bigint"))
        shed = shed_of(gate.judged(named, pinned)).observe(observed, F.count(F.lit(1)).alias(ASIDE))
        try:
            self._send(shed, pinned.batch_id, query_id)
        except Exception as error:
            if self.on_error == "fail":
                raise
            what = f"{type(error).__name__}: {error}"
            return Written(complaint=f"overflow of batch {pinned.batch_id} not written: {what}")
        return Written((observed,) if metrics_of([observed]) else ())

    def _send(self, shed: DataFrame, batch_id: int, query_id: str) -> None:
        if callable(self.to):
            self.to(shed, batch_id)
            return
        # Another checkpoint counts its batches from 0 again: the query has a folder of its own.
        folder = f"{self.to}/{QUERY}={query_id or 'unknown'}/{BATCH}={batch_id}"
        shed.drop(BATCH).write.mode("overwrite").parquet(folder)
