"""Inside `foreachBatch` the same guard keeps the same books, without a listener."""

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

import spillway as sw
from tests.conftest import Driven, wait_until


def guard(driven: Driven, **arguments: object) -> sw.Guard:
    arguments.setdefault("control", sw.FixedRate(0.3))
    return sw.Guard("rides", state=driven.state, **arguments)  # type: ignore[arg-type]


def test_the_books_are_exact_over_batches_and_a_restart(driven: Driven) -> None:
    watched = guard(driven)

    def each(batch: DataFrame, batch_id: int) -> None:
        rows = watched.protect(batch, batch_id=batch_id, identity=["id"], arrived="arrived")
        driven.kept[batch_id] = [(r["id"], r["_weight"]) for r in rows.collect()]

    for run in ((1.0, 2.5), (4.0, 9.0)):
        watched = guard(driven)
        query = driven.start_batches(driven.stream(), each)
        for at_s in run:
            driven.advance(query, to_s=at_s)
        driven.booked(2 if run[0] == 1.0 else 4)
        query.stop()
    entries = [e for e in guard(driven).ledger().entries() if e.seen.rows_in]
    totals = guard(driven).ledger().totals()
    assert [e.seen.rows_in for e in entries] == [1000, 1500, 1500, 5000]
    assert totals.rows_in == totals.rows_kept + totals.rows_shed == 9000
    assert {e.batch_id: e.seen.rows_kept for e in entries} == {
        batch: len(ids) for batch, ids in driven.kept.items() if ids
    }
    assert [e.plan.rows_expected for e in entries if e.plan][1:] == [1500, 1500, 5000]
    assert all(e.seen.latency_s_mean is not None and e.seen.duration_s > 0 for e in entries)
    assert guard(driven).gaps() == []


def test_a_batch_that_raises_once_is_run_again_with_the_same_rows(driven: Driven) -> None:
    """First the sink fails after its action, then the batch is replayed by another guard."""
    attempts: list[list[int]] = []

    def each(batch: DataFrame, batch_id: int) -> None:
        rows = watched.protect(batch, batch_id=batch_id, identity=["id"])
        if ids := [r["id"] for r in rows.collect()]:
            attempts.append(sorted(ids))
            if len(attempts) == 1:
                raise RuntimeError("the sink is away")

    watched = guard(driven)
    query = driven.start_batches(driven.stream(), each)
    with pytest.raises(StreamingQueryException, match="the sink is away"):
        driven.advance(query, to_s=10.0)
    watched = guard(driven, control=sw.FixedRate(0.8))
    query = driven.start_batches(driven.stream(partitions="5"), each)
    driven.advance(query, to_s=10.0)
    totals = driven.booked(1).totals()
    query.stop()
    assert len(attempts) == 2
    assert attempts[0] == attempts[1]
    assert totals.rows_in == 10_000
    assert totals.rows_kept == len(attempts[0])


def test_two_actions_on_a_batch_count_once(driven: Driven) -> None:
    watched = guard(driven)

    def each(batch: DataFrame, batch_id: int) -> None:
        rows = watched.protect(batch, batch_id=batch_id, identity=["id"])
        driven.kept[batch_id] = [(rows.count(), float(rows.count()))]

    query = driven.start_batches(driven.stream(), each)
    driven.advance(query, to_s=2.0)
    totals = driven.booked(1).totals()
    query.stop()
    assert totals.rows_in == 2000
    assert totals.rows_kept == max(pairs[0][0] for pairs in driven.kept.values())


def test_a_batch_without_an_action_is_not_in_the_books_and_hangs_nothing(driven: Driven) -> None:
    watched = guard(driven)
    batches: list[int] = []

    def each(batch: DataFrame, batch_id: int) -> None:
        rows = watched.protect(batch, batch_id=batch_id, identity=["id"])
        batches.append(batch_id)
        if batch_id % 2:
            rows.collect()

    query = driven.start_batches(driven.stream(), each)
    for at_s in (1.0, 2.0, 3.0, 4.0):
        driven.advance(query, to_s=at_s)
    acted = [batch for batch in batches if batch % 2]
    wait_until(lambda: len(watched.ledger().entries()) >= len(acted), "the acted-upon batches")
    query.stop()
    assert [e.batch_id for e in watched.ledger().entries()] == acted


def test_a_negative_batch_id_is_refused(driven: Driven) -> None:
    with pytest.raises(ValueError, match="batch_id must be >= 0, got -1"):
        guard(driven).protect(driven.spark.range(1), batch_id=-1)
