"""Quantiles of sorted samples and their bounds, as Spark's SQL.

A step's columns: `rows` of a group, `kept` of them in the array `SORTED`; `ENTRY` is the group's
entry in the table of `quantile_places`. Spark plans every batch anew, so that each expression here
takes time in each of them: they are as short as can be. All is compiled: what Spark calls for each
element of an array it would interpret.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spillway.estimate.quantile_places import QuantilePlaces
from spillway.spark.columns import PREFIX

SORTED, ENTRY = PREFIX + "sorted", PREFIX + "entry"
_PLACE, _SHARE = PREFIX + "place", PREFIX + "share"


@dataclass(frozen=True)
class Side:
    """A bound by the entries of the table: from place `before` (from 0 on) so far to the next one.

    `toward` is the place, 0 or 1 behind `before`, that counts where an endless value is next to it.
    Where a bound lies outside of the sample, so does `before`; then it is `endless`.
    """

    name: str
    before: NDArray[np.float64]
    share: NDArray[np.float64]
    toward: int
    endless: str
    kept: int

    def columns(self) -> list[str]:
        """Look both up; nothing is found for a group that is held whole."""
        at = _constant(self.before, "INT"), _constant(self.share, "DOUBLE")
        names = self._names()
        return [f"get({array}, {ENTRY}) AS {name}" for array, name in zip(at, names, strict=True)]

    def sql(self) -> str:
        """Interpolate; a group that is held whole has the value itself as its bound."""
        before, share = self._names()
        first, second = f"get({SORTED}, {before})", f"get({SORTED}, {before} + 1)"
        found = f"nanvl({first} + {share} * ({second} - {first}), {(first, second)[self.toward]})"
        if ((self.before < 0) | (self.before > self.kept - 2)).any():
            found = f"IF(rows > {self.kept}, coalesce({found}, double('{self.endless}')), NULL)"
        return f"coalesce({found}, value) AS {self.name}"

    def _names(self) -> tuple[str, str]:
        return f"{_PLACE}_{self.name}", f"{_SHARE}_{self.name}"


def low_side(table: QuantilePlaces) -> Side:
    """A bound that is a row's own value is read as the first of two: nothing is added to it."""
    place = table.low - 1
    before = np.where(place < 0, -1.0, np.minimum(np.floor(place), table.kept - 2))
    return Side("low", before, place - before, 0, "-Infinity", table.kept)


def high_side(table: QuantilePlaces) -> Side:
    """A bound that is a row's own value is read as the second of two."""
    place = table.high - 1
    before = np.where(place > table.kept - 1, table.kept, np.maximum(np.ceil(place) - 1, 0.0))
    return Side("high", before, place - before, 1, "Infinity", table.kept)


def _constant(numbers: NDArray[np.float64], kind: str) -> str:
    """Write an array as one text: as many literals would be looked through in every batch."""
    digits = 0 if kind == "INT" else 6
    text = ",".join(f"{number:.{digits}f}" for number in numbers)
    return f"CAST(split('{text}', ',') AS ARRAY<{kind}>)"


def entry_sql(table: QuantilePlaces) -> str:
    """Find a group's entry, see `QuantilePlaces.entries`; below 0 if the group is held whole.

    Of the number itself and its logarithm, which meet at `singly`, the lesser one counts.
    """
    more, scale = f"(rows - {table.kept})", 1.0 / math.log(table.growth)
    meet = table.singly - math.log(table.singly) * scale
    return f"int(least({more}, ceil(ln({more}) * {scale!r}D + {meet!r}D), {table.low.size})) - 1"


def value_sql(q: float) -> str:
    """Interpolate sorted values at q of the way; endless ones are only met as they are."""
    if q == 0.5:
        middle = (f"get({SORTED}, int({place} / 2))" for place in ("(kept - 1)", "kept"))
        return " + ".join(f"0.5D * {value}" for value in middle)
    place = f"({q}D * (kept - 1))"
    before, after = f"get({SORTED}, int({place}))", f"get({SORTED}, int({place}) + 1)"
    between = f"{before} + ({place} - int({place})) * ({after} - {before})"
    return f"IF({place} > int({place}), {between}, {before})"
