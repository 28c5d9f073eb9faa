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
    print("REPORT " + json.dumps(both_ways(spark, folder)), flush=True)
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


if __name__ == "__main__":
    main(Path(sys.argv[1]))
