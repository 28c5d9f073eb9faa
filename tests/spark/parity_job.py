"""The main path as a program on Spark Connect: `python parity_job.py FOLDER` prints JSON.

Not a test by itself: `test_connect` runs it, and the same function in a classic session.
"""

import json
import os
import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import spillway as sw
from spillway.java import ensure_java
from spillway.state import files


def main(folder: Path) -> None:
    """Open a Connect server and its client, and print what is kept and booked there."""
    ensure_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    report = {**both_ways(spark, folder), "medians": medians(spark, folder / "medians")}
    print("REPORT " + json.dumps(report), flush=True)
    os._exit(0)  # a Connect server in this process takes its time to stop


def both_ways(spark: SparkSession, folder: Path) -> dict[str, dict[str, object]]:
    """Guard a stream as a whole and batch by batch."""
    return {way: guarded(spark, way, folder / way) for way in ("stream", "batch")}


def guarded(spark: SparkSession, way: str, checkpoint: Path) -> dict[str, object]:
    """Read three small batches from files through a guard; return kept ids and the books."""
    guard = sw.Guard("parity", control=sw.FixedRate(0.4), state=checkpoint / "spillway")
    files.write(guard.state / "seed.json", "seed", 77)  # the same salts in both modes
    source = checkpoint.parent / f"{way}-source"
    for part in range(3):
        rows = spark.range(part * 1000, part * 1000 + 1000, 1, 2)
        rows.write.mode("append").parquet(str(source))
    stream = spark.readStream.schema("id bigint").parquet(str(source))
    sink = str(checkpoint.parent / f"{way}-sink")

    def each(batch: DataFrame, batch_id: int) -> None:
        kept = guard.protect(batch, batch_id=batch_id, identity=["id"])
        kept.write.mode("append").parquet(sink)

    if way == "batch":
        writer = stream.writeStream.foreachBatch(each)
    else:
        rows = guard.protect(stream, identity=["id"])
        writer = rows.writeStream.format("parquet").option("path", sink)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination(120)
    deadline = time.monotonic() + 30
    while not (entries := guard.ledger().entries()) and time.monotonic() < deadline:
        time.sleep(0.1)
    kept = sorted(tuple(row) for row in spark.read.parquet(sink).collect())
    books = [(e.batch_id, e.seen.rows_in, e.seen.rows_kept, e.reason) for e in entries]
    return {"kept": kept, "books": books}


def medians(spark: SparkSession, checkpoint: Path) -> list[tuple[object, ...]]:
    """Sample a window of 900 rows of three keys; later rows let it out. Return what came."""
    guard = sw.Guard("medians", control=sw.FixedRate(1.0), state=checkpoint / "spillway")
    files.write(guard.state / "seed.json", "seed", 77)
    source, sink = (str(checkpoint.parent / f"medians-{name}") for name in ("source", "sink"))
    columns = ("id", "timestamp_seconds(id) AS at", "id % 3 AS key", "double(id) AS value")
    for first in (0, 9_000):
        spark.range(first, first + 900).selectExpr(*columns).write.mode("append").parquet(source)
    stream = spark.readStream.schema("id bigint, at timestamp, key bigint, value double")
    found = guard.window(
        stream.parquet(source),
        time="at",
        size="15 minutes",
        by="key",
        apply="median(value)",
        identity=["id"],
        late="0 s",
        sample_rows=16,
    )
    writer = found.drop("window").writeStream.format("parquet").option("path", sink)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination(120)
    return sorted(tuple(row) for row in spark.read.parquet(sink).collect())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
