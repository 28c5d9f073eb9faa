"""What every benchmark needs: a session, a temporary folder, a size, and a sign of progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import spillway as sw
from benchmarks.measure import Tick

_numbers = count()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Where a benchmark runs. `quick` asks for less data, `docs` for the pictures of the docs."""

    spark: SparkSession
    folder: Path
    quick: bool
    tick: Tick
    docs: bool = False

    def size(self, full: int, quick: int) -> int:
        """Choose between the two sizes of a run."""
        return quick if self.quick else full

    def written(self, name: str, build: Callable[[SparkSession], DataFrame]) -> str:
        """Return the path of a parquet folder, built on first use: never in the timed part."""
        path = self.folder / "data" / name
        if not path.exists():
            self.tick(f"writing {name}")
            build(self.spark).write.parquet(str(path))
        return str(path)

    def new_folder(self) -> Path:
        """Return a folder that nobody has used, for a checkpoint."""
        return self.folder / f"run-{next(_numbers)}"


@contextmanager
def guarded(stage: Stage, checkpoint: Path, **options: object) -> Iterator[sw.Guard]:
    """Lend a guard with a name of its own, and take its listener away at the end.

    A listener that stays would hear the rival's batches too and slow them down.
    """
    guard = sw.Guard(checkpoint.name, state=checkpoint / "spillway", **options)  # type: ignore[arg-type]
    try:
        yield guard
    finally:
        guard.live.leave(stage.spark)


def to_noop(df: DataFrame) -> None:
    """Run a batch to its end and drop the rows."""
    df.write.format("noop").mode("overwrite").save()


def raise_if_failed(query: StreamingQuery) -> None:
    """Raise what stopped a query."""
    error = query.exception()
    if error is not None:
        raise error


def wait_for_batch(query: StreamingQuery, batch_id: int) -> None:
    """Wait until a batch is done."""
    while (query.lastProgress or {"batchId": -1})["batchId"] < batch_id:
        raise_if_failed(query)
        time.sleep(0.2)  # rarely: asking costs the driver time that the batches need
