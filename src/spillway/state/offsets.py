"""Reads Spark's own offset log: it names a batch's end offsets before the batch runs.

<checkpoint>/offsets/<batch id> holds a version line, a line of metadata, and one line of JSON
(or "-") per source.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

Offset = object

_NUMBER_MAX = 2**63  # offsets are at most longs


def query_id(checkpoint: Path | None) -> str:
    """Return the id that Spark gave the query of this checkpoint; "" if there is none."""
    if checkpoint is None:
        return ""
    try:
        return str(json.loads((checkpoint / "metadata").read_text())["id"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def end_offsets(checkpoint: Path, batch_id: int) -> list[Offset] | None:
    """Return the end offsets of a batch, one per source; None if the log does not have it."""
    try:
        lines = (checkpoint / "offsets" / str(batch_id)).read_text().splitlines()
        return [None if line.strip() == "-" else json.loads(line) for line in lines[2:]]
    except (OSError, ValueError, RecursionError):
        return None


def started_at_s(checkpoint: Path, batch_id: int) -> float | None:
    """Return when the batch was planned (epoch seconds); None if the log does not have it."""
    try:
        metadata = (checkpoint / "offsets" / str(batch_id)).read_text().splitlines()[1]
        return float(json.loads(metadata)["batchTimestampMs"]) / 1e3
    except (OSError, ValueError, LookupError, TypeError):
        return None


def committed_at_s(checkpoint: Path, batch_id: int) -> float | None:
    """Return when the batch was committed (epoch seconds); None if it is not."""
    try:
        return (checkpoint / "commits" / str(batch_id)).stat().st_mtime
    except OSError:
        return None


def last_committed(checkpoint: Path) -> int:
    """Return the last committed batch; -1 if there is none."""
    names = (path.name for path in (checkpoint / "commits").glob("*"))
    return max((int(name) for name in names if name.isdigit()), default=-1)


def initial_offset(checkpoint: Path, index: int) -> Offset:
    """Return where the Kafka source of this index began, which it notes; None if it did not."""
    try:
        text = (checkpoint / "sources" / str(index) / "0").read_text()
        found: Offset = json.loads(text[text.index("{") :])  # after a zero byte and a version
    except (OSError, ValueError, RecursionError):
        return None
    return found if is_kafka(found) else None


def batch_span(checkpoint: Path, batch_id: int) -> float | None:
    """Return the span of a batch's offsets; None where its start or end is not known."""
    start, end = (end_offsets(checkpoint, which) for which in (batch_id - 1, batch_id))
    if start is None and batch_id == 0:
        start = [initial_offset(checkpoint, index) for index in range(len(end or []))]
    if start is None or end is None or len(start) != len(end):
        return None
    return total_span(zip(start, end, strict=True))


def total_span(sources: Iterable[tuple[Offset, Offset]]) -> float | None:
    """Add up the spans of several sources' (start, end) offsets; None if one is not known."""
    spans = [span(start, end) for start, end in sources]
    return None if None in spans or not spans else sum(s for s in spans if s is not None)


def counts_rows(end: list[Offset] | None) -> bool:
    """Say whether every source's offset is of a kind that counts rows one by one.

    That is so for Kafka ({topic: {partition: offset}}) and for Spillway's burst source.

    >>> counts_rows([{"rides": {"0": 130, "1": 45}}]), counts_rows([{"logOffset": 3}])
    (True, False)
    """
    return bool(end) and all(is_kafka(offset) or is_burst(offset) for offset in end or [])


def is_burst(offset: Offset) -> bool:
    """Say whether this is an offset of Spillway's burst source."""
    return isinstance(offset, dict) and offset.keys() == {"row", "epoch_us"}


def is_files(offset: Offset) -> bool:
    """Say whether this is an offset of Spark's file source."""
    return isinstance(offset, dict) and offset.keys() == {"logOffset"}


def is_kafka(offset: Offset) -> bool:
    """Say whether this is an offset of Kafka's source: {topic: {partition: offset}}."""
    partitions = list(offset.values()) if isinstance(offset, dict) else []
    return bool(partitions) and all(
        isinstance(by_id, dict) and all(str(key).isdigit() for key in by_id) for by_id in partitions
    )


def span(start: Offset, end: Offset) -> float | None:
    """Sum the differences of all numbers in two offsets; a number new at the end counts from 0.

    None where an offset is missing (the first batch of a stream starts nowhere) or holds no
    numbers. A source that has not begun spans nothing.

    >>> span({"rides": {"0": 100, "1": 40}}, {"rides": {"0": 130, "1": 45, "2": 5}})
    40.0
    >>> span(100, 130)
    30.0
    """
    if start is None and end is None:
        return 0.0
    before, after = _numbers(start), _numbers(end)
    if not before or not after:
        return None
    return float(sum(value - before.get(path, 0.0) for path, value in after.items()))


def _is_number(offset: Offset) -> bool:
    number = isinstance(offset, (int, float)) and not isinstance(offset, bool)
    return number and abs(float(str(offset)[:400])) < _NUMBER_MAX


def _numbers(offset: Offset, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], float]:
    if isinstance(offset, dict):
        inner = ((str(key), value) for key, value in offset.items())
    elif isinstance(offset, list):
        inner = ((str(index), value) for index, value in enumerate(offset))
    elif _is_number(offset):
        return {path: float(str(offset))}
    else:
        return {}
    return {p: n for key, value in inner for p, n in _numbers(value, (*path, key)).items()}
