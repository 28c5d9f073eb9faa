"""The books line by line: which batches, as a table, as CSV, as JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from spillway.objective import seconds
from spillway.report.facts import shed_by
from spillway.state.books import Books
from spillway.state.ledger import Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLine:
    """One batch as people and programs read it; rows_in = rows_kept + rows_shed."""

    query: str
    batch: int
    began: str
    rows_in: int
    rows_kept: int
    rows_shed: int
    rows_refused: int
    share_kept: float
    duration_s: float
    latency_s_mean: float | None
    latency_s_max: float | None
    reason: str

    @classmethod
    def of(cls, entry: Entry) -> BatchLine:
        """Read a batch of the books."""
        seen = entry.seen
        return cls(
            query=shown(entry.query_id),
            batch=seen.batch_id,
            began=_iso(entry.started_at_s),
            rows_in=seen.rows_in,
            rows_kept=seen.rows_kept,
            rows_shed=entry.rows_shed,
            rows_refused=seen.rows_refused,
            share_kept=round(seen.share, 6),
            duration_s=seen.duration_s,
            latency_s_mean=seen.latency_s_mean,
            latency_s_max=seen.latency_s_max,
            reason=shown(entry.reason),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """What the chosen batches add up to; `shed` is by reason and stratum, the most first."""

    batches: int
    rows_in: int
    rows_kept: int
    rows_shed: int
    shed: tuple[dict[str, Any], ...]

    @classmethod
    def of(cls, entries: Sequence[Entry]) -> Sums:
        """Add batches up."""
        by = (
            {"reason": shown(reason), "stratum": shown(stratum), "rows": rows}
            for stratum, reason, rows in shed_by(entries)
        )
        return cls(
            batches=len(entries),
            rows_in=sum(entry.seen.rows_in for entry in entries),
            rows_kept=sum(entry.seen.rows_kept for entry in entries),
            rows_shed=sum(entry.rows_shed for entry in entries),
            shed=tuple(by),
        )


def chosen(
    entries: Sequence[Entry], *, batches: Sequence[int] | None = None, since: str | None = None
) -> tuple[Entry, ...]:
    """Pick batches by id, and those that began since a time."""
    picked = list(entries)
    if batches is not None:
        wanted = set(batches)
        picked = [entry for entry in picked if entry.batch_id in wanted]
    if since is not None and entries:
        from_s = since_s(since, last_s=max(entry.started_at_s for entry in entries))
        picked = [entry for entry in picked if entry.started_at_s >= from_s]
    return tuple(picked)


def since_s(text: str, *, last_s: float) -> float:
    """Read a time of day (ISO, UTC if it names no zone), or how long before the last batch.

    >>> since_s("1970-01-01T00:01", last_s=0.0), since_s("10 min", last_s=1000.0)
    (60.0, 400.0)
    """
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        pass
    else:
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    try:
        return last_s - seconds(text)
    except ValueError as error:
        raise ValueError(
            'since must be a time such as "2026-03-01T12:00" or a duration such as "10 min", '
            f"got {text!r}"
        ) from error


def as_csv(lines: Sequence[BatchLine]) -> str:
    """Return the batches as CSV under their names."""
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(BatchLine.__dataclass_fields__))
    writer.writeheader()
    writer.writerows(asdict(line) for line in lines)
    return out.getvalue()


def as_json(books: Books, lines: Sequence[BatchLine], sums: Sums) -> str:
    """Return batches and sums as JSON."""
    content = {
        "guard": shown(books.name),
        "objective": str(books.objective) if books.objective else None,
        "notes": [shown(note) for note in books.notes],
        "damaged_lines": books.damaged_lines,
        "sums": asdict(sums),
        "batches": [asdict(line) for line in lines],
    }
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)


def shown(text: str) -> str:
    r"""Make foreign text safe for a terminal: what cannot be printed is told by its number.

    >>> shown("a\x1b[31m")
    'a\\x1b[31m'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _iso(at_s: float) -> str:
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=at_s)
    except OverflowError:  # a damaged clock
        return ""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
