"""A tenfold burst on a real Kafka: guarded, unguarded, and limited by maxOffsetsPerTrigger."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.broker import MISSING, connector_jars
from benchmarks.measure import Bound, Figure
from benchmarks.stage import Stage

WAYS = ("guarded", "unguarded", "maxOffsetsPerTrigger")
LIMIT_S = 4.0
BURST_S = 60.0
PICTURE = Path(__file__).parents[1] / "docs" / "images" / "kafka.png"
LINES = {
    "latency_s": ("average latency of the burst's rows", "s"),
    "latency_s_worst": ("worst average latency of a batch", "s"),
    "latency_s_held": ("the same from the second burst batch on", "s"),
    "lag_rows_max": ("most rows waiting in Kafka", "rows"),
    "recovery_s": ("time from the burst's end until batches are on time again", "s"),
    "kept": ("rows kept", "%"),
}


def run(stage: Stage) -> list[Figure]:
    """Play the same burst three times, each in a process of its own."""
    if connector_jars() is None:
        print(MISSING, file=sys.stderr)
        return []
    found = {way: _played(stage, way) for way in WAYS}
    if stage.docs:
        draw({way: each["trace"] for way, each in found.items()}, PICTURE)
    return [_figure(way, name, found[way][name]) for name in LINES for way in WAYS]


def draw(traces: dict[str, list[list[float]]], picture: Path) -> None:
    """Draw latency, waiting rows and rows that came out over time, one line for each way."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 1, figsize=(8, 6), sharex=True, layout="constrained")
    shown = ((1, "average latency of a batch, s"), (2, "rows waiting in Kafka"))
    for axis, (place, label) in zip(axes, shown, strict=True):
        for way, trace in traces.items():
            axis.plot([b[0] for b in trace], [b[place] for b in trace], ".-", label=way)
        axis.set_ylabel(label)
        axis.set_yscale("log")
        axis.grid(alpha=0.3)
        axis.axvspan(0, BURST_S, color="0.9", zorder=0)
    axes[0].axhline(LIMIT_S, color="black", linestyle="--", linewidth=1)
    axes[0].legend()
    axes[-1].set_xlabel("seconds since the burst began")
    picture.parent.mkdir(exist_ok=True)
    figure.savefig(picture, dpi=110)
    pyplot.close(figure)


def _played(stage: Stage, way: str) -> dict[str, Any]:
    stage.tick(way)
    out = stage.new_folder().with_suffix(".json")
    size = ["--quick"] if stage.quick else []
    subprocess.run(
        [sys.executable, "-m", "benchmarks.kafka_burst", way, str(out), *size], check=True
    )
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def _figure(way: str, name: str, value: float) -> Figure:
    what, unit = LINES[name]
    promised = way == "guarded" and name == "latency_s_held"
    return Figure(
        benchmark="kafka",
        what=f"{what}: {way}",
        rival="none" if way == "guarded" else "guarded",
        unit=unit,
        values=(value,),
        bound=Bound(bound=LIMIT_S) if promised else None,
    )
