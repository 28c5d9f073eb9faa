"""Which window a call of `Guard.window` asks for: in Spark alone, or with a task behind it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pyspark.sql.types import StructType

from spillway.objective import Error
from spillway.spark.window import SampledWindow
from spillway.spark.window_apply import Named, applied
from spillway.spark.window_native import NativeWindow
from spillway.spark.window_span import Span
from spillway.spark.window_task import WindowTask

Allocation = Literal["proportional", "congress", "neyman", "cvopt"]


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
    sample_rows: int | None
    error: Error | None
    identity: Sequence[str] | None


def window_of(
    wanted: Wanted, span: Span, *, seed: int, share: Callable[[], float]
) -> NativeWindow | SampledWindow:
    """Return the window: Spark's own aggregate where that can do all, else a sample and a task."""
    function = applied(wanted.apply, wanted.schema, wanted.values, wanted.error, wanted.columns)
    _check_strata(wanted)
    task = WindowTask(
        apply=function,
        by=wanted.by,
        values=wanted.values or ((function.column,) if function.column else ()),
        allocation=wanted.allocation or "cvopt",
        rows_min=wanted.rows_min,
        rows_max=wanted.sample_rows if wanted.error is None else None,
        error=wanted.error,
        share=share,
    )
    if isinstance(function, Named) and not (wanted.allocation or wanted.values or wanted.error):
        return NativeWindow(
            span=span,
            by=wanted.by,
            function=function,
            identity=wanted.identity,
            sample_rows=wanted.sample_rows,
            seed=seed,
        )
    return SampledWindow(
        span=span,
        identity=wanted.identity,
        strata=wanted.strata,
        sample_rows=None if wanted.error is not None else wanted.sample_rows,
        seed=seed,
        task=task,
    )


def _check_strata(wanted: Wanted) -> None:
    """Refuse strata where nobody weighs their rows, or where their number is not ours to choose."""
    if not wanted.strata:
        return
    if isinstance(wanted.apply, str):
        raise ValueError(f"strata has no use for {wanted.apply!r}, got {list(wanted.strata)}")
    if wanted.error is not None:
        raise ValueError(f"strata must be empty where error is given, got {list(wanted.strata)}")
