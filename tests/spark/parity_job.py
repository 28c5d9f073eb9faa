"""The main path as a program: `python parity_job.py classic|connect FOLDER` prints JSON.

Not a test by itself: `test_connect` runs it in both modes, each in a process of its own.
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


def main(mode: str, folder: Path) -> None:
    """Run a guarded stream both ways and print what each kept and booked."""
    spark = session(mode)
    report = {way: guarded(spark, way, folder / way) for way in ("stream", "batch")}
    print("REPORT " + json.dumps(report), flush=True)
    os._exit(0)  # a Connect server in this process takes its time to stop


def session(mode: str) -> SparkSession:
    """Open a classic session, or a Connect server and its client."""
    if mode == "classic":
        return sw.local_session("parity")
    ensure_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    return SparkSession.builder.remote("local[2]").getOrCreate()


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
    main(sys.argv[1], Path(sys.argv[2]))
