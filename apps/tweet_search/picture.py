"""Draws the frontier among all selections: what a row's time buys in accuracy."""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from spillway.degrade.execution_plan import ExecutionPlan
from spillway.degrade.frontier import Frontier

INK, FAINT, BLUE, ORANGE = "#1f2937", "#c3c8d0", "#0072b2", "#d55e00"
_BEHIND = {"facecolor": "white", "alpha": 0.6, "edgecolor": "none", "pad": 1.0}
_STEP_MIN = 0.07  # of the picture's height: a smaller step up is drawn, but not named


def draw(table: Frontier, plan: ExecutionPlan, out: Path) -> None:
    """Save the picture; the ending of `out` says in which format."""
    figure = Figure(figsize=(8.0, 4.8), layout="constrained", facecolor="white")
    axes = figure.subplots()
    _all(axes, plan)
    _frontier(axes, table)
    _named(axes, table)
    _dressed(axes, table)
    figure.savefig(out, dpi=150)


def _all(axes: Axes, plan: ExecutionPlan) -> None:
    axes.scatter(
        [entry.duration_s * 1e6 for entry in plan.entries],
        [entry.accuracy * 100 for entry in plan.entries],
        s=9,
        color=FAINT,
        linewidths=0,
        label=f"all {len(plan.entries)} selections",
    )


def _frontier(axes: Axes, table: Frontier) -> None:
    times_us = [s * 1e6 for s in table.durations_s]
    accuracies = [accuracy * 100 for accuracy in table.accuracies]
    axes.plot(
        times_us,
        accuracies,
        color=BLUE,
        marker="o",
        markersize=4.5,
        linewidth=1.6,
        label=f"frontier: {len(table)} of them, mixed between neighbours",
    )
    hull = table.hull()
    axes.plot(
        [s * 1e6 for s in hull.durations_s],
        [accuracy * 100 for accuracy in hull.accuracies],
        color=ORANGE,
        linestyle="--",
        linewidth=1.2,
        label=f"its hull: {len(hull)} of them",
    )


def _named(axes: Axes, table: Frontier) -> None:
    """Say at each high step of the hull what comes in by it."""
    hull = table.hull()
    height = hull.accuracies[-1] - hull.accuracies[0]
    for at in range(1, len(hull)):
        before, after = hull.choice(at - 1), hull.choice(at)
        last = at == len(hull) - 1
        if last or after.accuracy - before.accuracy >= _STEP_MIN * height:
            new = [name for name in before.off if name not in after.off]
            _label(axes, after.duration_s * 1e6, after.accuracy * 100, new, last=last)


def _label(axes: Axes, x: float, y: float, new: list[str], *, last: bool) -> None:
    axes.annotate(
        "\n".join(f"+ {name.replace('_', ' ')}" for name in new),
        (x, y),
        xytext=(0, -8) if last else (9, -4),
        textcoords="offset points",
        ha="right" if last else "left",
        va="top",
        fontsize=8.5,
        color=INK,
        bbox=_BEHIND,
    )


def _dressed(axes: Axes, table: Frontier) -> None:
    least = table.choice(0)
    axes.annotate(
        "mandatory subtasks alone",
        (least.duration_s * 1e6, least.accuracy * 100),
        xytext=(9, 3),
        textcoords="offset points",
        va="top",
        fontsize=8.5,
        color=INK,
        bbox=_BEHIND,
    )
    axes.set_xlabel("time for a row (µs)", color=INK)
    axes.set_ylabel("accuracy of the ranking (%)", color=INK)
    axes.set_xlim(0, table.durations_s[-1] * 1e6 * 1.04)
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        ncols=3,
        frameon=False,
        fontsize=9,
        labelcolor=INK,
    )
    axes.grid(color=FAINT, linewidth=0.4, alpha=0.6)
    axes.tick_params(colors=INK)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
