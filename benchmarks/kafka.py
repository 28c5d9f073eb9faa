"""A tenfold burst on a real Kafka: guarded, unguarded, and limited by maxOffsetsPerTrigger."""

from __future__ import annotations

import json
import subprocess
import sys

from benchmarks.broker import MISSING, connector_jars
from benchmarks.measure import Bound, Figure
from benchmarks.stage import Stage

WAYS = ("guarded", "unguarded", "maxOffsetsPerTrigger")
LIMIT_S = 4.0
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
    return [_figure(way, name, found[way][name]) for name in LINES for way in WAYS]


def _played(stage: Stage, way: str) -> dict[str, float]:
    stage.tick(way)
    out = stage.new_folder().with_suffix(".json")
    size = ["--quick"] if stage.quick else []
    subprocess.run(
        [sys.executable, "-m", "benchmarks.kafka_burst", way, str(out), *size], check=True
    )
    found: dict[str, float] = json.loads(out.read_text())
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
