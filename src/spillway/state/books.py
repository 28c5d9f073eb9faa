"""The books of a state folder, opened for reading: whatever is wrong with them is said in words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from spillway.objective import Latency
from spillway.state import description, files
from spillway.state.description import Description, latency
from spillway.state.ledger import Entry, Ledger, Totals

_SHOWN = 3


class NoBooks(LookupError):
    """There is nothing to read: no such folder, no ledger in it, or none that can be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Books:
    """What a guard wrote about its batches, in order, and what must be said beside it.

    `totals` also count batches of long ago, whose lines have been folded into sums.
    """

    state: Path
    entries: tuple[Entry, ...]
    totals: Totals
    guard: Description | None
    notes: tuple[str, ...] = ()
    damaged_lines: int = 0

    @property
    def name(self) -> str:
        """The guard's name, else the folder's."""
        return self.guard.name if self.guard else self.state.name

    @property
    def objective(self) -> Latency | None:
        """The objective, if it is known: what the batches say, the last one first.

        Every batch says what held for it; the guard's description only fills in for books of an
        earlier version, whose batches do not.
        """
        told = self.objectives
        return told[-1] if told else self.guard.objective if self.guard else None

    @property
    def objectives(self) -> list[Latency]:
        """The objectives that batches had, each once, in the order in which they last held."""
        last: dict[tuple[str, float], float] = {}
        for entry in self.entries:
            note = entry.note
            if note.objective and note.limit_s:
                key = (note.objective, note.limit_s)
                last[key] = max(last.get(key, 0.0), entry.started_at_s)
        return [latency(*key) for key in sorted(last, key=lambda key: last[key])]

    @property
    def queries(self) -> list[str]:
        """The queries in the books, the one with the latest batch last."""
        latest: dict[str, float] = {}
        for entry in self.entries:
            latest[entry.query_id] = max(latest.get(entry.query_id, 0.0), entry.started_at_s)
        return sorted(latest, key=lambda query: latest[query])

    def of_query(self, query: str | None = None) -> Books:
        """Return the books of one query, by the beginning of its id; of the latest if none."""
        wanted = [each for each in self.queries if each.startswith(query or "")]
        if not wanted:
            raise NoBooks(f"query must be one of {', '.join(self.queries)}, got {query!r}")
        chosen = tuple(entry for entry in self.entries if entry.query_id == wanted[-1])
        others = len(self.queries) - 1
        more = (f"{others} other queries are in these books: name one with --query",)
        found = replace(self, entries=chosen, notes=self.notes + (more if others else ()))
        return replace(found, notes=found.notes + _changed(found.objectives))


def open_books(state: Path) -> Books:
    """Open the books of a state folder; raise `NoBooks` that says what is missing."""
    ledger = _ledger(state)
    try:
        entries, totals, damage = tuple(ledger.entries()), ledger.totals(), ledger.damage()
    except (files.BadStateFile, OSError) as error:
        raise NoBooks(f"the ledger in {state} cannot be read: {error}") from error
    if not entries:
        raise NoBooks(_empty(state, damage))
    guard, complaint = _guard(state)
    return Books(
        state=state,
        entries=entries,
        totals=totals,
        guard=guard,
        notes=tuple(filter(None, (complaint, _damaged(damage), _folded(totals, entries)))),
        damaged_lines=sum(damage.values()),
    )


def _changed(objectives: list[Latency]) -> tuple[str, ...]:
    """Say that the objective was another one before."""
    if len(objectives) < 2:
        return ()
    before = ", ".join(str(each) for each in objectives[:-1][-_SHOWN:])
    return (f"the objective has changed: it was {before}; judged by the last, {objectives[-1]}",)


def _ledger(state: Path) -> Ledger:
    if not state.is_dir():
        raise NoBooks(f"STATE_DIR must be a folder, got {str(state)!r}")
    if (state / "ledger").is_dir():
        return Ledger(state / "ledger")
    inside = [path for path in sorted(state.glob("*/ledger")) if path.is_dir()]
    if len(inside) == 1:  # a checkpoint with the state folder in it
        return Ledger(inside[0])
    near = f"; {inside[0].parent} has" if inside else ""
    raise NoBooks(f"STATE_DIR must be a guard's state folder, {state} has no ledger{near}")


def _empty(state: Path, damage: dict[str, int]) -> str:
    if not damage:
        return f"the ledger in {state} is empty: no batch of its query has finished yet"
    return f"none of the {sum(damage.values())} lines in the ledger of {state} can be read: " + (
        _reasons(damage)
    )


def _guard(state: Path) -> tuple[Description | None, str]:
    try:
        found = description.recall(_home(state))
    except (files.BadStateFile, OSError) as error:
        return None, f"the guard's description cannot be read: {error}"
    missing = "" if found else "an earlier version wrote these books, without the objective"
    return found, missing


def _home(state: Path) -> Path:
    """The state folder itself, where a checkpoint around it was named."""
    return state if (state / "ledger").is_dir() else next(iter(state.glob("*/ledger"))).parent


def _damaged(damage: dict[str, int]) -> str:
    lines = sum(damage.values())
    return f"{lines} damaged lines are left out: {_reasons(damage)}" if lines else ""


def _reasons(damage: dict[str, int]) -> str:
    told = sorted(damage.items(), key=lambda item: -item[1])[:_SHOWN]
    return "; ".join(f"{reason} ({lines}×)" for reason, lines in told)


def _folded(totals: Totals, entries: Iterable[Entry]) -> str:
    folded = totals.batches - sum(1 for _ in entries)
    return f"{folded:,} older batches are known by their sums only" if folded > 0 else ""
