"""A task's report as one binary value: how it travels from an operator's task to the driver."""

from __future__ import annotations

import base64
import binascii
import zlib
from dataclasses import replace

from spillway.state import files
from spillway.values import TaskReport

_KIND = "task report"
_COSTS_MAX = 64 << 20  # bytes: no report of ours is larger


def encode(report: TaskReport) -> bytes:
    """Return a report as bytes, with its sketch compressed.

    >>> decode(encode(TaskReport(instance=3, rows_in=5))).rows_in
    5
    """
    packed = zlib.compress(report.costs, level=1) if report.costs else b""
    return files.encode(_KIND, replace(report, costs=packed))


def decode(value: bytes | bytearray | memoryview | str) -> TaskReport:
    """Read a report: bytes as Spark's rows hold them, or base64 text as its progress does.

    `BadStateFile` says what is wrong with anything else.
    """
    report = files.decode(_as_bytes(value), _KIND, TaskReport)
    return replace(report, costs=_unpacked(report.costs)) if report.costs else report


def _as_bytes(value: bytes | bytearray | memoryview | str) -> bytes:
    if not isinstance(value, str):
        return bytes(value)
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise files.BadStateFile(f"a task report must be base64, got {error}") from error


def _unpacked(packed: bytes) -> bytes:
    reader = zlib.decompressobj()
    try:
        costs = reader.decompress(packed, _COSTS_MAX)
    except zlib.error as error:
        raise files.BadStateFile(f"the costs of a task report are damaged: {error}") from error
    if not reader.eof:
        raise files.BadStateFile("the costs of a task report are cut off or too large")
    return costs
