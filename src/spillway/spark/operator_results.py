"""What a user's operator returns becomes Arrow batches of its schema, or is refused by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spillway.spark.columns import PREFIX, WEIGHT

if TYPE_CHECKING:
    import pandas as pd

REPORT = PREFIX + "report"
Row = dict[str, Any]

_REFUSALS = (pa.ArrowException, TypeError, ValueError, OverflowError)


@dataclass(frozen=True, kw_only=True)
class Results:
    """The columns that `fn` must return; `weighted` if the rows' weights are carried along."""

    fn: str
    schema: pa.Schema
    weighted: bool = False

    def listed(self, made: object) -> list[Row]:
        """Return what became of one row, where it is neither a dictionary nor nothing."""
        if isinstance(made, Mapping):
            return [dict(made)]
        if not isinstance(made, Iterable) or isinstance(made, str | bytes):
            raise self._refused("return a dict, None or an iterable of dicts", _kind(made))
        rows = list(made)
        for row in rows:
            if not isinstance(row, dict):
                raise self._refused("return a dict, None or an iterable of dicts", _inner(row))
        return rows

    def of_rows(self, rows: Sequence[Row]) -> pa.RecordBatch:
        """Turn dictionaries into a batch; each must have exactly the schema's columns."""
        if sum(map(len, rows)) != len(rows) * len(self.schema):
            self._check_rows(rows)
        try:
            values = [[row[name] for row in rows] for name in self.schema.names]
        except KeyError:
            self._check_rows(rows)
            raise
        return self._batch(
            [self._array(column, field) for column, field in zip(values, self.schema, strict=True)]
        )

    def of_frame(self, frame: object) -> pa.RecordBatch:
        """Turn a pandas frame into a batch; the order of its columns does not matter.

        Its numbers are copied: Arrow would share them, and the operator may fill the frame again.
        """
        import pandas as pd

        if not isinstance(frame, pd.DataFrame):
            raise self._refused("return a pandas DataFrame", _kind(frame))
        self._check_names(list(frame.columns))
        return self._batch([self._array(_own(frame[field.name]), field) for field in self.schema])

    def of_arrow(self, made: object) -> list[pa.RecordBatch]:
        """Turn an Arrow batch, a table or several of them into batches of the schema."""
        return [self._cast(batch) for batch in self._batches(made)]

    def finished(
        self, batch: pa.RecordBatch, weights: pa.Array | None, origin: NDArray[np.int64] | None
    ) -> pa.RecordBatch:
        """Add the guard's columns; `origin` is the input row of every output row, None as they are.

        Without `origin` the rows must be as many as came in: else nobody knows their weights.
        """
        columns = list(batch.columns)
        if self.weighted:
            columns.append(self._carried(batch, weights, origin))
        columns.append(pa.nulls(batch.num_rows, pa.binary()))
        return pa.record_batch(columns, schema=self.full_schema)

    def control_row(self, report: bytes) -> pa.RecordBatch:
        """Return the one row that carries a task's report, and nothing else."""
        columns = [pa.nulls(1, field.type) for field in self.full_schema][:-1]
        return pa.record_batch([*columns, pa.array([report], pa.binary())], schema=self.full_schema)

    @cached_property
    def full_schema(self) -> pa.Schema:
        """The user's columns and the guard's own."""
        weight = [pa.field(WEIGHT, pa.float64())] if self.weighted else []
        return pa.schema([*self._nullable, *weight, pa.field(REPORT, pa.binary())])

    @cached_property
    def _nullable(self) -> pa.Schema:
        """The user's columns, any of which the control row leaves empty."""
        return pa.schema([pa.field(field.name, field.type) for field in self.schema])

    def _carried(
        self, batch: pa.RecordBatch, weights: pa.Array, origin: NDArray[np.int64] | None
    ) -> pa.Array:
        if origin is not None:
            return weights.take(pa.array(origin))
        if batch.num_rows != len(weights):
            raise self._refused(
                f"return as many rows as it takes, because {WEIGHT} is carried along by position; "
                f"put {WEIGHT} into the schema and fill it",
                f"{batch.num_rows} for {len(weights)}",
            )
        return weights

    def _batches(self, made: object) -> Iterator[pa.RecordBatch]:
        if isinstance(made, pa.RecordBatch):
            yield made
        elif isinstance(made, pa.Table):
            yield from made.to_batches()
        elif isinstance(made, Iterable) and not isinstance(made, str | bytes | Mapping):
            for each in made:
                if not isinstance(each, pa.RecordBatch | pa.Table):
                    raise self._refused(_ARROW_RULE, _inner(each))
                yield from self._batches(each)
        else:
            raise self._refused(_ARROW_RULE, _kind(made))

    def _cast(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self._check_names(batch.schema.names)
        return self._batch([self._cast_array(batch.column(f.name), f) for f in self.schema])

    def _cast_array(self, array: pa.Array, field: pa.Field) -> pa.Array:
        if array.type == field.type:
            return array
        try:
            return array.cast(field.type)
        except _REFUSALS as error:
            raise self._mistyped(field, error) from error

    def _array(self, values: Any, field: pa.Field) -> pa.Array:
        try:
            return _converted(values, field.type)
        except _REFUSALS as error:
            raise self._mistyped(field, error) from error

    def _batch(self, arrays: list[pa.Array]) -> pa.RecordBatch:
        return pa.record_batch(arrays, schema=self._nullable)

    def _check_rows(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self._check_names(list(row))

    def _check_names(self, names: list[Any]) -> None:
        wanted = self.schema.names
        if len(names) == len(wanted) and set(names) == set(wanted):
            return
        missing = [name for name in wanted if name not in names]
        other = [name for name in names if name not in wanted]
        doubled = sorted({str(name) for name in names if names.count(name) > 1})
        faults = {"missing": missing, "not in the schema": other, "more than once": doubled}
        told = ", ".join(f"{fault}: {found}" for fault, found in faults.items() if found)
        raise self._refused(f"return the columns {wanted}", f"{list(names)} ({told})")

    def _mistyped(self, field: pa.Field, error: Exception) -> ValueError:
        return self._refused(
            f"return column {field.name!r} as {field.type}, or what can be cast to it without loss",
            str(error),
        )

    def _refused(self, rule: str, got: str) -> ValueError:
        return ValueError(f"fn ({self.fn}) must {rule}; got {got}")


_ARROW_RULE = "return a RecordBatch, a Table or an iterable of them"


def _converted(values: Any, wanted: pa.DataType) -> pa.Array:
    """Convert a list or a pandas column, in which NaN is a missing value."""
    missing_nan = not isinstance(values, list)
    if pa.types.is_integer(wanted):  # told the type, Arrow would cut 1.5 down to 1
        found = pa.array(values, from_pandas=missing_nan)
        if found.type == wanted:
            return _whole(found)
        if pa.types.is_floating(found.type) or pa.types.is_decimal(found.type):
            return _whole(found).cast(wanted)
    return _whole(pa.array(values, type=wanted, from_pandas=missing_nan))


def _whole(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _own(column: pd.Series[Any]) -> Any:
    """Return values that nobody else changes; a copy of a frame takes longer."""
    return column.to_numpy(copy=True) if isinstance(column.dtype, np.dtype) else column.copy()


def _kind(made: object) -> str:
    return type(made).__name__


def _inner(made: object) -> str:
    return f"an iterable with {_kind(made)} in it"
