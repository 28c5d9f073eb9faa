"""The guard: what a user holds. It wires one query."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from spillway.arguments import (
    admission_of,
    check_mode,
    controller_of,
    folder_of,
    in_order_of_pain,
)
from spillway.contracts import Controller, CostModel, Shedder
from spillway.cost.by_key import CostByKey
from spillway.degrade.degrade import Degrade
from spillway.degrade.remembered import Application
from spillway.loop import Loop
from spillway.objective import Error, Latency
from spillway.overload.fair import FairBudget
from spillway.shedders.uniform import Uniform
from spillway.state import offsets
from spillway.state.fair_log import FairLog
from spillway.state.ledger import Ledger
from spillway.state.memory import Memory
from spillway.state.plan_log import PlanLog
from spillway.telemetry.hooks import Hook, Hooks
from spillway.values import Limits

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from spillway.dashboard.serve import Server
    from spillway.degrade.accuracy import Measure
    from spillway.degrade.profile import Profile
    from spillway.degrade.subtask import Subtasks
    from spillway.spark.control import Planner
    from spillway.spark.gate import Gate
    from spillway.spark.live import Live
    from spillway.spark.membership import Membership
    from spillway.spark.overflow import Overflow, Target
    from spillway.spark.replay import Replay
    from spillway.spark.retained import Retained


class Guard:
    """Protects one streaming query: holds its objective, and keeps the books of what it gave up.

    `state` is a folder for plan log, ledger and memory, on storage that driver and executors
    share. Put it inside the query's checkpoint folder, or name the checkpoint, and the guard
    knows the size of every batch before it runs.
    """

    def __init__(
        self,
        name: str,
        *,
        state: str | Path,
        objective: Latency | None = None,
        shed: Shedder | Degrade | Sequence[Shedder | Degrade] | None = None,
        control: Controller | None = None,
        cost: CostModel | None = None,
        limits: Limits | None = None,
        checkpoint: str | Path | None = None,
        on_error: Literal["open", "last"] = "open",
    ) -> None:
        """Describe the guard; nothing is read or written before `protect`."""
        if not name or not name.isprintable():
            raise ValueError(f"name must be printable and not empty, got {name!r}")
        if on_error not in ("open", "last"):
            raise ValueError(f"on_error must be 'open' or 'last', got {on_error!r}")
        self.name = name
        self.objective = objective
        self.on_error: Literal["open", "last"] = on_error
        self.state = folder_of("state", state)
        self._checkpoint = folder_of("checkpoint", checkpoint) if checkpoint else None
        degrade, shedder = in_order_of_pain(shed)
        self.loop = Loop(
            controller=controller_of(objective, control),
            cost=cost or CostByKey(),
            shedder=shedder,
            degrade=degrade,
            limits=limits or Limits(),
        )
        self.metric = ""  # under this name the gate's counts stand in `observedMetrics`
        self._hooks = Hooks()
        self._live: Live | None = None
        self._fair: Membership | None = None
        self._batch_gate: tuple[object, Gate] | None = None

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
        sample_rows: int | None = 64,
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
        sample_rows: most rows of a group that Spark's state holds; for functions of your own it
                  reserves 16 bytes for each, also in groups that have fewer. None holds all rows.
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

    def _know(self, app: Application) -> None:
        """Let the loop know which subtasks there are; the same again changes nothing."""
        degrade = self.loop.degrade
        if not isinstance(degrade, Degrade) or degrade.application == app:
            return
        self.loop = replace(self.loop, degrade=replace(degrade, application=app))
        self.live.follow(self.loop)

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

    def belong(
        self,
        *,
        log: FairLog,
        weight: float,
        cores: float | None,
        split: Literal["fair", "random"],
        window_s: float,
    ) -> None:
        """Become a member of a fair share; `FairShare` calls it, before anything is protected."""
        from spillway.spark.membership import Membership

        if self._live is not None or self._fair is not None:
            raise ValueError(
                f"guard {self.name!r} must be fresh: a fair share is made before anything is "
                "protected, and a guard belongs to one only"
            )
        self._fair = Membership(
            name=self.name,
            log=log,
            weight=weight,
            cores=cores,
            split=split,
            window_s=window_s,
            objective=self.objective,
        )
        self.loop = replace(self.loop, controller=FairBudget(own=self.loop.controller))

    def shed_rows(
        self, spark: SparkSession, source: Retained, *, batches: Sequence[int], check: bool = True
    ) -> DataFrame:
        """Return exactly the rows that the gate shed in past batches, of weight 1.

        They come from the source, which must still hold them, with `_spillway_batch` and the rate
        at which they might have been kept, `_spillway_rate`. Rows that an operator refused, and
        what windows and subtasks gave up, do not come back.

        source:  the stream's source, to be read again.
        batches: ids of batches in the books, such as `range(120, 181)`.
        check:   count the rows against the books first, which reads the source once more, and
                 raise `NotRetained` if some are missing; otherwise what is known to be missing is
                 logged.
        """
        return self.replay(spark, source, batches=batches).shed_rows(check=check)

    def replay(
        self,
        spark: SparkSession,
        source: Retained,
        *,
        batches: Sequence[int],
        protect: Column | str | None = None,
    ) -> Replay:
        """Look past batches up: their `shed_rows()`, and the `corrections()` of published totals.

        `protect` is the predicate of protected rows, needed if it was a Column object.
        """
        from spillway.spark.gate_of import record_of
        from spillway.spark.replay import replay_of
        from spillway.state.past import Past

        past = Past(
            state=self.state,
            checkpoint=self.checkpoint,
            source=source.index,
            like=record_of(self.loop.shedder, protect),
        )
        return replay_of(spark, past, source, batches, protect)

    def ledger(self) -> Ledger:
        """Open the books."""
        return Ledger(self.state / "ledger", retain=self.loop.limits.replay_batches)

    def on_event(self, hook: Hook) -> Callable[[], None]:
        """Let a function hear every event of this guard from now on; return what ends that.

        It is called on a thread of its own with one event after the other (`telemetry.events`):
        what it cannot take in time is dropped, what it raises is logged. Events are heard in the
        process that keeps the books.
        """
        return self._hooks.add(hook)

    def dashboard(self, *, port: int = 0, token: str | None = None) -> Server:
        """Serve the live page of this guard on this machine; return where it is, and `stop()`.

        port:  a free one by default. token: drawn at random by default, part of the address.
        Needs the extra `dashboard`. For other machines, or several queries on one page, run
        `spillway dashboard`.
        """
        from spillway.dashboard.serve import serve

        return serve([self.state], port=port, token=token)

    def gaps(self) -> list[int]:
        """Return the committed batches that are not in the books (a dropped event, a crash)."""
        if self.checkpoint is None:
            return []
        query_id = offsets.query_id(self.checkpoint)
        ledger, plans = self.ledger(), PlanLog.of(self.state, query_id)
        booked = {entry.batch_id for entry in ledger.entries(query_id)}
        first, last = ledger.retained_from(query_id), offsets.last_committed(self.checkpoint)
        return [b for b in plans.batch_ids() if first <= b <= last and b not in booked]

    @property
    def faults(self) -> int:
        """How often the control path failed and the gate opened or went back, since the start."""
        recorder = self._live.recorder if self._live else None
        return recorder.faults if recorder else 0

    @property
    def checkpoint(self) -> Path | None:
        """The query's checkpoint: as named, else the folder around `state` if it is one."""
        if self._checkpoint:
            return self._checkpoint
        return self.state.parent if (self.state.parent / "offsets").is_dir() else None

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

    @property
    def live(self) -> Live:
        """What hears of the guard's batches in this process."""
        from spillway.spark.live import Live

        if self._live is None:
            self._live = Live(
                name=self.name,
                loop=self.loop,
                state=self.state,
                fair=self._fair,
                objective=self.objective,
                hooks=self._hooks,
            )
        return self._live

    def _planner(self) -> Planner:
        from spillway.spark.control import Planner

        return Planner(
            loop=self.loop,
            state=self.state,
            checkpoint=self._checkpoint or self.state.parent,
            on_error=self.on_error,
            fair=self._fair,
        )

    def __repr__(self) -> str:
        """Say what was described, on one line; nothing is read."""
        held = f"objective={str(self.objective)!r}, " if self.objective else ""
        shed = self.loop.degrade or self.loop.shedder
        return f"Guard({self.name!r}, {held}shed={shed!r}, state={str(self.state)!r})"

    def _repr_html_(self) -> str:
        """Show the latest batches in a notebook, from the books alone: Spark is not asked."""
        from spillway.report.status import status_of_books

        return status_of_books(
            self.name,
            self.ledger(),
            objective=self.objective,
            shed=repr(self.loop.degrade or self.loop.shedder),
            faults=self.faults,
        )

    def __getstate__(self) -> dict[str, Any]:
        """Travel to other processes (Connect runs `foreachBatch` there) without what is live."""
        live = dict.fromkeys(("_live", "_batch_gate"))
        return {**self.__dict__, **live, "_hooks": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Arrive in another process: nobody hears of events there."""
        self.__dict__.update(state)
        self._hooks = Hooks()


def _overflow(to: Target | None, on_error: Literal["fail", "count"]) -> Overflow | None:
    if to is None:
        return None
    from spillway.spark.overflow import Overflow

    return Overflow(to=to, on_error=on_error)
