"""`spillway report`: the page that tells a run, from its books."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spillway.commands.books import Query, StateDir, objective_of, of_query, opened, writable

if TYPE_CHECKING:
    from spillway.report.run_page import Run


def report(
    state: StateDir,
    out: Annotated[
        Path,
        typer.Option(
            help="Where to write the page.", dir_okay=False, show_default="spillway-report.html"
        ),
    ] = Path("spillway-report.html"),
    query: Query = None,
    average: Annotated[
        str | None, typer.Option(help='Judge by this mean latency, such as "2 s".')
    ] = None,
    p99: Annotated[str | None, typer.Option(help="Judge by this 99th percentile.")] = None,
    each: Annotated[str | None, typer.Option(help="Judge by this latency of every row.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the numbers as JSON instead of a sentence.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="End with 1 if the objective was not held.")
    ] = False,
) -> None:
    """Write the report of a run: one HTML page that needs nothing but itself.

    It says whether the objective held, how latency and rates went, what was shed and why, what that
    does to the answers, and lists the batches. The run may still be going on. By default it is
    judged by the objective of its own guard.

    Ends with 0 if the page was written, with 1 if --check finds the objective broken, with 2 if an
    argument makes no sense, with 3 if there are no books to read.

    Examples:

    - `spillway report /checkpoints/rides/spillway --out rides.html`

    - `spillway report /checkpoints/rides/spillway --p99 "5 s" --check --json`
    """
    writable(out, "--out")
    bound = objective_of(average, p99, each)
    books = of_query(opened(state), query)

    from spillway.report.lines import shown
    from spillway.report.run_page import Run, verdict_of
    from spillway.report.run_page import report as page_of

    run = Run.of(books, bound)
    out.write_text(page_of(run, "spillway report"), encoding="utf-8")
    text, how = verdict_of(run)
    if as_json:
        typer.echo(json.dumps(_content(run, out), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        typer.secho(shown(text), fg={"held": "green", "missed": "red"}.get(how, "yellow"))
        for note in books.notes:
            typer.secho(f"note: {shown(note)}", err=True)
        typer.echo(f"Report: {out}")
    raise typer.Exit(1 if check and how != "held" else 0)


def _content(run: Run, out: Path) -> dict[str, Any]:
    from spillway.report.lines import shown
    from spillway.report.run_page import verdict_of

    facts = run.facts
    numbers = {k: v for k, v in asdict(facts).items() if k not in ("held", "count")}
    held = facts.held
    return {
        "guard": shown(run.books.name),
        "objective": str(run.objective) if run.objective else None,
        "verdict": verdict_of(run)[1],
        "sentence": shown(verdict_of(run)[0]),
        "batches_judged": len(held.judged) if held else 0,
        "batches_late": len(held.late) if held else 0,
        "rows_late": held.rows_late if held else 0,
        **numbers,
        "rows_shed": facts.rows_shed,
        "count": {**asdict(facts.count), "off": facts.count.off} if facts.count else None,
        "notes": [shown(note) for note in run.books.notes],
        "report": str(out),
    }
