"""Which window a call of `Guard.window` asks for: in Spark alone, or with a task behind it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeGuard

from pyspark.sql.types import StructType

from spillway.objective import Error
from spillway.spark.window import SampledWindow
from spillway.spark.window_apply import Apply, Named, applied
from spillway.spark.window_native import NativeWindow
from spillway.spark.window_span import SAMPLE_ROWS_MAX, Span, check_sample_rows
from spillway.spark.window_task import WindowTask

Allocation = Literal["proportional", "congress", "neyman", "cvopt"]
_NATIVE_ROWS = 16  # of a group: few enough for large windows to be sooner than `percentile`
_TASK_ROWS = 64  # of which a share is used


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What is to be done with the rows of every window; the fields are arguments of the call."""

    apply: str | Callable[[Any], Any]
    by: tuple[str, ...]
    schema: StructType | str | None
    values: tuple[str, ...]
    strata: tuple[str, ...]
    columns: Sequence[str] | None
    allocation: Allocation | None
    rows_min: int
    sample_rows: int | Literal["auto"] | None
    error: Error | None
    identity: Sequence[str] | None


def window_of(
    wanted: Wanted, span: Span, *, seed: int, share: Callable[[], float]
) -> NativeWindow | SampledWindow:
    """Return the window: Spark's own aggregate where that can do all, else a sample and a task."""
    function = applied(wanted.apply, wanted.schema, wanted.values, wanted.error, wanted.columns)
    _check_strata(wanted)
    sample_rows = _sample_rows(wanted, function)
    task = WindowTask(
        apply=function,
        by=wanted.by,
        values=wanted.values or ((function.column,) if function.column else ()),
        allocation=wanted.allocation or "cvopt",
        rows_min=wanted.rows_min,
        rows_max=sample_rows,
        error=wanted.error,
        share=share,
    )
    if _is_native(function, wanted):
        return NativeWindow(
            span=span,
            by=wanted.by,
            function=function,
            identity=wanted.identity,
            sample_rows=sample_rows,
            seed=seed,
        )
    return SampledWindow(
        span=span,
        identity=wanted.identity,
        strata=wanted.strata,
        sample_rows=sample_rows,
        seed=seed,
        task=task,
    )


def _is_native(function: Apply, wanted: Wanted) -> TypeGuard[Named]:
    """Tell whether Spark can do all: where there is no share to allocate and no contract."""
    return isinstance(function, Named) and not (wanted.allocation or wanted.values or wanted.error)


def _sample_rows(wanted: Wanted, function: Apply) -> int | None:
    """Say how many rows of a group are held: all for a contract, else what the user says."""
    held = wanted.sample_rows
    if held == "auto":
        usual = _NATIVE_ROWS if _is_native(function, wanted) else _TASK_ROWS
        held = min(max(usual, function.rows_needed, wanted.rows_min), SAMPLE_ROWS_MAX)
    elif held is not None:
        check_sample_rows(held)
    return held if wanted.error is None else None


def _check_strata(wanted: Wanted) -> None:
    """Refuse strata where nobody weighs their rows, or where their number is not ours to choose."""
    if not wanted.strata:
        return
    if isinstance(wanted.apply, str):
        raise ValueError(f"strata has no use for {wanted.apply!r}, got {list(wanted.strata)}")
    if wanted.error is not None:
        raise ValueError(f"strata must be empty where error is given, got {list(wanted.strata)}")
