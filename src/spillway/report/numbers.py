"""Numbers as people read them: short, with the digits that matter."""

from __future__ import annotations

import math
from datetime import UTC, datetime


def count(value: float) -> str:
    """Return a number of rows.

    >>> count(1234567.0)
    '1,234,567'
    """
    return f"{value:,.0f}"


def short(value: float) -> str:
    """Return a number for an axis.

    >>> [short(value) for value in (0.0, 0.25, 12.0, 1500.0, 2.5e6)]
    ['0', '0.25', '12', '1.5k', '2.5M']
    """
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def seconds(value: float | None) -> str:
    """Return a duration; a dash where it is not known.

    >>> seconds(2.345), seconds(0.0123), seconds(340.0), seconds(None)
    ('2.35 s', '12 ms', '5.7 min', '–')
    """
    if value is None or not math.isfinite(value):
        return "–"
    if value < 0.1:
        return f"{1e3 * value:.0f} ms"
    return f"{value:.2f} s" if value < 120 else f"{value / 60:.1f} min"


def axis_seconds(value: float) -> str:
    """Return a duration for an axis.

    >>> axis_seconds(10.0), axis_seconds(0.25), axis_seconds(600.0)
    ('10 s', '0.25 s', '10 min')
    """
    return f"{value:.3g} s" if value < 120 else f"{value / 60:.3g} min"


def percent(share: float, digits: int = 1) -> str:
    """Return a share; what is little is not nothing.

    >>> percent(0.3146), percent(1.0), percent(1e-6), percent(0.0)
    ('31.5 %', '100 %', '< 0.1 %', '0 %')
    """
    least = 10.0**-digits
    if 0 < 100 * share < least / 2:
        return f"< {least:g} %"
    return f"{100 * share:.{digits}f}".removesuffix(".0") + " %"


def moment(at_s: float) -> str:
    """Return a time of day, in UTC.

    >>> moment(0.0)
    '1970-01-01 00:00:00'
    """
    try:
        return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d %H:%M:%S}"
    except (OverflowError, ValueError, OSError):  # a damaged clock
        return "–"


def elapsed(value: float) -> str:
    """Return the time since a start, for an axis.

    >>> elapsed(30.0), elapsed(600.0), elapsed(5400.0), elapsed(172800.0)
    ('30 s', '10 min', '90 min', '2 d')
    """
    for size, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if value >= 2 * size or (value >= size and value % size == 0):
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g} s"
