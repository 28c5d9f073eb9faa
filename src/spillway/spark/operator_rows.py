"""Runs an operator that takes one row at a time, and reads the clock once per row.

One reading ends a row and begins the next, so a row's time includes that of keeping its result,
about 0.1 µs. All else (keys, latencies, sketch, columns) is done for a whole Arrow batch at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spillway.spark.operator_results import Results, Row
from spillway.spark.operator_task import Layout, Tally, wall_offset_ns

Ints = NDArray[np.int64]
Made = Row | list[Row] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """How long rows may wait: on average over those that are admitted, or each."""

    limit_ns: float
    each: bool = False


@dataclass(slots=True)
class Ran:
    """What became of the rows of one Arrow batch; `taken` are those that were not refused."""

    results: list[Made] = field(default_factory=list)
    starts_ns: list[int] = field(default_factory=list)
    ends_ns: list[int] = field(default_factory=list)
    taken: list[int] | None = None


@dataclass(slots=True)
class Check:
    """LAS's CHECK against the clock: the rule of `kernels.las.breaks`, and its running sums.

    A row is refused if the mean wait of the admitted rows would go beyond the limit with it and
    it waited for more than half of the limit; or, with `each`, if it waited for longer itself.
    """

    limit: Limit
    waited_ns: float = 0.0
    admitted: int = 0

    def refuses(self, wait_ns: float) -> bool:
        """Decide about one row, and take it into account if it is admitted."""
        limit_ns = self.limit.limit_ns
        if self.limit.each:
            return wait_ns > limit_ns
        wait_ns = max(wait_ns, 0.0)
        over = self.waited_ns + wait_ns > limit_ns * (self.admitted + 1)
        if over and wait_ns > 0.5 * limit_ns:
            return True
        self.waited_ns += wait_ns
        self.admitted += 1
        return False


def run_rows(
    fn: Callable[[Row], Any],
    layout: Layout,
    limit: Limit | None,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Yield what an operator makes of its rows, and at the end the report of the task."""
    tally = Tally(keyed=layout.keyed)
    check = Check(limit) if limit is not None else None
    for batch in batches:
        if batch.num_rows:
            tally.begin()
            yield _run_batch(fn, layout, check, tally, batch)
    yield layout.results.control_row(tally.report())


def _run_batch(
    fn: Callable[[Row], Any],
    layout: Layout,
    check: Check | None,
    tally: Tally,
    batch: pa.RecordBatch,
) -> pa.RecordBatch:
    rows = layout.seen(batch).to_pylist()
    arrivals_ns, offset_ns = layout.arrivals_ns(batch), wall_offset_ns()
    if check is None or arrivals_ns is None:
        ran = run_all(fn, rows, layout.results)
    else:
        ran = run_admitted(fn, rows, layout.results, check, (arrivals_ns - offset_ns).tolist())
    _count(tally, ran, len(rows), layout.items(batch), arrivals_ns, offset_ns)
    made, origin = _flat(ran)
    return layout.results.finished(layout.results.of_rows(made), layout.weights(batch), origin)


def run_all(fn: Callable[[Row], Any], rows: list[Row], results: Results) -> Ran:
    """Run the operator on every row."""
    ran, clock = Ran(), perf_counter_ns
    keep, mark = ran.results.append, ran.ends_ns.append
    begin_ns = clock()
    for row in rows:
        made = fn(row)
        if made is not None and type(made) is not dict:
            made = results.listed(made)
        keep(made)
        mark(clock())
    ran.starts_ns = [begin_ns, *ran.ends_ns[:-1]]
    return ran


def run_admitted(
    fn: Callable[[Row], Any],
    rows: list[Row],
    results: Results,
    check: Check,
    arrivals_ns: list[int],
) -> Ran:
    """Run the operator on the rows that have not waited too long when their turn comes.

    `arrivals_ns` are on the clock of `perf_counter_ns`.
    """
    ran, clock, refuses = Ran(taken=[]), perf_counter_ns, check.refuses
    keep, take = ran.results.append, ran.taken.append  # type: ignore[union-attr]
    begin, mark = ran.starts_ns.append, ran.ends_ns.append
    now_ns = clock()
    for place, (row, arrived_ns) in enumerate(zip(rows, arrivals_ns, strict=True)):
        if refuses(now_ns - arrived_ns):
            now_ns = clock()  # or the next row would pay for those that were refused
            continue
        begin(now_ns)
        made = fn(row)
        if made is not None and type(made) is not dict:
            made = results.listed(made)
        keep(made)
        take(place)
        now_ns = clock()
        mark(now_ns)
    return ran


def _count(
    tally: Tally,
    ran: Ran,
    rows: int,
    items: Ints | None,
    arrivals_ns: Ints | None,
    offset_ns: int,
) -> None:
    starts_ns = np.array(ran.starts_ns, dtype=np.int64)
    costs_ns = np.array(ran.ends_ns, dtype=np.int64) - starts_ns
    tally.came(rows, refused=rows - costs_ns.size)
    tally.worked(costs_ns, _taken(items, ran))
    arrived_ns = _taken(arrivals_ns, ran)
    if arrived_ns is not None:
        tally.waited(starts_ns + offset_ns, arrived_ns)


def _taken(values: Ints | None, ran: Ran) -> Ints | None:
    return values if values is None or ran.taken is None else values[ran.taken]


def _flat(ran: Ran) -> tuple[list[Row], Ints]:
    """Return all rows that were made, and the place of the row that each was made from."""
    counts = [1 if type(made) is dict else len(made or ()) for made in ran.results]
    places = np.arange(len(counts)) if ran.taken is None else np.array(ran.taken, dtype=np.int64)
    flat: list[Row] = []
    for made in ran.results:
        if type(made) is dict:
            flat.append(made)
        elif made:
            flat.extend(made)  # type: ignore[arg-type]
    return flat, np.repeat(places, counts)
