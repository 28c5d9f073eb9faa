"""`python -m faults`: kills, starves and corrupts guarded streams, and checks the books."""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from faults import books, report
from faults.control_loop import Tally, quiet, run_all
from faults.report import Outcome

_CHUNK = 500
_PROCESSES = 2

app = typer.Typer(add_completion=False)


@app.command()
def main(
    kills: Annotated[int, typer.Option(help="Driver kills, over all streams.", min=0)] = 52,
    runs: Annotated[int, typer.Option(help="Simulated runs.", min=0)] = 100_000,
    seed: Annotated[int, typer.Option(help="Seed of everything.", min=0)] = 1,
    cluster: Annotated[
        bool, typer.Option(help="Also on clusters, whose executors and workers are killed.")
    ] = True,
    docs: Annotated[
        bool, typer.Option("--docs", help="Write the tables into docs/faults.md.")
    ] = False,
    folder: Annotated[
        Path | None,
        typer.Option(help="Keep everything here, and go on with what is here; else temporary."),
    ] = None,
) -> None:
    """Break streams from a seed, restart them until they are done, and check the books.

    Ends with 0 if no row is unaccounted for, no decision flipped, no wrong plan was used and
    the numbers of faults were reached; else with 1, and says in which stream of which seed.
    """
    quiet()
    console = Console(width=None if Console().is_terminal else 120)
    outcome = Outcome(seed=seed)
    with (
        tempfile.TemporaryDirectory(prefix="spillway-faults-", ignore_cleanup_errors=True) as own,
        Progress(
            SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=console
        ) as progress,
    ):
        task = progress.add_task("simulated runs", total=None)

        def tick(what: str) -> None:
            progress.update(task, description=what)
            if not console.is_terminal:
                console.print(what, highlight=False)

        place = folder or Path(own)
        place.mkdir(parents=True, exist_ok=True)
        outcome.simulated = simulated(seed, runs, place / f"simulated-{seed}.json", tick)
        run_streams(outcome, place, kills, cluster, tick)
    console.print(report.markdown(outcome), soft_wrap=True, markup=False, highlight=False)
    for detail in outcome.found.details:
        console.print(f"WRONG: {detail}", markup=False)
    if docs:
        report.quote(outcome)
    raise typer.Exit(0 if outcome.reached else 1)


def simulated(seed: int, runs: int, diary: Path, tick: Callable[[str], None]) -> Tally:
    """Run the control path under so many seeds, on two cores; those in the diary count."""
    total = Tally.read(diary)
    seeds = range(seed * 1_000_000 + total.runs, seed * 1_000_000 + runs)
    chunks = [seeds[first : first + _CHUNK] for first in range(0, len(seeds), _CHUNK)]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(_PROCESSES, mp_context=context, initializer=quiet) as pool:
        for tally in pool.map(run_all, chunks):
            total.add(tally)
            total.write(diary)
            if total.runs % (_CHUNK * 20) == 0:
                tick(f"simulated runs: {total.runs:,} of {runs:,}")
    return total


def run_streams(
    outcome: Outcome, folder: Path, kills: int, cluster: bool, tick: Callable[[str], None]
) -> None:
    """Run the campaigns one after the other and add up what they show."""
    from faults.cluster import on_a_cluster, on_a_local_cluster
    from faults.supervisor import Campaign

    shares = [kills - kills // 2, kills // 2]
    campaigns = [
        Campaign(folder=folder / way, seed=outcome.seed, way=way, kills=share)
        for way, share in zip(("stream", "batch"), shares, strict=True)
        if share
    ]
    if cluster:
        campaigns.append(on_a_local_cluster(folder / "local-cluster", seed=outcome.seed))
    for campaign in campaigns:
        campaign.run(tick)
        _take(outcome, campaign)
    if cluster:
        with on_a_cluster(folder / "cluster", seed=outcome.seed) as campaign:
            campaign.run(tick)
        _take(outcome, campaign)


def _take(outcome: Outcome, campaign: object) -> None:
    from faults.supervisor import Campaign

    assert isinstance(campaign, Campaign)
    found = books.check(campaign.folder)
    found.details = [f"{campaign.name}: {detail}" for detail in found.details]
    outcome.found.add(found)
    outcome.injected += books.injected(campaign.folder)
    outcome.campaigns.append(f"{campaign.name} ({campaign.life} lives)")


if __name__ == "__main__":
    app()
