"""Shed rows can be written aside at once, once for each batch, whatever happens to the batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

import spillway as sw
from spillway.spark.retained import BATCH
from tests.conftest import Driven


def guard(driven: Driven, **arguments: Any) -> sw.Guard:
    arguments.setdefault("control", sw.FixedRate(0.3))
    return sw.Guard("rides", state=driven.state, **arguments)


def kept_of(rows: DataFrame) -> list[tuple[int, float]]:
    return [(row["id"], row["_weight"]) for row in rows.collect()]


def test_a_required_overflow_that_fails_fails_the_batch_and_the_second_run_doubles_nothing(
    driven: Driven, tmp_path: Path
) -> None:
    """Two guards write aside; one of them fails once, after the other has written its rows."""
    aside, attempts = tmp_path / "aside", []

    def once_broken(shed: DataFrame, batch_id: int) -> None:
        attempts.append(batch_id)
        if len(attempts) == 2:
            raise OSError("no space left")

    def each(batch: DataFrame, batch_id: int) -> None:
        rows = watched.protect(batch, batch_id=batch_id, identity=["id"], overflow=aside)
        driven.kept[batch_id] = kept_of(rows)
        other.protect(batch, batch_id=batch_id, overflow=once_broken).collect()

    def guards(rate: float) -> tuple[sw.Guard, sw.Guard]:
        shed, control = sw.Semantic(utility="value"), sw.FixedRate(rate)
        elsewhere = {"state": tmp_path / "other", "checkpoint": driven.checkpoint}
        return guard(driven, shed=shed, control=control), sw.Guard(
            "other", control=control, **elsewhere
        )

    watched, other = guards(0.3)
    query = driven.start_batches(driven.stream(), each)
    driven.advance(query, to_s=1.0)
    with pytest.raises(StreamingQueryException, match="no space left"):
        driven.advance(query, to_s=3.0)
    assert attempts[1] not in [entry.batch_id for entry in other.ledger().entries()]
    watched, other = guards(0.9)
    query = driven.start_batches(driven.stream(partitions="5"), each)
    driven.advance(query, to_s=3.0)
    entries = [entry for entry in driven.booked(2).entries() if entry.seen.rows_in]
    query.stop()
    assert attempts[1] == attempts[2]
    shed = driven.spark.read.parquet(str(aside))
    kept = [id_ for ids in driven.kept_ids().values() for id_ in ids]
    assert sorted(kept + [row["id"] for row in shed.collect()]) == list(range(3000))
    by_batch = {row[BATCH]: row["count"] for row in shed.groupBy(BATCH).count().collect()}
    assert by_batch == {entry.batch_id: entry.rows_shed for entry in entries}
    assert [entry.seen.rows_aside for entry in entries] == [entry.rows_shed for entry in entries]
    assert sum(entry.seen.rows_aside for entry in entries) == shed.count()
    assert {row["_weight"] for row in shed.select("_weight").distinct().collect()} == {1.0}


def test_an_overflow_of_best_effort_that_fails_is_counted_and_the_batch_goes_on(
    driven: Driven, tmp_path: Path
) -> None:
    """An open gate beside it writes nothing aside."""
    written: dict[int, list[int]] = {}

    def sometimes(shed: DataFrame, batch_id: int) -> None:
        ids = sorted(row["id"] for row in shed.collect())
        if len(written) == 1:
            written[-1] = []
            raise OSError("no space left")
        written[batch_id] = ids

    def each(batch: DataFrame, batch_id: int) -> None:
        rows = watched.protect(
            batch,
            batch_id=batch_id,
            identity=["id"],
            overflow=sometimes,
            on_overflow_error="count",
        )
        driven.kept[batch_id] = kept_of(rows)
        opened.protect(batch, batch_id=batch_id, overflow=str(tmp_path / "aside")).collect()

    watched = guard(driven)
    opened = sw.Guard("open", state=tmp_path / "open", control=sw.FixedRate(1.0))
    query = driven.start_batches(driven.stream(), each)
    for batches, at_s in enumerate((1.0, 3.0, 4.0), start=1):
        driven.advance(query, to_s=at_s)
        driven.booked(batches)
    query.stop()
    entries = [entry for entry in watched.ledger().entries() if entry.seen.rows_in]
    first, lost, last = entries
    assert [entry.seen.rows_aside for entry in entries] == [first.rows_shed, 0, last.rows_shed]
    assert lost.rows_shed > 0
    assert watched.faults == 1
    kept = driven.kept_ids()
    assert sorted(written[first.batch_id] + kept[first.batch_id]) == list(range(1000))
    assert sorted(written[last.batch_id] + kept[last.batch_id]) == list(range(3000, 4000))
    assert not (tmp_path / "aside").exists()


def test_what_makes_no_sense_is_refused_by_name(driven: Driven) -> None:
    watched = guard(driven)
    with pytest.raises(ValueError, match="overflow belongs inside foreachBatch"):
        watched.protect(driven.stream(), overflow="aside")
    rows = driven.spark.range(3)
    with pytest.raises(ValueError, match="overflow must be a path or a function, got ' '"):
        watched.protect(rows, batch_id=0, overflow=" ")
    with pytest.raises(ValueError, match="on_overflow_error must be 'fail' or 'count', got 'no'"):
        watched.protect(rows, batch_id=0, overflow="aside", on_overflow_error="no")  # type: ignore[arg-type]
