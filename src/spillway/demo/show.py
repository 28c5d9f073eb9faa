"""Plays the demo in the terminal: live progress, then the tables and the report."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table as RichTable

from spillway.demo import plots, report
from spillway.demo.outcome import content, judge, summarise
from spillway.demo.run import Point, Run, play
from spillway.demo.scenario import CORES, Scenario
from spillway.guard import Guard
from spillway.report.page import Table
from spillway.spark.session import local_session


@dataclass(frozen=True, kw_only=True)
class Told:
    """Whether the objective held, and all numbers for machines."""

    held: bool
    content: dict[str, Any]


def show(
    scenario: Scenario,
    *,
    out: Path,
    png: Path | None = None,
    state: Path | None = None,
    console: Console,
) -> Told:
    """Play the scenario twice, print tables, write the report; keep the books if asked to."""
    console.print(report.story(scenario))
    with console.status("starting Spark"):
        spark = local_session("spillway demo", cores=CORES, log=out.with_suffix(".log"))
        spark.conf.set("spark.sql.shuffle.partitions", "1")
    with tempfile.TemporaryDirectory(prefix="spillway-demo-") as folder, _bars(console) as bars:
        stage = _Stage(spark=spark, folder=Path(folder), bars=bars)
        stage.warm_up(scenario)
        runs = {name: stage.play(name, scenario) for name in ("unprotected", "guarded")}
        if state is not None:
            shutil.copytree(Path(folder) / "guarded" / "spillway", state)
    return _tell(runs, scenario, out=out, png=png, console=console)


@dataclass(frozen=True, kw_only=True)
class _Stage:
    """Plays runs, each with a progress bar of its own."""

    spark: SparkSession
    folder: Path
    bars: Progress

    def warm_up(self, scenario: Scenario) -> None:
        """Let Spark compile and start its workers before anything is measured."""
        short = replace(scenario, calm_s=4.0, burst_s=2.0, after_s=2.0)
        self.play("warm up guarded", replace(short, burst_rate=2 * short.calm_rate))

    def play(self, name: str, scenario: Scenario) -> Run:
        """Play one run; it has a guard if its name says so."""
        folder = self.folder / name.replace(" ", "_")
        guard = None
        if name.endswith("guarded"):
            guard = Guard(name, objective=scenario.objective, state=folder / "spillway")
        bar = self.bars.add_task(name, total=scenario.schedule.rows_total, now="")
        return play(
            self.spark,
            scenario,
            folder,
            guard=guard,
            on_batch=lambda point: self._advance(bar, point),
        )

    def _advance(self, bar: TaskID, point: Point) -> None:
        share = 100 * point.rows_kept / point.rows_in if point.rows_in else 100
        now = (
            f"{point.end_s:5.1f} s  latency {point.latency_s_mean or 0:5.1f} s  "
            f"backlog {point.backlog_rows:>7,}  kept {share:3.0f} %"
        )
        self.bars.update(bar, advance=point.rows_in, now=now)


def _tell(
    runs: dict[str, Run], scenario: Scenario, *, out: Path, png: Path | None, console: Console
) -> Told:
    verdict = judge(runs["guarded"], scenario)
    summaries = {name: summarise(run, scenario) for name, run in runs.items()}
    tables = {
        "Both runs": report.summary_table(summaries),
        "What the guarded run says about all rows": report.estimate_table(verdict),
    }
    for title, table in tables.items():
        console.print(_rich(title, table))
    figure = plots.draw(runs, scenario)
    out.write_text(report.page(scenario, verdict, tables, plots.svg(figure)), encoding="utf-8")
    if png is not None:
        plots.save_png(figure, png)
    console.print(report.sentence(verdict, scenario), style="green" if verdict.ok else "red")
    console.print(f"Report: {out}   Spark's own log: {out.with_suffix('.log')}")
    return Told(held=verdict.held, content=content(summaries, verdict, scenario))


def _bars(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description:20}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[now]}"),
        console=console,
    )


def _rich(title: str, table: Table) -> RichTable:
    head, *rows = table
    rich = RichTable(title=title, title_justify="left", header_style="bold")
    for index, name in enumerate(head):
        rich.add_column(name, justify="left" if index == 0 else "right")
    for row in rows:
        rich.add_row(*row)
    return rich
