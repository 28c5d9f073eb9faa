"""What was shed comes back: kept and replayed rows are all rows, and none is both."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import spillway as sw
from spillway.cost.heavy import HeavySketch
from spillway.cost.items import items_of
from spillway.cost.table import pack
from spillway.spark.retained import BATCH, Retained
from spillway.state.memory import Memory
from spillway.state.past import NotRetained
from spillway.values import CostState, LoopState
from tests.conftest import Driven

BURST = Retained(format="spillway-burst", options={"rate": "1000", "keys": "50", "partitions": "7"})
SHEDDERS = {
    "uniform": sw.Uniform(),
    "semantic": sw.Semantic(utility="value"),
    "faithful": sw.LoadAware(key="key", aim="faithful"),
    "fewest": sw.LoadAware(key="key", utility="1 + value * value"),
    "unbiased": sw.LoadAware(key="key", aim="unbiased"),
    "concept": sw.ConceptDriven(by="key", value="value"),
}


def guard(driven: Driven, **arguments: Any) -> sw.Guard:
    arguments.setdefault("control", sw.FixedRate(0.3))
    return sw.Guard("rides", state=driven.state, **arguments)


def know_costs(driven: Driven) -> None:
    """Let the guard know what keys cost, as an operator would have told it."""
    keys, sketch = np.arange(50), HeavySketch()
    sketch.update(items_of(keys), (keys + 1) * 100_000)
    Memory(folder=driven.state).save(LoopState(cost=CostState(table=pack(sketch))))


def rows_batches(driven: Driven) -> list[int]:
    """The batches that had rows."""
    return [e.batch_id for e in guard(driven).ledger().entries() if e.seen.rows_in]


def ids_by_batch(rows: DataFrame) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for row in rows.select(BATCH, "id").collect():
        found.setdefault(row[BATCH], []).append(row["id"])
    return {batch: sorted(ids) for batch, ids in found.items()}


def check_complement(driven: Driven, shed: DataFrame, bounds: list[int]) -> None:
    """Batch by batch: kept and shed together are the rows from bound to bound, each once."""
    found, kept = ids_by_batch(shed), driven.kept_ids()
    batches = rows_batches(driven)
    assert len(batches) == len(bounds) - 1
    for batch, first, stop in zip(batches, bounds, bounds[1:], strict=False):
        assert sorted(found.get(batch, []) + kept[batch]) == list(range(first, stop))
    assert sum(map(len, found.values())) > 0


@pytest.mark.parametrize("name", SHEDDERS)
def test_kept_and_replayed_rows_are_all_rows_over_a_restart_and_other_partitions(
    driven: Driven, name: str
) -> None:
    """Each shedder that the gate knows: the second run and the replay partition otherwise."""
    know_costs(driven)
    shed = SHEDDERS[name]
    for run, partitions in ((((1, 1.0), (2, 3.0)), "2"), (((3, 4.0),), "5")):
        watched = guard(driven, shed=shed)
        stream = driven.stream(partitions=partitions).repartition(int(partitions))
        query = driven.start(watched.protect(stream, identity=["id"], protect="id % 10 = 3"))
        for batches, at_s in run:
            driven.advance(query, to_s=at_s)
            driven.booked(batches)
        query.stop()
    found = guard(driven, shed=shed).shed_rows(driven.spark, BURST, batches=rows_batches(driven))
    check_complement(driven, found, [0, 1000, 3000, 4000])
    assert found.where("id % 10 = 3").isEmpty()
    # The description of the gate is in the state folder: another guard finds the same rows.
    again = guard(driven, shed=sw.Uniform()).shed_rows(
        driven.spark, BURST, batches=rows_batches(driven), check=False
    )
    assert ids_by_batch(again.repartition(3)) == ids_by_batch(found)


def test_published_totals_become_exact(driven: Driven) -> None:
    """Weighted totals of the kept rows plus those of the corrections are the truth."""
    published: list[tuple[float, float]] = []

    def publish(batch: DataFrame, batch_id: int) -> None:
        total = batch.agg(F.sum("_weight"), F.sum(F.col("_weight") * F.col("value"))).collect()[0]
        published.append((total[0] or 0.0, total[1] or 0.0))

    watched = guard(driven, shed=sw.ConceptDriven(by="key"))
    rows = watched.protect(driven.stream(), identity=["id"], protect="id % 10 = 3")
    query = driven.start_batches(rows, publish)
    for batches, at_s in enumerate((1.0, 3.0), start=1):
        driven.advance(query, to_s=at_s)
        driven.booked(batches)
    query.stop()
    batches = rows_batches(driven)
    fixes = watched.replay(driven.spark, BURST, batches=batches).corrections()
    added = fixes.agg(F.sum("_weight"), F.sum(F.col("_weight") * F.col("value"))).collect()[0]
    truth = driven.spark.read.format("spillway-burst-again")
    ranges = json.dumps([[0, None, {"row": 3000, "epoch_us": 0}]])
    all_rows = truth.options(**BURST.options, ranges=ranges).load()
    count, total = all_rows.agg(F.count("*"), F.sum("value")).collect()[0]
    assert sum(pair[0] for pair in published) != count
    assert sum(pair[0] for pair in published) + added[0] == pytest.approx(count, rel=1e-12)
    assert sum(pair[1] for pair in published) + added[1] == pytest.approx(total, rel=1e-12)
    assert fixes.where("_weight = 1").count() == watched.ledger().totals().rows_shed
    assert fixes.where("_weight = 0").isEmpty()


def test_inside_foreachbatch_and_without_a_text_of_the_predicate(driven: Driven) -> None:
    """A Column cannot be written down: it is asked for, and then the same rows come."""
    gold: Column = F.col("key") == 0
    watched = guard(driven)

    def each(batch: DataFrame, batch_id: int) -> None:
        kept = watched.protect(batch, batch_id=batch_id, identity=["id"], protect=gold)
        driven.kept[batch_id] = [(row["id"], row["_weight"]) for row in kept.collect()]

    query = driven.start_batches(driven.stream(), each)
    for at_s in (1.0, 3.0):
        driven.advance(query, to_s=at_s)
    driven.booked(2)
    query.stop()
    batches = rows_batches(driven)
    with pytest.raises(ValueError, match="protect must be given again"):
        watched.shed_rows(driven.spark, BURST, batches=batches)
    shed = watched.replay(driven.spark, BURST, batches=batches, protect=gold).shed_rows()
    check_complement(driven, shed, [0, 1000, 3000])
    assert shed.where("key = 0").isEmpty()


def test_a_batch_that_the_books_miss_comes_back_by_its_pinned_plan(driven: Driven) -> None:
    query = driven.start(guard(driven).protect(driven.stream(), identity=["id"]))
    for batches, at_s in enumerate((1.0, 3.0, 4.0), start=1):
        driven.advance(query, to_s=at_s)
        driven.booked(batches)
    query.stop()
    batches = rows_batches(driven)
    (segment,) = (driven.state / "ledger").glob("*.jsonl")
    lines = segment.read_bytes().splitlines()
    lost = f'"batch_id":{batches[1]},'.encode()
    segment.write_bytes(b"\n".join(line for line in lines if lost not in line) + b"\n")
    assert guard(driven).gaps() == [batches[1]]
    shed = guard(driven).shed_rows(driven.spark, BURST, batches=batches)
    kept = driven.kept_ids()
    found = ids_by_batch(shed)
    assert sorted(found[batches[1]] + kept[batches[1]]) == list(range(1000, 3000))


def test_rows_prepared_before_the_gate_come_back_as_they_were_shed(driven: Driven) -> None:
    """With and without the column that names the batch; the gate stood on made columns."""

    def doubled(raw: DataFrame) -> DataFrame:
        return raw.selectExpr("id AS number", "value * 2 AS twice")

    def doubled_with_batch(raw: DataFrame) -> DataFrame:
        return raw.selectExpr("id AS number", "value * 2 AS twice", BATCH)

    watched = guard(driven, shed=sw.Semantic(utility="twice"))
    kept = watched.protect(doubled(driven.stream()), identity=["number"])
    query = driven.start(kept.withColumnRenamed("number", "id"))
    for batches, at_s in enumerate((1.0, 3.0), start=1):
        driven.advance(query, to_s=at_s)
        driven.booked(batches)
    query.stop()
    for prepare in (doubled, doubled_with_batch):
        source = Retained(format=BURST.format, options=BURST.options, prepare=prepare)
        shed = watched.shed_rows(driven.spark, source, batches=rows_batches(driven))
        assert shed.columns == ["number", "twice", "_weight", BATCH, "_spillway_rate"]
        check_complement(driven, shed.withColumnRenamed("number", "id"), [0, 1000, 3000])


@pytest.fixture
def two_batches(driven: Driven) -> Driven:
    query = driven.start(guard(driven).protect(driven.stream(), identity=["id"]))
    for batches, at_s in enumerate((1.0, 3.0), start=1):
        driven.advance(query, to_s=at_s)
        driven.booked(batches)
    query.stop()
    return driven


def test_rows_that_the_source_lost_are_told(
    two_batches: Driven, caplog: pytest.LogCaptureFixture
) -> None:
    """Any source: a function reads its ranges. It has lost the rows from 1500 to 1999."""
    spark, watched = two_batches.spark, guard(two_batches)

    def read(start: Any, end: Any) -> DataFrame:
        rows = spark.range((start or {"row": 0})["row"], end["row"])
        return rows.where("id NOT BETWEEN 1500 AND 1999")

    batches = rows_batches(two_batches)
    booked = watched.ledger().entries()[-1].rows_shed
    with pytest.raises(NotRetained, match=rf"batch {batches[1]}: \d+ rows of {booked} found"):
        watched.shed_rows(spark, Retained(read=read), batches=batches)
    shed = watched.shed_rows(spark, Retained(read=read), batches=batches, check=False)
    kept = {id_ for ids in two_batches.kept_ids().values() for id_ in ids}
    there = {*range(1500), *range(2000, 3000)}
    assert {row["id"] for row in shed.collect()} == there - kept


def test_batches_without_shed_rows_and_batches_that_are_none(two_batches: Driven) -> None:
    spark, watched = two_batches.spark, guard(two_batches)
    empty = [e.batch_id for e in watched.ledger().entries() if not e.seen.rows_in]
    with pytest.raises(ValueError, match="batches must be in the books, got 99: they hold"):
        watched.shed_rows(spark, BURST, batches=[1, 99])
    with pytest.raises(ValueError, match="at least one batch"):
        watched.shed_rows(spark, BURST, batches=[])
    if empty:
        assert watched.shed_rows(spark, BURST, batches=empty).isEmpty()


def test_rows_refused_inside_an_operator_are_said_not_to_come_back(
    driven: Driven, caplog: pytest.LogCaptureFixture
) -> None:
    watched = guard(driven, control=sw.FixedRate(1.0))
    kept = watched.protect(driven.stream(), identity=["id"], arrived="arrived")
    slow = watched.map(
        kept,
        lambda row: {"id": row["id"]},
        "id bigint",
        arrived="arrived",
        admit=sw.Latency(each="1 ms"),
    )
    query = driven.start(slow)
    driven.advance(query, to_s=1.0)
    refused = next(e for e in driven.booked(1).entries() if e.seen.rows_in).seen.rows_refused
    query.stop()
    assert refused > 0
    with caplog.at_level(logging.WARNING, logger="spillway"):
        shed = watched.shed_rows(driven.spark, BURST, batches=rows_batches(driven))
    assert shed.isEmpty()
    assert f"{refused} rows were refused inside an operator" in caplog.text


# Files --------------------------------------------------------------------------------------


@pytest.fixture
def compacted(spark: SparkSession) -> Any:
    """Spark writes its list of files anew after every third batch."""
    name = "spark.sql.streaming.fileSource.log.compactInterval"
    spark.conf.set(name, "3")
    yield
    spark.conf.unset(name)


def test_files_are_read_again_by_the_list_in_the_checkpoint(
    driven: Driven, tmp_path: Path, compacted: None, caplog: pytest.LogCaptureFixture
) -> None:
    """Names with brackets and blanks, folders that are columns, a compacted list, a lost file."""
    folder = tmp_path / "in"
    write_files(folder, 7)
    schema = "id bigint, fare double, day int"
    options = {"path": str(folder), "maxFilesPerTrigger": "1", "latestFirst": "false"}
    stream = driven.spark.readStream.format("json").schema(schema).options(**options).load()
    watched = guard(driven, shed=sw.Semantic(utility="fare"))
    query = driven.start(watched.protect(stream))
    query.processAllAvailable()
    driven.booked(7)
    query.stop()
    source = Retained(format="json", options=options, schema=schema)
    batches = rows_batches(driven)
    shed = watched.shed_rows(driven.spark, source, batches=batches)
    found, kept = ids_by_batch(shed), driven.kept_ids()
    assert sorted(i for ids in (*found.values(), *kept.values()) for i in ids) == list(range(1400))
    assert all(not set(found.get(batch, [])) & set(kept[batch]) for batch in batches)
    assert {row["day"] for row in shed.select("day").distinct().collect()} == {0, 1}
    gone = next(folder.glob("day=1/*3*"))
    gone.unlink()
    with pytest.raises(NotRetained, match=r"batch \d+: file .*part.*is gone"):
        watched.shed_rows(driven.spark, source, batches=batches)
    with caplog.at_level(logging.WARNING, logger="spillway"):
        left = watched.shed_rows(driven.spark, source, batches=batches, check=False)
    lost = set(range(600, 800))
    assert {r["id"] for r in left.collect()} == {i for ids in found.values() for i in ids} - lost
    assert "is gone" in caplog.text


def write_files(folder: Path, files: int) -> None:
    """200 rows each, under names that would be patterns, in folders that are columns."""
    for number in range(files):
        day = folder / f"day={number % 2}"
        day.mkdir(parents=True, exist_ok=True)
        ids = range(number * 200, number * 200 + 200)
        lines = (json.dumps({"id": i, "fare": (i * 7919 % 997) / 10}) for i in ids)
        (day / f"part [{number}] {{a,b}}.json").write_text("\n".join(lines))
