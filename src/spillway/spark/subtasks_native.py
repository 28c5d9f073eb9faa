"""A pipeline of SQL and Columns alone: it stays native, no row crosses into Python.

Inside `foreachBatch` the plan is known when the query of a batch is built: what both selections
leave out is not in it, and where they differ a CASE decides. In a stream, whose query is built
once, every optional subtask stands in a CASE, and Spark evaluates the branch that is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spillway.degrade.profile import Profile
from spillway.degrade.remembered import Application
from spillway.degrade.subtask import Subtask, Subtasks
from spillway.spark import columns
from spillway.spark.batch_column import batch_column
from spillway.spark.columns import PREFIX
from spillway.spark.control import Planner
from spillway.spark.subtasks import check_names, column_of, row_sql
from spillway.spark.subtasks_choice import ACCURACY, ROW, SELECTION, closed, mix_salt
from spillway.spark.uniform import quoted, uniform_sql
from spillway.values import PinnedPlan
from spillway.work_values import Selection, WorkMix

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MORE, _ON, _PLAN = PREFIX + "more", PREFIX + "on", PREFIX + "mix"
_DONE = PREFIX + "done"
_LONGS, _DOUBLES = (
    ("salt", "less_on", "more_on"),
    ("fraction", "less_accuracy", "more_accuracy", "less_work", "more_work"),
)
_TYPE = T.StructType(
    [T.StructField(name, T.LongType(), False) for name in _LONGS]
    + [T.StructField(name, T.DoubleType(), False) for name in _DOUBLES]
)
_WHOLE = WorkMix(less=Selection(), more=Selection(), fraction=0.0)


@dataclass(frozen=True, kw_only=True)
class NativeSubtasks:
    """Subtasks that Spark computes; each makes the column of its name, NULL where it is off."""

    subtasks: Subtasks
    identity: tuple[str, ...]
    seed: Callable[[], int]

    def application(self, profile: Profile | None) -> Application:
        """Return what the loop should know; Spark does not say what each subtask takes."""
        if profile is None:
            raise ValueError("profile must be given where all subtasks are native, got None")
        return Application(subtasks=self.subtasks, profile=profile).bare()

    def attach_batch(self, df: DataFrame, observed: Observation, pinned: PinnedPlan) -> DataFrame:
        """Return the rows of a batch with what the selected subtasks make of them."""
        self._check(df)
        mix = pinned.plan.mix or _WHOLE
        decided = df.selectExpr("*", f"{row_sql(self.seed(), self.identity)} AS {ROW}").selectExpr(
            "*", f"{_takes_more(_salt(pinned), _held(mix.fraction))} AS {_MORE}"
        )
        offs = closed(self.subtasks, mix.less), closed(self.subtasks, mix.more)
        told = [
            _either(_held(mix.less.accuracy), _held(mix.more.accuracy), ACCURACY),
            _either(self._ran(offs[0]), self._ran(offs[1]), SELECTION),
            _either(_held(mix.less.work), _held(mix.more.work), _DONE),
        ]
        run = self._run(decided, lambda one: _condition(one.name, *offs))
        return self._finished(run.selectExpr("*", *told), observed, df.columns)

    def attach_stream(self, df: DataFrame, observed: str, planner: Planner) -> DataFrame:
        """Return the rows of a stream; each batch reads its mix anew."""
        return self.by_column(df, observed, mix_column(df.sparkSession, planner, self.subtasks))

    def by_column(self, df: DataFrame, observed: str, mix: Column) -> DataFrame:
        """Return the rows by a mix that is a column with the fields of `mix_values`."""
        self._check(df)
        fields = {name: f"{_PLAN}.{name}" for name in (*_LONGS, *_DOUBLES)}
        hashed = df.select("*", mix.alias(_PLAN)).selectExpr(
            "*", f"{row_sql(self.seed(), self.identity)} AS {ROW}"
        )
        decided = hashed.selectExpr(
            "*", f"{_takes_more(fields['salt'], fields['fraction'])} AS {_MORE}"
        ).selectExpr("*", _either(fields["less_on"], fields["more_on"], _ON))
        told = [
            _either(fields["less_accuracy"], fields["more_accuracy"], ACCURACY),
            f"array_compact(array({', '.join(map(self._named, self.subtasks))})) AS {SELECTION}",
            _either(fields["less_work"], fields["more_work"], _DONE),
        ]
        run = self._run(decided, self._is_on)
        return self._finished(run.selectExpr("*", *told), observed, df.columns)

    def _check(self, df: DataFrame) -> None:
        columns.check_columns(df, weighted=True)
        check_names(self.subtasks, df, only=frozenset(self.subtasks.names))
        own = [name for name in df.columns if name.lower() in (ACCURACY, SELECTION)]
        if own:
            raise ValueError(f"df must not have the columns {own}, which the guard adds")

    def _run(self, df: DataFrame, condition: Callable[[Subtask], str]) -> DataFrame:
        """Add a column for each subtask, those that it needs first."""
        for subtask in self.subtasks:
            when, column = condition(subtask), column_of(subtask)
            made = column if when == "true" else F.when(F.expr(when), column)
            df = df.withColumn(subtask.name, made)
        return df

    def _finished(self, df: DataFrame, observed: Observation | str, before: list[str]) -> DataFrame:
        counted = df.observe(
            observed,
            F.expr("count(1) AS work_rows"),
            F.expr(f"count(CASE WHEN {_MORE} THEN 1 END) AS work_more"),
            F.expr(f"avg({_DONE}) AS work_done"),
        )
        names = [*before, *self.subtasks.names, ACCURACY, SELECTION]
        return counted.selectExpr(*map(quoted, names))

    def _is_on(self, subtask: Subtask) -> str:
        """Look the subtask's bit up; those that are mandatory have none."""
        if not subtask.optional:
            return "true"
        return f"({_ON} & {self.subtasks.mask([subtask.name])}L) != 0L"

    def _named(self, subtask: Subtask) -> str:
        return f"CASE WHEN {self._is_on(subtask)} THEN {_text(subtask.name)} END"

    def _ran(self, off: frozenset[str]) -> str:
        ran = (_text(name) for name in self.subtasks.names if name not in off)
        return f"array({', '.join(ran)})"


def mix_column(spark: SparkSession, planner: Planner, subtasks: Subtasks) -> Column:
    """Return the mix of the running batch, see `batch_column`."""
    bare = Application(subtasks=subtasks).bare().subtasks  # Columns do not travel
    return batch_column(spark, planner, partial(mix_values, subtasks=bare), _TYPE)


def mix_values(pinned: PinnedPlan, subtasks: Subtasks) -> dict[str, Any]:
    """Return the mix of a plan by the names of the column's fields."""
    mix = pinned.plan.mix or _WHOLE
    every = subtasks.mask(subtasks.optional)
    return {
        "salt": mix_salt(pinned),
        "less_on": every & ~subtasks.mask(closed(subtasks, mix.less)),
        "more_on": every & ~subtasks.mask(closed(subtasks, mix.more)),
        "fraction": mix.fraction,
        "less_accuracy": mix.less.accuracy,
        "more_accuracy": mix.more.accuracy,
        "less_work": mix.less.work,
        "more_work": mix.more.work,
    }


def _condition(name: str, less: frozenset[str], more: frozenset[str]) -> str:
    """Say when a subtask runs; Spark leaves what never does out of its plan."""
    if name in less and name in more:
        return "false"
    if name not in less and name not in more:
        return "true"
    return _MORE if name in less else f"NOT {_MORE}"


def _takes_more(salt: str, fraction: str) -> str:
    return f"({uniform_sql(f'xxhash64({salt}, {ROW})')} < {fraction})"


def _either(less: str, more: str, name: str) -> str:
    return f"CASE WHEN {_MORE} THEN {more} ELSE {less} END AS {name}"


def _salt(pinned: PinnedPlan) -> str:
    """Return the salt as text that is no constant of the generated code; see `Gate._numbers`."""
    return f"array(CAST('{mix_salt(pinned)}' AS BIGINT))"


def _held(value: float) -> str:
    return f"array({value!r}D, {value!r}D)[int({ROW} & 1)]"


def _text(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
