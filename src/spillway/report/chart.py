"""Charts over time as SVG: drawn twice, for wide and for narrow screens, coloured by the page."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from spillway.report import numbers

Point = tuple[float, float | None]

_TITLED_MAX = 150  # more points than that are not told one by one
_TICKS = (1.0, 2.0, 2.5, 5.0, 10.0)
_TIME_TICKS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One series; a point without a value breaks it. `filled` shades what lies below."""

    name: str
    points: Sequence[Point]
    colour: int = 0
    filled: bool = False
    dashed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Lines over one time axis. `limit` is a level with a name that lines are compared with."""

    title: str
    lines: Sequence[Line]
    limit: tuple[str, float] | None = None
    top_min: float = 0.0
    until_s: float = 0.0
    label: Callable[[float], str] = numbers.short

    @property
    def end_s(self) -> float:
        """The last second of any line, or `until_s` if that is later."""
        last_s = max((at for line in self.lines for at, _ in line.points), default=0.0)
        return max(last_s, self.until_s) or 1.0

    @property
    def top(self) -> float:
        """The highest value, the limit among them."""
        values = [value for line in self.lines for _, value in line.points if value is not None]
        limit = [1.15 * self.limit[1]] if self.limit else []
        return max([*values, *limit, self.top_min], default=0.0) or 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    """Where values lie in a picture of so many units."""

    chart: Chart
    width: float
    height: float
    left: float = 46.0
    right: float = 10.0
    above: float = 10.0
    below: float = 24.0

    @property
    def step(self) -> float:
        return tick(self.chart.top, 4)

    @property
    def top(self) -> float:
        return self.step * math.ceil(self.chart.top / self.step - 1e-9)

    def x(self, at_s: float) -> float:
        return self.left + (self.width - self.left - self.right) * at_s / self.chart.end_s

    def y(self, value: float) -> float:
        inner = self.height - self.above - self.below
        return self.above + inner * (1.0 - min(max(value, 0.0), self.top) / self.top)


def figure(chart: Chart) -> str:
    """Return a chart with its title and key, as HTML."""
    keys = "".join(_key(line) for line in chart.lines) if len(chart.lines) > 1 else ""
    drawn = svg(chart, width=860, height=210, name="wide") + svg(
        chart, width=380, height=200, name="narrow"
    )
    return f"<figure><figcaption>{escape(chart.title)}{keys}</figcaption>{drawn}</figure>"


def svg(chart: Chart, *, width: float, height: float, name: str) -> str:
    """Return one picture; its colours are variables of the page."""
    frame = _Frame(chart=chart, width=width, height=height)
    parts = [*_grid(frame), *_times(frame)]
    for line in chart.lines:
        parts += _line(frame, line)
    parts += _limit(frame)
    return (
        f'<svg class="{name}" viewBox="0 0 {width:g} {height:g}" role="img" '
        f'aria-label="{escape(chart.title)}" font-size="11" fill="var(--soft)">'
        f"{''.join(parts)}</svg>"
    )


def tick(top: float, wanted: int) -> float:
    """Return a round distance that parts the axis into about so many.

    >>> tick(9300.0, 4), tick(0.7, 4)
    (2500.0, 0.2)
    """
    rough = top / wanted
    size = 10.0 ** math.floor(math.log10(rough))
    return min((size * each for each in _TICKS), key=lambda step: abs(step - rough))


def time_tick_s(end_s: float, wanted: int) -> float:
    """Return a round time that parts an axis into at most so many.

    >>> time_tick_s(36.0, 8), time_tick_s(7200.0, 8), time_tick_s(2.0, 4)
    (5.0, 900.0, 0.5)
    """
    if end_s < wanted:
        return tick(end_s, wanted)
    days = 86400.0 * math.ceil(end_s / wanted / 86400)
    return next((float(each) for each in _TIME_TICKS_S if each >= end_s / wanted), days)


def sparkline(values: Sequence[float], *, limit: float | None = None, width: int = 120) -> str:
    """Return a line without axes, for a cell of a table; of many values the last ones.

    >>> "polyline" in sparkline([1.0, 3.0, 2.0]), sparkline([])
    (True, '')
    """
    shown = [value for value in values if math.isfinite(value)][-width:]
    if not shown:
        return ""
    top = max([*shown, limit or 0.0]) or 1.0
    across = (width - 2) / max(len(shown) - 1, 1)
    dots = " ".join(f"{1 + i * across:.1f},{_low(v, top):.1f}" for i, v in enumerate(shown))
    level = ""
    if limit:
        at = f"{_low(limit, top):.1f}"
        level = f'<path d="M0 {at}H{width}" stroke="#b91c1c" stroke-dasharray="3 2" fill="none"/>'
    return (
        f'<svg width="{width}" height="22" viewBox="0 0 {width} 22" role="img">{level}'
        f'<polyline points="{dots}" fill="none" stroke="#0072b2" stroke-width="1.5"/></svg>'
    )


def _low(value: float, top: float) -> float:
    return 20.5 - 19.0 * max(value, 0.0) / top


def _grid(frame: _Frame) -> Iterator[str]:
    for place in range(round(frame.top / frame.step) + 1):
        at = frame.y(place * frame.step)
        text = escape(frame.chart.label(place * frame.step))
        end = frame.width - frame.right
        yield f'<path d="M{frame.left} {at:.1f}H{end}" stroke="var(--faint)"/>'
        yield f'<text x="{frame.left - 6}" y="{at + 4:.1f}" text-anchor="end">{text}</text>'


def _times(frame: _Frame) -> Iterator[str]:
    end_s, wanted = frame.chart.end_s, 8 if frame.width > 500 else 4
    step = time_tick_s(end_s, wanted)
    for place in range(math.floor(end_s / step) + 1):
        text = escape(numbers.elapsed(place * step))
        at = f'x="{frame.x(place * step):.1f}" y="{frame.height - 6:g}"'
        yield f'<text {at} text-anchor="middle">{text}</text>'


def _line(frame: _Frame, line: Line) -> Iterator[str]:
    colour = f"var(--series-{line.colour})"
    for run in _runs(line.points):
        dots = " ".join(f"{frame.x(at):.1f},{frame.y(value):.1f}" for at, value in run)
        if line.filled:
            first, last, floor = frame.x(run[0][0]), frame.x(run[-1][0]), frame.y(0.0)
            area = f"{first:.1f},{floor:.1f} {dots} {last:.1f},{floor:.1f}"
            yield f'<polygon points="{area}" fill="{colour}" fill-opacity=".16"/>'
        dash = ' stroke-dasharray="5 4"' if line.dashed else ""
        yield (
            f'<polyline points="{dots}" fill="none" stroke="{colour}" stroke-width="1.8" '
            f'stroke-linejoin="round"{dash}/>'
        )
        if len(line.points) <= _TITLED_MAX:
            yield from _dots(frame, line, run, colour)


def _dots(
    frame: _Frame, line: Line, run: Sequence[tuple[float, float]], colour: str
) -> Iterator[str]:
    for at, value in run:
        told = f"{line.name}: {frame.chart.label(value)} at {numbers.elapsed(at)}"
        yield (
            f'<circle cx="{frame.x(at):.1f}" cy="{frame.y(value):.1f}" r="2.6" fill="{colour}">'
            f"<title>{escape(told)}</title></circle>"
        )


def _limit(frame: _Frame) -> Iterator[str]:
    if frame.chart.limit is None:
        return
    name, level = frame.chart.limit
    at, end = frame.y(level), frame.width - frame.right
    yield (
        f'<path d="M{frame.left} {at:.1f}H{end}" stroke="var(--missed)" stroke-width="1.4" '
        f'stroke-dasharray="6 4"/>'
    )
    place = f'x="{frame.left + 6:g}" y="{at - 5:.1f}"'
    yield f'<text {place} fill="var(--missed)" font-weight="600">{escape(name)}</text>'


def _key(line: Line) -> str:
    colour = f"background:var(--series-{line.colour})"
    return f'<span class="key"><i style="{colour}"></i>{escape(line.name)}</span>'


def _runs(points: Sequence[Point]) -> Iterator[list[tuple[float, float]]]:
    """Part a line where it has no values."""
    run: list[tuple[float, float]] = []
    for at, value in points:
        if value is not None and math.isfinite(value):
            run.append((at, value))
        elif run:
            yield run
            run = []
    if run:
        yield run
