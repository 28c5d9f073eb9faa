"""`python -m apps.taxi_routes`: the routes of the highest fares, window by window."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console

if TYPE_CHECKING:
    from pyspark.sql import Row

    from apps.taxi_routes.run import Settings
    from apps.taxi_routes.show import Summary

app = typer.Typer(add_completion=False, context_settings={"help_option_names": ["-h", "--help"]})


@app.command()
def main(
    data: Annotated[
        Path | None,
        typer.Option(
            help="Folder with taxi_green_tlc/green_*.csv.gz (open data of NYC's TLC); read, never "
            "copied. Made rides if none.",
            exists=True,
            file_okay=False,
        ),
    ] = None,
    shed: Annotated[
        float, typer.Option(help="Share of a window's rides that is not used: 0 to below 1.")
    ] = 0.98,
    of: Annotated[
        Literal["mean", "median"], typer.Option(help="Order routes by their mean or median fare.")
    ] = "mean",
    top: Annotated[int, typer.Option(help="How many routes of a window to show.", min=1)] = 10,
    rides_min: Annotated[
        int, typer.Option(help="Only routes with at least so many rides in the window.", min=1)
    ] = 1,
    size: Annotated[int, typer.Option(help="Length of a window in minutes.", min=1)] = 30,
    slide: Annotated[
        int, typer.Option(help="Minutes from one window to the next; at most the length.", min=1)
    ] = 10,
    allocation: Annotated[
        Literal["proportional", "congress", "neyman", "cvopt"],
        typer.Option(help="How the rides that are used are shared out among the routes."),
    ] = "cvopt",
    first_hour: Annotated[
        int, typer.Option(help="The hour of the first day with which to begin.", min=0)
    ] = 8,
    hours: Annotated[int, typer.Option(help="How many hours of rides to play.", min=1)] = 2,
    rate: Annotated[int, typer.Option(help="How many rides arrive in a second.", min=1)] = 20_000,
    rides_per_hour: Annotated[int, typer.Option(help="Of made rides.", min=1)] = 60_000,
    seed: Annotated[int, typer.Option(help="Seed of made rides.", min=0)] = 1,
) -> None:
    """Find the routes of the highest fares in every window of a stream of taxi rides.

    The query of the paper on concept-driven shedding: mean fare by route over sliding windows of
    30 minutes every 10, ordered, the first ten. (Mostly they are routes of a single dear ride;
    `--rides-min` leaves such out.) Of every window only a sample is used: rare routes whole or
    nearly so, frequent ones thinned. Each fare comes with the interval that holds the true one in
    95 of 100 cases; "perhaps" marks a route that may not belong among the first.

    A route keeps at least two of its rides: where most routes are ridden once or twice, much more
    is used than was asked for, and the heading of a window says how much.

    Ends with 0 when all rides have been played, with 2 if an option makes no sense, with 130 if it
    was interrupted.

    Example: python -m apps.taxi_routes --shed 0.98 --rides-min 20 --hours 2
    """
    from apps.taxi_routes.rides import Choice, load
    from apps.taxi_routes.run import Settings
    from apps.taxi_routes.top import TopRoutes

    choice = Choice(
        data=str(data.absolute()) if data else None,
        first_hour=first_hour,
        hours=hours,
        rows_per_hour=rides_per_hour,
        seed=seed,
    )
    try:
        load(choice)
        settings = Settings(
            choice=choice,
            rate=rate,
            shed=shed,
            size_min=size,
            slide_min=slide,
            top=TopRoutes(routes=top, of=of, rides_min=rides_min),
            allocation=allocation,
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    console = Console()
    try:
        console.print(str(_play(settings, console)), style="green", highlight=False)
    except KeyboardInterrupt as error:
        console.print("Interrupted.")
        raise typer.Exit(130) from error


def _play(settings: Settings, console: Console) -> Summary:
    """Run the job and print every window."""
    import spillway as sw
    from apps.taxi_routes.rides import names
    from apps.taxi_routes.run import run
    from apps.taxi_routes.show import Summary, heading, line

    zones, summary = names(settings.choice.data), Summary()

    def tell(window: list[Row]) -> None:
        console.print(heading(window), style="bold", highlight=False)
        for row in window:
            console.print(line(row, zones), highlight=False, markup=False, soft_wrap=True)
        summary.add(window)

    with tempfile.TemporaryDirectory(prefix="taxi-", ignore_cleanup_errors=True) as folder:
        with console.status("starting Spark"):
            spark = sw.local_session("taxi routes", log=Path(folder) / "spark.log")
        try:
            run(spark, settings, Path(folder) / "run", on_window=tell)
        finally:
            spark.stop()
    return summary


if __name__ == "__main__":
    app()
