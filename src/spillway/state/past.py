"""Past batches as the books tell them: where their rows lie in the source, and what shed them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from spillway.state import files, gate_log, offsets
from spillway.state.gate_log import GateRecord
from spillway.state.ledger import Entry, Ledger
from spillway.state.offsets import Offset
from spillway.state.plan_log import PlanLog
from spillway.values import PinnedPlan

_PROTECTED = "protected"
_SHOWN = 5


class NotRetained(LookupError):
    """What finding shed rows again needs is gone: a plan, offsets, or the rows themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastBatch:
    """One finished batch. Without a `plan` its gate was open, or there was none.

    `rows_shed` is what the books say the gate gave up, None where they miss the batch;
    `rows_refused` gave up the operator behind it. `gated` says whether there was a gate at all.
    """

    batch_id: int
    start: Offset
    end: Offset
    plan: PinnedPlan | None
    gate: GateRecord | None
    rows_shed: int | None
    rows_refused: int = 0
    gated: bool = True


@dataclass(frozen=True, kw_only=True)
class Past:
    """The past of one query: its ledger, its plan log and the checkpoint's offset log.

    `source` says which of the query's sources is meant, in the order of the offset log. `like`
    describes the gate where an older version did not write its description down.
    """

    state: Path
    checkpoint: Path | None
    source: int | None = None
    like: GateRecord | None = None

    @cached_property
    def query_id(self) -> str:
        """The query: the checkpoint's, else the only one in the books."""
        if known := offsets.query_id(self.checkpoint):
            return known
        queries = {entry.query_id for entry in Ledger(self.state / "ledger").entries()}
        if len(queries) != 1:
            raise ValueError(
                f"checkpoint must be named: the books in {self.state} are of {len(queries)} queries"
            )
        return queries.pop()

    @cached_property
    def entries(self) -> dict[int, Entry]:
        """The books, by batch."""
        entries = Ledger(self.state / "ledger").entries(self.query_id)
        return {entry.batch_id: entry for entry in entries}

    def batches(self, wanted: Iterable[int]) -> list[PastBatch]:
        """Return the batches, each once, in order; raise ValueError if one is not known."""
        ids = sorted(set(wanted))
        planned = set(self._plans.batch_ids())
        committed = offsets.last_committed(self.checkpoint) if self.checkpoint else -1
        gaps = {batch for batch in planned if batch <= committed}
        unknown = [batch for batch in ids if batch not in self.entries and batch not in gaps]
        if unknown:
            raise ValueError(f"batches must be in the books, got {_listed(unknown)}: {self._span}")
        return [self._batch(batch) for batch in ids]

    def _batch(self, batch_id: int) -> PastBatch:
        entry = self.entries.get(batch_id)
        start, end = self._range(batch_id)
        gate = self._gate(batch_id)
        plan = self._followed(entry) if entry else self._pinned(batch_id, gate)
        return PastBatch(
            batch_id=batch_id,
            start=start,
            end=end,
            plan=plan,
            gate=gate,
            rows_shed=_rows_shed(entry) if entry else None,
            rows_refused=entry.seen.rows_refused if entry else 0,
            gated=entry is None or bool(entry.seen.strata),
        )

    def _followed(self, entry: Entry) -> PinnedPlan | None:
        """Return the plan that the gate followed, if it gave anything up by it."""
        followed = entry.plan if entry.seen.strata else None  # without a gate nobody followed it
        return followed if followed and followed.plan.sheds else None

    def _pinned(self, batch_id: int, gate: GateRecord | None) -> PinnedPlan | None:
        """Return the plan of a batch that the books miss."""
        try:
            pinned = self._plans.read(batch_id)
        except files.BadStateFile as error:
            raise NotRetained(f"the plan of batch {batch_id} is damaged: {error}") from error
        if pinned is None:
            raise NotRetained(f"the plan of batch {batch_id} is not retained")
        fits = gate is None or len(pinned.plan.rates) == len(gate.strata)
        return pinned if pinned.plan.sheds and fits else None

    def _gate(self, batch_id: int) -> GateRecord | None:
        """Return the batch's gate; of a batch that the books miss, that of its neighbours."""
        entry = self.entries.get(batch_id)
        if entry is not None:
            return self._described(entry)
        before = max((batch for batch in self.entries if batch < batch_id), default=None)
        after = min((batch for batch in self.entries if batch > batch_id), default=None)
        found = {self._described(self.entries[b]) for b in (before, after) if b is not None}
        if len(found) > 1:
            raise NotRetained(
                f"batch {batch_id} is not in the books, and the gate changed about that time"
            )
        return found.pop() if found else self.like

    def _described(self, entry: Entry) -> GateRecord | None:
        try:
            record = gate_log.recall(self.state, entry.gate)
        except files.BadStateFile as error:
            raise NotRetained(f"the gate of batch {entry.batch_id} is damaged: {error}") from error
        if record is not None or not entry.seen.strata:
            return record
        names = tuple(stratum.name for stratum in entry.seen.strata)
        guarded = _PROTECTED in names
        if self.like is not None:
            return replace(self.like, identity=entry.identity)
        if names[:1] == ("all",) and len(names) - guarded == 1:  # a uniform gate needs no more
            return GateRecord(identity=entry.identity, strata=names[:1], protect_unknown=guarded)
        return None

    def _range(self, batch_id: int) -> tuple[Offset, Offset]:
        """Return where the batch begins and ends in its source."""
        start, end = self._ends(batch_id - 1, "end"), self._ends(batch_id, "end")
        start = start if start is not None else self._ends(batch_id, "start")
        end = end if end is not None else self._ends(batch_id + 1, "start")
        if end is None:
            raise NotRetained(f"the offsets of batch {batch_id} are not retained")
        return (self._beginning(batch_id) if start is None else start), end

    def _beginning(self, batch_id: int) -> Offset:
        """Return where a source began of which no earlier offset is known; None if at its start."""
        if batch_id > 0 and batch_id not in self.entries:
            raise NotRetained(f"the offsets of batch {batch_id - 1} are not retained")
        index = self.source or 0
        return offsets.initial_offset(self.checkpoint, index) if self.checkpoint else None

    def _ends(self, batch_id: int, which: str) -> Offset:
        """Read one end of a batch from the books, else from Spark's own log; None if unknown."""
        entry = self.entries.get(batch_id)
        if entry is not None:
            pair = self._of_source(json.loads(entry.offsets)) or (None, None)
            return pair[0 if which == "start" else 1]
        if self.checkpoint is None or which == "start":
            return None
        return self._of_source(offsets.end_offsets(self.checkpoint, batch_id) or [])

    def _of_source(self, each: list[Any]) -> Any:
        if self.source is None and len(each) > 1:
            raise ValueError(f"source must be named: the query reads {len(each)} sources")
        index = self.source or 0
        return each[index] if index < len(each) else None

    @cached_property
    def _plans(self) -> PlanLog:
        return PlanLog.of(self.state, self.query_id)

    @property
    def _span(self) -> str:
        if not self.entries:
            return "they are empty"
        return f"they hold batches {min(self.entries)} to {max(self.entries)}"


def batch_ids(text: str) -> tuple[int, ...]:
    """Return the batches that a text names.

    >>> batch_ids("7, 120-123")
    (7, 120, 121, 122, 123)
    >>> batch_ids("9-7")
    Traceback (most recent call last):
    ValueError: batches must be like 120-180 or 7,9,12-15, got '9-7'
    """
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = (piece.strip() for piece in part.partition("-"))
        last = last if dash else first
        if not (first.isdecimal() and last.isdecimal() and int(first) <= int(last) < 2**63):
            raise ValueError(f"batches must be like 120-180 or 7,9,12-15, got {text!r}")
        found += range(int(first), int(last) + 1)
    return tuple(found)


def _rows_shed(entry: Entry) -> int:
    return sum(stratum.rows_shed for stratum in entry.seen.strata)


def _listed(batches: list[int]) -> str:
    shown = ", ".join(map(str, batches[:_SHOWN]))
    return shown if len(batches) <= _SHOWN else f"{shown} and {len(batches) - _SHOWN} more"
