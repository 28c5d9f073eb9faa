"""A run over time: its batches, or stretches of them where there are too many to draw."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from spillway.report.facts import mean_latency_s
from spillway.state.ledger import Entry

_POINTS_MAX = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Some batches in a row, as one point; times in seconds since the run began."""

    start_s: float
    end_s: float
    entries: tuple[Entry, ...]

    @property
    def rows_in(self) -> int:
        """Rows that came."""
        return sum(entry.seen.rows_in for entry in self.entries)

    @property
    def rows_kept(self) -> int:
        """Rows that were kept."""
        return sum(entry.seen.rows_kept for entry in self.entries)

    @property
    def span_s(self) -> float:
        """How long it took, at least a millisecond."""
        return max(self.end_s - self.start_s, 1e-3)

    @property
    def latency_s_mean(self) -> float | None:
        """Mean latency of its kept rows."""
        return mean_latency_s(self.entries)

    def worst(self, of: Callable[[Entry], float | None]) -> float | None:
        """Return the largest of a value over its batches."""
        known = [value for value in map(of, self.entries) if value is not None]
        return max(known, default=None)


def stretches(entries: Sequence[Entry], points_max: int = _POINTS_MAX) -> list[Stretch]:
    """Part a run into at most so many stretches of about as many batches each.

    What a batch took in came while the batch before it ran: a stretch begins where that began.
    """
    if not entries:
        return []
    size = -(-len(entries) // points_max)
    return list(_parted(entries, size))


def _parted(entries: Sequence[Entry], size: int) -> Iterator[Stretch]:
    began_s = entries[0].started_at_s
    before_s = 0.0
    for first in range(0, len(entries), size):
        part = tuple(entries[first : first + size])
        last = part[-1]
        yield Stretch(
            start_s=before_s,
            end_s=max(last.started_at_s - began_s, before_s),
            entries=part,
        )
        before_s = max(last.started_at_s - began_s, before_s)


def ends_s(stretch: Stretch, began_s: float) -> float:
    """Return when the last batch of a stretch was done, since the run began."""
    last = stretch.entries[-1]
    return last.started_at_s + last.seen.duration_s - began_s
