"""What was shed comes back: kept and replayed rows are all rows, and none is both."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import spillway as sw
from spillway.contracts import Shedder
from spillway.cost.heavy import HeavySketch
from spillway.cost.items import items_of
from spillway.cost.table import pack
from spillway.spark import retained
from spillway.spark.retained import BATCH, Retained
from spillway.state.memory import Memory
from spillway.state.past import NotRetained
from spillway.values import CostState, LoopState
from tests.conftest import Driven

BURST = Retained(format="spillway-burst", options={"rate": "1000", "keys": "50", "partitions": "7"})
BOUNDS = [0, 1000, 3000, 4000]


def doubled(raw: DataFrame) -> DataFrame:
    return raw.selectExpr("id AS number", "value * 2 AS twice")


def doubled_with_batch(raw: DataFrame) -> DataFrame:
    return raw.selectExpr("id AS number", "value * 2 AS twice", BATCH)


@dataclass(frozen=True)
class Case:
    """A guard of its own kind on the stream that all share."""

    shed: Shedder = field(default_factory=sw.Uniform)
    protect: Callable[[], Column | str] | None = lambda: "id % 10 = 3"
    rate: float = 0.3
    prepare: Callable[[DataFrame], DataFrame] = lambda raw: raw
    id_: str = "id"
    value: str = "value"
    admit: bool = False


SHEDDERS = {
    "uniform": Case(),
    "semantic": Case(shed=sw.Semantic(utility="value")),
    "faithful": Case(shed=sw.LoadAware(key="key", aim="faithful")),
    "fewest": Case(shed=sw.LoadAware(key="key", utility="1 + value * value")),
    "unbiased": Case(shed=sw.LoadAware(key="key", aim="unbiased")),
    "concept": Case(shed=sw.ConceptDriven(by="key", value="value")),
}
CASES = {
    **SHEDDERS,
    "predicate without a text": Case(protect=lambda: F.col("key") == 0),
    "prepared": Case(
        shed=sw.Semantic(utility="twice"),
        protect=None,
        prepare=doubled,
        id_="number",
        value="twice",
    ),
    "refused": Case(rate=1.0, protect=None, admit=True),
}


@dataclass
class Ended:
    """One stream that has ended: every batch went through a guard of every kind."""

    driven: Driven
    kept: dict[tuple[str, int], list[tuple[int, float, float]]] = field(default_factory=dict)

    @property
    def spark(self) -> SparkSession:
        return self.driven.spark

    def guard(self, name: str, shed: Shedder | None = None) -> sw.Guard:
        case = CASES[name]
        return sw.Guard(
            "rides",
            state=self.driven.folder / name,
            checkpoint=self.driven.checkpoint,
            control=sw.FixedRate(case.rate),
            shed=shed or case.shed,
        )

    def run(self, partitions: str, *times_s: float) -> None:
        """Run the query up to these times, with guards and partitions of its own."""
        guards = {name: self.guard(name) for name in CASES}

        def each(batch: DataFrame, batch_id: int) -> None:
            batch.persist()
            for name, guard in guards.items():
                self.kept[name, batch_id] = self._kept(CASES[name], guard, batch, batch_id)
            batch.unpersist()

        stream = self.driven.stream(partitions=partitions).repartition(int(partitions))
        query = self.driven.start_batches(stream, each)
        for at_s in times_s:
            self.driven.advance(query, to_s=at_s)
        query.stop()
        for guard in guards.values():
            guard.live.settle()

    def _kept(
        self, case: Case, guard: sw.Guard, batch: DataFrame, batch_id: int
    ) -> list[tuple[int, float, float]]:
        rows = guard.protect(
            case.prepare(batch),
            batch_id=batch_id,
            identity=[case.id_],
            arrived="arrived" if case.admit else None,
            protect=case.protect() if case.protect else None,
        )
        if case.admit:
            rows = guard.map(
                rows,
                lambda row: {"id": row["id"], "value": row["value"]},
                "id bigint, value double",
                arrived="arrived",
                admit=sw.Latency(each="1 ms"),
                batch_id=batch_id,
            )
        return [tuple(row) for row in rows.select(case.id_, "_weight", case.value).collect()]

    def batches(self, name: str = "uniform") -> list[int]:
        return row_batches(self.guard(name))

    def check_complement(self, name: str, shed: DataFrame) -> None:
        kept = {batch: [row[0] for row in self.kept[name, batch]] for batch in self.batches(name)}
        check_complement(kept, shed.withColumnRenamed(CASES[name].id_, "id"))


def know_costs(state: Path) -> None:
    """Let the guard know what keys cost, as an operator would have told it."""
    keys, sketch = np.arange(50), HeavySketch()
    sketch.update(items_of(keys), (keys + 1) * 100_000)
    Memory(folder=state).save(LoopState(cost=CostState(table=pack(sketch))))


def row_batches(guard: sw.Guard) -> list[int]:
    """The batches that had rows."""
    return [e.batch_id for e in guard.ledger().entries() if e.seen.rows_in]


def ids_by_batch(rows: DataFrame) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for row in rows.select(BATCH, "id").collect():
        found.setdefault(row[BATCH], []).append(row["id"])
    return {batch: sorted(ids) for batch, ids in found.items()}


def check_complement(kept: dict[int, list[int]], shed: DataFrame) -> None:
    """Batch by batch: kept and shed together are the rows from bound to bound, each once."""
    found = ids_by_batch(shed)
    assert len(kept) == len(BOUNDS) - 1
    for batch, first, stop in zip(sorted(kept), BOUNDS, BOUNDS[1:], strict=False):
        assert sorted(found.get(batch, []) + kept[batch]) == list(range(first, stop))
    assert sum(map(len, found.values())) > 0


@pytest.fixture(scope="module")
def ended(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ended]:
    """Inside `foreachBatch`; the second run and every replay partition otherwise."""
    stream = Ended(Driven(spark, tmp_path_factory.mktemp("ended")))
    for name in CASES:
        know_costs(stream.driven.folder / name)
    stream.run("2", 1.0, 3.0)
    stream.run("5", 4.0)
    yield stream
    for query in spark.streams.active:
        query.stop()


@pytest.mark.parametrize("name", SHEDDERS)
def test_kept_and_replayed_rows_are_all_rows_over_a_restart_and_other_partitions(
    ended: Ended, name: str
) -> None:
    """Each shedder that the gate knows; another guard finds the same by what the folder says."""
    shed = ended.guard(name).shed_rows(ended.spark, BURST, batches=ended.batches(name))
    ended.check_complement(name, shed)
    assert shed.where("id % 10 = 3").isEmpty()
    other = ended.guard(name, shed=sw.Uniform())
    again = other.shed_rows(ended.spark, BURST, batches=ended.batches(name), check=False)
    assert ids_by_batch(again.repartition(3)) == ids_by_batch(shed)


def test_published_totals_become_exact(ended: Ended) -> None:
    """Weighted totals of the kept rows plus those of the corrections are the truth."""
    guard = ended.guard("concept")
    kept = [row for (name, _), rows in ended.kept.items() if name == "concept" for row in rows]
    published = sum(row[1] for row in kept), sum(row[1] * row[2] for row in kept)
    fixes = guard.replay(ended.spark, BURST, batches=ended.batches("concept")).corrections()
    added = fixes.agg(F.sum("_weight"), F.sum(F.col("_weight") * F.col("value"))).collect()[0]
    ranges = json.dumps([[0, None, {"row": BOUNDS[-1], "epoch_us": 0}]])
    again = ended.spark.read.format("spillway-burst-again").options(**BURST.options, ranges=ranges)
    count, total = again.load().agg(F.count("*"), F.sum("value")).collect()[0]
    assert published[0] != count
    assert published[0] + added[0] == pytest.approx(count, rel=1e-12)
    assert published[1] + added[1] == pytest.approx(total, rel=1e-12)
    assert fixes.where("_weight = 1").count() == guard.ledger().totals().rows_shed
    assert fixes.where("_weight = 0").isEmpty()


def test_a_predicate_without_a_text_is_asked_for_again(ended: Ended) -> None:
    """A Column cannot be written down: it is asked for, and then the same rows come."""
    name = "predicate without a text"
    guard, batches = ended.guard(name), ended.batches(name)
    with pytest.raises(ValueError, match="protect must be given again"):
        guard.shed_rows(ended.spark, BURST, batches=batches)
    gold = F.col("key") == 0
    shed = guard.replay(ended.spark, BURST, batches=batches, protect=gold).shed_rows()
    ended.check_complement(name, shed)
    assert shed.where("key = 0").isEmpty()


def test_rows_prepared_before_the_gate_come_back_as_they_were_shed(ended: Ended) -> None:
    """With and without the column that names the batch; the gate stood on made columns."""
    guard = ended.guard("prepared")
    for prepare in (doubled, doubled_with_batch):
        source = Retained(format=BURST.format, options=BURST.options, prepare=prepare)
        shed = guard.shed_rows(ended.spark, source, batches=ended.batches("prepared"))
        assert shed.columns == ["number", "twice", "_weight", BATCH, "_spillway_rate"]
        ended.check_complement("prepared", shed)


def test_rows_refused_inside_an_operator_are_said_not_to_come_back(
    ended: Ended, caplog: pytest.LogCaptureFixture
) -> None:
    guard = ended.guard("refused")
    refused = sum(entry.seen.rows_refused for entry in guard.ledger().entries())
    assert refused > 0
    with caplog.at_level(logging.WARNING, logger="spillway"):
        shed = guard.shed_rows(ended.spark, BURST, batches=ended.batches("refused"))
    assert shed.isEmpty()
    assert f"{refused} rows were refused inside an operator" in caplog.text


# In a streaming plan ------------------------------------------------------------------------


def streamed(driven: Driven) -> sw.Guard:
    return sw.Guard("rides", state=driven.state, control=sw.FixedRate(0.3))


@pytest.fixture(scope="module")
def three_batches(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Driven:
    """A guard in the streaming plan itself."""
    driven = Driven(spark, tmp_path_factory.mktemp("three"))
    query = driven.start(streamed(driven).protect(driven.stream(), identity=["id"]))
    for batches, stop in enumerate(BOUNDS[1:], start=1):
        driven.advance(query, to_s=stop / 1000)
        driven.booked(batches)
    query.stop()
    return driven


def test_a_batch_that_the_books_miss_comes_back_by_its_pinned_plan(three_batches: Driven) -> None:
    driven, guard = three_batches, streamed(three_batches)
    batches = row_batches(guard)
    (segment,) = (driven.state / "ledger").glob("*.jsonl")
    whole = segment.read_bytes()
    lost = f'"batch_id":{batches[1]},'.encode()
    lines = [line for line in whole.splitlines() if lost not in line]
    segment.write_bytes(b"\n".join(lines) + b"\n")
    assert guard.gaps() == [batches[1]]
    kept = {batch: driven.kept_ids()[batch] for batch in batches}
    check_complement(kept, guard.shed_rows(driven.spark, BURST, batches=batches))
    segment.write_bytes(whole)
    assert guard.gaps() == []


def test_rows_that_the_source_lost_are_told(three_batches: Driven) -> None:
    """Any source: a function reads its ranges. It has lost the rows from 1500 to 1999."""
    spark, watched = three_batches.spark, streamed(three_batches)

    def read(start: Any, end: Any) -> DataFrame:
        rows = spark.range((start or {"row": 0})["row"], end["row"])
        return rows.where("id NOT BETWEEN 1500 AND 1999")

    batches = row_batches(watched)
    (booked,) = [e.rows_shed for e in watched.ledger().entries() if e.batch_id == batches[1]]
    with pytest.raises(NotRetained, match=rf"batch {batches[1]}: \d+ rows of {booked} found"):
        watched.shed_rows(spark, Retained(read=read), batches=batches)
    shed = watched.shed_rows(spark, Retained(read=read), batches=batches, check=False)
    kept = {id_ for ids in three_batches.kept_ids().values() for id_ in ids}
    there = {*range(1500), *range(2000, BOUNDS[-1])}
    assert {row["id"] for row in shed.collect()} == there - kept


def test_batches_without_shed_rows_and_batches_that_are_none(three_batches: Driven) -> None:
    spark, watched = three_batches.spark, streamed(three_batches)
    empty = [e.batch_id for e in watched.ledger().entries() if not e.seen.rows_in]
    with pytest.raises(ValueError, match="batches must be in the books, got 99: they hold"):
        watched.shed_rows(spark, BURST, batches=[1, 99])
    with pytest.raises(ValueError, match="at least one batch"):
        watched.shed_rows(spark, BURST, batches=[])
    if empty:
        assert watched.shed_rows(spark, BURST, batches=empty).isEmpty()


# Files --------------------------------------------------------------------------------------


@pytest.fixture
def compacted(spark: SparkSession) -> Any:
    """Spark writes its list of files anew after every third batch."""
    name = "spark.sql.streaming.fileSource.log.compactInterval"
    spark.conf.set(name, "3")
    yield
    spark.conf.unset(name)


def test_files_are_read_again_by_the_list_in_the_checkpoint(
    driven: Driven,
    tmp_path: Path,
    compacted: None,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Names with brackets and blanks, folders that are columns, a compacted list, a lost file.

    Few batches are read apart, many at once: both give the same.
    """
    folder = tmp_path / "in"
    write_files(folder, 4)
    schema = "id bigint, fare double, day int"
    options = {"path": str(folder), "maxFilesPerTrigger": "1", "latestFirst": "false"}
    stream = driven.spark.readStream.format("json").schema(schema).options(**options).load()
    watched = sw.Guard(
        "rides",
        state=driven.state,
        control=sw.FixedRate(0.3),
        shed=sw.Semantic(utility="fare"),
    )
    query = driven.start(watched.protect(stream))
    query.processAllAvailable()
    driven.booked(4)
    query.stop()
    source = Retained(format="json", options=options, schema=schema)
    batches = row_batches(watched)
    shed = watched.shed_rows(driven.spark, source, batches=batches)
    found, kept = ids_by_batch(shed), driven.kept_ids()
    assert sorted(i for ids in (*found.values(), *kept.values()) for i in ids) == list(range(800))
    assert all(not set(found.get(batch, [])) & set(kept[batch]) for batch in batches)
    assert {row["day"] for row in shed.select("day").distinct().collect()} == {0, 1}
    with monkeypatch.context() as patched:
        patched.setattr(retained, "_APART_MAX", 0)
        assert ids_by_batch(watched.shed_rows(driven.spark, source, batches=batches)) == found
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
