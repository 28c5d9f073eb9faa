"""`python -m apps.tweet_enrichment`: enriches a stream of tweets under a latency objective."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console

if TYPE_CHECKING:
    from apps.tweet_enrichment.run import Settings

app = typer.Typer(add_completion=False, context_settings={"help_option_names": ["-h", "--help"]})


@app.command()
def main(
    rate: Annotated[
        str, typer.Option(help='Tweets per second, or a schedule: "steps:0=80,10=400,20=80".')
    ] = "200",
    seconds: Annotated[float, typer.Option(help="How long tweets come.", min=1.0)] = 30.0,
    latency: Annotated[
        str, typer.Option(help='Mean latency to hold, such as "2 s" or "1500 ms".')
    ] = "2 s",
    aim: Annotated[
        Literal["faithful", "fewest", "unbiased"],
        typer.Option(help="What goes: faithful (by chance), fewest (the costliest), unbiased."),
    ] = "fewest",
    place: Annotated[
        Literal["gate", "operator", "both"],
        typer.Option(help="Where rows are given up: gate, operator (by the clock) or both."),
    ] = "gate",
    work: Annotated[
        Literal["busy", "waiting"], typer.Option(help="busy (keeps a core busy) or waiting.")
    ] = "busy",
    data: Annotated[
        Path | None,
        typer.Option(
            help="Folder with tweets_congress/ or tweets_stocknet/ (gzip JSON Lines); read, never "
            "copied. Made tweets if none.",
            exists=True,
            file_okay=False,
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the enriched tweets (Parquet); none: nowhere.")
    ] = None,
    instances: Annotated[int, typer.Option(help="Operators side by side.", min=1, max=64)] = 1,
    spread: Annotated[
        Literal["work", "tweets"],
        typer.Option(help="What every operator gets as much of: work (by cost) or tweets."),
    ] = "work",
    seed: Annotated[int, typer.Option(help="Seed of made tweets.", min=0)] = 1,
) -> None:
    """Enrich a stream of tweets with what is known of the entities that they mention.

    A medium among them takes 25 ms of work, a politician 5 ms, anyone else 1 ms: 9.7 ms for a tweet
    on average, so one operator can do about 100 a second. When more come, the guard holds the mean
    latency from arrival to the end of the batch and gives tweets up, by what they cost. Several
    operators side by side get equal work, by what tweets cost.

    Prints a line per batch and a summary. Ends with 0 if the objective held over the second half of
    the batches, with 1 if not, with 2 if an option makes no sense, with 130 if it was interrupted.

    Examples:

    python -m apps.tweet_enrichment --rate 200 --latency "2 s" --aim fewest --seconds 30

    python -m apps.tweet_enrichment --rate 450 --work waiting --instances 5
    """
    import spillway as sw
    from apps.tweet_enrichment.run import TWEETS, Settings
    from apps.tweet_enrichment.tweets import load
    from spillway.workload.rate import parse_rate

    folder = str(data.absolute()) if data else None
    try:
        objective = sw.Latency(average=latency)
        parse_rate(rate, seconds)
        load(folder, TWEETS, seed)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    settings = Settings(
        rate=rate,
        seconds=seconds,
        latency=objective,
        aim=aim,
        place=place,
        work=work,
        data=folder,
        seed=seed,
        instances=instances,
        spread=spread,
    )
    console = Console()
    try:
        held = _show(settings, out, console)
    except KeyboardInterrupt as error:
        console.print("Interrupted.")
        raise typer.Exit(130) from error
    raise typer.Exit(0 if held else 1)


def _show(settings: Settings, out: Path | None, console: Console) -> bool:
    """Run the job, a line per batch; say whether the objective held."""
    import spillway as sw
    from apps.tweet_enrichment.run import run, warm_up
    from apps.tweet_enrichment.show import line, summary

    with tempfile.TemporaryDirectory(prefix="tweets-", ignore_cleanup_errors=True) as folder:
        with console.status("starting Spark"):
            log = Path(folder) / "spark.log"
            cores = max(settings.instances, 2)
            spark = sw.local_session("tweet enrichment", cores=cores, log=log)
            warm_up(spark, settings, Path(folder) / "warm")
        lines = run(
            spark,
            settings,
            Path(folder) / "run",
            out=out,
            on_batch=lambda each: console.print(line(each), highlight=False),
        )
        spark.stop()
    words, held = summary(lines, settings)
    console.print(words, style="green" if held else "red")
    return held


if __name__ == "__main__":
    app()
