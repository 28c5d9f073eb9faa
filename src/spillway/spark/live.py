"""What is live of a guard in this process: who hears of its batches and keeps its books."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import Observation, SparkSession

from spillway.loop import Loop
from spillway.objective import Latency
from spillway.spark.batch_watch import BatchWatch, GuardedBatch, watch_batch
from spillway.spark.listener import GuardListener, subscribe
from spillway.spark.membership import Membership, reporter_of
from spillway.spark.recorder import Recorder
from spillway.state.description import Description, held
from spillway.state.description import remember as remember_guard
from spillway.state.gate_log import remember
from spillway.state.lease import claim
from spillway.telemetry.hooks import Hooks
from spillway.telemetry.teller import Watched

if TYPE_CHECKING:
    from spillway.spark.gate import Gate


Checkpoint = Callable[[], Path | None]


class Live:
    """Listener, recorder and watch of one guard."""

    def __init__(
        self,
        *,
        name: str,
        loop: Loop,
        state: Path,
        fair: Membership | None = None,
        objective: Latency | None = None,
        hooks: Hooks | None = None,
    ) -> None:
        """Claim the state folder; a member of a fair share tells the others."""
        self.name = name
        self._objective, self._hooks = objective or held(loop.controller), hooks
        self.listener: GuardListener | None = None
        self.recorder: Recorder | None = None
        self._loop, self._state, self._fair = loop, state, fair
        self._unlocked = claim(state)
        self._unsubscribe: Callable[[], None] = lambda: None
        self._run_id = ""
        self._watch: BatchWatch | None = None
        self._described: Gate | None = None

    def hear_gate(self, spark: SparkSession, gate: Gate) -> str:
        """Listen for a stream's batches from now on; return the name to count them under."""
        self.leave(spark)
        metric = f"spillway:{self.name}#{_token()}"
        self._listen(spark, metric, gate)
        return metric

    def hear_operator(self, spark: SparkSession) -> str:
        """Listen for an operator too; return the name for the reports of its tasks."""
        if self.listener is None:
            self._listen(spark, f"spillway:{self.name}#", None)
        assert self.listener is not None
        self.listener.operators.append(f"spillway:{self.name}:operator#{_token()}")
        return self.listener.operators[-1]

    def watch_operator(self, batch_id: int, checkpoint: Checkpoint) -> Observation:
        """Watch an operator inside `foreachBatch`; it joins the gate of its batch, if any."""
        observed = Observation(f"spillway:{self.name}:{batch_id}:operator#{_token()}")
        if self._watch is not None and self._watch.batch.batch_id == batch_id:
            self._watch.batch.observed.append(observed)
        else:
            self.watch(batch_id, (observed,), checkpoint)
        return observed

    def watch(
        self,
        batch_id: int,
        observed: tuple[Observation, ...],
        checkpoint: Checkpoint,
        gate: Gate | None = None,
    ) -> None:
        """Watch a batch inside `foreachBatch`."""
        self.settle()
        if self.recorder is None:
            self._run_id = str(uuid.uuid4())
            self.recorder = self._new_recorder()
        self._describe(self.recorder, gate)
        names = gate.names if gate else ()
        batch = GuardedBatch(batch_id, self._run_id, checkpoint(), names, list(observed))
        self._watch = watch_batch(batch, self.recorder)

    def follow(self, loop: Loop) -> None:
        """Let what is learnt from now on be learnt by this loop."""
        self._loop = loop
        if self.recorder is not None:
            self.recorder.loop = loop

    def complain(self, complaint: str) -> None:
        """Count a fault of a batch that is watched."""
        assert self.recorder is not None
        self.recorder.complain(complaint)

    def settle(self) -> None:
        """Wait until the last batch is recorded, as far as it can be."""
        if self._watch is not None:
            self._watch.settle()

    def _listen(self, spark: SparkSession, metric: str, gate: Gate | None) -> None:
        self.recorder = self._new_recorder()
        self._describe(self.recorder, gate)
        strata = gate.names if gate else ()
        self.listener = GuardListener(gate=metric, strata=strata, recorder=self.recorder)
        self._unsubscribe = subscribe(spark, self.listener.take)

    def _new_recorder(self) -> Recorder:
        reporter = reporter_of(self._fair) if self._fair is not None else None
        watched = Watched(
            guard=self.name,
            objective=self._objective,
            limits=self._loop.limits,
            **({"window_s": self._fair.window_s} if self._fair else {}),
        )
        recorder = Recorder(
            loop=self._loop,
            state=self._state,
            identity=(),
            reporter=reporter,
            watched=watched,
            hooks=self._hooks,
        )
        if self._unlocked:
            recorder.complain(self._unlocked)
        try:
            remember_guard(self._state, self._guard())
        except OSError as error:
            recorder.complain(f"guard not described: {error}")
        return recorder

    def _guard(self) -> Description:
        loop = self._loop
        return Description.of(
            self.name,
            control=loop.controller,
            shed=loop.shedder,
            degrade=loop.degrade,
            limits=loop.limits,
            objective=self._objective,
        )

    def _describe(self, recorder: Recorder, gate: Gate | None) -> None:
        """Let the books say how the gate of the batches to come tells rows apart."""
        if gate is None or gate is self._described:
            return
        self._described, recorder.identity = gate, gate.identity
        try:
            recorder.gate = remember(self._state, gate.record())
        except OSError as error:
            recorder.complain(f"gate not described: {error}")

    def leave(self, spark: SparkSession) -> None:
        """Stop listening for the query before; refuse while it runs."""
        if self.listener is None:
            return
        if self.listener.query_id in {str(query.id) for query in spark.streams.active}:
            raise ValueError(
                f"guard {self.name!r} protects a running query already; make another guard"
            )
        self._unsubscribe()


def _token() -> str:
    return uuid.uuid4().hex[:8]
