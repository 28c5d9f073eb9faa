"""The demo's picture: rate, latency, backlog and keep rate of both runs over time."""

from __future__ import annotations

import io
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from spillway.demo.outcome import batch_latency_s
from spillway.demo.run import Run
from spillway.demo.scenario import Scenario

_COLOURS = {"unprotected": "#c2410c", "guarded": "#0f766e"}
_BURST = "#fde68a"
_GREY = "#6b7280"
_INK, _FAINT, _PAPER = "#1f2937", "#e5e7eb", "#ffffff"
_THEMED = {
    _INK: "ink",
    _FAINT: "faint",
    _PAPER: "paper",
    _GREY: "soft",
    _BURST: "warn-card",
    _COLOURS["unprotected"]: "series-1",
    _COLOURS["guarded"]: "series-2",
}


def draw(runs: dict[str, Run], scenario: Scenario) -> Figure:
    """Draw four panels over one time axis, the burst shaded."""
    figure = Figure(figsize=(9.0, 9.4), layout="constrained", facecolor=_PAPER)
    panels = figure.subplots(4, 1, sharex=True)
    _rate(panels[0], scenario)
    _latency(panels[1], runs, scenario)
    _backlog(panels[2], runs)
    _kept(panels[3], runs)
    for panel in panels:
        panel.axvspan(scenario.calm_s, scenario.burst_end_s, color=_BURST, alpha=0.45, lw=0)
        panel.grid(axis="y", color=_FAINT, lw=0.8)
        panel.tick_params(colors=_INK)
        panel.set_facecolor(_PAPER)
        panel.spines[["left", "bottom"]].set_color(_INK)
        panel.spines[["top", "right"]].set_visible(False)
    panels[-1].set_xlabel("seconds since the first arrival; the burst is shaded", color=_INK)
    return figure


def svg(figure: Figure) -> str:
    """Return the figure as SVG text to stand inside a page, coloured by that page."""
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": "Spillway"})
    text = out.getvalue()[out.getvalue().index("<svg") :]
    for colour, name in _THEMED.items():
        text = text.replace(colour, f"var(--{name}, {colour})")
    return text


def save_png(figure: Figure, path: Path) -> None:
    """Save the figure as a picture."""
    figure.savefig(path, dpi=130)


def _rate(panel: Axes, scenario: Scenario) -> None:
    times = [0.0, scenario.calm_s, scenario.burst_end_s, scenario.duration_s]
    rates = [scenario.calm_rate, scenario.burst_rate, scenario.calm_rate, scenario.calm_rate]
    panel.step(times, rates, where="post", color=_INK, lw=1.8)
    panel.axhline(scenario.capacity_rate, color=_GREY, ls="--", lw=1.2)
    panel.text(0.3, scenario.capacity_rate, "capacity of the operator", color=_GREY, va="bottom")
    _title(panel, "Rows arriving per second")
    panel.set_ylim(bottom=0)
    panel.yaxis.set_major_formatter(FuncFormatter(_thousands))


def _latency(panel: Axes, runs: dict[str, Run], scenario: Scenario) -> None:
    for name, run in runs.items():
        points = [point for point in run.points if point.rows_kept]
        latencies = [batch_latency_s(point, scenario) for point in points]
        _line(panel, name, [point.end_s for point in points], latencies)
    limit_s = scenario.objective.limit_s
    panel.axhline(limit_s, color=_INK, ls="--", lw=1.2)
    panel.text(0.3, limit_s, f"objective: {limit_s:g} s", va="bottom", color=_INK)
    panel.set_yscale("log")
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    _title(panel, f"Latency of each batch, {scenario.objective.kind} (seconds, logarithmic)")
    panel.legend(frameon=False, loc="lower right", labelcolor=_INK)


def _backlog(panel: Axes, runs: dict[str, Run]) -> None:
    for name, run in runs.items():
        times = [point.end_s for point in run.points]
        _line(panel, name, times, [point.backlog_rows for point in run.points])
    _title(panel, "Backlog when a batch ends (rows)")
    panel.set_ylim(bottom=0)
    panel.yaxis.set_major_formatter(FuncFormatter(_thousands))


def _kept(panel: Axes, runs: dict[str, Run]) -> None:
    for name, run in runs.items():
        points = [point for point in run.points if point.rows_in]
        shares = [100.0 * point.rows_kept / point.rows_in for point in points]
        _line(panel, name, [point.end_s for point in points], shares)
    _title(panel, "Rows kept (per cent)")
    panel.set_ylim(0, 106)


def _line(panel: Axes, name: str, times: list[float], values: list[float] | list[int]) -> None:
    panel.plot(times, values, marker="o", ms=3.5, lw=1.8, color=_COLOURS[name], label=name)


def _title(panel: Axes, text: str) -> None:
    panel.set_title(text, loc="left", fontsize=10.5, fontweight="bold", color=_INK)


def _thousands(value: float, _: object) -> str:
    return f"{value:,.0f}"
