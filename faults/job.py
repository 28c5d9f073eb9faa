"""The driver program under test: `python -m faults.job FOLDER WAY MASTER`, scripted by environment.

It reads a burst stream through a guard into an idempotent sink until no row is left, starting the
query again whenever it fails. Killed at any moment, it goes on where it was.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
import uuid
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import spillway as sw
from faults import points
from faults.disk import damaged
from faults.tasks import ArmedWobble, FlakySource, pass_through
from spillway.spark.listener import ReportListener
from spillway.spark.session import local_session
from spillway.state import offsets
from spillway.state.ledger import Ledger

ROWS_PER_S = 1000
CHECKPOINT, SINK, CLOCK = "checkpoint", "sink", "clock"
SHAPES = ("truncated", "flipped", "empty", "future", "foreign")
_SETTLE_S = 3.0
_SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "1s",
}
_PLANS_IN_DRIVER = "org.apache.spark.sql.catalyst.optimizer.ConstantFolding"
_FAST_START = "-Xss8m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class SinkAway(Exception):
    """The sink fails by script."""


class Job:
    """One life of the driver."""

    def __init__(self, folder: Path, way: str, master: str) -> None:
        """Start Spark; what differs from life to life is drawn from the script's seed."""
        self.folder, self.way = folder, way
        self.script = points.script() or points.Script(folder=str(folder), seed=0, life=0)
        self.dice = random.Random(repr((self.script.seed, self.script.life)))
        self.spark = session(master, self.dice)
        points.Driver.here = True
        points.Driver.jvm = self.spark.sparkContext._gateway.proc.pid
        points.arm()
        _spoil_news(self.script)

    @property
    def state(self) -> Path:
        """Where the guard keeps its own."""
        return self.folder / CHECKPOINT / "spillway"

    def run(self) -> None:
        """Start the query until it ends by itself; then wait for the books."""
        failed = True
        while failed:
            guard = sw.Guard("faults", state=self.state, control=ArmedWobble())
            query = self._query(guard)
            try:
                query.awaitTermination()
                failed = False
            except StreamingQueryException as error:
                if "by script" not in str(error):
                    points.append(self.folder / "errors.log", f"{error}\n".encode())
        self._settle(guard)

    def _query(self, guard: sw.Guard) -> Any:
        stream = self._stream()
        if self.way == "stream":
            stream = guard.protect(stream, identity=["id"], arrived="arrived")
            stream = stream.mapInArrow(pass_through, stream.schema)

        def each(batch: DataFrame, batch_id: int) -> None:
            if self.way == "batch":
                batch = guard.protect(batch, batch_id=batch_id, identity=["id"])
                batch = batch.mapInArrow(pass_through, batch.schema)
            self._each(batch, batch_id)

        writer = stream.writeStream.foreachBatch(each).trigger(availableNow=True)
        return writer.option("checkpointLocation", str(self.folder / CHECKPOINT)).start()

    def _stream(self) -> DataFrame:
        options = {
            "rate": str(ROWS_PER_S),
            "clock": str(self.folder / CLOCK),
            "partitions": str(self.dice.choice((1, 2, 3))),
            "maxRowsPerTrigger": str(self.dice.randrange(40, 400)),
        }
        rows = self.spark.readStream.format(FlakySource.name()).options(**options).load()
        return rows.repartition(2) if self.dice.random() < 0.2 else rows

    def _each(self, batch: DataFrame, batch_id: int) -> None:
        """Write a batch down, once for good and once for the record of attempts."""
        for number in range(2):
            self._spoil_state(batch_id, number)
        points.reached("before the sink")
        kept = sorted(
            (row["id"], row["_weight"]) for row in batch.select("id", "_weight").collect()
        )
        attempt = {"batch": batch_id, "ids": [id_ for id_, _ in kept], "life": self.script.life}
        points.append(self.folder / "attempts.log", json.dumps(attempt).encode() + b"\n")
        self._sink_fault(batch_id, "before it wrote")
        write_sink(self.folder / SINK, batch_id, kept)
        self._sink_fault(batch_id, "after it wrote")
        points.reached("between sink and commit")

    def _sink_fault(self, batch_id: int, where: str) -> None:
        if self.script.happens("sink", batch_id, where, self.dice.random()):
            points.note("sink fault", where)
            raise SinkAway(f"the sink is away by script {where}")

    def _spoil_state(self, batch_id: int, number: int) -> None:
        """Damage one of the state files: never the plan of a batch that may run again."""
        if not self.script.happens("state", batch_id, number):
            return
        path, shape = self.dice.choice(self._targets(batch_id)), self.dice.choice(SHAPES)
        if not path.exists():
            return
        points.note("state fault", f"{'ledger' if path.suffix == '.jsonl' else path.name} {shape}")
        data = path.read_bytes()
        if path.suffix == ".jsonl":  # the last line is lost, or rubbish stands behind it
            kept = len(data) - self.dice.randrange(1, 200)
            path.write_bytes(data[:kept] if shape == "truncated" else data + b'{"!!python/no')
        else:
            path.write_bytes(damaged(data, shape, self.dice))

    def _targets(self, batch_id: int) -> list[Path]:
        """Return files to choose from; of the plans those of batches that are safe in the books."""
        books = Ledger(self.state / "ledger").entries()
        booked = {str(each.batch_id) for each in books if each.batch_id < batch_id - 5}
        done = [path for path in self.state.glob("plans/*/*.json") if path.stem in booked]
        latest = self.state / "state.json"
        ledger = sorted(self.state.glob("ledger/*.jsonl"))
        return [latest, latest, self.state / "state.previous.json", *ledger[-1:], *done[-1:]]

    def _settle(self, guard: sw.Guard) -> None:
        """Give the news of the last batch a moment to come."""
        deadline = time.monotonic() + _SETTLE_S
        guard.live.settle()
        last = offsets.last_committed(self.folder / CHECKPOINT)
        while last in guard.gaps() and time.monotonic() < deadline:
            time.sleep(0.1)


def write_sink(folder: Path, batch_id: int, kept: list[tuple[int, float]]) -> None:
    """Replace the output of a batch: the same batch again leaves one output."""
    folder.mkdir(exist_ok=True)
    beside = folder / f".{batch_id}.{uuid.uuid4().hex}"
    beside.write_text(json.dumps(kept))
    points.reached("half a sink file")
    os.replace(beside, folder / f"{batch_id}.json")


def session(master: str, dice: random.Random) -> SparkSession:
    """Start Spark quickly, with settings that must not matter drawn at random."""
    config = {
        "spark.master": master,
        "spark.driver.extraJavaOptions": _FAST_START,
        "spark.executor.extraJavaOptions": _FAST_START,
        "spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        f"spark.executorEnv.{points.SCRIPT}": os.environ.get(points.SCRIPT, ""),
        "spark.task.maxFailures": "9",
        "spark.sql.streaming.minBatchesToRetain": "1000000",
        "spark.sql.shuffle.partitions": str(dice.choice((1, 2, 5))),
        "spark.sql.adaptive.enabled": str(dice.choice((True, False))).lower(),
        # Without this rule a worker finds the plans of a stream, as on Spark Connect.
        "spark.sql.optimizer.excludedRules": dice.choice(("", _PLANS_IN_DRIVER)),
        "spark.executor.memory": "512m",
        **(_SPECULATION if "spark:" in master else {}),
    }
    spark = local_session("faults", config=config)
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(FlakySource)
    return spark


def _spoil_news(script: points.Script) -> None:
    """Let reports of batches be lost, come twice, come late, or speak of another hour."""
    hear, held = ReportListener.hear, list[str]()

    def spoilt(self: ReportListener, text: str) -> None:
        kind = _kind_of_news(script, json.loads(text)["batchId"])
        if kind == "late":
            held.append(text)
            return
        told = {"dropped": [], "doubled": [text, text], "an hour off": [_an_hour_off(text)]}
        for each in (*told.get(kind, [text]), *held):
            hear(self, each)
        held.clear()

    ReportListener.hear = spoilt  # type: ignore[method-assign]


def _kind_of_news(script: points.Script, batch_id: int) -> str:
    if not script.happens("news", batch_id):
        return ""
    dice = random.Random(repr((script.seed, batch_id)))
    kind = dice.choice(["dropped", "doubled", "late", "an hour off"])
    points.note("listener fault", kind)
    return kind


def _an_hour_off(text: str) -> str:
    report = json.loads(text)
    return json.dumps({**report, "batchDuration": report["batchDuration"] + 3_600_000})


if __name__ == "__main__":
    Job(Path(sys.argv[1]), sys.argv[2], sys.argv[3]).run()
    print("DONE", flush=True)
    os._exit(0)
