"""Spark's offset log: read as Spark writes it, and unknown where it is not what it should be."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from spillway.state import offsets

METADATA = json.dumps(
    {
        "batchWatermarkMs": 0,
        "batchTimestampMs": 1_700_000_000_250,
        "conf": {"spark.sql.shuffle.partitions": "2"},
    }
)


def log(checkpoint: Path, batch_id: int, *sources: object) -> None:
    folder = checkpoint / "offsets"
    folder.mkdir(parents=True, exist_ok=True)
    lines = ["-" if source == "-" else json.dumps(source) for source in sources]
    (folder / str(batch_id)).write_text("\n".join(["v1", METADATA, *lines]) + "\n")


def test_the_log_is_read_as_spark_writes_it(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    text = 'v1\n{"batchTimestampMs":1}\n{"rides":{"0":12,"1":7}}\n'
    (tmp_path / "offsets" / "0").write_text(text)
    assert offsets.end_offsets(tmp_path, 0) == [{"rides": {"0": 12, "1": 7}}]
    (tmp_path / "offsets" / "1").write_text(text.rstrip("\n"))  # Spark ends without a line feed
    assert offsets.end_offsets(tmp_path, 1) == offsets.end_offsets(tmp_path, 0)


def test_kafka_offsets_span_all_topics_and_partitions(tmp_path: Path) -> None:
    log(tmp_path, 4, {"a": {"0": 100, "1": 40}, "b": {"0": 7}})
    log(tmp_path, 5, {"a": {"0": 130, "1": 45}, "b": {"0": 1007}})
    assert offsets.batch_span(tmp_path, 5) == 1_035.0


def test_a_partition_that_is_new_counts_from_zero(tmp_path: Path) -> None:
    log(tmp_path, 4, {"a": {"0": 100}})
    log(tmp_path, 5, {"a": {"0": 100, "1": 25}})
    assert offsets.batch_span(tmp_path, 5) == 25.0


def test_several_sources_add_up(tmp_path: Path) -> None:
    log(tmp_path, 0, 5, {"a": {"0": 10}}, {"logOffset": 2})
    log(tmp_path, 1, 8, {"a": {"0": 30}}, {"logOffset": 3})
    assert offsets.batch_span(tmp_path, 1) == 24.0


def test_a_dash_is_a_source_without_data(tmp_path: Path) -> None:
    log(tmp_path, 0, 5, "-")
    assert offsets.end_offsets(tmp_path, 0) == [5, None]


def test_a_source_that_speaks_for_the_first_time_does_not_count_from_zero(tmp_path: Path) -> None:
    """Its topic may begin at offset 5,000,000: the size of this batch is unknown, not huge."""
    log(tmp_path, 0, {"a": {"0": 10}}, "-")
    log(tmp_path, 1, {"a": {"0": 30}}, {"b": {"0": 5_000_000}})
    assert offsets.batch_span(tmp_path, 1) is None


def test_a_source_that_is_silent_in_both_batches_adds_nothing(tmp_path: Path) -> None:
    log(tmp_path, 0, 10, "-")
    log(tmp_path, 1, 30, "-")
    assert offsets.batch_span(tmp_path, 1) == 20.0


def test_the_first_batch_and_missing_files_have_no_span(tmp_path: Path) -> None:
    log(tmp_path, 0, {"a": {"0": 100}})
    assert offsets.batch_span(tmp_path, 0) is None
    assert offsets.batch_span(tmp_path, 1) is None
    assert offsets.batch_span(tmp_path, 7) is None
    assert offsets.batch_span(tmp_path / "nowhere", 3) is None


GARBAGE = {
    "text": b"v1\n{}\nhello\n",
    "half": b'v1\n{}\n{"a":{"0":1\n',
    "utf8": b"v1\n{}\n\xff\xfe\n",
    "nul": b"\x00" * 64,
    "nested": b"v1\n{}\n" + b"[" * 100_000 + b"\n",
    "long number": b"v1\n{}\n" + b"9" * 10_000 + b"\n",
    "huge number": b"v1\n{}\n" + b"9" * 400 + b"\n",
}


@pytest.mark.parametrize("garbage", GARBAGE)
def test_a_damaged_log_makes_the_size_unknown_and_raises_nothing(
    tmp_path: Path, garbage: str
) -> None:
    log(tmp_path, 0, 5)
    log(tmp_path, 1, 8)
    (tmp_path / "offsets" / "1").write_bytes(GARBAGE[garbage])
    assert offsets.batch_span(tmp_path, 1) in (None, 0.0)


@pytest.mark.parametrize("garbage", [b"", b"v1\n", b"v1\n{}\n"])
def test_a_log_cut_before_its_offsets_is_unknown_not_zero(tmp_path: Path, garbage: bytes) -> None:
    """Counted from zero, the next batch would seem to be the whole topic."""
    log(tmp_path, 0, 5)
    log(tmp_path, 1, 5_000_000)
    (tmp_path / "offsets" / "0").write_bytes(garbage)
    assert offsets.batch_span(tmp_path, 1) is None


def test_the_start_of_a_batch_is_in_its_metadata(tmp_path: Path) -> None:
    log(tmp_path, 0, 5)
    assert offsets.started_at_s(tmp_path, 0) == 1_700_000_000.25


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"v1\n",
        b"v1\n{}\n5\n",
        b"v1\nnull\n5\n",
        b"v1\n[]\n5\n",
        b"\xff\n\xff\n",
        b'v1\n{"batchTimestampMs":"soon"}\n',
        b'v1\n{"batchTimestampMs":null}\n',
    ],
)
def test_damaged_metadata_make_the_start_unknown(tmp_path: Path, content: bytes) -> None:
    log(tmp_path, 0, 5)
    (tmp_path / "offsets" / "0").write_bytes(content)
    assert offsets.started_at_s(tmp_path, 0) is None
    assert offsets.started_at_s(tmp_path, 1) is None


def test_commits_are_found_by_number(tmp_path: Path) -> None:
    assert offsets.last_committed(tmp_path) == -1
    commits = tmp_path / "commits"
    commits.mkdir()
    for name in ("0", "9", "10", ".10.crc", "notes", "11.tmp"):
        (commits / name).write_text("v1\n{}")
    os.utime(commits / "9", (1_000.5, 1_000.5))
    assert offsets.last_committed(tmp_path) == 10
    assert offsets.committed_at_s(tmp_path, 9) == 1_000.5
    assert offsets.committed_at_s(tmp_path, 11) is None


@pytest.mark.parametrize(
    "content", [None, b"", b"{}", b"[]", b"null", b"7", b"\xff", b'{"id', b"x"]
)
def test_a_checkpoint_without_a_readable_id_has_none(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "metadata").write_bytes(content)
    assert offsets.query_id(tmp_path) == ""


def test_the_query_id_is_in_the_metadata(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text('{"id":"b2b9d8f0-0000-4000-8000-000000000001"}')
    assert offsets.query_id(tmp_path) == "b2b9d8f0-0000-4000-8000-000000000001"
    assert offsets.query_id(None) == ""


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (100, 130, 30.0),
        (None, 130, None),
        (100, None, None),
        ({"a": True}, {"a": False}, None),
        ({"a": "x"}, {"a": "y"}, None),
        ([1, [2, 3]], [2, [4, 6]], 6.0),
        ({"a": 1.5}, {"a": 2.0}, 0.5),
        ({"a": 10, "gone": 99}, {"a": 12}, 2.0),
    ],
)
def test_a_span_is_the_sum_of_the_differences(
    start: object, end: object, expected: float | None
) -> None:
    assert offsets.span(start, end) == expected


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ([{"rides": {"0": 130, "1": 45}}], True),
        ([{"rides": {"0": 130}, "fares": {"12": 5}}], True),
        ([{"row": 5, "epoch_us": 17}], True),
        ([{"rides": {"0": 1}}, {"row": 5, "epoch_us": 17}], True),
        ([{"rides": {"0": 1}}, {"logOffset": 3}], False),
        ([{"logOffset": 3}], False),
        ([{"seqNum": 3, "batchId": 1}], False),
        ([{"rides": {"first": 1}}], False),
        ([{"rides": [1, 2]}], False),
        ([5], False),
        ([{}], False),
        (["x"], False),
        ([None], False),
        ([], False),
        (None, False),
    ],
)
def test_only_offsets_known_to_count_rows_are_taken_for_rows(
    end: list[object] | None, expected: bool
) -> None:
    assert offsets.counts_rows(end) is expected


def test_kafka_s_beginning_is_read_past_its_zero_byte(tmp_path: Path) -> None:
    folder = tmp_path / "sources" / "1"
    folder.mkdir(parents=True)
    (folder / "0").write_bytes(b'\0v1\n{"rides":{"0":12,"1":7}}')
    assert offsets.initial_offset(tmp_path, 1) == {"rides": {"0": 12, "1": 7}}
    assert offsets.initial_offset(tmp_path, 2) is None
    (folder / "0").write_text('v1\n{"path":"file:///a","timestamp":1,"batchId":0}')
    assert offsets.initial_offset(tmp_path, 1) is None


def test_the_first_batch_of_kafka_spans_from_where_the_query_began(tmp_path: Path) -> None:
    log(tmp_path, 0, {"a": {"0": 100, "1": 40}})
    assert offsets.batch_span(tmp_path, 0) is None
    folder = tmp_path / "sources" / "0"
    folder.mkdir(parents=True)
    (folder / "0").write_bytes(b'\0v1\n{"a":{"0":90,"1":40}}')
    assert offsets.batch_span(tmp_path, 0) == 10.0
