"""`spillway ledger`: what was kept and shed, batch by batch, and what it adds up to."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from spillway.commands.books import Query, StateDir, of_query, opened

if TYPE_CHECKING:
    from rich.table import Table

    from spillway.report.lines import BatchLine, Sums
    from spillway.state.ledger import Entry

_SHOWN = 40


class Format(StrEnum):
    """How the books are printed."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


def ledger(
    state: StateDir,
    batches: Annotated[
        str | None, typer.Option(help="Which batches: 120-180, or 7,9,12-15.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            help='Only batches that began since then: "2026-03-01T12:00" (UTC), or "10 min" before '
            "the last."
        ),
    ] = None,
    query: Query = None,
    form: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.TABLE,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    sums: Annotated[bool, typer.Option("--sums", help="Only the sums, no batches.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="End with 1 if lines are damaged or batches missing.")
    ] = False,
) -> None:
    """List what was kept and shed per batch, and add it up, by reason and stratum.

    A table shows the last 40 of the chosen batches, CSV and JSON have all of them. Sums are over
    all chosen batches. What must be known beside the numbers goes to the error output.

    Ends with 0, with 1 if --check finds damaged lines or batches missing, with 2 if an argument
    makes no sense, with 3 if there are no books to read.

    Examples:

    - `spillway ledger /checkpoints/rides/spillway --batches 120-180`

    - `spillway ledger /checkpoints/rides/spillway --since "1 hour" --format csv > rides.csv`
    """
    from spillway.report import lines
    from spillway.state.past import batch_ids

    books = of_query(opened(state), query)
    try:
        wanted = batch_ids(batches) if batches else None
        entries = lines.chosen(books.entries, batches=wanted, since=since)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    told = [] if sums else [lines.BatchLine.of(entry) for entry in entries]
    added = lines.Sums.of(entries)
    missing = _missing(books.entries)
    notes = [*books.notes, *([f"batches not in the books: {missing}"] if missing else [])]
    for note in notes:
        typer.secho(f"note: {lines.shown(note)}", err=True)
    if as_json or form is Format.JSON:
        typer.echo(lines.as_json(books, told, added))
    elif form is Format.CSV:
        typer.echo(lines.as_csv(told), nl=False)
    else:
        _print(told, added)
    raise typer.Exit(1 if check and (books.damaged_lines or missing) else 0)


def _missing(entries: tuple[Entry, ...]) -> str:
    """Name the batches between the first and the last that nobody wrote down, at most ten."""
    known = {entry.batch_id for entry in entries}
    gaps = [str(batch) for batch in range(min(known), max(known)) if batch not in known]
    return ", ".join(gaps[:10]) + (f" and {len(gaps) - 10} more" if len(gaps) > 10 else "")


def _print(told: list[BatchLine], added: Sums) -> None:
    from rich.console import Console

    console = Console()
    if told:
        console.print(_table(told))
    console.print(_sentence(added), highlight=False)
    if added.shed:
        console.print(_sums(added))


def _table(told: list[BatchLine]) -> Table:
    from rich.table import Table
    from rich.text import Text

    from spillway.report import numbers

    left = len(told) - _SHOWN
    title = f"the last {_SHOWN} of {len(told)} batches" if left > 0 else None
    table = Table(title=title, title_justify="left", header_style="bold")
    for name in ("batch", "began", "came", "kept", "shed", "share", "took", "latency"):
        table.add_column(name, justify="right")
    table.add_column("why")
    for line in told[-_SHOWN:]:
        table.add_row(
            str(line.batch),
            line.began[:19].replace("T", " "),
            numbers.count(line.rows_in),
            numbers.count(line.rows_kept),
            numbers.count(line.rows_shed),
            numbers.percent(line.share_kept),
            numbers.seconds(line.duration_s),
            numbers.seconds(line.latency_s_mean),
            Text(line.reason),
        )
    return table


def _sentence(added: Sums) -> str:
    from spillway.report import numbers

    share = added.rows_kept / added.rows_in if added.rows_in else 1.0
    return (
        f"{added.batches:,} batches: {added.rows_in:,} rows came, {added.rows_kept:,} kept "
        f"({numbers.percent(share)}), {added.rows_shed:,} shed"
    )


def _sums(added: Sums) -> Table:
    from rich.table import Table
    from rich.text import Text

    from spillway.report import numbers

    table = Table(header_style="bold")
    table.add_column("shed", justify="right")
    table.add_column("of")
    table.add_column("why")
    for line in added.shed:
        table.add_row(numbers.count(line["rows"]), Text(line["stratum"]), Text(line["reason"]))
    return table
