"""The command line. The commands themselves are in `commands/`, one module each."""

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as distribution_version
from typing import Annotated

import typer

from spillway.commands import demo, doctor, ledger, replay, report, simulate, study, watch

# Commands import what they need when they run: --help must not wait for pyspark or matplotlib.
app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
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
    """Overload control for Spark Structured Streaming.

    Exit codes of all commands: **0** done, and the answer is yes; **1** done, and the answer is no
    (an objective broken, a claim that does not hold, rows missing); **2** an argument makes no
    sense; **3** it could not be done (it says why); **130** interrupted.
    """


app.command()(demo.demo)
app.command()(study.study)
app.command()(report.report)
app.command()(ledger.ledger)
app.command()(simulate.simulate)
app.command()(replay.replay)
app.command()(doctor.doctor)
watch.register(app)
