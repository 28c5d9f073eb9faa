"""The guard: what a user holds. It wires one query.

Here stands what it does to the rows of a stream, in `guard_windows` what to windows of them; what
it tells of that in `guard_books`, and what it is made of in `guard_parts`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from spillway.arguments import admission_of, check_mode
from spillway.guard_books import GuardBooks
from spillway.guard_windows import GuardWindows
from spillway.objective import Latency
from spillway.state import offsets
from spillway.state.memory import Memory

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

    from spillway.degrade.accuracy import Measure
    from spillway.degrade.profile import Profile
    from spillway.degrade.subtask import Subtasks
    from spillway.spark.gate import Gate
    from spillway.spark.overflow import Overflow, Target


class Guard(GuardWindows, GuardBooks):
    """Protects one streaming query: holds its objective, and keeps the books of what it gave up.

    `state` is a folder for plan log, ledger and memory, on storage that driver and executors
    share. Put it inside the query's checkpoint folder, or name the checkpoint, and the guard
    knows the size of every batch before it runs.
    """

    def protect(
        self,
        df: DataFrame,
        *,
        arrived: str | None = None,
        identity: Sequence[str] | None = None,
        protect: Column | str | None = None,
        batch_id: int | None = None,
        overflow: Target | None = None,
        on_overflow_error: Literal["fail", "count"] = "fail",
    ) -> DataFrame:
        """Return the rows of `df` that the query can afford, with a `_weight` column.

        arrived:  column with the arrival time, from which latency is measured.
        identity: columns that tell rows apart; by default Kafka's topic, partition and offset,
                  else all columns that can be hashed.
        protect:  predicate; rows for which it is true are never shed.
        batch_id: the batch, inside `foreachBatch` (and only there).
        overflow: where the shed rows are written at once, inside `foreachBatch`: a folder, or a
                  function of them and the batch id. `on_overflow_error` says whether the batch
                  fails if that fails, or whether it is counted in `faults` and logged.
        """
        from spillway.spark.gate_of import gate_of

        check_mode(df, batch_id)
        if overflow is not None and batch_id is None:
            raise ValueError("overflow belongs inside foreachBatch, together with batch_id")
        new_gate = partial(
            gate_of,
            self.loop.shedder,
            df,
            arrived=arrived,
            identity=identity,
            protect=protect,
            p99=self.objective is not None and self.objective.kind == "p99",
        )
        if batch_id is None:
            return self._protect_stream(df, new_gate())
        gate = self._gate_of_batch((arrived, identity, protect), new_gate)
        aside = _overflow(overflow, on_overflow_error)
        return self._protect_batch(df, gate, batch_id, aside)

    def map(
        self,
        df: DataFrame,
        fn: Callable[..., Any],
        schema: StructType | str,
        *,
        key: str | None = None,
        takes: Literal["row", "pandas", "arrow"] = "row",
        order: Literal["arrival", "cheapest"] = "arrival",
        arrived: str | None = None,
        admit: Latency | None = None,
        batch_id: int | None = None,
    ) -> DataFrame:
        """Run a Python operator over `df`, measure what its rows cost, and return its results.

        fn:       takes a row (a dictionary) and returns one, none or several; or takes and returns
                  a pandas frame or an Arrow batch, as `takes` says.
        schema:   the columns that `fn` returns; `_weight` is carried along.
        key:      column that drives the cost of a row: what it costs is learnt by this key.
        order:    "arrival", or "cheapest": a task works on the cheapest of the rows in hand first,
                  so that rows are done sooner on average; those of one key keep their order.
        arrived:  column with the arrival time, from which the wait for the operator is measured.
        admit:    the longest wait; rows that would break it are refused, one by one, by the clock
                  while the operator runs. A replayed batch may refuse others.
        batch_id: the batch, inside `foreachBatch` (and only there).
        """
        from spillway.spark.operator import Operator

        check_mode(df, batch_id)
        operator = Operator(
            fn=fn,
            schema=schema,
            takes=takes,
            key=key,
            order=order,
            arrived=arrived,
            admit=admission_of(admit),
            state=self.state,
        )
        if batch_id is None:
            return operator.attach(df, self.live.hear_operator(df.sparkSession))
        return operator.attach(df, self.live.watch_operator(batch_id, lambda: self.checkpoint))

    def run(
        self,
        df: DataFrame,
        subtasks: Subtasks,
        *,
        schema: StructType | str | None = None,
        profile: Profile | None = None,
        complete: float = 0.01,
        measure: Measure[Sequence[dict[str, Any]]] | None = None,
        key: str | None = None,
        arrived: str | None = None,
        identity: Sequence[str] | None = None,
        protect: Column | str | None = None,
        batch_id: int | None = None,
    ) -> DataFrame:
        """Run mandatory and optional subtasks over `df`: under load the optional ones go first.

        Every row says how accurate its result is expected to be (`_accuracy`) and which subtasks
        ran for it (`_selection`). Rows go only where the mandatory work alone is too much: by this
        guard's `protect` in front, else by a gate that `run` puts there (`arrived` and `protect`
        are that gate's). By its `identity` a row decides which of two selections it gets.

        subtasks: functions take a row (a dictionary with all columns so far) and return a
                  dictionary of new ones; a mandatory one may return None to drop the row. SQL text
                  and Columns make the column of their name. If all are such, no Python runs.
        schema:   the columns that are returned, where there are functions.
        profile:  what subtasks take and what is lost without them, from a `Profiler`; without it
                  the first batches tell. Where no function is timed it must be given.
        complete: share of the rows that always runs all subtasks; there it is measured what is
                  lost without each, in turn: one for each batch. 0 measures nothing.
        measure:  compares rows with the complete ones (`accuracy(ideal, seen)`); by default the
                  new columns, by relative error.
        key:      column that drives the cost of a row, for a load-aware shedder behind.
        batch_id: the batch, inside `foreachBatch` (and only there).
        """
        from spillway.spark import columns
        from spillway.spark.subtasks_pipeline import pipeline_of

        check_mode(df, batch_id)
        pipeline = pipeline_of(
            subtasks,
            schema=schema,
            complete=complete,
            measure=measure,
            key=key,
            identity=columns.identity_of(df.drop(columns.WEIGHT), identity),
            seed=partial(Memory.seed, Memory(folder=self.state)),
        )
        self._know(pipeline.application(profile))
        if columns.WEIGHT not in df.columns:
            df = self.protect(
                df, arrived=arrived, identity=identity, protect=protect, batch_id=batch_id
            )
        elif arrived is not None or protect is not None:
            raise ValueError("arrived and protect belong to the guard's protect in front of run")
        if batch_id is None:
            observed = self.live.hear_operator(df.sparkSession)
            return pipeline.attach_stream(df, observed, self._planner())
        watched = self.live.watch_operator(batch_id, lambda: self.checkpoint)
        return pipeline.attach_batch(df, watched, self._planner().plan_for(batch_id))

    def balance(
        self,
        df: DataFrame,
        *,
        instances: int,
        key: str,
        way: Literal["longest", "greedy", "table"] = "longest",
        identity: Sequence[str] | None = None,
        batch_id: int | None = None,
    ) -> DataFrame:
        """Place the rows of `df` on so many partitions that each has the same work.

        What rows cost by `key` is learnt by `map` of the same guard; until it is known, rows are
        dealt out in turn. `longest` places the costliest of the rows in hand first; `greedy` row
        by row, in the order in which they come; `table` looks the place of a row up natively, by
        its content alone.
        """
        from spillway.spark import columns
        from spillway.spark.balance import Balance

        check_mode(df, batch_id)
        balance = Balance(
            instances=instances,
            key=key,
            identity=columns.identity_of(df, identity),
            way=way,
            planner=self._planner(),
        )
        if batch_id is None:
            return balance.attach_stream(df)
        return balance.attach_batch(df, self._planner().plan_for(batch_id))

    def _gate_of_batch(self, described: tuple[Any, ...], new_gate: Callable[[], Gate]) -> Gate:
        """Check the columns once: all batches of a stream have the same."""
        if not isinstance(described[-1], str | None):  # Columns cannot be compared
            return new_gate()
        if self._batch_gate is None or self._batch_gate[0] != described:
            self._batch_gate = (described, new_gate())
        return self._batch_gate[1]

    def _protect_stream(self, df: DataFrame, gate: Gate) -> DataFrame:
        from spillway.spark.gate_of import plan_column

        spark = df.sparkSession
        self.metric = self.live.hear_gate(spark, gate)
        return gate.attach_stream(df, plan_column(spark, self._planner(), gate), self.metric)

    def _protect_batch(
        self, df: DataFrame, gate: Gate, batch_id: int, aside: Overflow | None
    ) -> DataFrame:
        self.live.settle()
        pinned = self._planner().plan_for(batch_id)
        kept, observed = gate.attach_batch(df, pinned, f"spillway:{self.name}:{batch_id}")
        complaint = ""
        if aside is not None:
            written = aside.write(df, gate, pinned, offsets.query_id(self.checkpoint))
            observed, complaint = (*observed, *written.observed), written.complaint
        self.live.watch(batch_id, observed, lambda: self.checkpoint, gate)
        if complaint:
            self.live.complain(complaint)
        return kept


def _overflow(to: Target | None, on_error: Literal["fail", "count"]) -> Overflow | None:
    if to is None:
        return None
    from spillway.spark.overflow import Overflow

    return Overflow(to=to, on_error=on_error)
