"""`spillway demo`: one burst, with and without a guard."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from spillway.commands.books import failed, writable


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
    state: Annotated[
        Path | None,
        typer.Option(
            help="Keep the guarded run's state folder here, for report, ledger and simulate.",
            file_okay=False,
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the numbers as JSON; all else to error output.")
    ] = False,
) -> None:
    """Play one burst through an unprotected and a guarded query, side by side.

    Takes about two minutes on two cores. Prints a table and writes one self-contained HTML report.

    Ends with 0 if the guarded query held its objective from the second batch of the burst on, with
    1 if not, with 2 if an option makes no sense, with 3 if it could not be played to its end, with
    130 if it was interrupted. (A 95 % interval misses the truth in one of twenty runs: the report
    says so, the exit code does not.)

    Examples:

    - `spillway demo --quick`

    - `spillway demo --average "3 s" --state demo-state`, then `spillway simulate demo-state`
    """
    from spillway.demo.scenario import Scenario
    from spillway.objective import Latency

    writable(out, "--out")
    writable(png, "--png")
    if state is not None and state.exists():
        raise typer.BadParameter(f"--state must name a folder that is not there yet, got {state}")
    try:
        objective = Latency(average=average)
    except ValueError as error:
        raise typer.BadParameter(f"--average: {error}") from error
    scenario = Scenario(objective=objective, seed=seed)
    if quick:
        scenario = replace(scenario, calm_s=8.0, burst_s=8.0, after_s=8.0)

    # pyspark and matplotlib load here, after the checks
    from spillway.demo.run import DemoFailed
    from spillway.demo.show import show
    from spillway.java import JavaNotFound

    try:
        told = show(scenario, out=out, png=png, state=state, console=Console(stderr=as_json))
    except JavaNotFound as error:
        failed(str(error))
    except DemoFailed as error:
        failed(f"{error}; Spark's own log: {out.with_suffix('.log')}")
    if as_json:
        typer.echo(json.dumps(told.content, indent=2))
    raise typer.Exit(0 if told.held else 1)
