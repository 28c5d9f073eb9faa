"""Runs a study in the terminal: a bar for every figure, then the claims and the report."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from spillway.studies import report
from spillway.studies.run import CACHE, Order, Slice, run, slices_of
from spillway.studies.study import Results

_COLOURS = {"holds": "green", "holds better": "cyan", "does not hold": "red"}


def show(
    order: Order,
    *,
    out: Path,
    workers: int | None = None,
    cache: Path = CACHE,
    fresh: bool = False,
    console: Console,
) -> bool:
    """Compute the order, print its claims, write its report; say whether every claim held."""
    few = 1 if order.quick else cores()  # a few seconds of work: less than workers need to start
    results = _compute(order, workers or few, cache, fresh, console)
    with console.status("drawing"):
        found = report.findings(order, results)
        page = report.write(found, out)
    console.print(_table(found))
    console.print(report.sentence(found), style="red" if found.missed else "green")
    for claim in found.missed:
        console.print(f"does not hold: {claim.figure}: {claim.statement}", markup=False)
    console.print(f"Report: {page}", markup=False)
    return not found.missed


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _compute(
    order: Order, workers: int, cache: Path, fresh: bool, console: Console
) -> Mapping[str, Results]:
    with _bars(console) as bars:
        tasks = _tasks(bars, order, cache)

        def advance(part: Slice) -> None:
            bars.start_task(tasks[part.figure])
            bars.advance(tasks[part.figure], part.last - part.first)

        return run(order, workers=workers, cache=cache, fresh=fresh, on_done=advance)


def _tasks(bars: Progress, order: Order, cache: Path) -> dict[str, TaskID]:
    runs = {job.id: 0 for job in order.jobs}
    for part in slices_of(order, cache):
        runs[part.figure] += part.last - part.first
    return {name: bars.add_task(name, total=total, start=False) for name, total in runs.items()}


def _bars(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description:24}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("runs"),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
        console=console,
    )


def _table(found: report.Findings) -> Table:
    table = Table("figure", "claim", "paper", "ours", "verdict", header_style="bold")
    for claim in found.claims:
        verdict = f"[{_COLOURS[claim.verdict]}]{claim.verdict}[/]"
        texts = map(escape, (claim.figure, claim.statement, claim.paper, claim.ours))
        table.add_row(*texts, verdict)
    return table
