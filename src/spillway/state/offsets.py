"""Reads Spark's own offset log: it names a batch's end offsets before the batch runs.

<checkpoint>/offsets/<batch id> holds a version line, a line of metadata, and one line of JSON
(or "-") per source.
"""

from __future__ import annotations

import json
from pathlib import Path

Offset = object


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
    except (OSError, ValueError):
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


def batch_span(checkpoint: Path, batch_id: int) -> float | None:
    """Return the span of a batch's offsets; None where its start or end is not known."""
    end = end_offsets(checkpoint, batch_id)
    start = end_offsets(checkpoint, batch_id - 1)
    return span(start, end)


def counts_rows(end: list[Offset] | None) -> bool:
    """Say whether every source's offset is of a kind that counts rows one by one.

    That is so for Kafka ({topic: {partition: offset}}) and for Spillway's burst source.

    >>> counts_rows([{"rides": {"0": 130, "1": 45}}]), counts_rows([{"logOffset": 3}])
    (True, False)
    """
    return bool(end) and all(_is_kafka(offset) or _is_burst(offset) for offset in end or [])


def _is_burst(offset: Offset) -> bool:
    return isinstance(offset, dict) and offset.keys() == {"row", "epoch_us"}


def _is_kafka(offset: Offset) -> bool:
    partitions = list(offset.values()) if isinstance(offset, dict) else []
    return bool(partitions) and all(
        isinstance(by_id, dict) and all(str(key).isdigit() for key in by_id) for by_id in partitions
    )


def span(start: Offset, end: Offset) -> float | None:
    """Sum the differences of all numbers in two offsets; a number new at the end counts from 0.

    None where one of the offsets is missing: the first batch of a stream starts nowhere.

    >>> span({"rides": {"0": 100, "1": 40}}, {"rides": {"0": 130, "1": 45, "2": 5}})
    40.0
    >>> span(100, 130)
    30.0
    """
    if start is None or end is None:
        return None
    before, after = _numbers(start), _numbers(end)
    return float(sum(value - before.get(path, 0.0) for path, value in after.items()))


def _numbers(offset: Offset, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], float]:
    if isinstance(offset, dict):
        inner = ((str(key), value) for key, value in offset.items())
    elif isinstance(offset, list):
        inner = ((str(index), value) for index, value in enumerate(offset))
    elif isinstance(offset, (int, float)) and not isinstance(offset, bool):
        return {path: float(offset)}
    else:
        return {}
    return {p: n for key, value in inner for p, n in _numbers(value, (*path, key)).items()}
