"""A pipeline of subtasks under guard: what is selected runs, and every row says what that was.

Python functions run in one `mapInArrow` operator, subtask by subtask, and are timed; a pipeline
of SQL and Columns alone stays native (`subtasks_native`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from spillway.degrade.accuracy import Measure
from spillway.degrade.profile import Profile
from spillway.degrade.remembered import Application
from spillway.degrade.subtask import Subtask, Subtasks
from spillway.spark import columns
from spillway.spark.columns import WEIGHT
from spillway.spark.control import Planner, pinned_of_task
from spillway.spark.metrics import TASKS
from spillway.spark.operator_results import REPORT, Results
from spillway.spark.operator_task import ITEM, Layout
from spillway.spark.subtasks_choice import ACCURACY, ROW, SELECTION
from spillway.spark.subtasks_judge import Row, SameColumns
from spillway.spark.subtasks_task import Pipeline, run_subtasks
from spillway.spark.uniform import hash_sql, quoted
from spillway.values import PinnedPlan

_ADDED = T.StructType(
    [
        T.StructField(ACCURACY, T.DoubleType()),
        T.StructField(SELECTION, T.ArrayType(T.StringType())),
    ]
)


@dataclass(frozen=True, kw_only=True)
class SubtaskOperator:
    """Subtasks, at least one of which is a Python function.

    schema:   the columns that are returned: of the input, or made by subtasks.
    identity: columns that tell rows apart; with the guard's `seed` they say which selection a row
              takes.
    complete: share of the rows that runs everything, on which losses are measured.
    measure:  says how accurate rows are beside the complete ones; None compares new columns.
    key:      column by which costs are learnt.
    """

    subtasks: Subtasks
    schema: T.StructType
    identity: tuple[str, ...]
    seed: Callable[[], int]
    complete: float = 0.0
    measure: Measure[Sequence[Row]] | None = None
    key: str | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be run, whatever the data."""
        own = [name for name in self.schema.names if name.lower() in (ACCURACY, SELECTION)]
        if own:
            raise ValueError(f"schema must not name {own}, which the guard adds")
        check_order(self.subtasks)

    def application(self, profile: Profile | None) -> Application:
        """Return what the loop should know of the subtasks."""
        return Application(subtasks=self.subtasks, profile=profile, complete=self.complete).bare()

    def attach_batch(self, df: DataFrame, observed: Observation, pinned: PinnedPlan) -> DataFrame:
        """Return what the subtasks make of a batch, by its plan."""
        return self._attach(df, observed, lambda: pinned)

    def attach_stream(self, df: DataFrame, observed: str, planner: Planner) -> DataFrame:
        """Return what the subtasks make of a stream; each task reads the plan of its batch."""
        return self._attach(df, observed, partial(pinned_of_task, planner))

    def _attach(
        self, df: DataFrame, observed: Observation | str, plan: Callable[[], PinnedPlan]
    ) -> DataFrame:
        self._check(df)
        schema = self.schema
        weighted = WEIGHT in df.columns and WEIGHT not in schema.names
        run = self._run(df, schema, weighted, plan)
        extra = [T.StructField(WEIGHT, T.DoubleType(), True)] if weighted else []
        fields = [*_nullable(schema), *_ADDED, *extra, T.StructField(REPORT, T.BinaryType(), True)]
        mapped = self._prepared(df).mapInArrow(run, T.StructType(fields))
        counted = mapped.observe(observed, F.expr(f"collect_list({REPORT}) AS {TASKS}"))
        names = [field.name for field in fields[:-1]]
        return counted.where(f"{REPORT} IS NULL").selectExpr(*map(quoted, names))

    def _check(self, df: DataFrame) -> None:
        columns.check_columns(df, weighted=True)
        if self.key is not None:
            columns.check_key(df, self.key)
        check_names(self.subtasks, df, only=natives(self.subtasks))

    def _run(
        self,
        df: DataFrame,
        schema: T.StructType,
        weighted: bool,
        plan: Callable[[], PinnedPlan],
    ) -> Any:
        native = natives(self.subtasks)
        made, full = (
            to_arrow_schema(T.StructType(list(fields)), timezone="UTC")
            for fields in (schema, [*schema, *_ADDED])
        )
        pipeline = Pipeline(
            subtasks=_travelling(self.subtasks, native),
            native=native,
            made=Results(fn="subtasks", schema=made),
            layout=Layout(
                columns=(*df.columns, *(name for name in self.subtasks.names if name in native)),
                results=Results(fn="subtasks", schema=full, weighted=weighted),
                keyed=self.key is not None,
            ),
            complete=self.complete,
            measure=self.measure or SameColumns(columns=_new(schema.names, df.columns)),
            plan=plan,
        )
        return lambda batches: run_subtasks(pipeline, batches)

    def _prepared(self, df: DataFrame) -> DataFrame:
        """Add what Spark computes itself: native subtasks, the row's hash, the item of its key."""
        from spillway.cost.items import item_sql

        beside = [f"{row_sql(self.seed(), self.identity)} AS {ROW}"]
        if self.key is not None:
            beside.append(f"{item_sql(quoted(self.key))} AS {ITEM}")
        made = df.selectExpr("*", *beside)
        for subtask in self.subtasks:
            if is_native(subtask):
                made = made.withColumn(subtask.name, column_of(subtask))
        return made


def row_sql(seed: int, identity: Sequence[str]) -> str:
    """Hash a row's identity, the same in every batch; the batch's salts come on top."""
    return hash_sql(f"CAST('{seed}' AS BIGINT)", identity)


def is_native(subtask: Subtask) -> bool:
    """Say whether Spark computes the subtask; refuse what is neither that nor a function."""
    if isinstance(subtask.does, str | Column):
        return True
    if not callable(subtask.does):
        raise ValueError(
            f"does of {subtask.name!r} must be a function, SQL text or a Column, "
            f"got {subtask.does!r}"
        )
    return False


def natives(subtasks: Subtasks) -> frozenset[str]:
    """Return the names of the subtasks that Spark computes."""
    return frozenset(subtask.name for subtask in subtasks if is_native(subtask))


def column_of(subtask: Subtask) -> Column:
    """Return what a native subtask computes."""
    does: Any = subtask.does
    return F.expr(does) if isinstance(does, str) else does


def check_order(subtasks: Subtasks) -> None:
    """Refuse a native subtask behind a Python one: all native ones run first."""
    native = natives(subtasks)
    for subtask in subtasks:
        behind = [name for name in (*subtask.inputs, *subtask.after) if name not in native]
        if subtask.name in native and behind:
            raise ValueError(
                f"inputs of the native {subtask.name!r} must be native, got the Python {behind}"
            )


def check_names(subtasks: Subtasks, df: DataFrame, *, only: frozenset[str]) -> None:
    """Refuse a native subtask, whose name is that of its column, where there is one already."""
    taken = {name.lower() for name in (*df.columns, ACCURACY, SELECTION)}
    doubled = [name for name in subtasks.names if name in only and name.lower() in taken]
    if doubled:
        raise ValueError(f"names of native subtasks must not be columns already, got {doubled}")


def _travelling(subtasks: Subtasks, native: frozenset[str]) -> Subtasks:
    """Leave out what a task does not run and could not be sent."""
    return Subtasks(replace(one, does=None) if one.name in native else one for one in subtasks)


def _new(names: Sequence[str], before: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that subtasks make; all of them if they only change the given ones."""
    return tuple(name for name in names if name not in before) or tuple(names)


def _nullable(schema: T.StructType) -> list[T.StructField]:
    return [T.StructField(field.name, field.dataType, True) for field in schema]
