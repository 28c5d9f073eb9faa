"""A guard at a glance, for a notebook: a small table with sparklines, from the books alone."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from spillway.objective import Latency
from spillway.report import numbers
from spillway.report.chart import sparkline
from spillway.report.facts import held_by
from spillway.state import files
from spillway.state.ledger import Entry, Ledger

SHOWN = 60  # batches

_TABLE = "border-collapse:collapse;font:13px/1.5 system-ui,sans-serif"
_CELL = "padding:2px 12px 2px 0;text-align:left;border:0;vertical-align:middle"


def status(
    name: str,
    entries: Sequence[Entry],
    *,
    objective: Latency | None,
    shed: str,
    faults: int = 0,
    note: str = "",
) -> str:
    """Return the latest batches of a guard as HTML; all text in it is escaped."""
    lines = [("sheds by", shed, ""), *_told(entries, objective)]
    if faults:
        lines.append(("faults", f"{faults:,}: see the log", ""))
    if note:
        lines.append(("note", note, ""))
    body = "".join(_line(*line) for line in lines)
    caption = f'<caption style="text-align:left;font-weight:600">{escape(name)}</caption>'
    return f'<table style="{_TABLE}">{caption}<tbody>{body}</tbody></table>'


def status_of_books(
    name: str, ledger: Ledger, *, objective: Latency | None, shed: str, faults: int
) -> str:
    """Return the status of a guard from its ledger, and what is wrong with that."""
    entries: list[Entry] = []
    note = ""
    try:
        entries = ledger.latest(SHOWN)
    except (OSError, files.BadStateFile) as error:
        note = f"the books cannot be read: {error}"
    return status(name, entries, objective=objective, shed=shed, faults=faults, note=note)


def _told(entries: Sequence[Entry], objective: Latency | None) -> list[tuple[str, str, str]]:
    if not entries:
        bound = [("objective", str(objective), "")] if objective else []
        return [*bound, ("batches", "none yet", "")]
    last = entries[-1]
    return [
        *_objective(entries, objective),
        ("came", f"{numbers.count(last.seen.rows_in)} rows", _spark(entries, "in")),
        ("kept", numbers.percent(last.seen.share), _spark(entries, "share")),
        ("took", numbers.seconds(last.seen.duration_s), _spark(entries, "took")),
        ("shed", _shed(entries), ""),
        ("last batch", f"{last.batch_id}: {last.reason}", ""),
    ]


def _objective(entries: Sequence[Entry], objective: Latency | None) -> list[tuple[str, str, str]]:
    if objective is None:
        return []
    held = held_by(entries, objective)
    if not held.judged:
        return [("objective", f"{objective}, no latency measured", "")]
    latencies = [value for e in entries if (value := objective.of(e.seen)) is not None]
    told = f"{objective}, held in {len(held.judged) - len(held.late)} of {len(held.judged)} batches"
    now = numbers.seconds(latencies[-1])
    return [
        ("objective", told, ""),
        ("latency", now, sparkline(latencies, limit=objective.limit_s)),
    ]


def _spark(entries: Sequence[Entry], what: str) -> str:
    values = {
        "in": [float(entry.seen.rows_in) for entry in entries],
        "share": [entry.seen.share for entry in entries],
        "took": [entry.seen.duration_s for entry in entries],
    }
    return sparkline(values[what])


def _shed(entries: Sequence[Entry]) -> str:
    shed = sum(entry.rows_shed for entry in entries)
    came = sum(entry.seen.rows_in for entry in entries)
    share = numbers.percent(shed / came) if came else "0 %"
    return f"{numbers.count(shed)} of the last {numbers.count(came)} rows ({share})"


def _line(name: str, text: str, picture: str) -> str:
    return (
        f'<tr style="background:none"><th style="{_CELL};font-weight:400;opacity:.7">{escape(name)}'
        f'</th><td style="{_CELL}">{escape(text)}</td><td style="{_CELL}">{picture}</td></tr>'
    )
