"""What folded batches of the ledger add up to: a small file, bounded, with one before it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from spillway.state import files

_KIND = "ledger sums"
_QUERIES_MAX = 100
_REASONS_MAX = 200  # reasons hold text of errors: without a bound there is no end of them
OTHER = ("other", "other")
EARLIER = ""  # the queries of long ago


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """What batches add up to; `shed` has rows by stratum and reason."""

    batches: int = 0
    rows_in: int = 0
    rows_kept: int = 0
    shed: tuple[tuple[str, str, int], ...] = ()

    def plus(self, other: Sums) -> Sums:
        """Add two up; beyond so many, strata and reasons count as others.

        >>> Sums(rows_in=3, shed=(("a", "r", 1),)).plus(Sums(rows_in=2, shed=(("a", "r", 2),))).shed
        (('a', 'r', 3),)
        """
        shed: dict[tuple[str, str], int] = {}
        for stratum, reason, rows in (*self.shed, *other.shed):
            known = (stratum, reason) in shed or len(shed) < _REASONS_MAX
            key = (stratum, reason) if known else OTHER
            shed[key] = shed.get(key, 0) + rows
        return Sums(
            batches=self.batches + other.batches,
            rows_in=self.rows_in + other.rows_in,
            rows_kept=self.rows_kept + other.rows_kept,
            shed=tuple((*key, rows) for key, rows in shed.items()),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """The sums by query; of the segments with a tag those below `until` are in them."""

    by_query: dict[str, Sums] = field(default_factory=dict)
    until: dict[str, int] = field(default_factory=dict)
    damaged_lines: int = 0

    def of(self, query_id: str | None) -> Sums:
        """Return the sums of a query, or of all."""
        if query_id is not None:
            return self.by_query.get(query_id, Sums())
        total = Sums()
        for sums in self.by_query.values():
            total = total.plus(sums)
        return total

    def plus(self, query_id: str, sums: Sums) -> Folded:
        """Add to the sums of a query; the one that was added to last comes last."""
        by_query = {**self.by_query}
        by_query[query_id] = by_query.pop(query_id, Sums()).plus(sums)
        return replace(self, by_query=_bounded(by_query))

    def ending(self, tag: str, until: int, damaged_lines: int) -> Folded:
        """Say that the segments of a tag are folded up to here."""
        known = {each: number for each, number in self.until.items() if each != tag}
        latest = dict([*known.items(), (tag, until)][-_QUERIES_MAX:])
        return replace(self, until=latest, damaged_lines=self.damaged_lines + damaged_lines)


def _bounded(by_query: dict[str, Sums]) -> dict[str, Sums]:
    """Add the oldest queries up under one name until the others are few enough."""
    recent = {query: sums for query, sums in by_query.items() if query != EARLIER}
    earlier = by_query.get(EARLIER, Sums())
    while len(recent) >= _QUERIES_MAX:
        earlier = earlier.plus(recent.pop(next(iter(recent))))
    return {EARLIER: earlier, **recent} if earlier.batches else recent


@dataclass(frozen=True, slots=True, kw_only=True)
class SumsFile:
    """Reads and replaces the sums in the ledger's folder."""

    folder: Path

    def read(self) -> Folded:
        """Return the last good sums; raise if there were some and none is good."""
        try:
            return files.read(self._latest, _KIND, Folded) or self.previous()
        except files.BadStateFile:
            return self.previous()

    def previous(self) -> Folded:
        """Return the sums before the latest; none are empty."""
        return files.read(self._previous, _KIND, Folded) or Folded()

    def write(self, folded: Folded) -> None:
        """Replace the sums and keep the ones before."""
        files.write(self._previous, _KIND, self.read())
        files.write(self._latest, _KIND, folded)

    @property
    def _latest(self) -> Path:
        return self.folder / "sums.json"

    @property
    def _previous(self) -> Path:
        return self.folder / "sums.previous.json"
