"""`spillway simulate`: what would have happened with another objective, policy or capacity."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spillway.commands.books import Query, failed, of_query, opened, writable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from spillway.objective import Latency
    from spillway.what_if.ask import Question, Wishes
    from spillway.what_if.outcome import Outcome

_RATE_HELP = (
    "Instead of STATE_DIR: a rate, such as 3000, steps:0=1000,60=9000,120=1000 or "
    "file:counts.csv (one line a second)."
)


def simulate(
    state: Annotated[
        Path | None,
        typer.Argument(
            metavar="[STATE_DIR]",
            help="The recorded run: a guard's state folder, or the checkpoint around it.",
            exists=True,
            file_okay=False,
            show_default=False,
        ),
    ] = None,
    average: Annotated[
        list[str] | None, typer.Option(help='Try this mean latency, such as "2 s". Repeat.')
    ] = None,
    p99: Annotated[list[str] | None, typer.Option(help="Try this 99th percentile. Repeat.")] = None,
    each: Annotated[
        list[str] | None, typer.Option(help="Try this latency of every row. Repeat.")
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(help="Try uniform, semantic, none or fixed:RATE. Repeat."),
    ] = None,
    capacity: Annotated[
        list[float] | None,
        typer.Option(help="Try rows that take 1/so much of their time: 2 is twice. Repeat."),
    ] = None,
    rate: Annotated[str | None, typer.Option(help=_RATE_HELP)] = None,
    duration: Annotated[str, typer.Option(help="With --rate: how long rows come.")] = "10 min",
    fixed: Annotated[
        str, typer.Option(help="With --rate: what every batch takes, whatever its rows.")
    ] = "500 ms",
    row: Annotated[str, typer.Option(help="With --rate: what a kept row adds.")] = "100 us",
    query: Query = None,
    batches: Annotated[
        str | None, typer.Option(help="Only these recorded batches: 120-180.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(help="Only batches since then; see spillway ledger.")
    ] = None,
    seeds: Annotated[int, typer.Option(help="Runs of each guard.", min=1, max=100)] = 5,
    html: Annotated[
        Path | None, typer.Option(help="Also write a page with pictures.", dir_okay=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answers as JSON.")] = False,
) -> None:
    """Say what would have happened with another objective, policy or capacity, side by side.

    Takes a recorded run (what came when, what batches took, how the pace went) or a rate, and runs
    the shipped loop through it on virtual time: seconds, not hours, and no Spark. For a recorded
    run the guard that really ran is simulated first: how far that is off the books says how far
    the others can be trusted. All objectives are combined with all policies and capacities.

    Ends with 0 if it was answered, with 2 if an argument makes no sense, with 3 if there are no
    books, or too few batches in them, to learn from.

    Examples:

    - `spillway simulate /checkpoints/rides/spillway --average "1 s" --average "5 s"`

    - `spillway simulate /checkpoints/rides/spillway --capacity 2 --policy none --html if.html`

    - `spillway simulate --rate steps:0=1000,60=9000,120=1000 --average "2 s" --row "300 us"`
    """
    writable(html, "--html")
    if (state is None) == (rate is None):
        raise typer.BadParameter("give either STATE_DIR or --rate")
    wishes = _wishes(average, p99, each, policy, capacity)
    try:
        question = (
            _of_rate(rate, duration, fixed, row, wishes)
            if rate is not None
            else _of_books(state, (query, batches, since), wishes)
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    outcomes = _answered(question, seeds)
    _tell(question, outcomes, html=html, as_json=as_json)


def _wishes(
    average: list[str] | None,
    p99: list[str] | None,
    each: list[str] | None,
    policy: list[str] | None,
    capacity: list[float] | None,
) -> Wishes:
    from spillway.objective import Latency
    from spillway.what_if.ask import Wishes

    try:
        objectives: list[Latency] = [
            *(Latency(average=text) for text in average or ()),
            *(Latency(p99=text) for text in p99 or ()),
            *(Latency(each=text) for text in each or ()),
        ]
    except ValueError as error:
        raise typer.BadParameter(f"--average, --p99, --each: {error}") from error
    return Wishes(objectives=objectives, policies=policy or (), capacities=capacity or ())


def _of_rate(rate: str, duration: str, fixed: str, row: str, wishes: Wishes) -> Question:
    from spillway.what_if.ask import of_rate

    return of_rate(rate, duration, fixed=fixed, row=row, wishes=wishes)


def _of_books(
    state: Path | None, which: tuple[str | None, str | None, str | None], wishes: Wishes
) -> Question:
    from dataclasses import replace

    from spillway.report.lines import chosen
    from spillway.state.past import batch_ids
    from spillway.what_if.ask import of_books
    from spillway.what_if.recording import TooShort

    assert state is not None
    query, batches, since = which
    books = of_query(opened(state), query)
    wanted = batch_ids(batches) if batches else None
    try:
        picked = chosen(books.entries, batches=wanted, since=since)
        return of_books(replace(books, entries=picked), wishes)
    except TooShort as error:
        failed(str(error))


def _answered(question: Question, seeds: int) -> list[Outcome]:
    from rich.console import Console
    from rich.progress import track

    from spillway.what_if.outcome import answer

    console = Console(stderr=True)
    asks = track(question.asks, "simulating", console=console, transient=True)
    answers = [answer(question.conditions, ask, seeds=seeds) for ask in asks]
    return [*([question.truth] if question.truth else []), *answers]


def _tell(
    question: Question, outcomes: Sequence[Outcome], *, html: Path | None, as_json: bool
) -> None:
    from rich.console import Console

    from spillway.report.lines import shown
    from spillway.what_if import page

    for note in question.notes:
        typer.secho(f"note: {shown(note)}", err=True)
    if html is not None:
        html.write_text(page.whole(question, outcomes), encoding="utf-8")
    if as_json:
        content = page.as_json(question, outcomes)
        typer.echo(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False))
        return
    _print(outcomes, Console())
    if told := page.sentence(outcomes):
        typer.echo(told)
    if html is not None:
        typer.echo(f"Page: {html}")


def _print(outcomes: Sequence[Outcome], console: Console) -> None:
    from rich.table import Table
    from rich.text import Text

    from spillway.what_if import page

    table = Table(header_style="bold")
    for place, name in enumerate(page.HEAD):
        table.add_column(name, justify="left" if place == 0 else "right")
    for line in page.lines(outcomes):
        table.add_row(*map(Text, line))
    console.print(table)
