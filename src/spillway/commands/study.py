"""`spillway study`: a paper's experiments again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def study(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="The paper: las, posg, cod, dissp or cs.", show_default=False
        ),
    ],
    figures: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FIGURE", help="Only these figures; all if none.", show_default=False
        ),
    ] = None,
    on: Annotated[
        str,
        typer.Option(help="Where: sim (virtual time, figures 4 on) or spark (the prototype's)."),
    ] = "sim",
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer runs and points: a first look.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of all runs.", min=0)] = 1,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the report.",
            file_okay=False,
            show_default="spillway-NAME, spillway-NAME-on-spark",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            help="Processes to use.",
            min=1,
            show_default="one per core; one if quick or on Spark",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the claims as JSON; all else to the error output.")
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Compute everything again, whatever was computed.")
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Folder with real data: taxi_green_tlc/, google_task_events/, packets/ (cod), "
            "tweets_stocknet/ (cs); read, never copied. Made rides and tweets alone if none.",
            exists=True,
            file_okay=False,
        ),
    ] = None,
) -> None:
    """Run a paper's experiments again and lay our results beside the paper's.

    Every claim of the paper becomes a line: what it states, its number, ours, and whether it
    holds. Writes report.html (self-contained), claims.json, claims.md and figures/ (SVG, PNG).

    What has been computed is kept in .spillway-study/ of the current folder: a study that was
    interrupted goes on where it stopped. On virtual time the same seed gives the same numbers,
    whatever the number of workers; on Spark it gives the same streams, and a real clock measures.

    Ends with 0 if every claim holds, with 1 if some do not (it says which), with 2 if an argument
    makes no sense, with 3 if a computation failed, with 130 if it was interrupted.

    Examples:

    - `spillway study las --quick`

    - `spillway study cod --data ../data --json > claims.json`
    """
    from spillway.studies.run import ON_SPARK, STUDIES, WITH_DATA, Order, StudyError

    if on not in ("sim", "spark"):
        raise typer.BadParameter(f"--on must be sim or spark, got {on!r}")
    known = ON_SPARK if on == "spark" else STUDIES
    if name not in known:
        raise typer.BadParameter(f"the study must be one of {', '.join(known)}, got {name!r}")
    if data is not None and name not in WITH_DATA:
        raise typer.BadParameter(f"--data is for {', '.join(WITH_DATA)}, got it with {name!r}")
    if on == "spark":
        workers = _one_on_spark(workers)
    order = Order(
        module=known[name],
        figures=tuple(figures or ()),
        seed=seed,
        quick=quick,
        data=str(data.absolute()) if data else None,
    )
    try:
        _ = order.jobs
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error

    from spillway.studies.show import show  # matplotlib loads here, after the checks

    console, folder = Console(stderr=as_json), out or Path(f"spillway-{order.study.name}")
    if name in WITH_DATA and data is None:
        console.print("No --data FOLDER: what needs real data is left out.")
    try:
        held = show(order, out=folder, workers=workers, fresh=fresh, console=console)
    except StudyError as error:
        console.print(f"The study failed: {error}", style="red", markup=False)
        raise typer.Exit(3) from error
    except KeyboardInterrupt as error:
        console.print("Interrupted. The same command goes on from here.")
        raise typer.Exit(130) from error
    if as_json:
        typer.echo((folder / "claims.json").read_text(encoding="utf-8"), nl=False)
    raise typer.Exit(0 if held else 1)


def _one_on_spark(workers: int | None) -> int:
    """One worker: runs that share the cores would measure each other. Java must be there."""
    from spillway.java import JavaNotFound, ensure_java

    if workers not in (None, 1):
        raise typer.BadParameter(f"--workers must be 1 on Spark, got {workers}")
    try:
        ensure_java()
    except JavaNotFound as error:
        typer.secho(str(error), fg="red", err=True)
        raise typer.Exit(3) from error
    return 1
