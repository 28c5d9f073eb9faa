"""Which offsets a batch read, and what is left of them: without a broker."""

from __future__ import annotations

from spillway.spark.retained_kafka import Range, ranges_of, retained
from spillway.state.past import PastBatch


def batch(batch_id: int, start: object, end: object) -> PastBatch:
    return PastBatch(batch_id=batch_id, start=start, end=end, plan=None, gate=None, rows_shed=0)


def test_a_batch_spans_all_topics_and_a_new_partition_from_its_start() -> None:
    found = ranges_of(
        batch(3, {"a": {"0": 5, "1": 8}}, {"a": {"0": 9, "1": 8, "2": 4}, "b": {"0": 2}})
    )
    assert found == [
        Range(("a", 0), 5, 9, 3),
        Range(("a", 2), 0, 4, 3),
        Range(("b", 0), 0, 2, 3),
    ]


def test_a_partition_that_vanished_and_an_offset_that_went_back_span_nothing() -> None:
    assert ranges_of(batch(3, {"a": {"0": 5, "1": 8}}, {"a": {"1": 6}})) == []


def test_what_has_expired_is_cut_off_and_told() -> None:
    whole, part, gone, away = (
        Range(("a", 0), 50, 60, 1),
        Range(("a", 1), 10, 30, 1),
        Range(("a", 2), 0, 10, 2),
        Range(("b", 0), 0, 10, 2),
    )
    first = {("a", 0): 50, ("a", 1): 20, ("a", 2): 10, ("b", 0): None}
    left, missing = retained([whole, part, gone, away], first)
    assert left == [whole, Range(("a", 1), 20, 30, 1)]
    assert missing == [
        "batch 1: offsets 10 to 19 of a/1 have expired",
        "batch 2: offsets 0 to 9 of a/2 have expired",
        "batch 2: offsets 0 to 9 of b/0 have expired",
    ]


def test_where_the_broker_was_not_asked_all_is_taken_to_be_there() -> None:
    every = [Range(("a", 0), 50, 60, 1)]
    assert retained(every, {}) == (every, [])
