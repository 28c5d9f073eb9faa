"""The functions of a sampled window: named ones that come with intervals, or the user's own.

Means, sums and counts are exact and need no sample: Spark's state has them. Quantiles are
estimated from the sample, and exact where that is the whole group.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from spillway.estimate.groups import Estimates, GroupSample, quantiles
from spillway.estimate.order_statistics import rows_for_bounds
from spillway.estimate.totals import z_score
from spillway.objective import Error
from spillway.spark.columns import WEIGHT
from spillway.spark.operator import checked_schema
from spillway.spark.operator_results import Results
from spillway.spark.window_task import Cut, Held, columns_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_NAMED = re.compile(r"\s*(mean|sum|count|median|quantile)\s*\(([^,()]*)(?:,([^,()]*))?\)\s*")
_RULE = (
    "'mean(column)', 'sum(column)', 'count()', 'median(column)', 'quantile(column, q)' or a "
    "function of a pandas frame together with schema"
)
_RESULTS = ("value", "low", "high", "rows", "kept")
_PILOT_ROWS = 64
_NORMAL_ROWS = 30  # the mean of fewer is not normal enough for the contract's formula
_ROUNDS = 4
_SAFETY = 1.2  # an interval is itself an estimate


class Apply(Protocol):
    """What is made of a window."""

    @property
    def name(self) -> str:
        """How errors call it."""
        ...

    @property
    def column(self) -> str | None:
        """The column whose missing values are left out; None if rows count whatever they hold."""
        ...

    @property
    def samples(self) -> bool:
        """Whether it needs rows; else the moments say it all."""
        ...

    @property
    def rows_needed(self) -> int:
        """How many rows of a group must be held for all that it tells."""
        ...

    def check(self, schema: T.StructType) -> None:
        """Refuse columns that are not there."""
        ...

    def check_groups(self, by: Sequence[str]) -> None:
        """Refuse groups that are called as one of the results."""
        ...

    def shown(self, names: Sequence[str], by: tuple[str, ...]) -> list[str]:
        """Name the columns of the rows that must be held."""
        ...

    def fields(self, groups: list[T.StructField]) -> list[T.StructField]:
        """Return the columns of its results."""
        ...

    def sizes_for(self, held: Held, error: Error) -> Ints:
        """Say how many rows of each group keep a contract: all of them where fewer cannot."""
        ...

    def run(self, cut: Cut, by: tuple[str, ...]) -> pa.RecordBatch:
        """Return the results of one window."""
        ...


@dataclass(frozen=True, kw_only=True)
class Named:
    """One of the functions that are known by name.

    >>> Named.parsed("quantile(fare, 0.9)")
    Named(function='quantile', column='fare', q=0.9, confidence=0.95)
    """

    function: str
    column: str | None
    q: float = 0.5
    confidence: float = 0.95

    @classmethod
    def parsed(cls, text: str, confidence: float = 0.95) -> Named:
        """Read a function's name, column and quantile."""
        found = _NAMED.fullmatch(text)
        if found is None:
            raise ValueError(f"apply must be {_RULE}, got {text!r}")
        function, column, last = (part.strip() if part else "" for part in found.groups())
        if (function == "count") == bool(column) or (function == "quantile") != bool(last):
            raise ValueError(f"apply must be {_RULE}, got {text!r}")
        q = _quantile(last, text) if last else 0.5
        named = "quantile" if function == "median" else function
        return cls(function=named, column=column or None, q=q, confidence=confidence)

    @property
    def name(self) -> str:
        """The function's name."""
        return self.function

    @property
    def samples(self) -> bool:
        """Only a quantile needs rows."""
        return self.function == "quantile"

    @property
    def rows_needed(self) -> int:
        """As many as give both bounds, which takes the more, the nearer to an end it is."""
        return rows_for_bounds(self.q, (1.0 - self.confidence) / 2)

    def check(self, schema: T.StructType) -> None:
        """Refuse a column that is not there."""
        if self.column is not None and self.column not in schema.names:
            raise ValueError(f"apply must use one of {schema.names}, got {self.column!r}")

    def check_groups(self, by: Sequence[str]) -> None:
        """Refuse a group beside which a result would stand twice."""
        _check_groups(by, ("window", *_RESULTS))

    def shown(self, names: Sequence[str], by: tuple[str, ...]) -> list[str]:
        """Nothing but the column."""
        return [self.column] if self.samples and self.column is not None else []

    def fields(self, groups: list[T.StructField]) -> list[T.StructField]:
        """Return group, value, interval and how many rows there were and were used."""
        numbers = [T.StructField(name, T.DoubleType()) for name in ("value", "low", "high")]
        counts = [T.StructField(name, T.LongType()) for name in ("rows", "kept")]
        return [*groups, *numbers, *counts]

    def sizes_for(self, held: Held, error: Error) -> Ints:
        """Take more rows where an interval is too wide, by as much as it is; in the end all."""
        sizes = np.minimum(held.usable, _PILOT_ROWS)
        for _ in range(_ROUNDS):
            misses = self._misses(Cut(held=held, sizes=sizes), error)
            if not (misses > 1.0).any():
                return sizes
            sizes = np.where(misses > 1.0, _needed(sizes, held.usable, misses), sizes)
        missed = self._misses(Cut(held=held, sizes=sizes), error) > 1.0
        return np.where(missed, held.usable, sizes)

    def _misses(self, cut: Cut, error: Error) -> Floats:
        """Return how many times wider each interval is than the contract allows."""
        found = self._estimates(cut)
        with np.errstate(divide="ignore", invalid="ignore"):
            reach = np.maximum(found.high - found.value, found.value - found.low)
            misses = reach / (error.relative * np.abs(found.value))
        return np.where(reach == 0, 0.0, np.where(np.isnan(misses), np.inf, misses))

    def run(self, cut: Cut, by: tuple[str, ...]) -> pa.RecordBatch:
        """Return one line for every group."""
        found, held = self._found(cut), cut.held
        columns = {name: pa.array(getattr(found, name)) for name in ("value", "low", "high")}
        arrays = [*held.groups(by).combine_chunks().columns, *columns.values()]
        batch = pa.table(
            [*arrays, pa.array(held.usable), pa.array(cut.sizes)], names=[*by, *_RESULTS]
        )
        return _as_batch(batch)

    def _found(self, cut: Cut) -> Estimates:
        held = cut.held
        if self.function == "quantile":
            return self._estimates(cut)
        if self.function == "count":
            exact = held.rows.astype(np.float64)
        else:
            exact = held.means[:, 0] * (held.usable if self.function == "sum" else 1)
        return Estimates(value=exact, low=exact, high=exact)

    def _estimates(self, cut: Cut) -> Estimates:
        """Estimate the quantile of every group; NaN for one without values."""
        some = cut.sizes > 0
        starts = np.concatenate([[0], np.cumsum(cut.sizes[some])])
        sample = GroupSample(values=cut.values(), starts=starts, rows=cut.held.usable[some])
        found = quantiles(sample, self.q, confidence=self.confidence)
        spread = {name: np.full(some.size, np.nan) for name in ("value", "low", "high")}
        for name, values in spread.items():
            values[some] = getattr(found, name)
        return Estimates(**spread)


@dataclass(frozen=True, kw_only=True)
class Custom:
    """A user's function: it takes the sampled rows of a window as a pandas frame, with weights."""

    fn: Callable[[Any], Any]
    returns: T.StructType
    columns: tuple[str, ...] | None = None  # what it needs of a row beside its group; all if None

    column = None
    samples = True
    rows_needed = 1

    @property
    def name(self) -> str:
        """The function's own name."""
        return getattr(self.fn, "__qualname__", type(self.fn).__name__)

    def check(self, schema: T.StructType) -> None:
        """Refuse columns that are not there."""
        missing = [name for name in self.columns or () if name not in schema.names]
        if missing:
            raise ValueError(f"columns must be among {schema.names}, got {missing}")

    def check_groups(self, by: Sequence[str]) -> None:
        """Any groups will do that are not called as the window itself."""
        _check_groups(by, ("window",))

    def shown(self, names: Sequence[str], by: tuple[str, ...]) -> list[str]:
        """All that it needs, except those of the group: they are known without any row."""
        wanted = names if self.columns is None else self.columns
        return [name for name in names if name in wanted and name not in by]

    def fields(self, groups: list[T.StructField]) -> list[T.StructField]:
        """Return what the user says."""
        return list(self.returns)

    def sizes_for(self, held: Held, error: Error) -> Ints:
        """Take as many rows as the means of the values need."""
        with np.errstate(divide="ignore", invalid="ignore"):
            spread = np.sqrt(held.variances) / np.abs(held.means)
        worst = np.max(np.where(np.isnan(spread), np.inf, spread), axis=1, initial=0.0)
        misses = z_score(error.confidence) * worst / error.relative
        enough = _needed(np.ones_like(held.usable), held.usable, misses)
        return np.clip(enough, np.minimum(held.usable, _NORMAL_ROWS), held.usable)

    def run(self, cut: Cut, by: tuple[str, ...]) -> pa.RecordBatch:
        """Run the function once over all groups of the window."""
        group = np.repeat(np.arange(cut.sizes.size), cut.sizes)
        groups = cut.held.groups(by).take(pa.array(group))
        weights = (cut.held.usable / np.maximum(cut.sizes, 1))[group]
        columns = {**dict(zip(by, groups.columns, strict=True)), **dict(columns_of(cut.rows()))}
        frame = pa.table({**columns, WEIGHT: weights}).to_pandas()
        results = Results(fn=self.name, schema=to_arrow_schema(self.returns, timezone="UTC"))
        return results.of_frame(self.fn(frame))


def applied(
    apply: str | Callable[[Any], Any],
    schema: T.StructType | str | None,
    values: tuple[str, ...],
    error: Error | None,
    columns: Sequence[str] | None = None,
) -> Apply:
    """Return the function that is meant; refuse what is neither a name nor a function."""
    if isinstance(apply, str):
        if schema is not None:
            raise ValueError(f"schema has no use for {apply!r}, got {schema!r}")
        if columns is not None:
            raise ValueError(f"columns has no use for {apply!r}, got {columns!r}")
        return Named.parsed(apply, error.confidence if error else 0.95)
    if not callable(apply):
        raise ValueError(f"apply must be {_RULE}, got {apply!r}")
    if error is not None and not values:
        raise ValueError("values must name what the error is of where apply is a function, got ()")
    needed = None if columns is None else tuple(columns)
    return Custom(fn=apply, returns=checked_schema(schema), columns=needed)


def _needed(pilot: Ints, rows: Ints, misses: Floats) -> Ints:
    """Return the sizes at which intervals shrink to the contract, within the population.

    An interval shrinks with the root of the size and with what is left of the population.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        left = np.maximum(1.0 - pilot / np.maximum(rows, 1), 0.0)
        endless = _SAFETY * pilot * misses**2 / np.where(left > 0, left, 1.0)
        wanted = endless / (1.0 + endless / np.maximum(rows, 1))
    wanted = np.where(np.isfinite(endless), wanted, rows)
    sizes: Ints = np.ceil(np.clip(wanted, np.minimum(pilot, rows), rows)).astype(np.int64)
    return sizes


def _check_groups(by: Sequence[str], results: tuple[str, ...]) -> None:
    own = [name for name in by if name.lower() in results]
    if own:
        raise ValueError(f"by must not name one of the results {results}, got {own}")


def _as_batch(table: pa.Table) -> pa.RecordBatch:
    whole = table.combine_chunks()
    columns = [column.chunk(0) if column.num_chunks else column for column in whole.columns]
    return pa.record_batch(columns, names=table.column_names)


def _quantile(text: str, whole: str) -> float:
    try:
        q = float(text)
    except ValueError:
        q = -1.0
    if not 0 < q < 1:
        raise ValueError(f"the quantile of apply must be in (0, 1), got {whole!r}")
    return q
