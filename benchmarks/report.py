"""The table: on the terminal, as Markdown, and inside docs/benchmarks.md."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.table import Table

from benchmarks.measure import Figure

HEADINGS = ("What", "Against", "Median", "Quartiles", "Bound", "")


def terminal(figures: Sequence[Figure]) -> Table:
    """Return the table as the terminal shows it."""
    table = Table(*HEADINGS)
    for figure in figures:
        table.add_row(*_cells(figure), style="red" if figure.missed else None)
    return table


def markdown(figures: Sequence[Figure]) -> str:
    """Return the table as the docs quote it."""
    lines = [HEADINGS, ("---",) * len(HEADINGS), *(_cells(figure) for figure in figures)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def quote(page: Path, figures: Sequence[Figure]) -> None:
    """Replace the tables of the benchmarks that ran; the others stay as they are."""
    text = page.read_text(encoding="utf-8")
    for name in dict.fromkeys(figure.benchmark for figure in figures):
        table = markdown([figure for figure in figures if figure.benchmark == name])
        block = re.compile(f"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        if not block.search(text):
            raise ValueError(f"{page} must have the marks <!-- {name} --> and <!-- /{name} -->")
        text = block.sub(lambda found, table=table: f"{found[1]}{table}\n{found[2]}", text)
    page.write_text(text, encoding="utf-8")


def _cells(figure: Figure) -> tuple[str, ...]:
    low, high = figure.spread
    number = "{:.1f}" if figure.unit == "ms" else "{:.2f}"
    return (
        figure.what,
        figure.rival,
        f"{number.format(figure.value)} {figure.unit}",
        f"{number.format(low)} .. {number.format(high)}",
        figure.bound.text(figure.unit) if figure.bound else "none",
        _verdict(figure),
    )


def _verdict(figure: Figure) -> str:
    if figure.bound is None:
        return ""
    if figure.missed:
        return "MISSED"
    goal = figure.bound.goal
    reached = goal is None or replace(figure.bound, bound=goal).holds(figure.value)
    return "reached" if reached else "reached, goal missed"
