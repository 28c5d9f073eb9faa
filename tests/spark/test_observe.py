"""Spark's progress report becomes an observation: exact where it speaks, unknown where not."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Any

import pytest

from spillway.concept_values import GroupsSeen
from spillway.spark.observe import Timing, observation, progress_offsets, progress_timing
from spillway.values import Observation, StratumCount

KAFKA_START = {"rides": {"0": 100, "1": 40}}
KAFKA_END = {"rides": {"0": 130, "1": 50}}
KAFKA_LATEST = {"rides": {"0": 230, "1": 50}}


def source(start: object, end: object, **latest: object) -> dict[str, Any]:
    return {
        "description": "KafkaV2[Subscribe[rides]]",
        "startOffset": start,
        "endOffset": end,
        "numInputRows": 40,
        "inputRowsPerSecond": 40.0,
        "processedRowsPerSecond": 80.0,
        **latest,
    }


def progress(*sources: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": "b2b9d8f0-0000-4000-8000-000000000001",
        "runId": "b2b9d8f0-0000-4000-8000-000000000002",
        "name": None,
        "timestamp": "2026-01-02T03:04:05.678Z",
        "batchId": 12,
        "batchDuration": 1500,
        "numInputRows": 80,
        "durationMs": {"addBatch": 1200, "triggerExecution": 1500},
        "stateOperators": [],
        "sources": list(sources),
        "sink": {"description": "MemorySink", "numOutputRows": 8},
    }


def metrics(**more: object) -> dict[str, Any]:
    return {"salt": 3, "in_0": 100, "kept_0": 25, "in_1": 10, "kept_1": 10, **more}


TIMING = Timing(batch_id=4, started_at_s=1_000.0, duration_s=2.0, offset_span=7.0, backlog_rows=3.0)


def test_the_timing_is_that_of_the_progress_report() -> None:
    timing = progress_timing(progress(source(KAFKA_START, KAFKA_END, latestOffset=KAFKA_LATEST)))
    started = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC).timestamp()
    assert timing == Timing(
        batch_id=12,
        started_at_s=pytest.approx(started, abs=1e-6),
        duration_s=1.5,
        offset_span=40.0,
        backlog_rows=100.0,
    )


def test_the_first_batch_starts_nowhere_and_has_no_span() -> None:
    timing = progress_timing(progress(source(None, KAFKA_END, latestOffset=KAFKA_LATEST)))
    assert timing.offset_span is None
    assert timing.backlog_rows == 100.0


@pytest.mark.parametrize("latest", [{}, {"latestOffset": None}])
def test_without_a_latest_offset_the_backlog_is_unknown(latest: dict[str, object]) -> None:
    timing = progress_timing(progress(source(KAFKA_START, KAFKA_END, **latest)))
    assert timing.backlog_rows is None
    assert timing.offset_span == 40.0


def test_offsets_as_json_text_read_like_parsed_ones() -> None:
    parsed = progress(source(KAFKA_START, KAFKA_END, latestOffset=KAFKA_LATEST))
    texts = progress(
        source(
            json.dumps(KAFKA_START), json.dumps(KAFKA_END), latestOffset=json.dumps(KAFKA_LATEST)
        )
    )
    assert progress_timing(texts) == progress_timing(parsed)
    assert progress_offsets(texts) == progress_offsets(parsed)


@pytest.mark.parametrize(("start", "end"), [(5, 9), ("5", "9"), ({"offset": 5}, {"offset": 9})])
def test_plain_numbers_are_offsets_too(start: object, end: object) -> None:
    assert progress_timing(progress(source(start, end))).offset_span == 4.0


def test_several_sources_add_up_and_an_unknown_one_leaves_the_sum_unknown() -> None:
    known = source(KAFKA_START, KAFKA_END), source(5, 9)
    assert progress_timing(progress(*known)).offset_span == 44.0
    assert progress_timing(progress(*known, source(None, 9))).offset_span is None


def test_no_source_has_no_span() -> None:
    timing = progress_timing(progress())
    assert timing.offset_span is None
    assert timing.backlog_rows is None


def test_an_offset_that_is_no_number_makes_span_and_backlog_unknown() -> None:
    """Text that is not JSON counts nothing: a backlog of 0 rows would be a guess."""
    timing = progress_timing(progress(source("from here", "to there", latestOffset="far off")))
    assert not timing.offset_span
    assert timing.backlog_rows is None


def test_the_offsets_are_kept_as_text_that_names_start_and_end() -> None:
    text = progress_offsets(progress(source(None, KAFKA_END), source("5", 9), source("x", "y")))
    assert json.loads(text) == [[None, KAFKA_END], [5, 9], ["x", "y"]]


def test_the_counters_become_strata_that_add_up() -> None:
    seen = observation(metrics(), TIMING, ("all", "protected"))
    assert seen == Observation(
        batch_id=4,
        rows_in=110,
        rows_kept=35,
        duration_s=2.0,
        backlog_rows=3.0,
        offset_span=7.0,
        strata=(
            StratumCount(name="all", rows_in=100, rows_kept=25),
            StratumCount(name="protected", rows_in=10, rows_kept=10),
        ),
    )


def test_latencies_run_from_arrival_to_the_end_of_the_batch() -> None:
    arrived = metrics(arrived_mean=1_000.5, arrived_first=999.0, arrived_min=998.0)
    seen = observation(arrived, TIMING, ("all", "protected"))
    assert (seen.latency_s_mean, seen.latency_s_p99, seen.latency_s_max) == (1.5, 3.0, 4.0)


def test_a_row_from_the_future_has_waited_no_time() -> None:
    arrived = metrics(arrived_mean=5_000.0, arrived_first=1_001.0, arrived_min=999.0)
    seen = observation(arrived, TIMING, ("all", "protected"))
    assert (seen.latency_s_mean, seen.latency_s_p99, seen.latency_s_max) == (0.0, 1.0, 3.0)


@pytest.mark.parametrize("absurd", [math.nan, math.inf, -math.inf])
def test_an_arrival_that_is_no_time_never_becomes_a_nan_latency(absurd: float) -> None:
    seen = observation(metrics(arrived_mean=absurd), TIMING, ("all",))
    assert seen.latency_s_mean is None or seen.latency_s_mean >= 0.0


@pytest.mark.parametrize("nothing", [{}, {"arrived_mean": None, "arrived_min": None}])
def test_a_batch_without_kept_rows_has_no_latency(nothing: dict[str, object]) -> None:
    seen = observation(metrics(**nothing), TIMING, ("all", "protected"))
    assert (seen.latency_s_mean, seen.latency_s_p99, seen.latency_s_max) == (None, None, None)


@pytest.mark.parametrize(
    ("found", "expected"), [(None, ()), ([], ()), ([1, 2.5], (1.0, 2.5)), ((3,), (3.0,))]
)
def test_quantiles_are_taken_over_as_floats(found: object, expected: tuple[float, ...]) -> None:
    seen = observation(metrics(quantiles=found), TIMING, ("all", "protected"))
    assert seen.quantiles == expected


def test_an_empty_batch_counts_nothing_and_has_a_share_of_one() -> None:
    seen = observation({"in_0": 0, "kept_0": 0}, TIMING, ("all",))
    assert (seen.rows_in, seen.rows_kept, seen.share) == (0, 0, 1.0)


def test_groups_are_read_from_bytes_and_from_base64_and_nonsense_is_none() -> None:
    sample = [[7.0, 2.5, None], [8.0, None, 1e9]]
    read = GroupsSeen(frequencies=b"\0\1", sample=((7.0, 2.5, None), (8.0, None, 1e9)))
    for counted in (b"\0\1", bytearray(b"\0\1"), "AAE="):
        shown = metrics(frequencies=counted, groups=sample)
        assert observation(shown, TIMING, ("all", "protected")).groups == read
    assert observation(metrics(frequencies="A"), TIMING, ("all",)).groups is None
    assert observation(metrics(), TIMING, ("all",)).groups is None
    empty = observation(metrics(frequencies="AAE=", groups=None), TIMING, ("all",)).groups
    assert empty == GroupsSeen(frequencies=b"\0\1")


def test_counts_are_read_by_their_readable_names_and_by_those_of_release_0_1() -> None:
    strata = ("below", "above")
    new = {"rows_in_below": 7, "rows_kept_below": 1, "rows_in_above": 5, "rows_kept_above": 5}
    old = {"in_0": 7, "kept_0": 1, "in_1": 5, "kept_1": 5}
    seen = observation(new, TIMING, strata)
    assert seen == observation(old, TIMING, strata)
    assert [(each.name, each.rows_in, each.rows_kept) for each in seen.strata] == [
        ("below", 7, 1),
        ("above", 5, 5),
    ]
    assert observation({"rows_in": 9}, TIMING, ("all",)).rows_kept == 9  # an open gate counts once
