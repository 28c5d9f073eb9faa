"""Windows of a guarded stream: a function runs over a sample of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from spillway.guard_parts import GuardParts
from spillway.objective import Error
from spillway.shedders.uniform import Uniform
from spillway.state.memory import Memory

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


class GuardWindows(GuardParts):
    """What a guard does to the windows of a stream, or of two."""

    def window(
        self,
        df: DataFrame,
        *,
        time: str,
        size: str,
        apply: str | Callable[[Any], Any],
        slide: str | None = None,
        by: str | Sequence[str] | None = None,
        schema: StructType | str | None = None,
        values: Sequence[str] = (),
        strata: str | Sequence[str] = (),
        columns: Sequence[str] | None = None,
        late: str | None = None,
        allocation: Literal["proportional", "congress", "neyman", "cvopt"] | None = None,
        rows_min: int = 2,
        sample_rows: int | Literal["auto"] | None = "auto",
        error: Error | None = None,
        identity: Sequence[str] | None = None,
    ) -> DataFrame:
        """Run a function over a sample of every window of event time, and return its results.

        time:     column with the event time; `size` and `slide` say how long windows are and how
                  far apart, `late` by how much rows may be late (None: `df` has a watermark).
        by:       column or columns that make the groups; rare ones are used whole.
        apply:    "median(fare)" or "quantile(fare, 0.9)", which return a line per group with
                  value, interval, and how many rows there were and were used; "mean(fare)",
                  "sum(fare)" and "count()", which are exact; or a function that takes the sampled
                  rows of a window as a pandas frame with `_weight` and returns one of `schema`.
        columns:  what a function needs of a row beside `by`; the state holds nothing else. None:
                  all columns.
        values:   columns whose spread the allocation goes by; by default the one of `apply`.
        strata:   column or columns that tell the rows of a group apart further, for a function.
                  Each stratum is sampled by itself, one row at least, and `_weight` makes up for
                  it: sums and means err the less, the less values differ within a stratum.
        allocation: how the guard's share of the rows is shared out: for the least squared relative
                  error of the groups' means ("cvopt", what functions get), for the least variance
                  of the total ("neyman"), by frequency ("proportional", the paper's), or half and
                  half ("congress"). A named function without one uses all that Spark's state holds
                  of a group, in Spark alone: to use fewer would save nothing there.
        rows_min: of every group at least so many rows are allocated.
        sample_rows: most rows of a group that Spark's state holds, None for all. "auto": 16 for a
                  quantile (more near an end, where its bounds need more), 64 for a function of
                  yours, or if a share is allocated; then 16 bytes are reserved for each of them.
        error:    a contract that decides how many rows are used, instead of the guard's share; the
                  state then holds the whole window.
        """
        from spillway.spark.window_of import Wanted, window_of
        from spillway.spark.window_span import Span

        self._check_window(df)
        wanted = Wanted(
            apply=apply,
            by=(by,) if isinstance(by, str) else tuple(by or ()),
            schema=schema,
            values=tuple(values),
            strata=(strata,) if isinstance(strata, str) else tuple(strata),
            columns=columns,
            allocation=allocation,
            rows_min=rows_min,
            sample_rows=sample_rows,
            error=error,
            identity=identity,
        )
        window = window_of(
            wanted,
            Span(time=time, size=size, slide=slide, late=late),
            seed=Memory(folder=self.state).seed(),
            share=self._window_share(),
        )
        return window.attach(df, self.live.hear_operator(df.sparkSession))

    def join(
        self,
        left: DataFrame,
        right: DataFrame,
        *,
        time: str,
        size: str,
        by: str | Sequence[str],
        apply: Callable[[Any], Any],
        schema: StructType | str,
        slide: str | None = None,
        late: str | None = None,
        rows_min: int = 2,
        sample_rows: int = 64,
        identity: Sequence[str] | None = None,
    ) -> DataFrame:
        """Join two streams on `by` within every window, on a sample, and run a function on that.

        `apply` takes the pairs of the sampled rows as a pandas frame: the columns of `by`, those of
        both streams, and `_weight`, by which totals over all pairs are unbiased. It returns a frame
        of `schema`. Both streams have the columns `time` and `by`, and no other in common. Of each
        key at least `rows_min` rows of each side are used; the state holds at most `sample_rows`.
        """
        from spillway.spark.operator import checked_schema
        from spillway.spark.window_join import JoinedWindow, JoinTask
        from spillway.spark.window_span import Span

        self._check_window(left, right)
        task = JoinTask(
            fn=apply,
            returns=checked_schema(schema),
            by=(by,) if isinstance(by, str) else tuple(by),
            rows_min=rows_min,
            rows_max=sample_rows,
            share=self._window_share(),
        )
        window = JoinedWindow(
            span=Span(time=time, size=size, slide=slide, late=late),
            identity=identity,
            sample_rows=sample_rows,
            seed=Memory(folder=self.state).seed(),
            task=task,
        )
        return window.attach(left, right, self.live.hear_operator(left.sparkSession))

    def _window_share(self) -> Callable[[], float]:
        """Return what tells a task which share of the rows of its windows may be used."""
        from spillway.spark.control import share_of_task

        return partial(share_of_task, replace(self._planner(), sized=False))

    def _check_window(self, *streams: DataFrame) -> None:
        """Refuse what has no watermark, and a shedder that would shed a second time."""
        if not all(df.isStreaming for df in streams):
            raise ValueError("df must be a stream: a window ends when the watermark passes it")
        if not isinstance(self.loop.shedder, Uniform):
            raise ValueError(
                "shed must be left out for a window, which allocates rows to groups itself; "
                f"got {self.loop.shedder!r}"
            )
