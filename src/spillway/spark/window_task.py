"""What a task does with windows that have ended: allocate, cut the samples, run the function.

All groups of a window are in one task, one row each: how many rows it had, the moments of its
values, and its sample in the order of the hash, so that the first k are a random sample of k. Where
groups are told apart further, all this is of a stratum of a group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Protocol, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spillway.shedders.group_sizes import Allocation, Groups, sample_sizes
from spillway.spark.columns import PREFIX
from spillway.spark.operator_results import Results
from spillway.spark.operator_task import Tally

if TYPE_CHECKING:
    from spillway.objective import Error
    from spillway.spark.window_apply import Apply

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

START, END, ROWS = PREFIX + "start", PREFIX + "end", PREFIX + "rows"
COUNT, MEAN, VARIANCE = PREFIX + "count_", PREFIX + "mean_", PREFIX + "variance_"
SAMPLE, PRESENT = PREFIX + "sample", PREFIX + "present"
PARENT = PREFIX + "parent"  # a number of its group for every stratum, where groups have strata


@dataclass(frozen=True, kw_only=True)
class Done:
    """What came of a window: the function's results, and how many of its rows it has used."""

    made: pa.RecordBatch
    rows: int
    used: int


class Runs(Protocol):
    """Makes results of a window's groups, from a share of its rows."""

    @property
    def share(self) -> Callable[[], float]:
        """Tells which share of the rows the windows that end in the running batch may use."""
        ...

    def run(self, table: pa.Table, share: float) -> Done:
        """Do one window, given as one row for every group."""
        ...


@dataclass(frozen=True, kw_only=True)
class WindowTask:
    """What is made of a window's groups, and from how many of their rows.

    `values` are the columns whose moments the allocation uses; `share` tells how many of a window's
    rows may be used. With `error` the contract says it instead.
    """

    apply: Apply
    by: tuple[str, ...]
    values: tuple[str, ...]
    allocation: Allocation = "cvopt"
    rows_min: int = 2
    rows_max: int | None = None
    error: Error | None = None
    share: Callable[[], float]

    def __post_init__(self) -> None:
        """Reject unknown allocations and minima that keep nothing."""
        if self.allocation not in get_args(Allocation):
            known = ", ".join(get_args(Allocation))
            raise ValueError(f"allocation must be one of {known}, got {self.allocation!r}")
        if self.rows_min < 1:
            raise ValueError(f"rows_min must be >= 1, got {self.rows_min}")
        if self.rows_max is not None and self.rows_max < self.rows_min:
            raise ValueError(
                f"sample_rows must be >= rows_min ({self.rows_min}), got {self.rows_max}"
            )

    def run(self, table: pa.Table, share: float) -> Done:
        """Run the function on one window."""
        held = Held.of(table, len(self.values), valued=self.apply.column is not None)
        cut = self.cut(held, share)
        rows = int(held.rows.sum())
        used = int(cut.sizes.sum()) if self.apply.samples else rows
        return Done(made=self.apply.run(cut, self.by), rows=rows, used=min(used, rows))

    def cut(self, held: Held, share: float) -> Cut:
        """Take the window's sample down to what may be used."""
        if not self.apply.samples:
            return Cut(held=held, sizes=held.usable)
        if self.error is not None:
            return Cut(held=held, sizes=self.apply.sizes_for(held, self.error))
        return Cut(held=held, sizes=self._sizes(held, share))

    def _sizes(self, held: Held, share: float) -> Ints:
        """Allocate the share of the window's rows to its groups; none to those without values."""
        sizes = np.zeros(held.usable.size, dtype=np.int64)
        some = held.usable > 0
        groups = Groups(
            rows=held.usable[some],
            means=held.means[some],
            variances=held.variances[some],
            parents=held.parents(some),
        )
        wanted = sample_sizes(
            groups,
            share * float(held.usable.sum()),
            allocation=self.allocation if self.values else "proportional",
            rows_min=self.rows_min,
            rows_max=self.rows_max,
        )
        sizes[some] = np.minimum(wanted, held.lengths[some])
        return sizes


@dataclass(frozen=True, kw_only=True)
class Held:
    """What Spark's state held of one window: one entry per group.

    `usable` counts the rows that have a value, all rows if the function names none; `means` and
    `variances` have a column for every value.
    """

    table: pa.Table
    rows: Ints
    usable: Ints
    means: Floats
    variances: Floats
    sample: str = SAMPLE

    @classmethod
    def counted(cls, table: pa.Table, *, rows: str, sample: str) -> Held:
        """Read what was only counted and sampled, from the columns of these names."""
        counts, nothing = _numbers(table, rows).astype(np.int64), np.empty((table.num_rows, 0))
        return cls(
            table=table, rows=counts, usable=counts, means=nothing, variances=nothing, sample=sample
        )

    @classmethod
    def of(cls, table: pa.Table, values: int, *, valued: bool) -> Held:
        """Read the columns; a moment that is missing is NaN."""
        rows = _numbers(table, ROWS).astype(np.int64)
        usable = _numbers(table, f"{COUNT}0").astype(np.int64) if valued else rows
        shape = (rows.size, values)
        means = np.empty(shape)
        variances = np.empty(shape)
        for i in range(values):
            means[:, i] = _numbers(table, f"{MEAN}{i}")
            variances[:, i] = _numbers(table, f"{VARIANCE}{i}")
        return cls(table=table, rows=rows, usable=usable, means=means, variances=variances)

    @property
    def samples(self) -> pa.ListArray:
        """The sample of every group, in the order of the hash."""
        return _whole(self.table.column(self.sample))

    @property
    def lengths(self) -> Ints:
        """How many rows of each group are there."""
        found: Ints = np.diff(self.samples.offsets.to_numpy()).astype(np.int64)
        return found

    def parents(self, some: NDArray[np.bool_]) -> Ints | None:
        """Number the groups of these strata from 0 on; None where groups have no strata."""
        if PARENT not in self.table.column_names:
            return None
        numbers = _whole(self.table.column(PARENT)).to_numpy()[some]
        return np.unique(numbers, return_inverse=True)[1]

    def groups(self, by: tuple[str, ...]) -> pa.Table:
        """Return the columns that tell the groups apart."""
        return self.table.select(list(by))


@dataclass(frozen=True, kw_only=True)
class Cut:
    """A window of which `sizes` rows of each group are used."""

    held: Held
    sizes: Ints

    @property
    def starts(self) -> Ints:
        """Where the rows of each group begin; one entry more for the end."""
        return np.concatenate([[0], np.cumsum(self.sizes)])

    def rows(self) -> pa.StructArray:
        """Return the rows that are used, group by group."""
        samples = self.held.samples
        first = samples.offsets.to_numpy()[:-1].astype(np.int64)
        at = np.repeat(first - self.starts[:-1], self.sizes) + np.arange(self.starts[-1])
        return samples.values.take(pa.array(at))

    def values(self) -> Floats:
        """Return the first column of the rows that are used, as numbers."""
        column = self.rows().field(0)
        found: Floats = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        return found


def run_windows(
    task: Runs, results: Results
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that a Python worker runs over the windows that ended in a batch."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        came = [batch for batch in batches if batch.num_rows]
        tally = Tally(keyed=False)
        if came:
            tally.begin()
            share = task.share()
            for window in windows_of(pa.Table.from_batches(came)):
                made = results.of_arrow(_run_window(task, tally, window, share))
                yield from (results.finished(batch, None, None) for batch in made)
        yield results.control_row(tally.report(windows=True))

    return run


def windows_of(table: pa.Table) -> Iterator[pa.Table]:
    """Return the groups of every window, earliest window first."""
    starts = _whole(table.column(START)).cast(pa.int64()).to_numpy()
    order = np.argsort(starts, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(starts[order])) + 1):
        yield table.take(pa.array(rows))


def _run_window(task: Runs, tally: Tally, table: pa.Table, share: float) -> pa.RecordBatch:
    """Run the function on one window, count its rows and its time, and say which window it was."""
    begin_ns = perf_counter_ns()
    done = task.run(table, share)
    tally.came(done.rows, refused=done.rows - done.used)
    tally.worked(np.array([perf_counter_ns() - begin_ns]), None)
    first = pa.array(np.zeros(done.made.num_rows, dtype=np.int64))
    bounds = [_whole(table.column(name)).take(first) for name in (START, END)]
    names = [START, END, *done.made.schema.names]
    return pa.record_batch([*bounds, *done.made.columns], names=names)


def columns_of(rows: pa.StructArray) -> Iterator[tuple[str, pa.Array]]:
    """Return the columns of rows that are held as one; none where nothing is needed of a row."""
    for field, column in zip(rows.type, rows.flatten(), strict=True):
        if field.name != PRESENT:
            yield field.name, column


def _numbers(table: pa.Table, name: str) -> Floats:
    column = _whole(table.column(name)).cast(pa.float64())
    found: Floats = column.to_numpy(zero_copy_only=False)
    return found


def _whole(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
