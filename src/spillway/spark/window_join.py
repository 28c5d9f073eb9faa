"""A sampled window over two streams: an equality join whose concept are both sides' frequencies.

Both streams go through one aggregate, so Spark's state holds, for every window and key, how many
rows each side has and a sample of each. Keys that only one side has form no result and are dropped
before any Python. Of the others each side keeps its share of rows, rare keys whole; the function
sees the pairs of the sampled rows, each with the weight that makes totals over all pairs unbiased.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from spillway.shedders.group_sizes import Groups, sample_sizes
from spillway.spark import columns
from spillway.spark.columns import PREFIX, WEIGHT
from spillway.spark.metrics import TASKS
from spillway.spark.operator_results import REPORT, Results
from spillway.spark.uniform import hash_sql, quoted
from spillway.spark.window import TASKS_AT_ONCE, row_sql, with_bounds, with_report
from spillway.spark.window_span import Span, check_sample_rows
from spillway.spark.window_task import END, START, Cut, Done, Held, columns_of, run_windows

Ints = NDArray[np.int64]

_HASH, _SIDE, _ROW = (f"{PREFIX}{name}" for name in ("hash", "side", "row_"))
_ROWS, _SAMPLE = PREFIX + "rows_", PREFIX + "sample_"
_SIDES = (0, 1)


@dataclass(frozen=True, kw_only=True)
class JoinTask:
    """A user's function of the pairs, and how many rows of each side it may see."""

    fn: Callable[[Any], Any]
    returns: T.StructType
    by: tuple[str, ...]
    rows_min: int
    rows_max: int
    share: Callable[[], float]

    @property
    def name(self) -> str:
        """The function's own name."""
        return getattr(self.fn, "__qualname__", type(self.fn).__name__)

    def run(self, table: pa.Table, share: float) -> Done:
        """Run the function on the pairs of one window."""
        cuts = [self._cut(table, side, share) for side in _SIDES]
        results = Results(fn=self.name, schema=to_arrow_schema(self.returns, timezone="UTC"))
        made = results.of_frame(self.fn(_pairs(cuts, table.select(list(self.by)))))
        rows = sum(int(cut.held.rows.sum()) for cut in cuts)
        return Done(made=made, rows=rows, used=sum(int(cut.sizes.sum()) for cut in cuts))

    def _cut(self, table: pa.Table, side: int, share: float) -> Cut:
        held = Held.counted(table, rows=f"{_ROWS}{side}", sample=f"{_SAMPLE}{side}")
        nothing = np.zeros((held.rows.size, 0))
        sizes = sample_sizes(
            Groups(rows=held.rows, means=nothing, variances=nothing),
            share * float(held.rows.sum()),
            allocation="proportional",
            rows_min=self.rows_min,
            rows_max=self.rows_max,
        )
        return Cut(held=held, sizes=np.minimum(sizes, held.lengths))


@dataclass(frozen=True, kw_only=True)
class JoinedWindow:
    """Two streams, joined on `by` within windows of event time; see `SampledWindow`."""

    span: Span
    identity: Sequence[str] | None
    sample_rows: int
    seed: int
    task: JoinTask

    def __post_init__(self) -> None:
        """Reject a sample that Spark cannot hold."""
        check_sample_rows(self.sample_rows)

    def attach(self, left: DataFrame, right: DataFrame, observed: Observation | str) -> DataFrame:
        """Return the function's results, window by window."""
        for side in (left, right):
            self.span.check(side, self.task.by)
        self._check_names(left, right)
        schema = self._schema()
        results = Results(fn=self.task.name, schema=to_arrow_schema(schema, timezone="UTC"))
        mapped = (
            self._held(left, right)
            .repartition(TASKS_AT_ONCE, START)
            .mapInArrow(run_windows(self.task, results), with_report(schema))
        )
        counted = mapped.observe(observed, F.expr(f"collect_list({REPORT}) AS {TASKS}"))
        names = [quoted(name) for name in self.task.returns.names]
        span = f"named_struct('start', {START}, 'end', {END}) AS window"
        return counted.where(f"{REPORT} IS NULL").selectExpr(span, *names)

    def _check_names(self, left: DataFrame, right: DataFrame) -> None:
        shared = {self.span.time, *self.task.by}
        both = sorted(set(left.columns) & set(right.columns) - shared)
        if both:
            raise ValueError(f"the streams must share only time and by, got {both} in both")

    def _held(self, left: DataFrame, right: DataFrame) -> DataFrame:
        sides = [self._tagged(side, i) for i, side in enumerate((left, right))]
        rows = sides[0].unionByName(sides[1], allowMissingColumns=True)
        found = [each for side in _SIDES for each in self._aggregates(side)]
        held = self.span.grouped(rows, self.task.by).agg(*map(F.expr, found))
        return with_bounds(held.where(f"{_ROWS}0 > 0 AND {_ROWS}1 > 0"), self.span)

    def _tagged(self, df: DataFrame, side: int) -> DataFrame:
        timed, shared = self.span.watermarked(df), (self.span.time, *self.task.by)
        own = [name for name in df.columns if name not in shared]
        hashed = hash_sql(f"{self.seed}L, {side}", columns.identity_of(df, self.identity))
        keys = self.span.keys(self.task.by)
        return timed.selectExpr(
            *keys, f"{side} AS {_SIDE}", f"{hashed} AS {_HASH}", f"{row_sql(own)} AS {_ROW}{side}"
        )

    def _aggregates(self, side: int) -> list[str]:
        chance = f"CASE WHEN {_SIDE} = {side} THEN {_HASH} END"
        sample = f"min_by({_ROW}{side}, {chance}, {self.sample_rows})"
        return [f"count_if({_SIDE} = {side}) AS {_ROWS}{side}", f"{sample} AS {_SAMPLE}{side}"]

    def _schema(self) -> T.StructType:
        bounds = [T.StructField(name, T.TimestampType()) for name in (START, END)]
        return T.StructType([*bounds, *self.task.returns])


def _pairs(cuts: list[Cut], keys: pa.Table) -> Any:
    """Return every pair of sampled rows of a key as a pandas frame, with its weight.

    A pair is kept if both of its rows are, each with the chance of its own side.
    """
    left, right = cuts
    pairs = left.sizes * right.sizes
    group = np.repeat(np.arange(pairs.size), pairs)
    place = np.arange(pairs.sum()) - np.repeat(np.cumsum(pairs) - pairs, pairs)
    at = (
        left.starts[group] + place // np.maximum(right.sizes, 1)[group],
        right.starts[group] + place % np.maximum(right.sizes, 1)[group],
    )
    table = keys.take(pa.array(group))
    for cut, rows in zip(cuts, at, strict=True):
        for name, column in columns_of(cut.rows().take(pa.array(rows))):
            table = table.append_column(name, column)
    frame = table.to_pandas()
    chance = [cut.sizes / cut.held.rows for cut in cuts]
    frame[WEIGHT] = 1.0 / (chance[0] * chance[1])[group]
    return frame
