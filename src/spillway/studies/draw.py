"""Draws the figures of a study, all in one look: readable in print, in the dark, by everyone.

Colours are told apart by colour-blind readers too, and every series has a marker of its own, so
that a grey copy can be read. No global state of matplotlib is touched.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter
from numpy.typing import NDArray

from spillway.studies.study import Figure, Panel, Series

Floats = NDArray[np.float64]

# Okabe and Ito's colours, the light ones darkened to stand out on white as on black.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#c065a0", "#b07d00", "#4a90c2")
MARKERS = ("o", "s", "^", "D", "v", "P")
INK, FAINT, PAPER = "#1f2937", "#d1d5db", "#ffffff"
_DASHES = ("-", "--", ":")  # beyond six series the colours come again, dashed
_MARKED_MAX = 40  # more points than that are a curve: no markers, a band in place of bars
_RASTER_MIN = 3000  # more points than that are drawn as pixels, or the file becomes huge
_WIDTH_IN, _PANEL_IN, _EDGE_IN = 8.0, 2.7, 0.9


class _Style(NamedTuple):
    colour: str
    marker: str
    dash: str


class _Drawn(NamedTuple):
    svg: str
    png: bytes


def inline_svg(figure: Figure) -> str:
    """Return the picture to stand inside a page that knows light and dark.

    Ids are made the figure's own, so that many pictures can stand in one page; the page
    may set other colours, as `--ink`, `--paper`, `--faint` and `--series-0` to `--series-5`.
    """
    text = _drawn(figure).svg
    text = text[text.index("<svg") :]
    own = f"figure-{figure.id}-"
    text = re.sub(r'\bid="', f'id="{own}', text)
    text = re.sub(r'href="#', f'href="#{own}', text).replace("url(#", f"url(#{own}")
    series = tuple((f"series-{i}", colour) for i, colour in enumerate(COLOURS))
    for name, colour in (("ink", INK), ("faint", FAINT), ("paper", PAPER), *series):
        text = text.replace(colour, f"var(--{name}, {colour})")
    return text


def save(figure: Figure, folder: Path) -> tuple[Path, Path]:
    """Save the picture as SVG and PNG; its title stands where it is shown."""
    svg, png = folder / f"{figure.id}.svg", folder / f"{figure.id}.png"
    svg.write_text(_drawn(figure).svg, encoding="utf-8")
    png.write_bytes(_drawn(figure).png)
    return svg, png


def picture_of(figure: Figure) -> Picture:
    """Draw the panels from top to bottom under one legend; a series keeps its colour in all."""
    height_in = _EDGE_IN + _PANEL_IN * len(figure.panels)
    picture = Picture(figsize=(_WIDTH_IN, height_in), layout="constrained", facecolor=PAPER)
    names = _names(figure)
    columns = picture.subplots(len(figure.panels), 1, squeeze=False)[:, 0]
    for axes, panel in zip(columns, figure.panels, strict=True):
        _panel(axes, panel, names)
    if len(names) > 1:
        keys = [_key(name, names) for name in names]
        picture.legend(
            handles=keys,
            loc="outside upper left",
            ncols=min(len(names), 4),
            frameon=False,
            labelcolor=INK,
            fontsize=9,
        )
    return picture


@lru_cache(maxsize=16)
def _drawn(figure: Figure) -> _Drawn:
    """Draw once for all uses: laying out takes most of the time."""
    picture = picture_of(figure)
    svg, png = io.StringIO(), io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": figure.id}):  # the same picture, the same bytes
        picture.savefig(
            svg, format="svg", metadata={"Date": None, "Creator": "Spillway"}, facecolor=PAPER
        )
    picture.set_layout_engine("none")
    picture.savefig(png, dpi=150, metadata={"Software": "Spillway", "Title": figure.title})
    return _Drawn(svg.getvalue(), png.getvalue())


def _names(figure: Figure) -> list[str]:
    """All series by name, each once, in order of appearance."""
    return list(dict.fromkeys(line.name for panel in figure.panels for line in panel.series))


def _panel(axes: Axes, panel: Panel, names: list[str]) -> None:
    axes.set_facecolor(PAPER)
    labels = _labels(panel)
    if panel.y_log:
        axes.set_yscale("log")
    for line in panel.series:
        style = _style(line.name, names)
        if labels:
            _bars(axes, panel, line, labels, style)
        else:
            _curve(axes, line, style)
    for name, height in panel.lines:
        _mark(axes, name, height)
    for name, begin in panel.borders:
        _border(axes, name, begin)
    _dress(axes, panel, labels)


def _curve(axes: Axes, line: Series, style: _Style) -> None:
    """Draw the mean as a line, with bars around few points and a band around many."""
    x, mean = _floats(line.x), _floats(line.mean)
    raster = len(x) > _RASTER_MIN
    few = len(x) <= _MARKED_MAX
    marker = style.marker if few else ""
    axes.plot(
        x,
        mean,
        lw=1.6,
        ls=style.dash,
        marker=marker,
        ms=4.5,
        color=style.colour,
        rasterized=raster,
    )
    if line.low is None or line.high is None:
        return
    low, high = _floats(line.low), _floats(line.high)
    axes.fill_between(x, low, high, color=style.colour, alpha=0.18, lw=0, rasterized=raster)
    if few:
        axes.vlines(x, low, high, color=style.colour, lw=1.0, alpha=0.8)


def _bars(axes: Axes, panel: Panel, line: Series, labels: list[str], style: _Style) -> None:
    """Draw one bar per label beside those of the other series; dots on a logarithmic axis."""
    among = [other.name for other in panel.series]
    width = 0.8 / len(among)
    shift = (among.index(line.name) - (len(among) - 1) / 2) * width
    x = np.array([labels.index(str(at)) for at in line.x]) + shift
    mean = _floats(line.mean)
    if panel.y_log:
        axes.plot(x, mean, ls="", marker=style.marker, ms=6, color=style.colour)
    else:
        hatch = None if style.dash == _DASHES[0] else "////"  # a colour that comes again
        axes.bar(x, mean, width=0.92 * width, color=style.colour, hatch=hatch, edgecolor="white")
    if line.low is not None and line.high is not None:
        axes.vlines(x, _floats(line.low), _floats(line.high), color=INK, lw=1.2)


def _mark(axes: Axes, name: str, height: float) -> None:
    axes.axhline(height, color=INK, ls="--", lw=1.1)
    axes.annotate(
        name,
        (0.995, height),
        xycoords=("axes fraction", "data"),
        xytext=(0, 2),
        textcoords="offset points",
        ha="right",
        va="bottom",
        fontsize=8.5,
        color=INK,
        parse_math=False,
    )


def _border(axes: Axes, name: str, begin: float) -> None:
    axes.axvline(begin, color=FAINT, lw=1.1, zorder=0)
    axes.annotate(
        name,
        (begin, 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(3, -2),
        textcoords="offset points",
        ha="left",
        va="top",
        fontsize=8.5,
        color=INK,
        parse_math=False,
    )


def _dress(axes: Axes, panel: Panel, labels: list[str]) -> None:
    if labels:
        axes.set_xticks(range(len(labels)), labels)
        for label in axes.get_xticklabels():
            label.set_parse_math(False)
    elif not panel.y_log:
        axes.yaxis.set_major_formatter(FuncFormatter(_short))
    axes.set_title(
        panel.y_label, loc="left", fontsize=9.5, fontweight="bold", color=INK, parse_math=False
    )
    axes.set_xlabel(panel.x_label, fontsize=9.5, color=INK, parse_math=False)
    axes.tick_params(colors=INK, labelsize=9)
    axes.grid(axis="y", color=FAINT, lw=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(INK)


def _style(name: str, names: list[str]) -> _Style:
    place = names.index(name)
    turn = place // len(COLOURS) % len(_DASHES)
    return _Style(
        colour=COLOURS[place % len(COLOURS)],
        marker=MARKERS[place % len(MARKERS)],
        dash=_DASHES[turn],
    )


def _key(name: str, names: list[str]) -> Line2D:
    style = _style(name, names)
    return Line2D(
        [],
        [],
        label=_plain(name),
        color=style.colour,
        marker=style.marker,
        ls=style.dash,
        lw=1.6,
        ms=5,
    )


def _labels(panel: Panel) -> list[str]:
    """The x axis as labels, if any x is a text; none if all are numbers."""
    every = [at for line in panel.series for at in line.x]
    if not any(isinstance(at, str) for at in every):
        return []
    return list(dict.fromkeys(str(at) for at in every))


def _floats(values: Sequence[float | str]) -> Floats:
    return np.asarray(values, dtype=np.float64)


def _plain(text: str) -> str:
    """A text without formulas: dollars stand for themselves, and no legend hides a '_name'."""
    return ("\u200b" if text.startswith("_") else "") + text.replace("$", r"\$")


def _short(value: float, _: object) -> str:
    return f"{value:,.10g}"
