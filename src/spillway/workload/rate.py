"""When rows arrive: schedules as pure values, read from a short text."""

from __future__ import annotations

import gzip
import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_ROWS_MAX = 2**53  # beyond it a float64 no longer counts rows one by one
_KNOTS_PER_PERIOD = 64  # chords of a 64th of a period stay within 0.13 % of the sine


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Schedule:
    """Rows that have arrived by each second: knots joined by straight lines.

    Row `i` (from 0) arrives when the line first reaches `i + 1`; after the last knot none does.

    >>> burst = Schedule(knots_s=np.array([0.0, 2.0, 3.0]), knots_rows=np.array([0.0, 4.0, 14.0]))
    >>> [burst.rows_by(t) for t in (0.0, 1.0, 2.5, 99.0)]
    [0, 2, 9, 14]
    >>> burst.arrival_s(np.array([0, 3, 13, 14])).tolist()
    [0.5, 2.0, 3.0, inf]
    >>> burst.rate_at(1.0), burst.rate_at(2.0), burst.rate_at(3.0)
    (2.0, 10.0, 0.0)
    """

    knots_s: Floats
    knots_rows: Floats

    def __post_init__(self) -> None:
        for name in ("knots_s", "knots_rows"):
            object.__setattr__(self, name, _knots(name, getattr(self, name)))
        if len(self.knots_s) != len(self.knots_rows):
            lengths = f"{len(self.knots_s)} and {len(self.knots_rows)}"
            raise ValueError(f"knots_s and knots_rows must be of one length, got {lengths}")
        if not (np.diff(self.knots_s) > 0).all():
            raise ValueError(f"knots_s must increase strictly, got {self.knots_s}")
        if not ((np.diff(self.knots_rows) >= 0).all() and self.knots_rows[-1] <= _ROWS_MAX):
            raise ValueError(f"knots_rows must not fall nor pass 2**53, got {self.knots_rows}")

    @property
    def duration_s(self) -> float:
        """The second after which no more rows arrive."""
        return float(self.knots_s[-1])

    @property
    def rows_total(self) -> int:
        """All rows that ever arrive."""
        return int(self.knots_rows[-1])

    def rows_by(self, t_s: float) -> int:
        """Rows that have arrived up to and at `t_s`: exactly those with `arrival_s <= t_s`.

        A search in `arrival_s` and not the inverse formula, whose rounding could disagree with it.
        """
        if math.isnan(t_s):
            raise ValueError("t_s must be a number, got nan")
        return bisect_right(range(self.rows_total), t_s, key=self._arrival_of_one_s)

    def arrival_s(self, rows: NDArray[np.int64]) -> Floats:
        """The second at which each row number arrives; infinity for rows after the last."""
        if rows.size and rows.min() < 0:
            raise ValueError(f"rows must be >= 0, got {rows.min()}")
        reached = np.minimum(rows + 1.0, self.knots_rows[-1])
        right = np.maximum(np.searchsorted(self.knots_rows, reached, side="left"), 1)
        arrivals = self._on_line_s(reached, right - 1, right)
        return np.where(rows < self.rows_total, arrivals, np.inf)

    def rate_at(self, t_s: float) -> float:
        """Rows per second at and right after `t_s`; zero outside the schedule."""
        if not 0 <= t_s < self.duration_s:
            return 0.0
        right = int(np.searchsorted(self.knots_s, t_s, side="right"))
        rise = self.knots_rows[right] - self.knots_rows[right - 1]
        return float(rise / (self.knots_s[right] - self.knots_s[right - 1]))

    def _arrival_of_one_s(self, row: int) -> float:
        return float(self.arrival_s(np.array([row]))[0])

    def _on_line_s(
        self, reached: Floats, left: NDArray[np.intp], right: NDArray[np.intp]
    ) -> Floats:
        """Times on the segments; clamped at their ends, so that no rounding reverses two rows."""
        low, high = self.knots_rows[left], self.knots_rows[right]
        start_s, end_s = self.knots_s[left], self.knots_s[right]
        # Multiplied before divided: at 1000 rows a second, row 6999 arrives at 7.0 and not after.
        spent_s = (reached - low) * (end_s - start_s) / np.where(high > low, high - low, 1.0)
        return np.minimum(start_s + spent_s, end_s)


def parse_rate(spec: str, duration_s: float) -> Schedule:
    """The schedule that a text describes, cut at `duration_s`.

    - `3000`: constant, in rows per second
    - `steps:0=3000,20=24000,40=3000`: from second 20 on 24000 rows per second, and so forth
    - `sine:mean=5000,amplitude=4000,period=60`
    - `flash:base=1000,peak=20000,at=10,rise=2,decay=8`: a flash crowd; the rate rises linearly for
      `rise` seconds, then its excess over `base` falls by the factor e every `decay` seconds
    - `file:/path/counts.csv.gz,scale=0.1,skip=3600`: rows per second from a file, one line a
      second, plain or gzip, header or none, count in the last column; `column=num_request` names
      another one, `every=60` says that a line holds 60 seconds. Where the file ends, rows end.

    >>> parse_rate("steps:0=3000,20=24000,40=3000", 60).rows_total
    600000
    >>> parse_rate("sine:mean=5000", 60)
    Traceback (most recent call last):
    ValueError: rate 'sine' must give amplitude, mean, period, got 'mean=5000'
    """
    if not (duration_s > 0 and math.isfinite(duration_s)):
        raise ValueError(f"duration_s must be positive and finite, got {duration_s}")
    kind, colon, text = spec.strip().partition(":")
    if not colon and kind:
        kind, text = "steps", f"0={kind}"
    if kind not in _KINDS:
        known = ", ".join(sorted(_KINDS))
        raise ValueError(f"rate must be a number or one of {known} with a colon, got {spec!r}")
    return _KINDS[kind](text, duration_s)


def _steps(text: str, duration_s: float) -> Schedule:
    pairs = [(_number("steps", start), _at_least_0("steps", rate)) for start, rate in _pairs(text)]
    starts_s, rates = np.array(pairs, dtype=np.float64).T
    if starts_s[0] != 0 or not (np.diff(starts_s) > 0).all():
        raise ValueError(f"rate 'steps' must start at 0 and increase in time, got {text!r}")
    within = starts_s < duration_s
    knots_s = np.append(starts_s[within], duration_s)
    return _from_increments(knots_s, rates[within] * np.diff(knots_s))


def _sine(text: str, duration_s: float) -> Schedule:
    given = _numbers("sine", text, ("mean", "amplitude", "period"))
    mean, amplitude, period_s = (
        given["mean"],
        given["amplitude"],
        _positive("period", given),
    )
    if amplitude > mean:
        raise ValueError(f"rate 'sine' must have amplitude <= mean, got {text!r}")

    def rows(t_s: Floats) -> Floats:
        swing = amplitude * period_s / (2 * np.pi)
        return mean * t_s + swing * (1 - np.cos(2 * np.pi * t_s / period_s))

    return _sampled(rows, np.arange(0, duration_s, period_s / _KNOTS_PER_PERIOD), duration_s)


def _flash(text: str, duration_s: float) -> Schedule:
    given = _numbers("flash", text, ("base", "peak", "at", "rise", "decay"))
    base, excess, at_s = given["base"], given["peak"] - given["base"], given["at"]
    rise_s, decay_s = _positive("rise", given), _positive("decay", given)
    if excess < 0:
        raise ValueError(f"rate 'flash' must have peak >= base, got {text!r}")

    def rows(t_s: Floats) -> Floats:
        rising_s = np.clip(t_s - at_s, 0, rise_s)
        falling_s = np.maximum(t_s - at_s - rise_s, 0)
        crowd = rising_s**2 / (2 * rise_s) + decay_s * -np.expm1(-falling_s / decay_s)
        return base * t_s + excess * crowd

    rise = np.linspace(at_s, at_s + rise_s, _KNOTS_PER_PERIOD)
    fall = at_s + rise_s + np.linspace(0, 20 * decay_s, 20 * _KNOTS_PER_PERIOD)
    return _sampled(rows, np.concatenate([rise, fall]), duration_s)


def _file(text: str, duration_s: float) -> Schedule:
    name, _, rest = text.partition(",")
    given = dict(_pairs(rest)) if rest else {}
    unknown = sorted(given.keys() - {"scale", "skip", "column", "every"})
    if unknown:
        raise ValueError(f"rate 'file' must give scale, skip, column or every, got {unknown[0]!r}")
    column = given.pop("column", None)
    numbers = {key: _at_least_0(key, value) for key, value in given.items()}
    every_s = _positive("every", {"every": 1.0} | numbers)
    first, lines = (
        int(numbers.get("skip", 0) / every_s),
        math.ceil(duration_s / every_s),
    )
    counts = _counts(Path(name), column, first, lines) * numbers.get("scale", 1.0)
    whole = _from_increments(every_s * np.arange(len(counts) + 1.0), counts)
    return _sampled(
        lambda t_s: np.interp(t_s, whole.knots_s, whole.knots_rows),
        whole.knots_s,
        duration_s,
    )


_KINDS: dict[str, Callable[[str, float], Schedule]] = {
    "steps": _steps,
    "sine": _sine,
    "flash": _flash,
    "file": _file,
}


def _counts(path: Path, column: str | None, first: int, lines: int) -> Floats:
    """The counts on `lines` lines of a file, from line `first` (header not counted)."""
    with _open_text(path) as file:
        head = file.readline().strip().split(",")
        place = _place(path, head, column)
        has_header = column is not None or not _is_number(head[place])
        body: Iterator[str] = file if has_header else _chain_first(",".join(head), file)
        counts = [_count(path, line, place) for line in islice(body, first, first + lines)]
    if not counts:
        raise ValueError(f"rate 'file' must have lines after the first {first}, got {path}")
    return np.array(counts, dtype=np.float64)


def _open_text(path: Path) -> TextIO:
    if not path.is_file():
        raise ValueError(f"rate 'file' must name an existing file, got {str(path)!r}")
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8")
    return path.open(encoding="utf-8")


def _place(path: Path, head: list[str], column: str | None) -> int:
    if column is None:
        return -1
    if column not in head:
        raise ValueError(f"rate 'file' must name a column of {path} {head}, got {column!r}")
    return head.index(column)


def _chain_first(first: str, rest: Iterable[str]) -> Iterator[str]:
    yield first
    yield from rest


def _count(path: Path, line: str, place: int) -> float:
    fields = line.strip().split(",")
    text = fields[place] if place < len(fields) else ""
    return _at_least_0(f"file {path}", text)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _from_increments(knots_s: Floats, increments: Floats) -> Schedule:
    return Schedule(knots_s=knots_s, knots_rows=np.append(0.0, np.cumsum(increments)))


def _sampled(rows: Callable[[Floats], Floats], knots_s: Floats, duration_s: float) -> Schedule:
    """The chords of a cumulative curve over the knots before `duration_s` and its two ends."""
    within = knots_s[(knots_s > 0) & (knots_s < duration_s)]
    times_s = np.unique(np.concatenate([[0.0], within, [duration_s]]))
    return Schedule(knots_s=times_s, knots_rows=np.maximum.accumulate(rows(times_s)))


def _knots(name: str, values: Floats) -> Floats:
    knots = np.array(values, dtype=np.float64)  # a copy, so that nobody changes it from outside
    if not (knots.ndim == 1 and len(knots) >= 2 and np.isfinite(knots).all() and knots[0] == 0):
        raise ValueError(f"{name} must be two or more finite numbers from 0 on, got {values}")
    knots.setflags(write=False)
    return knots


def _numbers(kind: str, text: str, names: tuple[str, ...]) -> dict[str, float]:
    pairs = _pairs(text)
    if sorted(name for name, _ in pairs) != sorted(names):
        raise ValueError(f"rate {kind!r} must give {', '.join(sorted(names))}, got {text!r}")
    return {name: _at_least_0(name, value) for name, value in pairs}


def _pairs(text: str) -> list[tuple[str, str]]:
    parts = [part.partition("=") for part in text.split(",")]
    for name, equals, value in parts:
        if not (name.strip() and equals and value.strip()):
            raise ValueError(f"rate must be made of name=value parts, got {name + equals!r}")
    return [(name.strip(), value.strip()) for name, _, value in parts]


def _positive(name: str, given: dict[str, float]) -> float:
    if not given[name] > 0:
        raise ValueError(f"rate's {name!r} must be > 0, got {given[name]}")
    return given[name]


def _at_least_0(name: str, text: str) -> float:
    number = _number(name, text)
    if number < 0:
        raise ValueError(f"rate's {name!r} must be >= 0, got {text!r}")
    return number


def _number(name: str, text: str) -> float:
    if not (_is_number(text) and math.isfinite(float(text))):
        raise ValueError(f"rate's {name!r} must be a finite number, got {text!r}")
    return float(text)
