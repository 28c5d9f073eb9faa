"""What the application prints: the first routes of every window, and a summary at the end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from apps.taxi_routes.rides import named

if TYPE_CHECKING:
    from pyspark.sql import Row

_NAME_MAX = 44


def heading(window: Sequence[Row]) -> str:
    """Say which window it is, and how much of it was used."""
    first = window[0]
    start, end = (first["window"][side] for side in ("start", "end"))
    share = first["window_used"] / first["window_rides"]
    return (
        f"{start:%d %b %H:%M} to {end:%H:%M}   {first['window_rides']:,} rides on "
        f"{first['window_routes']:,} routes, {first['window_used']:,} used ({share:.1%})"
    )


def line(row: Row, zones: dict[int, str]) -> str:
    """Say what a route's fare is, how sure that is, and from how many rides."""
    name = named(row["route"], zones)
    name = name if len(name) <= _NAME_MAX else name[: _NAME_MAX - 1] + "…"
    return (
        f"{row['rank']:>4}  {name:<{_NAME_MAX}} {row['fare']:>8.2f}  {_interval(row):<20} "
        f"{row['used']:>5,} of {row['rides']:,} rides{'' if row['certain'] else '   perhaps'}"
    )


def _interval(row: Row) -> str:
    if row["low"] == row["high"]:
        return "exact"
    sides = (f"{x:.2f}" if math.isfinite(x) else "?" for x in (row["low"], row["high"]))
    return f"[{', '.join(sides)}]"


@dataclass(slots=True)
class Summary:
    """Counts what the windows had and used."""

    windows: int = 0
    rides: int = 0
    used: int = 0

    def add(self, window: Sequence[Row]) -> None:
        """Count a window."""
        self.windows += 1
        self.rides += window[0]["window_rides"]
        self.used += window[0]["window_used"]

    def __str__(self) -> str:
        """Say it in a sentence."""
        if not self.windows:
            return "No window ended: play more hours, or take shorter windows."
        return (
            f"{self.windows} windows with {self.rides:,} rides in all, {self.used:,} "
            f"({self.used / self.rides:.1%}) used; no route of any window is missing."
        )
