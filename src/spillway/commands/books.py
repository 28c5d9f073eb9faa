"""What the commands that read books share: the folder, the objective, and how they fail."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from spillway.objective import Latency
    from spillway.state.books import Books

StateDir = Annotated[
    Path,
    typer.Argument(
        metavar="STATE_DIR",
        help="The guard's state folder, or the checkpoint around it.",
        exists=True,
        file_okay=False,
        show_default=False,
    ),
]
Query = Annotated[
    str | None,
    typer.Option(help="Beginning of a query's id.", show_default="the query of the last batch"),
]


def opened(state: Path) -> Books:
    """Open the books, or end with 3 and say what is missing."""
    from spillway.state.books import NoBooks, open_books

    try:
        return open_books(state.absolute())
    except NoBooks as error:
        failed(str(error))


def of_query(books: Books, query: str | None) -> Books:
    """Keep to one query, or end with 3 if there is none of that id."""
    from spillway.state.books import NoBooks

    try:
        return books.of_query(query)
    except NoBooks as error:
        failed(str(error))


def failed(why: str) -> NoReturn:
    """End with 3: it could not be done."""
    from spillway.report.lines import shown

    typer.secho(shown(why), fg="red", err=True)
    raise typer.Exit(3)


def objective_of(
    average: str | None = None, p99: str | None = None, each: str | None = None
) -> Latency | None:
    """Read the objective from the options, None if there is none."""
    from spillway.objective import Latency

    if average is None and p99 is None and each is None:
        return None
    try:
        return Latency(average=average, p99=p99, each=each)
    except ValueError as error:
        raise typer.BadParameter(f"--average, --p99, --each: {error}") from error


def writable(path: Path | None, option: str) -> None:
    """Refuse a file in a folder that is not there before anything is computed."""
    if path is not None and not path.absolute().parent.is_dir():
        raise typer.BadParameter(f"{option}: there is no folder {path.absolute().parent}")
