"""`python -m apps.tweet_search`: a live search of tweets that gives up work before tweets."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console

if TYPE_CHECKING:
    from apps.tweet_search.board import Report
    from apps.tweet_search.run import Settings
    from apps.tweet_search.show import View
    from spillway.studies.cs_search import Profiled

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Search a stream of tweets for a phrase and rank what is found, every second.",
)

Query = Annotated[str, typer.Option(help="A tweet that holds any of these words is found.")]
Seed = Annotated[int, typer.Option(help="Seed of made tweets.", min=0)]
Data = Annotated[
    Path | None,
    typer.Option(
        help="Folder with tweets_stocknet/*.jsonl.gz (raw tweets); read, never copied. Made tweets "
        "if none.",
        exists=True,
        file_okay=False,
    ),
]


@app.command("profile")
def profile_command(
    query: Query = "Just in Time",
    data: Data = None,
    rows: Annotated[int, typer.Option(help="Tweets of the sample.", min=2)] = 10_000,
    seed: Seed = 1,
    out: Annotated[
        Path | None,
        typer.Option(help="File for a picture of the frontier (.png, .svg or .pdf)."),
    ] = None,
) -> None:
    """Measure what every subtask takes and what the ranking loses without it.

    Runs the search over a sample with all subtasks, without each optional one and without any; all
    pairs too, if the losses do not add up. Prints the profile, and the frontier: the selections
    that no other beats in time and accuracy. No Spark is needed.

    Example: python -m apps.tweet_search profile --rows 10000 --out frontier.png
    """
    console = Console()
    _check_picture(out)
    try:
        with console.status("measuring"):
            _profile(query, _folder(data), rows, seed, out, console)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    except KeyboardInterrupt as error:
        console.print("Interrupted.")
        raise typer.Exit(130) from error


@app.command("run")
def run_command(
    rate: Annotated[
        str,
        typer.Option(
            help='Tweets per second, or a schedule: "steps:0=2000,10=20000,20=2000", '
            'or counts of a real stream: "file:COUNTS.csv.gz,scale=100".'
        ),
    ] = "steps:0=2000,10=8000,25=2000",
    seconds: Annotated[float, typer.Option(help="How long tweets come.", min=1.0)] = 35.0,
    query: Query = "Just in Time",
    shed: Annotated[
        Literal["frontier", "uniform", "semantic", "none"],
        typer.Option(
            help="What goes: frontier (optional work, and tweets only beyond it), uniform (tweets "
            "by chance), semantic (those with the fewest words), none (nothing)."
        ),
    ] = "frontier",
    latency: Annotated[
        str, typer.Option(help='Mean latency to hold, such as "2 s" or "1500 ms".')
    ] = "2 s",
    effort: Annotated[
        int,
        typer.Option(
            help="How often every subtask repeats its work: a lower rate is then too much.", min=1
        ),
    ] = 10,
    complete: Annotated[
        float, typer.Option(help="Share of tweets that always runs complete: measures the others.")
    ] = 0.01,
    keep: Annotated[
        float | None,
        typer.Option(help="Seconds that a tweet stays in the window; for ever if none."),
    ] = None,
    missing: Annotated[
        Literal["scaled", "mean", "zero"],
        typer.Option(
            help="What a metric counts whose subtask was off: the mean of the tweets that have it, "
            "that and the score scaled by the tweets that have everything, or zero (the thesis)."
        ),
    ] = "scaled",
    top: Annotated[int, typer.Option(help="How many tweets to show.", min=1)] = 15,
    data: Data = None,
    instances: Annotated[int, typer.Option(help="Operators side by side.", min=1)] = 1,
    seed: Seed = 1,
) -> None:
    """Search a stream of tweets on Spark, and show the live ranking.

    Tweets come at a rate, real ones from a folder or made ones, over and over. Every second the
    tweets found so far are ranked anew by nine metrics, each divided by its largest in the window.
    When tweets come faster than all subtasks can be done, the guard holds the mean latency from
    arrival to the end of the batch.

    Ends with 0 if the objective held over the second half of the batches, with 1 if not, with 2 if
    an option makes no sense, with 130 if it was interrupted.

    Example: python -m apps.tweet_search run --rate 8000 --seconds 30 --query "Just in Time"
    """
    import spillway as sw
    from apps.tweet_search.run import Settings
    from spillway.workload.rate import parse_rate
    from spillway.workload.search_files import find

    try:
        parse_rate(rate, seconds)
        if data is not None:
            find(data)
        settings = Settings(
            rate=rate,
            seconds=seconds,
            latency=sw.Latency(average=latency),
            query=query,
            shed=shed,
            effort=effort,
            complete=complete,
            keep_s=keep,
            missing=missing,
            data=_folder(data),
            seed=seed,
            instances=instances,
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    console = Console()
    try:
        held = _play(settings, top, console)
    except KeyboardInterrupt as error:
        console.print("Interrupted.")
        raise typer.Exit(130) from error
    raise typer.Exit(0 if held else 1)


def _folder(data: Path | None) -> str | None:
    return str(data.absolute()) if data else None


def _check_picture(out: Path | None) -> None:
    if out is None:
        return
    if out.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise typer.BadParameter(f"out must end in .png, .svg or .pdf, got {str(out)!r}")
    if not out.absolute().parent.is_dir():
        raise typer.BadParameter(f"out must be in a folder that exists, got {str(out)!r}")


def _profile(
    query: str, data: str | None, rows: int, seed: int, out: Path | None, console: Console
) -> None:
    from apps.tweet_search import tables
    from apps.tweet_search.picture import draw
    from spillway.degrade.execution_plan import execution_plan
    from spillway.degrade.frontier import frontier
    from spillway.studies.cs_search import search_subtasks

    subtasks = search_subtasks(query)
    profiled = _profiled(query, data, rows, seed)
    console.print(tables.profile_table(subtasks, profiled))
    if profiled.profile.together:
        console.print(tables.pairs_table(profiled))
    found = frontier(subtasks, profiled.profile)
    console.print(tables.frontier_table(found))
    if out is not None:
        draw(found, execution_plan(subtasks, profiled.profile), out)
        console.print(f"picture: {out}", highlight=False)


def _profiled(query: str, data: str | None, rows: int, seed: int) -> Profiled:
    from spillway.studies.cs_search import profile, search_subtasks
    from spillway.workload.search_files import load

    return profile(search_subtasks(query), load(data, rows, seed))


def _profiled_for(settings: Settings) -> Profiled | None:
    """Measure what the frontier goes by, if it is to decide."""
    if settings.shed != "frontier":
        return None
    return _profiled(settings.query, settings.data, 3_000, settings.seed)


def _play(settings: Settings, top: int, console: Console) -> bool:
    """Run the job under the live view; say whether the objective held."""
    import spillway as sw
    from apps.tweet_search.ideal import accuracy
    from apps.tweet_search.run import run, warm_up
    from apps.tweet_search.show import View, summary, top_lines

    with console.status("measuring the subtasks"):
        try:
            profiled = _profiled_for(settings)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error
    with tempfile.TemporaryDirectory(prefix="search-", ignore_cleanup_errors=True) as folder:
        with console.status("starting Spark"):
            cores = max(settings.instances, 2)
            spark = sw.local_session("tweet search", cores=cores, log=Path(folder) / "spark.log")
        try:
            with console.status("warming up"):
                warm_up(spark, settings, Path(folder) / "warm", profiled)
            last = _shown(
                View(settings=settings, top=top),
                console,
                lambda tell: run(
                    spark, settings, Path(folder) / "run", profiled=profiled, on_report=tell
                ),
            )
        finally:
            spark.stop()
    for each in top_lines(last, settings, top):
        console.print(each, soft_wrap=not console.is_terminal)
    with console.status("comparing with all work on all tweets"):
        words, held = summary(last, settings, accuracy(last.ranking, settings))
    console.print(words, style="green" if held else "red", highlight=False)
    return held


def _shown(
    view: View, console: Console, play: Callable[[Callable[[Report], None]], Report]
) -> Report:
    """Run under a live screen, or with a line a second where there is none."""
    from rich.live import Live

    from apps.tweet_search.show import line

    if not console.is_terminal:
        return play(
            lambda report: console.print(
                line(report, view.settings), highlight=False, markup=False, soft_wrap=True
            )
        )
    with Live(console=console, auto_refresh=False, screen=True) as live:
        return play(lambda report: live.update(view.screen(report), refresh=True))


if __name__ == "__main__":
    app()
