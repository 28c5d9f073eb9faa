"""The guard: what a user holds. It wires one query."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote, urlparse

from spillway.contracts import Controller, CostModel, KeyedShedder, Shedder
from spillway.cost.by_key import CostByKey
from spillway.loop import Loop
from spillway.objective import Latency
from spillway.overload.controller import HoldLatency
from spillway.shedders.uniform import Uniform
from spillway.state import offsets
from spillway.state.ledger import Ledger
from spillway.state.plan_log import PlanLog
from spillway.values import Limits

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

    from spillway.shedders.admission import Admission
    from spillway.spark.control import Planner
    from spillway.spark.gate import Gate
    from spillway.spark.live import Live


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
        shed: Shedder | None = None,
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
        self.state = _folder("state", state)
        self._checkpoint = _folder("checkpoint", checkpoint) if checkpoint else None
        self.loop = Loop(
            controller=_controller(objective, control),
            cost=cost or CostByKey(),
            shedder=shed or Uniform(),
            limits=limits or Limits(),
        )
        self.metric = ""  # under this name the gate's counts stand in `observedMetrics`
        self._live: Live | None = None
        self._batch_gate: tuple[object, Gate] | None = None

    def protect(
        self,
        df: DataFrame,
        *,
        arrived: str | None = None,
        identity: Sequence[str] | None = None,
        protect: Column | str | None = None,
        batch_id: int | None = None,
    ) -> DataFrame:
        """Return the rows of `df` that the query can afford, with a `_weight` column.

        arrived:  column with the arrival time, from which latency is measured.
        identity: columns that tell rows apart; by default Kafka's topic, partition and offset,
                  else all columns that can be hashed.
        protect:  predicate; rows for which it is true are never shed.
        batch_id: the batch, inside `foreachBatch` (and only there).
        """
        _check_mode(df, batch_id)
        new_gate = partial(self._new_gate, df, arrived, identity, protect)
        if batch_id is None:
            return self._protect_stream(df, new_gate())
        gate = self._gate_of_batch((arrived, identity, protect), new_gate)
        return self._protect_batch(df, gate, batch_id)

    def map(
        self,
        df: DataFrame,
        fn: Callable[..., Any],
        schema: StructType | str,
        *,
        key: str | None = None,
        takes: Literal["row", "pandas", "arrow"] = "row",
        arrived: str | None = None,
        admit: Latency | None = None,
        batch_id: int | None = None,
    ) -> DataFrame:
        """Run a Python operator over `df`, measure what its rows cost, and return its results.

        fn:       takes a row (a dictionary) and returns one, none or several; or takes and returns
                  a pandas frame or an Arrow batch, as `takes` says.
        schema:   the columns that `fn` returns; `_weight` is carried along.
        key:      column that drives the cost of a row: what it costs is learnt by this key.
        arrived:  column with the arrival time, from which the wait for the operator is measured.
        admit:    the longest wait; rows that would break it are refused, one by one, by the clock
                  while the operator runs. A replayed batch may refuse others.
        batch_id: the batch, inside `foreachBatch` (and only there).
        """
        from spillway.spark.operator import Operator

        _check_mode(df, batch_id)
        operator = Operator(
            fn=fn,
            schema=schema,
            takes=takes,
            key=key,
            arrived=arrived,
            admit=_admission(admit),
            state=self.state,
        )
        if batch_id is None:
            return operator.attach(df, self.live.hear_operator(df.sparkSession))
        return operator.attach(df, self.live.watch_operator(batch_id, lambda: self.checkpoint))

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

        _check_mode(df, batch_id)
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

    def ledger(self) -> Ledger:
        """Open the books."""
        return Ledger(self.state / "ledger")

    def gaps(self) -> list[int]:
        """Return the committed batches that are not in the books (a dropped event, a crash)."""
        if self.checkpoint is None:
            return []
        query_id = offsets.query_id(self.checkpoint)
        booked = {entry.batch_id for entry in self.ledger().entries(query_id)}
        planned = PlanLog.of(self.state, query_id).batch_ids()
        committed = offsets.last_committed(self.checkpoint)
        return [batch for batch in planned if batch not in booked and batch <= committed]

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

    def _new_gate(
        self,
        df: DataFrame,
        arrived: str | None,
        identity: Sequence[str] | None,
        protect: Column | str | None,
    ) -> Gate:
        from spillway.spark import columns
        from spillway.spark.gate import Gate

        columns.check_columns(df)
        columns.check_arrived(df, arrived)
        shedder = self.loop.shedder
        keyed = shedder if isinstance(shedder, KeyedShedder) else None
        if keyed is not None:
            columns.check_key(df, keyed.key)
        return Gate(
            identity=columns.identity_of(df, identity),
            strata=shedder.strata,
            score=shedder.score,
            quantiles=shedder.quantiles,
            key=keyed.key if keyed else None,
            worth=keyed.worth if keyed else None,
            protect=protect,
            arrived=arrived,
            p99=self.objective is not None and self.objective.kind == "p99",
        )

    def _protect_stream(self, df: DataFrame, gate: Gate) -> DataFrame:
        from spillway.spark.control import plan_column

        spark = df.sparkSession
        self.metric = self.live.hear_gate(spark, gate)
        return gate.attach_stream(df, plan_column(spark, self._planner(), gate), self.metric)

    def _protect_batch(self, df: DataFrame, gate: Gate, batch_id: int) -> DataFrame:
        self.live.settle()
        pinned = self._planner().plan_for(batch_id)
        kept, observed = gate.attach_batch(df, pinned, f"spillway:{self.name}:{batch_id}")
        self.live.watch(batch_id, observed, lambda: self.checkpoint, gate)
        return kept

    @property
    def live(self) -> Live:
        """What hears of the guard's batches in this process."""
        from spillway.spark.live import Live

        if self._live is None:
            self._live = Live(name=self.name, loop=self.loop, state=self.state)
        return self._live

    def _planner(self) -> Planner:
        from spillway.spark.control import Planner

        return Planner(
            loop=self.loop,
            state=self.state,
            checkpoint=self._checkpoint or self.state.parent,
            on_error=self.on_error,
        )

    def __getstate__(self) -> dict[str, Any]:
        """Travel to other processes (Connect runs `foreachBatch` there) without what is live."""
        live = dict.fromkeys(("_live", "_batch_gate"))
        return {**self.__dict__, **live}


def _controller(objective: Latency | None, control: Controller | None) -> Controller:
    if control is not None:
        return control
    if objective is None:
        raise ValueError("a guard needs an objective (such as Latency(average='2 s')) or control=")
    if not isinstance(objective, Latency):
        raise ValueError(f"objective must be a Latency, got {objective!r}")
    return HoldLatency(objective=objective)


def _admission(limit: Latency | None) -> Admission | None:
    """Return how the operator admits rows; a mean and a limit on every row can be checked there."""
    if limit is None:
        return None
    from spillway.shedders.admission import Admission, Condition

    if not isinstance(limit, Latency) or limit.kind not in ("average", "each"):
        raise ValueError(f"admit must be Latency(average=...) or Latency(each=...), got {limit!r}")
    condition = Condition.AVERAGE if limit.kind == "average" else Condition.EACH
    # The clock is exact, unlike an estimate: no margin is needed.
    return Admission(limit_ns=round(limit.limit_s * 1e9), condition=condition, margin=1.0)


def _folder(argument: str, path: str | Path) -> Path:
    """Accept a local path or a file: URL; other storage is refused by name."""
    url = urlparse(str(path))
    if url.scheme not in ("", "file"):
        raise ValueError(f"{argument} must be a path or a file: URL, got {str(path)!r}")
    folder = Path(unquote(url.path) if url.scheme else str(path))
    if "\0" in str(folder) or not str(path).strip():
        raise ValueError(f"{argument} must be the path of a folder, got {str(path)!r}")
    return folder.absolute()


def _check_mode(df: DataFrame, batch_id: int | None) -> None:
    """Refuse what cannot be protected before any data is read."""
    if df.isStreaming and batch_id is not None:
        raise ValueError(
            f"batch_id belongs inside foreachBatch; this DataFrame is a stream, got {batch_id}"
        )
    if not df.isStreaming and batch_id is None:
        raise ValueError(
            "df must be a stream, or a batch inside foreachBatch together with its batch_id"
        )
    if batch_id is not None and batch_id < 0:
        raise ValueError(f"batch_id must be >= 0, got {batch_id}")
