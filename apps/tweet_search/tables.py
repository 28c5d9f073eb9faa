"""The tables of the profiler, laid out as in the thesis (tables 5.4 and 5.5)."""

from __future__ import annotations

from rich.table import Table

from spillway.degrade.accuracy import shares_of_displacement
from spillway.degrade.frontier import Frontier
from spillway.degrade.subtask import Subtasks
from spillway.studies.cs_search import Profiled
from spillway.workload.search_work import NUMBERS


def profile_table(subtasks: Subtasks, profiled: Profiled) -> Table:
    """Return what each subtask takes, and what goes without it."""
    measured = profiled.profile
    moved = {name: profiled.displacement(name) for name in subtasks.optional}
    shares = shares_of_displacement(moved)
    table = Table(title=f"Profile: {profiled.rows:,} tweets, {profiled.found:,} found")
    for name in ("", "subtask", "µs a row", "displacement", "accuracy lost", "share of all loss"):
        table.add_column(name, justify="left" if name == "subtask" else "right")
    for name in subtasks.names:
        lost = (
            (f"{moved[name]:,.0f}", f"{measured.lost[name]:.3%}", f"{shares[name]:.2%}")
            if name in moved
            else ("mandatory", "", "")
        )
        took_us = f"{measured.duration_s[name] * 1e6:.3f}"
        table.add_row(str(NUMBERS[name]), name.replace("_", " "), took_us, *lost)
    return table


def pairs_table(profiled: Profiled) -> Table:
    """Return the pairs that lose another amount together than one by one."""
    table = Table(title="Pairs that matter to each other")
    table.add_column("subtasks")
    table.add_column("lost beyond the sum", justify="right")
    for (one, other), more in profiled.profile.together.items():
        table.add_row(f"{one.replace('_', ' ')}, {other.replace('_', ' ')}", f"{more:+.2%}")
    return table


def frontier_table(table: Frontier) -> Table:
    """Return the entries of the frontier, the longest first; subtasks by their numbers."""
    made = Table(title=f"Frontier: {len(table)} of {2 ** len(table.names)} selections")
    for name in ("off", "µs a row", "accuracy", "times the rows"):
        made.add_column(name, justify="left" if name == "off" else "right")
    whole_s = table.durations_s[-1]
    for at in reversed(range(len(table))):
        choice = table.choice(at)
        off = " ".join(str(NUMBERS[name]) for name in choice.off) or "none"
        made.add_row(
            off,
            f"{choice.duration_s * 1e6:.2f}",
            f"{choice.accuracy:.2%}",
            f"{whole_s / choice.duration_s:.2f}",
        )
    return made
