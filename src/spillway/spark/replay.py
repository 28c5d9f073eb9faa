"""The shed rows back: the source is read again and the gate inverted with the pinned plans.

A row was shed iff the gate did not keep it, and what the gate decides follows from the row's own
columns, the batch's plan and its salt: the same hash, whatever the partitioning, whenever it runs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StructField, StructType

from spillway.spark.columns import PREFIX, WEIGHT
from spillway.spark.concept_sql import RATE
from spillway.spark.control import printable
from spillway.spark.gate import IS_KEPT, Gate
from spillway.spark.retained import BATCH, Found, Retained
from spillway.spark.uniform import quoted
from spillway.state.gate_log import GateRecord
from spillway.state.past import NotRetained, Past, PastBatch
from spillway.values import PinnedPlan

_log = logging.getLogger("spillway")
_PLAN, _KEY = PREFIX + "plan", PREFIX + "batch_of_plan"
_AT_ONCE = 500  # batches whose plans, with their tables, travel to the tasks at once
_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A batch of which other rows were found than the books say were shed."""

    batch_id: int
    rows_booked: int
    rows_found: int

    def __str__(self) -> str:
        """Say it in words."""
        return f"batch {self.batch_id}: {self.rows_found} rows of {self.rows_booked} found"


@dataclass(frozen=True, kw_only=True)
class Replay:
    """Past batches of one query and the source that still holds their rows.

    `protect` is the predicate of protected rows, where the gate was given a Column object.
    """

    spark: SparkSession
    source: Retained
    batches: tuple[PastBatch, ...]
    checkpoint: Path | None = None
    protect: Column | str | None = None

    def shed_rows(self, *, check: bool = True) -> DataFrame:
        """Return the rows that the gate shed, each of weight 1."""
        return self._checked(self.find_shed(), check=check)

    def corrections(self, *, check: bool = True) -> DataFrame:
        """Return the rows whose weighted totals, added to the published ones, make them exact.

        Shed rows have the weight 1. Kept ones, which were published with 1 / p, have 1 - 1 / p.
        """
        return self._checked(self.find_corrections(), check=check)

    def find_shed(self) -> Found:
        """Return the shed rows, and what is known to be missing of them."""
        judged = self._judged()
        return Found(shed_of(judged.rows), judged.missing)

    def find_corrections(self) -> Found:
        """Return the corrections, and what is known to be missing of them."""
        judged = self._judged()
        wrong = judged.rows.where(f"NOT {IS_KEPT} OR {RATE} < 1.0D")
        weight = f"CASE WHEN {IS_KEPT} THEN 1.0D - 1.0D / {RATE} ELSE 1.0D END"
        return Found(_finished(wrong, weight), judged.missing)

    def differences(self, rows: DataFrame) -> list[Difference]:
        """Count the shed rows in each batch and return the batches where the books say otherwise.

        Batches that the books miss have nothing to be compared with.
        """
        counted = rows.where(f"{WEIGHT} = 1.0D").groupBy(BATCH).count().collect()
        found = {row[BATCH]: row["count"] for row in counted}
        return [
            Difference(
                batch_id=batch.batch_id,
                rows_booked=batch.rows_shed,
                rows_found=found.get(batch.batch_id, 0),
            )
            for batch in self.batches
            if batch.rows_shed is not None and batch.rows_shed != found.get(batch.batch_id, 0)
        ]

    def told(self, found: Found) -> list[str]:
        """Count, and return what is missing, in words; empty if all shed rows were found.

        Rows that were gone before the stream came to them are not missed: the books say how many.
        """
        differ = self.differences(found.rows)
        if not differ and all(batch.rows_shed is not None for batch in self.batches):
            return []
        return [*found.missing, *map(str, differ)]

    @property
    def rows_booked(self) -> int:
        """Rows that the gate shed by the books."""
        return sum(batch.rows_shed or 0 for batch in self.batches)

    @property
    def remarks(self) -> list[str]:
        """What cannot be brought back, or not be checked, in words."""
        refused = sum(batch.rows_refused for batch in self.batches)
        unbooked = [batch.batch_id for batch in self.batches if batch.rows_shed is None]
        remarks = []
        if refused:
            remarks.append(
                f"{refused} rows were refused inside an operator, by the clock: which ones cannot "
                "be told from the rows, and they are not among these"
            )
        if unbooked:
            remarks.append(f"batches {unbooked} are not in the books: their count is not checked")
        return remarks

    def _checked(self, found: Found, *, check: bool) -> DataFrame:
        """Raise if rows are missing; without a check only log what is known without counting."""
        told = self.told(found) if check else list(found.missing)
        if check and told:
            raise NotRetained(f"not all shed rows are retained: {_first(told)}")
        for each in (*self.remarks, *told):
            _log.warning("%s", printable(each))
        return found.rows

    def _judged(self) -> Found:
        """Read the batches that shed rows, and judge every row as its gate did."""
        parts = [self._judged_part(*part) for part in _parts(self.batches)]
        if not parts:
            return self._nothing()
        rows = reduce(DataFrame.unionByName, (part.rows for part in parts))
        return Found(rows, tuple(told for part in parts for told in part.missing))

    def _judged_part(self, record: GateRecord, batches: Sequence[PastBatch]) -> Found:
        gate = Gate.of(record, self._protected(record))
        plans = {batch.batch_id: batch.plan for batch in batches if batch.plan}
        apart = self.source.rows_apart(self.spark, batches, self.checkpoint)
        if apart is not None:
            judged = [gate.judged(rows, plans[batch]) for batch, rows in apart[0].items()]
            return Found(reduce(DataFrame.unionByName, judged), apart[1])
        found = self.source.rows(self.spark, batches, self.checkpoint)
        table = F.broadcast(plan_table(self.spark, gate, plans))
        planned = found.rows.join(table, F.col(BATCH) == F.col(_KEY)).drop(_KEY)
        return Found(gate.judged(planned, _PLAN).drop(_PLAN), found.missing)

    def _protected(self, record: GateRecord) -> Column | str | None:
        if record.protect_unknown and self.protect is None:
            raise ValueError(
                "protect must be given again: it was a Column, which the state folder cannot hold"
            )
        if isinstance(self.protect, str) and record.protect not in (None, self.protect):
            raise ValueError(f"protect must be {record.protect!r} as then, got {self.protect!r}")
        return self.protect

    def _nothing(self) -> Found:
        """Return no rows, with the columns that they would have."""
        rows = self.source.rows(self.spark, self.batches[:1], self.checkpoint).rows.where("false")
        return Found(rows.selectExpr("*", f"1.0D AS {RATE}", f"true AS {IS_KEPT}"))


def shed_of(judged: DataFrame) -> DataFrame:
    """Return the rows that are not kept, of weight 1, with their batch and rate."""
    return _finished(judged.where(f"NOT {IS_KEPT}"), "1.0D")


def replay_of(
    spark: SparkSession,
    past: Past,
    source: Retained,
    batches: Sequence[int] | range,
    protect: Column | str | None = None,
) -> Replay:
    """Look the batches up in the books; refuse those that cannot be inverted."""
    found = tuple(past.batches(batches))
    if not found:
        raise ValueError("batches must name at least one batch, got none")
    if not any(batch.gated for batch in found):
        raise ValueError(
            "batches must have had a gate, got some without: what windows, subtasks and operators "
            "give up by themselves cannot be brought back"
        )
    unknown = [batch.batch_id for batch in found if batch.plan and batch.gate is None]
    if unknown:
        raise NotRetained(
            f"how the gate of batch {unknown[0]} told rows apart is not written down (an older "
            "version): use shed_rows of a guard with the same shedder"
        )
    return Replay(
        spark=spark,
        source=source,
        batches=found,
        checkpoint=past.checkpoint,
        protect=protect,
    )


def plan_table(spark: SparkSession, gate: Gate, plans: Mapping[int, PinnedPlan]) -> DataFrame:
    """Return a table with the batch and, in one column, the plan as the gate reads it."""
    key = StructField(_KEY, LongType(), False)
    schema = StructType([key, StructField(_PLAN, gate.plan_type(), False)])
    lines = [{_KEY: batch, _PLAN: gate.plan_values(pinned)} for batch, pinned in plans.items()]
    return spark.createDataFrame(pa.Table.from_pylist(lines, to_arrow_schema(schema)), schema)


def _parts(batches: Sequence[PastBatch]) -> Iterator[tuple[GateRecord, Sequence[PastBatch]]]:
    """Group the batches that shed by their gates, at most so many at once."""
    by_gate: dict[GateRecord, list[PastBatch]] = {}
    for batch in batches:
        if batch.plan is not None and batch.gate is not None:
            by_gate.setdefault(batch.gate, []).append(batch)
    for gate, group in by_gate.items():
        for first in range(0, len(group), _AT_ONCE):
            yield gate, group[first : first + _AT_ONCE]


def _finished(judged: DataFrame, weight: str) -> DataFrame:
    own = (BATCH, RATE, IS_KEPT)
    columns = [quoted(name) for name in judged.columns if name not in own]
    return judged.selectExpr(*columns, f"{weight} AS {WEIGHT}", BATCH, RATE)


def _first(told: list[str]) -> str:
    more = f" and {len(told) - _SHOWN} more" if len(told) > _SHOWN else ""
    return "; ".join(told[:_SHOWN]) + more
