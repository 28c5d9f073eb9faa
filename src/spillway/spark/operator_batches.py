"""Runs an operator that takes pandas frames or Arrow batches, in slices that tell keys apart.

A slice holds so many rows that calling the operator takes a small part of it (`cost.Pace`); what
it took is attributed to its rows (`cost.Attribution`). Once the driver knows what keys cost, only
one Arrow batch in eight is cut where rows are cheap, and slices therefore long. Without a key and
without admission there is nothing to tell apart, and whole Arrow batches go to the operator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spillway.spark.operator_task import NEVER_NS, Layout, Tally, known_costs, wall_offset_ns

if TYPE_CHECKING:
    from spillway.cost.attribution import Pace
    from spillway.cost.heavy import HeavySketch
    from spillway.shedders.admission import Admission, LoadShedder

Ints = NDArray[np.int64]

_FIRST_ROWS, _FIRST_NS = 16, 5_000_000
_SLICED_EVERY = 8  # one Arrow batch in so many is cut where costs are known and slices long:
_KNOWN_ROWS, _LONG_ROWS = 1 << 15, 64  # the driver's model of costs is of so many rows, a slice too


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOperator:
    """What a task needs to know to run the operator."""

    fn: Callable[[Any], Any]
    takes: Literal["pandas", "arrow"]
    layout: Layout
    batch_rows: int
    admit: Admission | None = None
    state: Path | None = None

    @property
    def sliced(self) -> bool:
        """Whether there is anything to tell apart within an Arrow batch."""
        return self.layout.keyed or self.admit is not None

    def call(self, given: Any) -> tuple[list[pa.RecordBatch], int]:
        """Run the operator once; return what it made and how long it took itself."""
        begin_ns = perf_counter_ns()
        made = self.fn(given)
        if self.takes == "arrow" and not isinstance(made, pa.RecordBatch | pa.Table):
            made = _drained(made)
        taken_ns = perf_counter_ns() - begin_ns
        results = self.layout.results
        return (
            results.of_arrow(made) if self.takes == "arrow" else [results.of_frame(made)]
        ), taken_ns


def run_batches(
    operator: BatchOperator, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield what an operator makes of its rows, and at the end the report of the task."""
    tally = Tally(keyed=operator.layout.keyed)
    slicer: Slicer | None = None
    for batch in batches:
        if not batch.num_rows:
            continue
        tally.begin()
        if operator.sliced:
            slicer = slicer or Slicer(operator)
        yield from _run_batch(operator, slicer, tally, batch)
    yield operator.layout.results.control_row(tally.report())


def _run_batch(
    operator: BatchOperator, slicer: Slicer | None, tally: Tally, batch: pa.RecordBatch
) -> Iterator[pa.RecordBatch]:
    rows = Rows(operator, batch)
    if slicer is None:
        made = _run_whole(rows, tally)
    else:
        made = slicer.run(rows, tally)
    if made:
        yield pa.concat_batches(made)


class Rows:
    """The rows of one Arrow batch, with what stands beside them."""

    def __init__(self, operator: BatchOperator, batch: pa.RecordBatch) -> None:
        """Convert once: slices of a frame cost less than frames of slices."""
        layout = operator.layout
        self.operator = operator
        self.count = batch.num_rows
        self.items = layout.items(batch)
        self.arrivals_ns = layout.arrivals_ns(batch)
        self._weights = layout.weights(batch)
        seen = layout.seen(batch)
        self._seen = seen.to_pandas() if operator.takes == "pandas" else seen

    def run(self, at: int, rows: int, kept: Ints | None) -> tuple[list[pa.RecordBatch], int]:
        """Run the operator on a slice, or on its rows at the places `kept`."""
        made, taken_ns = self.operator.call(self._slice(at, rows, kept))
        if self._weights is None:
            return [self._finished(batch, None) for batch in made], taken_ns
        weights = self._weights.slice(at, rows)
        whole = pa.concat_batches(made) if made else self.operator.layout.results.of_rows([])
        return [self._finished(whole, weights if kept is None else weights.take(kept))], taken_ns

    def _slice(self, at: int, rows: int, kept: Ints | None) -> Any:
        if self.operator.takes == "arrow":
            piece = self._seen.slice(at, rows)
            return piece if kept is None else piece.take(pa.array(kept))
        if rows == self.count and kept is None:
            return self._seen
        piece = self._seen.iloc[at : at + rows] if kept is None else self._seen.iloc[at + kept]
        return piece.reset_index(drop=True)

    def _finished(self, batch: pa.RecordBatch, weights: pa.Array | None) -> pa.RecordBatch:
        return self.operator.layout.results.finished(batch, weights, None)


def _run_whole(rows: Rows, tally: Tally) -> list[pa.RecordBatch]:
    if rows.arrivals_ns is not None:
        tally.waited(perf_counter_ns() + wall_offset_ns(), rows.arrivals_ns)
    made, taken_ns = rows.run(0, rows.count, None)
    tally.came(rows.count)
    tally.worked(np.array([taken_ns]), None)
    return made


class Slicer:
    """Cuts Arrow batches into slices, admits their rows if asked to, and learns what they cost."""

    def __init__(self, operator: BatchOperator) -> None:
        """Begin with what the driver knows."""
        from spillway.cost.attribution import Attribution

        self._known = known_costs(operator.state)
        self._learnt = Attribution(self._known)
        self._pace = _first_pace(operator, self._known)
        self._gate = _Gate(operator.admit, self._known) if operator.admit is not None else None
        self._batches, self._rows_max = 0, operator.batch_rows

    def run(self, rows: Rows, tally: Tally) -> list[pa.RecordBatch]:
        """Run the operator slice by slice, or on all rows at once; attribute what that took."""
        pace = None if self._goes_whole() else self._pace
        made: list[pa.RecordBatch] = []
        taken: list[Ints] = []
        busy_ns, at = 0, 0
        items = np.zeros(rows.count, dtype=np.int64) if rows.items is None else rows.items
        while at < rows.count:
            left = rows.count - at
            size = pace.next_rows(left) if pace is not None else min(left, self._rows_max)
            kept = self._run_slice(rows, tally, items[at : at + size], at, pace, made)
            at += size
            if kept is not None:
                taken.append(kept[0])
                busy_ns += kept[1]
        worked = np.concatenate(taken) if taken else items[:0]
        shares_ns = self._learnt.shares_ns(worked, busy_ns)
        tally.worked(shares_ns, None if rows.items is None else worked)
        return made

    def _goes_whole(self) -> bool:
        """Say whether the next batch goes to the operator as it is: most, where costs are known.

        A loop in Python takes up to a tenth longer in slices, however rarely it is called; and long
        slices tell little about single keys. Short ones cost nothing that counts beside their rows.
        """
        teaches = self._batches % _SLICED_EVERY == 0 or self._known.rows_seen < _KNOWN_ROWS
        self._batches += 1
        return not (teaches or self._gate is not None or self._pace.rows < _LONG_ROWS)

    def _run_slice(
        self,
        rows: Rows,
        tally: Tally,
        here: Ints,
        at: int,
        pace: Pace | None,
        made: list[pa.RecordBatch],
    ) -> tuple[Ints, int] | None:
        """Run one slice; return the items of its rows and what they took, None if none stayed."""
        begin_ns, size, arrivals_ns = perf_counter_ns(), here.size, rows.arrivals_ns
        now_ns = begin_ns + wall_offset_ns()
        kept = None
        if self._gate is not None and arrivals_ns is not None:
            kept = self._gate.admit(here, arrivals_ns[at : at + size], now_ns)
        tally.came(size, refused=0 if kept is None else size - kept.size)
        if kept is not None and not kept.size:
            return None
        if arrivals_ns is not None:
            tally.waited(now_ns, arrivals_ns[at : at + size][slice(None) if kept is None else kept])
        batches, taken_ns = rows.run(at, size, kept)
        made.extend(batches)
        worked = here if kept is None else here[kept]
        self._learn(worked, taken_ns)
        if pace is not None:
            own_ns = perf_counter_ns() - begin_ns - taken_ns
            pace.took(worked.size, taken_ns=taken_ns, own_ns=own_ns)
        return worked, taken_ns

    def _learn(self, items: Ints, taken_ns: int) -> None:
        self._learnt.learn(items, taken_ns)
        if self._gate is not None:
            self._gate.learn(items, self._learnt.shares_ns(items, taken_ns))


class _Gate:
    """Decides about the rows of a slice at once, by what they are estimated to cost (LAS)."""

    def __init__(self, admit: Admission, known: HeavySketch) -> None:
        from spillway.kernels import las
        from spillway.shedders.admission import LoadShedder

        self._costs = known.copy()
        cells, (keys, ranks, counts, work_ns) = self._costs.sketch, self._costs.table
        self._model = las.Model(keys, ranks, counts, work_ns, cells.frequency, cells.work_ns)
        self._shedder: LoadShedder = LoadShedder(admit, self._model, cells.multipliers)
        self._zero_ns = perf_counter_ns() + wall_offset_ns()  # floats hold ns since then, not 1970

    def admit(self, items: Ints, arrivals_ns: Ints, now_ns: int) -> Ints | None:
        """Return the places of the rows that stay; None if all do.

        All rows have come by now, whatever their clocks say; one of unknown arrival stays.
        """
        self._shedder.sync(now_ns - self._zero_ns)
        weights = self._shedder.offer(items, np.minimum(arrivals_ns, now_ns) - self._zero_ns)
        weights[arrivals_ns == NEVER_NS] = 1.0
        return None if weights.all() else np.flatnonzero(weights)

    def learn(self, items: Ints, costs_ns: Ints) -> None:
        """Use what rows took from now on."""
        self._costs.update(items, costs_ns)
        self._shedder.receive(self._model)


def _first_pace(operator: BatchOperator, known: HeavySketch) -> Pace:
    """Begin as long as the known costs suggest; where rows may be refused, with a single one."""
    from spillway.cost.attribution import Pace

    if known.rows_seen:
        rows = int(min(max(_FIRST_NS / max(known.mean_ns, 1.0), 1.0), operator.batch_rows))
    else:
        rows = _FIRST_ROWS if operator.admit is None else 1
    return Pace(rows=min(rows, operator.batch_rows), rows_max=operator.batch_rows)


def _drained(made: object) -> object:
    """Run a generator to its end: its work is the operator's."""
    return list(made) if isinstance(made, Iterator) else made
