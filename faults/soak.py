"""Days of batches in minutes: does the driver's memory, or its state folder, grow without bound?

`python -m faults.soak` drives the shipped planner and recorder batch by batch, on real files, with
a checkpoint as Spark keeps it, but without Spark's own work. With `--real` every batch is Spark's.
"""

from __future__ import annotations

import json
import os
import random
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from faults.control_loop import quiet
from faults.processes import rss_bytes
from spillway.kernels.uniform import uniforms
from spillway.loop import Loop
from spillway.objective import Latency
from spillway.overload.controller import HoldLatency
from spillway.spark.control import Planner
from spillway.spark.recorder import Recorder
from spillway.state import offsets
from spillway.values import Observation, StratumCount

_QUERY = "5f1d3c1e-0000-4000-8000-000000000000"
_SPARK_RETAINS = 100  # batches, in the logs of a checkpoint
_EVERY = 100
PICTURE = Path(__file__).parents[1] / "docs" / "images" / "bounded.png"


@dataclass(frozen=True, slots=True)
class Sample:
    """How large everything was after so many batches."""

    batches: int
    driver_mb: float
    jvm_mb: float
    state_mb: float
    state_files: int


def drive(folder: Path, batches: int) -> Iterator[Sample]:
    """Plan and record so many batches; say from time to time how large everything is."""
    checkpoint, state = folder, folder / "spillway"
    for name in ("offsets", "commits"):
        (checkpoint / name).mkdir()
    (checkpoint / "metadata").write_text(json.dumps({"id": _QUERY}))
    loop = Loop(controller=HoldLatency(objective=Latency(average="2 s")))
    planner = Planner(loop=loop, state=state, checkpoint=checkpoint)
    recorder = Recorder(loop=loop, state=state, identity=("id",))
    dice, end = np.random.default_rng(1), 0
    for batch_id in range(batches):
        start, end = end, end + int(dice.integers(50, 150) * (40 if batch_id % 1000 < 100 else 1))
        _log_offsets(checkpoint, batch_id, end)
        pinned = planner.plan_for(batch_id, _QUERY)
        drawn = uniforms(pinned.salt, np.arange(start, end))
        kept = int(np.count_nonzero(drawn < pinned.plan.rates[0]))
        (checkpoint / "commits" / str(batch_id)).write_text("v1\n{}")
        recorder.record(
            _seen(batch_id, end - start, kept),
            query_id=_QUERY,
            run_id="soak",
            offsets=json.dumps([[{"row": start}, {"row": end}]]),
            started_at_s=1.7e9 + 10.0 * batch_id,
        )
        if (batch_id + 1) % _EVERY == 0:
            yield _sample(batch_id + 1, state)
    totals = recorder._ledger.totals()
    assert (totals.batches, totals.rows_in) == (batches, end), "the books must add up"


def drive_spark(folder: Path, batches: int) -> Iterator[Sample]:
    """Let Spark run so many small batches through a guard."""
    import spillway as sw
    from faults.job import session
    from spillway.spark import burst_source

    spark = session("local[2]", random.Random(1))
    burst_source.register(spark)
    guard = sw.Guard("soak", state=folder / "spillway", control=sw.FixedRate(0.5))
    (folder / "clock").write_text("1e9")
    options = {"rate": "20", "duration": str(batches), "clock": str(folder / "clock")}
    reader = spark.readStream.format("spillway-burst").options(**options, partitions="1")
    kept = guard.protect(reader.option("maxRowsPerTrigger", "20").load(), identity=["id"])
    writer = kept.writeStream.format("noop").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(folder)).start()
    jvm, last = spark.sparkContext._gateway.proc.pid, 0
    while query.isActive:
        done = offsets.last_committed(folder) + 1
        if done >= last + _EVERY:
            last = done
            yield _sample(done, guard.state, jvm)
        time.sleep(0.2)


def _log_offsets(checkpoint: Path, batch_id: int, end: int) -> None:
    lines = ["v1", json.dumps({"batchTimestampMs": 0}), json.dumps({"row": end, "epoch_us": 0})]
    (checkpoint / "offsets" / str(batch_id)).write_text("\n".join(lines))
    for name in ("offsets", "commits"):
        (checkpoint / name / str(batch_id - _SPARK_RETAINS)).unlink(missing_ok=True)


def _seen(batch_id: int, rows: int, kept: int) -> Observation:
    duration_s = 0.2 + 0.001 * kept
    return Observation(
        batch_id=batch_id,
        rows_in=rows,
        rows_kept=kept,
        duration_s=duration_s,
        latency_s_mean=1.5 * duration_s,
        offset_span=float(rows),
        strata=(StratumCount(name="all", rows_in=rows, rows_kept=kept),),
    )


def _sample(batches: int, state: Path, jvm: int = 0) -> Sample:
    sizes = [path.stat().st_size for path in state.rglob("*") if path.is_file()]
    return Sample(
        batches=batches,
        driver_mb=rss_bytes(os.getpid()) / 1e6,
        jvm_mb=rss_bytes(jvm) / 1e6 if jvm else 0.0,
        state_mb=sum(sizes) / 1e6,
        state_files=len(sizes),
    )


def draw(samples: list[Sample], picture: Path, title: str) -> None:
    """Draw memory, size and number of files over the batches."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(3, 1, figsize=(8, 7), sharex=True, layout="constrained")
    batches = [each.batches for each in samples]
    shown = (("driver_mb", "driver, MB"), ("state_mb", "state, MB"), ("state_files", "files"))
    for axis, (name, label) in zip(axes, shown, strict=True):
        values = [getattr(each, name) for each in samples]
        axis.plot(batches, values)
        axis.set_ylabel(label)
        axis.set_ylim(0, 1.15 * max(values))
        axis.grid(alpha=0.3)
    axes[0].set_title(title)
    axes[-1].set_xlabel("batches")
    figure.savefig(picture, dpi=110)


def main(
    batches: Annotated[int, typer.Option(help="72 hours of batches of 10 s: 25,920.")] = 25_920,
    real: Annotated[bool, typer.Option("--real", help="Every batch runs on Spark.")] = False,
    picture: Annotated[Path, typer.Option(help="Where the figure goes.")] = PICTURE,
) -> None:
    """Measure, draw, and fail if the last quarter is larger than the one before."""
    quiet()
    with tempfile.TemporaryDirectory(prefix="spillway-soak-", ignore_cleanup_errors=True) as folder:
        way = drive_spark if real else drive
        samples = []
        for sample in way(Path(folder), batches):
            samples.append(sample)
            if sample.batches % (batches // 20 // _EVERY * _EVERY or _EVERY) == 0:
                print(sample, flush=True)
    what = "batches on Spark" if real else "batches through planner and recorder, on real files"
    draw(samples, picture, f"{batches:,} {what}")
    raise typer.Exit(0 if bounded(samples) else 1)


def bounded(samples: list[Sample], *, slack: float = 1.1) -> bool:
    """Say whether nothing was larger in the last quarter than in the one before, but for noise."""
    quarter = len(samples) // 4
    before, after = samples[2 * quarter : 3 * quarter], samples[3 * quarter :]
    names = ("driver_mb", "state_mb", "state_files")
    most = [
        [max(getattr(each, name) for each in part) for name in names] for part in (before, after)
    ]
    return all(late <= slack * early for early, late in zip(*most, strict=True))


if __name__ == "__main__":
    typer.run(main)
