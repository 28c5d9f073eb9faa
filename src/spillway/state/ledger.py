"""The ledger: for every batch, rows in = rows kept + rows shed, per stratum and reason.

Every batch is a line in a segment of its query. Lines of long ago are folded into sums, so that the
books stay small however long the stream runs, and add up all the same.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from spillway.note_values import Note
from spillway.state import files
from spillway.state.ledger_sums import Folded, Sums, SumsFile
from spillway.values import Observation, PinnedPlan

KIND = "ledger entry"
_SEGMENT_BATCHES = 1000
_NAME = re.compile(r"(?:([0-9a-f]{8})-)?(\d{8,})")
RETAIN = 10_000  # batches; see `Ledger`
# Stratum and reason of rows that the gate had let through.
REFUSED = ("in the operator", "waited too long")
UNSAMPLED = ("in windows", "not in the sample")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One batch in the books. `plan`, `offsets` and `gate` suffice to find its shed rows again.

    `gate` is the digest of the gate's description in the gate log; `note` is for those who watch.
    """

    query_id: str
    run_id: str
    seen: Observation
    plan: PinnedPlan | None
    identity: tuple[str, ...]
    offsets: str
    started_at_s: float
    gate: str = ""
    note: Note = field(default_factory=Note)

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
        planned = self.plan.plan.reason if self.plan else None
        return why(planned, gated=bool(self.seen.strata), rows_in=self.seen.rows_in)

    @property
    def rows_shed(self) -> int:
        """Rows of the batch that the gate or the operator gave up."""
        return self.seen.rows_in - self.seen.rows_kept

    @property
    def refusal(self) -> tuple[str, str]:
        """Stratum and reason of the rows that were given up behind the gate."""
        return UNSAMPLED if self.seen.windowed else REFUSED


def why(planned: str | None, *, gated: bool, rows_in: int) -> str:
    """Return the plan's reason; without a plan say what became of the batch.

    Spark leaves the gate of a source without rows out of the batch, and nobody asks for a plan.
    """
    if planned is not None:
        return planned
    if not gated:
        return "no gate"
    return "open: no pinned plan" if rows_in else "no plan needed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """What a stretch of batches adds up to; `shed` is split by stratum and reason."""

    batches: int
    rows_in: int
    rows_kept: int
    rows_shed: int
    shed: dict[tuple[str, str], int]


class Ledger:
    """Books in segments of checked lines; a batch written twice counts once.

    At least the last `retain` lines stay as they are, whichever query they belong to: for these
    batches the shed rows can be found again. Older ones count in the totals only.
    """

    def __init__(self, folder: Path, *, retain: int = RETAIN) -> None:
        """Open the ledger in a folder, which need not exist yet."""
        if not retain >= 1:
            raise ValueError(f"retain must be >= 1 batch, got {retain}")
        self.folder = folder
        self.retain = retain
        self._sums = SumsFile(folder=folder)
        self._until: dict[str, int] | None = None

    def append(self, entry: Entry) -> None:
        """Write one batch down and see it safe on disk; refuse one that is folded already."""
        segment = Segment.of(self.folder, entry)
        until = self._folded_until().get(segment.tag, 0)
        if segment.number < until:
            raise ValueError(
                f"batch id must be >= {until * _SEGMENT_BATCHES}, what is older is folded into "
                f"sums; got {entry.batch_id} of query {entry.query_id}"
            )
        begins = not segment.path.exists()
        files.append_line(segment.path, files.encode(KIND, entry))
        if begins:
            self.fold()

    def entries(self, query_id: str | None = None) -> list[Entry]:
        """Return the retained batches in order, each once: the last word on a batch counts."""
        return self._entries(self._sums.read(), query_id)

    def latest(self, count: int) -> list[Entry]:
        """Return the last batches of the query that was booked last, without reading all books."""
        segments = sorted(segments_of(self.folder), key=Segment.written_at_ns, reverse=True)
        found: dict[tuple[str, int], Entry] = {}
        for segment in segments:
            if segment.tag == segments[0].tag and len(found) < count:
                found |= _once(segment.entries())
        return [entry for _, entry in sorted(found.items())][-count:]

    def retained_from(self, query_id: str) -> int:
        """Return the first batch of a query that is not folded, booked or not."""
        return self._sums.read().until.get(_tag(query_id), 0) * _SEGMENT_BATCHES

    def totals(self, query_id: str | None = None) -> Totals:
        """Add all batches up, those that are retained and those that are folded."""
        folded = self._sums.read()
        total = folded.of(query_id)
        for entry in self._entries(folded, query_id):
            total = total.plus(_sums(entry))
        return Totals(
            batches=total.batches,
            rows_in=total.rows_in,
            rows_kept=total.rows_kept,
            rows_shed=total.rows_in - total.rows_kept,
            shed={(stratum, reason): rows for stratum, reason, rows in total.shed},
        )

    def damaged_lines(self) -> int:
        """Count the lines that cannot be read, left by a crash or by decay."""
        return self._sums.read().damaged_lines + sum(self.damage().values())

    def damage(self) -> Counter[str]:
        """Say why lines cannot be read, and of how many that is true; without folded ones."""
        segments = self._unfolded(self._sums.read())
        lines = (line for each in segments for line in files.lines(each.path))
        return Counter(fault for line in lines if (fault := _fault(line)))

    def fold(self) -> None:
        """Fold the oldest segments into sums while at least `retain` lines stay.

        A segment goes only when the sums that hold it have been replaced once more: if the latest
        sums are damaged, those before and the segments that are left add up to the same.
        """
        folded = self._sums.read()
        for segment in segments_of(self.folder):
            if segment.number < self._sums.previous().until.get(segment.tag, 0):
                segment.path.unlink(missing_ok=True)
        old = self._old(self._unfolded(folded))
        if old:
            for segment in sorted(old, key=lambda each: each.number):
                folded = _fold(folded, segment)
            self._sums.write(folded)
        self._until = dict(folded.until)

    def _entries(self, folded: Folded, query_id: str | None) -> list[Entry]:
        segments = self._unfolded(folded)
        books = _once(entry for segment in segments for entry in segment.entries())
        return [
            entry
            for (query, _), entry in sorted(books.items())
            if query_id is None or query == query_id
        ]

    def _old(self, segments: list[Segment]) -> list[Segment]:
        """Return the segments that nobody needs line by line, and those of their query before."""
        in_time = sorted(segments, key=Segment.written_at_ns)
        counts = [segment.lines() for segment in in_time]
        last: dict[str, int] = {}
        for place, segment in enumerate(in_time):
            if sum(counts[place + 1 :]) >= self.retain:
                last[segment.tag] = max(last.get(segment.tag, 0), segment.number)
        return [each for each in segments if each.number <= last.get(each.tag, -1)]

    def _folded_until(self) -> dict[str, int]:
        if self._until is None:
            try:
                self._until = dict(self._sums.read().until)
            except files.BadStateFile:  # new batches must be booked all the same
                self._until = {}
        return self._until

    def _unfolded(self, folded: Folded) -> list[Segment]:
        found = segments_of(self.folder)
        return [each for each in found if each.number >= folded.until.get(each.tag, 0)]


@dataclass(frozen=True, slots=True)
class Segment:
    """A file of lines: a thousand batch ids of one query. Release 0.1 had no tags."""

    path: Path
    tag: str
    number: int

    @classmethod
    def of(cls, folder: Path, entry: Entry) -> Segment:
        """Return the segment that an entry belongs to."""
        tag = _tag(entry.query_id)
        number = entry.batch_id // _SEGMENT_BATCHES
        return cls(folder / f"{tag}-{number:08d}.jsonl", tag, number)

    def entries(self) -> Iterator[Entry]:
        """Yield the entries that can be read."""
        for line in files.lines(self.path):
            entry = _entry(line)
            if entry is not None:
                yield entry

    def lines(self) -> int:
        """Count the lines."""
        return sum(1 for _ in files.lines(self.path))

    def written_at_ns(self) -> int:
        """Return when the last line was written."""
        return self.path.stat().st_mtime_ns


def _tag(query_id: str) -> str:
    return f"{zlib.crc32(query_id.encode()):08x}"


def segments_of(folder: Path) -> list[Segment]:
    """Return the segments in a ledger's folder, by query and number."""
    named = ((path, _NAME.fullmatch(path.stem)) for path in sorted(folder.glob("*.jsonl")))
    return [Segment(path, name[1] or "", int(name[2])) for path, name in named if name]


def _fold(folded: Folded, segment: Segment) -> Folded:
    entries = list(_once(segment.entries()).values())
    damaged = sum(1 for line in files.lines(segment.path) if _entry(line) is None)
    for entry in entries:
        folded = folded.plus(entry.query_id, _sums(entry))
    return folded.ending(segment.tag, segment.number + 1, damaged)


def _once(entries: Iterable[Entry]) -> dict[tuple[str, int], Entry]:
    return {(entry.query_id, entry.batch_id): entry for entry in entries}


def _sums(entry: Entry) -> Sums:
    shed = [(each.name, entry.reason, each.rows_shed) for each in entry.seen.strata]
    return Sums(
        batches=1,
        rows_in=entry.seen.rows_in,
        rows_kept=entry.seen.rows_kept,
        shed=tuple(line for line in (*shed, (*entry.refusal, entry.seen.rows_refused)) if line[2]),
    )


def _entry(line: bytes) -> Entry | None:
    try:
        return files.decode(line, KIND, Entry)
    except files.BadStateFile:
        return None


def _fault(line: bytes) -> str:
    try:
        files.decode(line, KIND, Entry)
    except files.BadStateFile as error:
        return str(error)
    return ""
