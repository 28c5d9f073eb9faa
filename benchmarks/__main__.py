"""`python -m benchmarks`: measures, prints the tables that the docs quote, fails below a bound."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from benchmarks import report
from benchmarks.measure import Figure

if TYPE_CHECKING:
    from benchmarks.stage import Stage

NAMES = (
    "per_batch",
    "overhead",
    "telemetry",
    "shedding",
    "estimators",
    "sketch",
    "admission",
    "operator",
    "balance",
    "concept",
    "degrade",
    "fair",
    "replay",
    "kafka",
    "what_if",
)
DOCS = Path(__file__).parents[1] / "docs"
PAGES = {"replay": DOCS / "replay.md", "kafka": DOCS / "kafka.md"}  # the others: benchmarks.md


def main(
    names: Annotated[
        list[str] | None,
        typer.Argument(help=f"Which benchmarks: {', '.join(NAMES)}. All if none is named."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Less data, 3 repetitions: a smoke test, not a result.")
    ] = False,
    docs: Annotated[
        bool, typer.Option("--docs", help="Write the tables and pictures of the docs.")
    ] = False,
) -> None:
    """Measure Spillway against named rivals in the same run, on two local cores.

    per_batch: fixed cost per micro-batch, in the streaming plan and inside foreachBatch.

    overhead: a gate that sheds nothing against no gate, on a stream that parses and aggregates.

    telemetry: a guarded query with notes, hooks and a live page against one without.

    shedding: the gate against the same decision by mapInArrow and by a pandas UDF.

    estimators: weighted sums with intervals against Spark's own.

    sketch: cost sketches: rows per second, growth with keys, merging, error.

    admission: load-aware shedding row by row against the same in Python.

    operator: a guarded Python operator against the same function in plain mapInArrow.

    balance: cost-aware placement: its own cost, and batch times against Spark's repartition.

    concept: the concept-driven gate by number of groups, against Uniform and sampleBy.

    degrade: computational shedding: what a selection costs, the frontier by number of subtasks.

    fair: algorithm 1 over many batches of many queries, its growth, against a naive version.

    replay: the shed rows of past batches, found again, against a plain scan of the same range.

    kafka: a tenfold burst on a real broker: guarded, unguarded, limited by maxOffsetsPerTrigger.

    what_if: real streams, and their books simulated again: rows shed and latency, how far off.

    Every figure is a median over interleaved repetitions, compared pair by pair, with quartiles.
    The exit code is 1 if a bound is missed; a missed goal only shows.
    """
    chosen = _known(names or list(NAMES))
    # Wide enough for whole lines where the output is piped into a file.
    console = Console(width=None if Console().is_terminal else 160)
    figures = _measured(chosen, quick, docs, console)
    console.print(report.terminal(figures))
    console.print(report.markdown(figures), soft_wrap=True, markup=False, highlight=False)
    if docs:
        for name in chosen:
            page = PAGES.get(name, DOCS / "benchmarks.md")
            report.quote(page, [figure for figure in figures if figure.benchmark == name])
    missed = [figure for figure in figures if figure.missed]
    for figure in missed:
        assert figure.bound is not None
        console.print(
            f"bound missed: {figure.what}: {figure.value:.2f}, {figure.bound.text(figure.unit)}"
        )
    raise typer.Exit(1 if missed else 0)


def _known(names: list[str]) -> list[str]:
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        raise typer.BadParameter(f"name must be one of {', '.join(NAMES)}, got {unknown[0]!r}")
    return names


def _measured(names: list[str], quick: bool, docs: bool, console: Console) -> list[Figure]:
    with (
        tempfile.TemporaryDirectory(prefix="spillway-bench-", ignore_cleanup_errors=True) as folder,
        Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            console=console,
            refresh_per_second=2,  # the terminal must not compete with what is measured
        ) as progress,
    ):
        task = progress.add_task("starting Spark", total=None)

        def show(name: str) -> Callable[[str], None]:
            return lambda what: progress.update(task, description=f"{name}: {what}")

        stage = _stage(Path(folder), quick, docs)
        return [figure for name in names for figure in _run(name, stage, show(name))]


def _stage(folder: Path, quick: bool, docs: bool) -> Stage:
    from benchmarks.broker import connector_jars
    from benchmarks.stage import Stage
    from spillway.spark.session import local_session

    jars = connector_jars()
    config = {"spark.jars": jars} if jars else {}
    spark = local_session("spillway-benchmarks", cores=2, config=config)
    spark.sparkContext.setLogLevel("FATAL")  # stopping a query in mid-batch is no error here
    return Stage(spark=spark, folder=folder, quick=quick, docs=docs, tick=lambda what: None)


def _run(name: str, stage: Stage, tick: Callable[[str], None]) -> list[Figure]:
    figures: list[Figure] = import_module(f"benchmarks.{name}").run(replace(stage, tick=tick))
    return figures


if __name__ == "__main__":
    typer.run(main)
