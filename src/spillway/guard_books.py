"""The books of a guard: what it gave up, how to get it back, and who hears of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from spillway.guard_parts import GuardParts
from spillway.state import offsets
from spillway.state.ledger import Ledger
from spillway.state.plan_log import PlanLog
from spillway.telemetry.hooks import Hook

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from spillway.dashboard.serve import Server
    from spillway.spark.replay import Replay
    from spillway.spark.retained import Retained


class GuardBooks(GuardParts):
    """What a guard tells of the batches that were."""

    def ledger(self) -> Ledger:
        """Open the books."""
        return Ledger(self.state / "ledger", retain=self.loop.limits.replay_batches)

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
