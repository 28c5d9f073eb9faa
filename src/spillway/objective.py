"""What must hold: the latency of a row, from its arrival to the end of its batch; an error."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta

from spillway.values import Observation

_UNITS_S = {
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "sec": 1.0,
    "second": 1.0,
    "seconds": 1.0,
    "min": 60.0,
    "minute": 60.0,
    "minutes": 60.0,
    "h": 3600.0,
    "hour": 3600.0,
    "hours": 3600.0,
    "d": 86400.0,
    "day": 86400.0,
    "days": 86400.0,
}
_DURATION = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-z]+)\s*")

# With back-to-back batches a row waits for the batch in hand and leaves at the end of its own:
# on average half a batch, at worst a whole one.
_WAIT = {"average": 0.5, "p99": 0.99, "each": 1.0}


def seconds(duration: str | timedelta) -> float:
    """Read a duration such as "800 ms", "2 s" or "1.5 min"; a bare number has no unit and fails.

    >>> seconds("800 ms"), seconds("2 s"), seconds("1.5 min")
    (0.8, 2.0, 90.0)
    """
    if isinstance(duration, timedelta):
        return duration.total_seconds()
    match = _DURATION.fullmatch(duration.lower()) if isinstance(duration, str) else None
    if match is None or match[2] not in _UNITS_S:
        raise ValueError(
            f'a duration must be a number with a unit ({", ".join(_UNITS_S)}), such as "800 ms" '
            f'or "2 s", got {duration!r}'
        )
    return float(match[1]) * _UNITS_S[match[2]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """A bound on the mean (`average`), the 99th percentile (`p99`) or every row (`each`).

    >>> Latency(average="2 s").limit_s
    2.0
    """

    average: str | timedelta | None = None
    p99: str | timedelta | None = None
    each: str | timedelta | None = None

    def __post_init__(self) -> None:
        """Reject everything but exactly one positive bound."""
        given = [name for name in _WAIT if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                f"Latency needs exactly one of average, p99 and each, got {given or 'none'}"
            )
        if not self.limit_s > 0:
            raise ValueError(f"{given[0]} must be > 0, got {getattr(self, given[0])!r}")

    @property
    def kind(self) -> str:
        """Which of the three bounds was given."""
        return next(name for name in _WAIT if getattr(self, name) is not None)

    @property
    def limit_s(self) -> float:
        """The bound in seconds."""
        return seconds(getattr(self, self.kind))

    @property
    def wait(self) -> float:
        """How long the bounded row waits for its batch, in durations of the batch before."""
        return _WAIT[self.kind]

    def of(self, seen: Observation) -> float | None:
        """Pick the measured latency that the bound speaks of."""
        if self.kind == "average":
            return seen.latency_s_mean
        return seen.latency_s_p99 if self.kind == "p99" else seen.latency_s_max

    def __str__(self) -> str:
        """Say the objective in words."""
        return f"{self.kind} latency <= {self.limit_s:g} s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Error:
    """A bound on how far an estimate may be from the truth, with what confidence.

    >>> Error(relative=0.05).confidence
    0.95
    """

    relative: float
    confidence: float = 0.95

    def __post_init__(self) -> None:
        """Reject what is no share."""
        for name in ("relative", "confidence"):
            if not 0 < getattr(self, name) < 1:
                raise ValueError(f"{name} must be in (0, 1), got {getattr(self, name)}")
