"""A guarded stream as a driver program: `python cluster_job.py MASTER FOLDER [ARCHIVE]`.

Not a test by itself: `test_cluster` runs it on a cluster, and the same function in local mode. It
says BATCH in every batch and waits for the file `go`, so that the test can break something.
"""

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import spillway as sw
from spillway.spark import burst_source
from spillway.state import files

BATCHES, BATCH_ROWS = 3, 400
STRAGGLES_S = 120.0  # far longer than a batch takes
QUICK_START = "-Xss8m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SCHEMA = "id bigint, key bigint, origin string"


def main(master: str, folder: Path, archive: str) -> None:
    """Run on the cluster and print what was kept and booked, as JSON."""
    config = {
        "spark.master": master,
        "spark.submit.pyFiles": archive,
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.cores.max": "2",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # both are there at the first batch
        "spark.speculation": "true",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.minTaskRuntime": "2s",
        "spark.driver.extraJavaOptions": QUICK_START,
        "spark.executor.extraJavaOptions": QUICK_START,
    }
    spark = sw.local_session("cluster", config=config)
    spark.sparkContext.setLogLevel("OFF")
    burst_source.register(spark)
    report = guarded(spark, folder, straggles=True)
    print("REPORT " + json.dumps(report), flush=True)
    os._exit(0)


def enriched(row: dict[str, Any]) -> dict[str, Any]:
    """Be an operator whose rows differ in cost; say where the code of the project came from."""
    time.sleep(1e-5 * (row["key"] % 10))
    return {"id": row["id"], "key": row["key"], "origin": sw.__file__}


def straggling(folder: Path) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return the operator, whose first instance hangs in the middle of its first task.

    What became of it is told by files: `began`, `overtook` by a second attempt, `ended` if not.
    """
    rows = 0

    def enriched_or_late(row: dict[str, Any]) -> dict[str, Any]:
        nonlocal rows
        rows += 1
        task = TaskContext.get()
        assert task is not None
        if rows == 20 and task.partitionId() == 0 and task.attemptNumber() == 0:
            if not (folder / "began").exists():
                (folder / "began").touch()
                time.sleep(STRAGGLES_S)
                (folder / "ended").touch()
        elif rows == 20 and task.attemptNumber() > 0 and (folder / "began").exists():
            (folder / "overtook").touch()
        return enriched(row)

    return enriched_or_late


def guarded(spark: SparkSession, folder: Path, *, straggles: bool = False) -> dict[str, Any]:
    """Protect, place and process a stream of known rows; return ids by batch and the books."""
    checkpoint = folder / "checkpoint"
    guard = sw.Guard("cluster", control=sw.FixedRate(0.4), state=checkpoint / "spillway")
    files.write(guard.state / "seed.json", "seed", 77)  # the same salts everywhere
    (folder / "clock").write_text("1000")
    options = {
        "rate": str(BATCHES * BATCH_ROWS),
        "duration": "1",
        "clock": str(folder / "clock"),
        "keys": "20",
    }
    reader = spark.readStream.format("spillway-burst").options(**options)
    stream = reader.option("maxRowsPerTrigger", str(BATCH_ROWS)).load()
    kept = guard.protect(stream, identity=["id"])
    placed = guard.balance(kept, instances=2, key="key", identity=["id"])
    operator = straggling(folder) if straggles else enriched
    done = guard.map(placed, operator, SCHEMA, key="key").withColumn("at", F.spark_partition_id())
    found: dict[int, list[Any]] = {}

    def each(batch: DataFrame, batch_id: int) -> None:
        found[batch_id] = sorted(tuple(row) for row in batch.select("id", "at", "origin").collect())
        print(f"BATCH {batch_id}", flush=True)
        while not (folder / "go").exists():
            time.sleep(0.05)

    writer = done.writeStream.foreachBatch(each).trigger(availableNow=True)
    writer.option("checkpointLocation", str(checkpoint)).start().awaitTermination()
    return {
        "ids": {batch: [row[0] for row in rows] for batch, rows in found.items()},
        "instances": Counter(row[1] for rows in found.values() for row in rows),
        "origins": sorted({row[2] for rows in found.values() for row in rows}),
        "books": books(guard),
    }


def books(guard: sw.Guard) -> list[tuple[int, int, int, int]]:
    """Wait for the last batch to be booked; return rows in, kept and operated on by batch."""
    deadline = time.monotonic() + 30
    while len(guard.ledger().entries()) < BATCHES and time.monotonic() < deadline:
        time.sleep(0.05)
    entries = guard.ledger().entries()
    return [
        (each.batch_id, seen.rows_in, seen.rows_kept, sum(task.rows_in for task in seen.tasks))
        for each in entries
        for seen in [each.seen]
    ]


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
