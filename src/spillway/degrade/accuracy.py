"""How near a degraded result is to the complete one: 1 if it is the same, 0 if nothing is right.

Accuracy belongs to the application (CS, sections 3.4.5 and 5.2.6.1): any object with `accuracy`
serves. Three come with the room: `Footrule` for rankings, `RelativeError` for numbers,
`RankedRows` for rows that are ranked by a score.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

Result = TypeVar("Result", contravariant=True)
Ranks = Mapping[Hashable, float]


class Measure(Protocol[Result]):
    """Says how accurate a result is.

    One that compares rows may have `rows_min`: fewer than that tell nothing.
    """

    def accuracy(self, ideal: Result, seen: Result) -> float:
        """Return a number from 0 to 1; `ideal` is what all subtasks together give."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Footrule:
    """Rankings: 1 - F / F_max, with F the displacement and F_max the most that is possible.

    A ranking is a mapping from item to rank (1 is first; see `ranked` and `fractional_ranks`).
    F_max = ⌊n²/2⌋ is the displacement of a ranking that is turned round.

    >>> Footrule().accuracy(ranked("abcd"), ranked("dcba"))
    0.0
    >>> Footrule().accuracy(ranked("abcd"), ranked("abdc"))
    0.75
    """

    def accuracy(self, ideal: Ranks, seen: Ranks) -> float:
        """Return how much of the order is left."""
        most = len(ideal) ** 2 // 2
        if not most:  # of one item there is no order, only whether it is there
            return 1.0 if all(item in seen for item in ideal) else 0.0
        return max(1.0 - displacement(ideal, seen) / most, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RelativeError:
    """Numbers by name (groups, windows, columns): 1 - the mean of |seen - ideal| / |ideal|.

    One number is wrong by at most 1: one that is missing, NaN or more than doubled is lost. Where
    the ideal is 0 only 0 is right. Numbers that the ideal result lacks do not count.

    >>> RelativeError().accuracy({"a": 8.0, "b": 4.0}, {"a": 6.0})
    0.375
    """

    def accuracy(self, ideal: Mapping[str, float], seen: Mapping[str, float]) -> float:
        """Return one minus the mean error."""
        if not ideal:
            return 1.0
        errors = (_error(number, seen.get(name, math.nan)) for name, number in ideal.items())
        return 1.0 - math.fsum(errors) / len(ideal)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedRows:
    """Rows that are ranked by a score: how much of their order is left (`Footrule`).

    For `guard.run`, where only a handful of rows is compared at a time: `score` says what a row is
    worth by itself, and is not to depend on which others are there. Rows that got lost are empty.
    Fewer than `rows_min` have hardly an order: they are not judged.

    >>> judge = RankedRows(item="id", score=lambda row: row["n"])
    >>> judge.accuracy([{"id": 1, "n": 9}, {"id": 2, "n": 5}], [{"id": 1, "n": 3}, {}])
    1.0
    """

    item: str
    score: Callable[[Mapping[str, Any]], float]
    rows_min: int = 5

    def accuracy(
        self, ideal: Sequence[Mapping[str, Any]], seen: Sequence[Mapping[str, Any]]
    ) -> float:
        """Return 1 - F / F_max."""
        return Footrule().accuracy(self._ranks(ideal), self._ranks(seen))

    def _ranks(self, rows: Sequence[Mapping[str, Any]]) -> dict[Hashable, float]:
        return fractional_ranks({row[self.item]: self.score(row) for row in rows if row})


def displacement(ideal: Ranks, seen: Ranks) -> float:
    """Return Spearman's footrule F = Σ |i - σ(i)| over the items of the ideal ranking (eq. 5.2).

    Items that were lost take the places after the last seen one, in their ideal order: with ten
    items of which nine are seen, the missing one is tenth. Items that the ideal ranking lacks are
    taken out of the seen one first, and those behind them move up.

    >>> displacement(ranked("abc"), ranked("bc"))
    4.0
    """
    placed = _without_strangers(ideal, seen)
    lost = sorted((item for item in ideal if item not in placed), key=lambda item: ideal[item])
    placed |= {item: float(place) for place, item in enumerate(lost, start=len(placed) + 1)}
    return math.fsum(abs(rank - placed[item]) for item, rank in ideal.items())


def ranked(items: Iterable[Hashable]) -> dict[Hashable, float]:
    """Return the ranks of items that stand in order, the first one with rank 1.

    >>> ranked("ab")
    {'a': 1.0, 'b': 2.0}
    """
    listed = list(items)
    ranks = {item: float(place) for place, item in enumerate(listed, start=1)}
    if len(ranks) < len(listed):
        raise ValueError("items must be different, got one of them twice")
    return ranks


def fractional_ranks(scores: Mapping[Hashable, float]) -> dict[Hashable, float]:
    """Return ranks by score, the highest first; equals share the mean of their places.

    >>> fractional_ranks({"a": 5.0, "b": 7.0, "c": 5.0})
    {'b': 1.0, 'a': 2.5, 'c': 2.5}
    """
    order = sorted(scores, key=lambda item: -scores[item])
    first: dict[float, int] = {}
    last: dict[float, int] = {}
    for place, item in enumerate(order, start=1):
        first.setdefault(scores[item], place)
        last[scores[item]] = place
    return {item: (first[scores[item]] + last[scores[item]]) / 2 for item in order}


def shares_of_displacement(displacements: Mapping[str, float]) -> dict[str, float]:
    """Return what each subtask contributes, as the thesis counts it: its share of them all.

    The contributions then add up to 1: with every optional subtask off nothing is left, whatever
    the mandatory ones still get right. `Footrule` says what is really left.

    >>> shares_of_displacement({"a": 3.0, "b": 1.0})
    {'a': 0.75, 'b': 0.25}
    """
    total = math.fsum(displacements.values())
    return {name: moved / total if total else 0.0 for name, moved in displacements.items()}


def _without_strangers(ideal: Ranks, seen: Ranks) -> dict[Hashable, float]:
    """Return the seen ranks of the ideal items, closed up over those that do not belong there."""
    strange = sorted(rank for item, rank in seen.items() if item not in ideal)
    known = ((item, rank) for item, rank in seen.items() if item in ideal)
    return {item: rank - bisect_left(strange, rank) for item, rank in known}


def _error(ideal: float, seen: float) -> float:
    if seen == ideal:
        return 0.0
    error = abs(seen - ideal) / abs(ideal) if ideal else 1.0
    return min(error, 1.0) if error == error else 1.0  # NaN is lost
