"""The operators of the studies on Spark: they work as long as a row says and note when.

Each takes a row as a dictionary and returns its result; `batches` makes of one what Spark's
`mapInArrow` wants, for rivals that are no part of a guard.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

Row = dict[str, Any]
Operator = Callable[[Row], Row | None]

_OUT = pa.schema([("id", pa.int64()), ("started_us", pa.int64()), ("ended_us", pa.int64())])


def busy(row: Row) -> Row:
    """Keep a core busy until the row's time is over."""
    started_us, until_ns = _now_us(), time.perf_counter_ns() + row["cost_us"] * 1000
    while time.perf_counter_ns() < until_ns:
        pass
    return {"id": row["id"], "started_us": started_us, "ended_us": _now_us()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Waits as for a database, at the speed of the row's `instance`; `after` from `change` on."""

    before: tuple[float, ...] = (1.0,)
    after: tuple[float, ...] = (1.0,)
    change: int = 0

    def __call__(self, row: Row) -> Row:
        """Sleep for the row's time, times the factor of its instance."""
        started_us = _now_us()
        factors = self.before if row["id"] < self.change else self.after
        time.sleep(row["cost_us"] / 1e6 * factors[row["instance"] % len(factors)])
        return {"id": row["id"], "started_us": started_us, "ended_us": _now_us()}


@dataclass(frozen=True, slots=True, kw_only=True)
class FullKnowledge:
    """Takes a row only if the mean wait of its batch stays within the limit.

    It stands right before the operator and looks at the clock when the row's turn has come: what
    the rows before it cost, and what the engine took, is known exactly.
    """

    limit_s: float

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Do the rows of a task."""
        waited_s, rows = 0.0, 0
        for batch in batches:
            done = []
            for row in batch.to_pylist():
                wait_s = _now_us() / 1e6 - row["arrived"].timestamp()
                if waited_s + wait_s <= self.limit_s * (rows + 1):
                    waited_s, rows = waited_s + wait_s, rows + 1
                    done.append(busy(row))
            yield pa.RecordBatch.from_pylist(done, schema=_OUT)


def batches(operator: Operator) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the operator as a function of Arrow batches."""

    def each(given: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in given:
            done = [operator(row) for row in batch.to_pylist()]
            yield pa.RecordBatch.from_pylist(done, schema=_OUT)

    return each


def _now_us() -> int:
    return time.time_ns() // 1000
