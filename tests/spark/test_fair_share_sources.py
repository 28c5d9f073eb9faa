"""One guarded query with two sources: its SIC against what its rows carry, counted by hand."""

from __future__ import annotations

import os
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import spillway as sw
from spillway.state.fair_log import FairLog
from tests.conftest import wait_until

WINDOW_S = 80.0  # its slots are two seconds long
RATES = {"left": 0.5, "right": 0.25}


def arrive(folder: Path, first: int, rows: int) -> None:
    """Let rows come, all at once."""
    folder.mkdir(exist_ok=True)
    beside = folder.parent / "beside"
    beside.write_text("".join(f'{{"id": {number}}}\n' for number in range(first, first + rows)))
    os.replace(beside, folder / f"{first}.json")


def came(guard: sw.Guard) -> int:
    """Count the rows that came to a gate, by its books."""
    return sum(entry.seen.rows_in for entry in guard.ledger().entries())


def gated(spark: SparkSession, guard: sw.Guard, folder: Path) -> DataFrame:
    """Open the source of a guard, behind its gate."""
    rows = spark.readStream.schema("id bigint").json(str(folder))
    kept = guard.protect(rows, identity=["id"])
    return kept.select(F.lit(guard.name).alias("source"), "id")


def test_the_sic_of_a_query_is_what_its_rows_carry_and_a_silent_source_carries_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row carries 1 / (sources · rows of its source in the window): 1/600 and 1/200, then 1/300.

    First 300 and 100 rows come, then 300 of the one source alone, and the others leave the window.
    """
    checkpoint, log = tmp_path / "query", FairLog(folder=tmp_path / "fair")
    guards = [
        sw.Guard(name, control=sw.FixedRate(rate), state=checkpoint / name, checkpoint=checkpoint)
        for name, rate in RATES.items()
    ]
    fair = sw.FairShare(guards, state=log.folder, cores=1_000.0, window=f"{WINDOW_S:g} s")
    kept: Counter[str] = Counter()

    def note(batch: DataFrame, _: int) -> None:
        kept.update(row["source"] for row in batch.collect())

    def ask(now_s: float) -> dict[tuple[str, ...], float]:
        """Ask at a time at which both guards are alive, however slow the machine is."""
        for name in RATES:
            member = log.read(name)
            assert member is not None
            log.publish(replace(member, at_s=now_s))
        monkeypatch.setattr("spillway.fair_share.time", SimpleNamespace(time=lambda: now_s))
        return fair.sic_of_queries()

    arrive(tmp_path / "left", 0, 300)
    arrive(tmp_path / "right", 0, 100)
    left, right = (gated(spark, guard, tmp_path / guard.name) for guard in guards)
    writer = left.union(right).writeStream.foreachBatch(note)
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    try:
        query.processAllAvailable()
        wait_until(lambda: [came(each) for each in guards] == [300, 100], "both sources' rows")
        first = Counter(kept)
        first_s = guards[1].ledger().entries()[0].started_at_s
        by_hand = first["left"] / 600 + first["right"] / 200
        wait_until(lambda: all(map(log.read, RATES)), "both guards' records")
        assert ask(first_s) == {("left", "right"): pytest.approx(by_hand)}
        assert by_hand == pytest.approx((0.5 + 0.25) / 2, abs=0.13)  # five standard deviations

        wait_until(lambda: time.time() > first_s + 2.0, "another slot of the window")
        arrive(tmp_path / "left", 300, 300)  # the other source is silent
        query.processAllAvailable()
        wait_until(lambda: came(guards[0]) == 600, "the rows of one source")
        wait_until(lambda: _told(log, "left") > 0, "its record")
    finally:
        query.stop()
    both = kept["left"] / 1_200 + kept["right"] / 200
    alone = (kept["left"] - first["left"]) / 300
    assert ask(first_s + 2.0) == {("left", "right"): pytest.approx(both)}
    assert ask(first_s + WINDOW_S) == {("left", "right"): pytest.approx(alone)}
    assert kept["right"] == first["right"]
    assert [guard.faults for guard in guards] == [0, 0]


def _told(log: FairLog, name: str) -> int:
    """Return the last batch that a guard told the others of."""
    member = log.read(name)
    return member.batch_id if member else -1
