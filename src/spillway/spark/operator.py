"""A Python operator under guard: it is timed, and every successful task reports once.

The operator runs in `mapInArrow`. Each task ends with one control row that carries its report;
`observe` collects the reports, which Spark counts once per successful task, and a filter that
Spark compiles drops the control rows. The item of the key and the time of arrival are computed by
Spark, so that operator, gate and placement agree about every type of key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from spillway.spark import columns
from spillway.spark.columns import PREFIX, WEIGHT
from spillway.spark.metrics import TASKS
from spillway.spark.operator_batches import BatchOperator, run_batches
from spillway.spark.operator_order import Order, cheapest_first, check_order
from spillway.spark.operator_results import REPORT, Results
from spillway.spark.operator_rows import Limit, run_rows
from spillway.spark.operator_task import ARRIVED, ITEM, Layout
from spillway.spark.uniform import quoted

if TYPE_CHECKING:
    import pyarrow as pa

    from spillway.shedders.admission import Admission

BATCH_ROWS = 10_000  # what Spark itself puts into an Arrow batch
_TAKES = ("row", "pandas", "arrow")

Run = Callable[[Iterable["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]


@dataclass(frozen=True, kw_only=True)
class Operator:
    """A user's function, what it takes and returns, and what is measured of it.

    fn:      takes a row as a dictionary and returns one, None or an iterable of them; or takes and
             returns a pandas frame; or takes an Arrow batch and returns one, a table, or several.
    schema:  the columns that `fn` returns. A `_weight` that comes in and is not in the schema is
             carried along: by row, for batches by position.
    key:     column by which costs are learnt.
    arrived: column with the time of arrival, from which the wait for the operator is measured.
    order:   in which order a task works on its rows: as they come, or the cheapest in hand first.
    admit:   rows that would wait too long are refused by the clock when their turn comes, so a
             replay may refuse others.
    state:   the guard's folder, with what keys cost.
    batch_rows: a batch operator gets at most so many rows at a time.

    The report travels with a task's last row: a task that is not read to its end has none.
    """

    fn: Callable[[Any], Any]
    schema: T.StructType | str
    takes: Literal["row", "pandas", "arrow"] = "row"
    key: str | None = None
    arrived: str | None = None
    order: Order = "arrival"
    admit: Admission | None = None
    state: Path | None = None
    batch_rows: int = BATCH_ROWS

    def __post_init__(self) -> None:
        """Reject what cannot be run, whatever the data."""
        if not callable(self.fn):
            raise ValueError(f"fn must be callable, got {self.fn!r}")
        if self.takes not in _TAKES:
            raise ValueError(f"takes must be one of {', '.join(_TAKES)}, got {self.takes!r}")
        check_order(self.order, self.key)
        if self.batch_rows < 1:
            raise ValueError(f"batch_rows must be >= 1, got {self.batch_rows}")
        if self.admit is not None:
            _check_admit(self.admit, self.arrived)

    def attach(self, df: DataFrame, observed: Observation | str) -> DataFrame:
        """Return what the operator makes of `df`; its tasks report under `observed`."""
        columns.check_columns(df, weighted=True)
        columns.check_arrived(df, self.arrived)
        if self.key is not None:
            columns.check_key(df, self.key)
        schema = checked_schema(self.schema)
        weighted = WEIGHT in df.columns and WEIGHT not in schema.names
        results = Results(
            fn=getattr(self.fn, "__qualname__", type(self.fn).__name__),
            schema=to_arrow_schema(schema, timezone="UTC"),
            weighted=weighted,
        )
        mapped = self._prepared(df).mapInArrow(
            self.run(results, tuple(df.columns)), _with_report(schema, weighted)
        )
        counted = mapped.observe(observed, F.expr(f"collect_list({REPORT}) AS {TASKS}"))
        names = [*schema.names, *([WEIGHT] if weighted else [])]
        return counted.where(f"{REPORT} IS NULL").selectExpr(*map(quoted, names))

    def run(self, results: Results, seen: tuple[str, ...]) -> Run:
        """Return the function that a task runs over its Arrow batches."""
        run, state = self._run(results, seen), self.state
        if self.order == "arrival":
            return run
        return lambda batches: run(cheapest_first(batches, state))

    def _run(self, results: Results, seen: tuple[str, ...]) -> Run:
        layout = Layout(
            columns=seen,
            results=results,
            keyed=self.key is not None,
            arrived=self.arrived is not None,
        )
        if self.takes == "row":
            fn, limit = self.fn, _limit(self.admit)
            return lambda batches: run_rows(fn, layout, limit, batches)
        operator = BatchOperator(
            fn=self.fn,
            takes=self.takes,
            layout=layout,
            batch_rows=self.batch_rows,
            admit=self.admit,
            state=self.state,
        )
        return lambda batches: run_batches(operator, batches)

    def _prepared(self, df: DataFrame) -> DataFrame:
        """Add the item of the key and the time of arrival, both by Spark itself."""
        from spillway.cost.items import item_sql

        beside = [f"{item_sql(quoted(self.key))} AS {ITEM}"] if self.key else []
        if self.arrived:
            beside.append(f"unix_micros(CAST({quoted(self.arrived)} AS TIMESTAMP)) AS {ARRIVED}")
        return df.selectExpr("*", *beside) if beside else df


def _limit(admit: Admission | None) -> Limit | None:
    if admit is None:
        return None
    from spillway.shedders.admission import Condition

    return Limit(limit_ns=admit.aimed_ns, each=admit.condition == Condition.EACH)


def _check_admit(admit: Admission, arrived: str | None) -> None:
    from spillway.shedders.admission import Aim, Condition

    if arrived is None:
        raise ValueError("arrived must name a column where admit is given, got None")
    if admit.condition not in (Condition.AVERAGE, Condition.EACH):
        raise ValueError(
            f"admit must have the condition AVERAGE or EACH, got {admit.condition.name}"
        )
    if admit.aim != Aim.FAITHFUL or admit.faithful:
        raise ValueError(
            "admit must have the aim FAITHFUL and learn at once (faithful=False) in an operator, "
            f"got {admit!r}"
        )


def checked_schema(schema: T.StructType | str | None) -> T.StructType:
    """Parse the schema; refuse one without columns, or with such as the guard's own."""
    parsed = T.StructType.fromDDL(schema) if isinstance(schema, str) and schema.strip() else schema
    if not isinstance(parsed, T.StructType) or not parsed.names:
        raise ValueError(f"schema must have at least one column, got {schema!r}")
    lowered = [name.lower() for name in parsed.names]
    if len(set(lowered)) < len(lowered):
        raise ValueError(f"schema must name every column once, got {parsed.names}")
    own = [name for name in parsed.names if name.lower().startswith(PREFIX)]
    if own:
        raise ValueError(f"schema must not name columns {PREFIX}*, the guard's own; got {own}")
    return parsed


def _with_report(schema: T.StructType, weighted: bool) -> T.StructType:
    fields = [T.StructField(field.name, field.dataType, True) for field in schema]
    weight = [T.StructField(WEIGHT, T.DoubleType(), True)] if weighted else []
    return T.StructType([*fields, *weight, T.StructField(REPORT, T.BinaryType(), True)])
