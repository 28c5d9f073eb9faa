"""The ledger: for every batch, rows in = rows kept + rows shed, per stratum and reason."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from spillway.state import files
from spillway.values import Observation, PinnedPlan

_KIND = "ledger entry"
_SEGMENT_BATCHES = 1000
REFUSED = ("in the operator", "waited too long")  # stratum and reason of what an operator refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One batch in the books. `plan` and `offsets` suffice to find its shed rows again."""

    query_id: str
    run_id: str
    seen: Observation
    plan: PinnedPlan | None
    identity: tuple[str, ...]
    offsets: str
    started_at_s: float

    def __post_init__(self) -> None:
        """Refuse an entry whose strata do not add up to the batch.

        They count what passed the gate; of that the operator may have refused some.
        """
        counted = [(stratum.rows_in, stratum.rows_kept) for stratum in self.seen.strata]
        totals = (sum(pair[0] for pair in counted), sum(pair[1] for pair in counted))
        batch = (self.seen.rows_in, self.seen.rows_kept + self.seen.rows_refused)
        if self.seen.strata and totals != batch:
            raise ValueError(
                f"strata of batch {self.seen.batch_id} must add up to "
                f"{batch} (rows in, through the gate), got {totals}"
            )

    @property
    def batch_id(self) -> int:
        """The batch."""
        return self.seen.batch_id

    @property
    def reason(self) -> str:
        """Why rows were shed or kept."""
        if self.plan:
            return self.plan.plan.reason
        return "open: no pinned plan" if self.seen.strata else "no gate"

    @property
    def rows_shed(self) -> int:
        """Rows of the batch that the gate or the operator gave up."""
        return self.seen.rows_in - self.seen.rows_kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """What a stretch of batches adds up to; `shed` is split by stratum and reason."""

    batches: int
    rows_in: int
    rows_kept: int
    rows_shed: int
    shed: dict[tuple[str, str], int]


class Ledger:
    """Append-only books in segments of checked lines; a batch written twice counts once."""

    def __init__(self, folder: Path) -> None:
        """Open the ledger in a folder, which need not exist yet."""
        self.folder = folder

    def append(self, entry: Entry) -> None:
        """Write one batch down and see it safe on disk."""
        self.folder.mkdir(parents=True, exist_ok=True)
        segment = self.folder / f"{entry.batch_id // _SEGMENT_BATCHES:08d}.jsonl"
        # The leading line feed shuts off a line that a crash left unfinished.
        with segment.open("ab") as file:
            file.write(b"\n" + files.encode(_KIND, entry) + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def entries(self, query_id: str | None = None) -> list[Entry]:
        """Return the batches in order, each once: the last word on a batch counts."""
        books = {(entry.query_id, entry.batch_id): entry for entry in self._lines()}
        return [
            entry
            for (query, _), entry in sorted(books.items())
            if query_id is None or query == query_id
        ]

    def totals(self, query_id: str | None = None) -> Totals:
        """Add the batches up."""
        entries = self.entries(query_id)
        shed: dict[tuple[str, str], int] = {}
        for entry in entries:
            for stratum in entry.seen.strata:
                key = (stratum.name, entry.reason)
                shed[key] = shed.get(key, 0) + stratum.rows_shed
            shed[REFUSED] = shed.get(REFUSED, 0) + entry.seen.rows_refused
        return Totals(
            batches=len(entries),
            rows_in=sum(entry.seen.rows_in for entry in entries),
            rows_kept=sum(entry.seen.rows_kept for entry in entries),
            rows_shed=sum(entry.rows_shed for entry in entries),
            shed={key: rows for key, rows in shed.items() if rows},
        )

    def damaged_lines(self) -> int:
        """Count the lines that cannot be read, left by a crash or by decay."""
        lines = (line for path in self._segments() for line in path.read_bytes().splitlines())
        return sum(1 for line in lines if line and _entry(line) is None)

    def _lines(self) -> Iterator[Entry]:
        for path in self._segments():
            for line in path.read_bytes().splitlines():
                entry = _entry(line) if line else None
                if entry is not None:
                    yield entry

    def _segments(self) -> list[Path]:
        return sorted(self.folder.glob("*.jsonl"))


def _entry(line: bytes) -> Entry | None:
    try:
        return files.decode(line, _KIND, Entry)
    except files.BadStateFile:
        return None
