"""Shedding half of the rows: the gate against the same in Python.

The same means: a decision by the row's identity that a replay repeats, a weight, exact counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

import spillway as sw
from benchmarks.measure import Bound, Figure, interleaved, ratios, seconds
from benchmarks.stage import Stage, guarded, to_noop
from spillway.spark.uniform import hash_sql, uniform_sql

RATE = 0.5
SEED = 7
NARROW = Bound(bound=5, at_least=True)
TEXT = Bound(bound=2, at_least=True)

Source = Callable[[], DataFrame]
Shed = Callable[[DataFrame], DataFrame]


def run(stage: Stage) -> list[Figure]:
    """Time the gate and its rivals on numbers and on text, made on the spot and read from files."""
    numbers, texts = stage.size(24_000_000, 2_000_000), stage.size(6_000_000, 500_000)
    narrow = stage.written(f"narrow-{numbers}", lambda spark: _narrow(spark, numbers))
    text = stage.written(f"text-{texts}", lambda spark: _text(spark, texts))
    sources: list[tuple[str, Source, Bound | None]] = [
        ("narrow numeric rows", lambda: _narrow(stage.spark, numbers), NARROW),
        ("rows with 200 characters of text", lambda: _text(stage.spark, texts), TEXT),
        ("narrow numeric rows from parquet", lambda: _read(stage, narrow), None),
        ("rows with 200 characters of text, from parquet", lambda: _read(stage, text), None),
    ]
    counted = [figure for source in sources for figure in _compare(stage, *source)]
    return [*counted, *_compare_uncounted(stage, sources[0][1])]


def _compare(stage: Stage, what: str, source: Source, bound: Bound | None) -> list[Figure]:
    batches = count()
    with guarded(stage, stage.new_folder(), control=sw.FixedRate(RATE)) as guard:
        ways: dict[str, Shed] = {
            "gate": lambda df: guard.protect(df, batch_id=next(batches), identity=["id"]),
            "mapInArrow": lambda df: _counted(df, _by_arrow),
            "pandas UDF": lambda df: _counted(df, _by_pandas),
        }
        return _figures(stage, what, source, ways, bound)


def _compare_uncounted(stage: Stage, source: Source) -> list[Figure]:
    ways: dict[str, Shed] = {"gate": _by_gate, "mapInArrow": _by_arrow, "pandas UDF": _by_pandas}
    return _figures(stage, "narrow numeric rows, nothing counted", source, ways, None)


def _figures(
    stage: Stage, what: str, source: Source, ways: dict[str, Shed], bound: Bound | None
) -> list[Figure]:
    taken = interleaved(
        {
            name: (lambda shed=shed: seconds(lambda: to_noop(shed(source()))))
            for name, shed in ways.items()
        },
        repetitions=stage.size(5, 3),
        tick=stage.tick,
    )
    return [
        Figure(
            benchmark="shedding",
            what=f"shedding 50 %: {what}",
            rival=rival,
            unit="× faster",
            values=ratios(taken[rival], taken["gate"]),
            bound=bound,
        )
        for rival in ("mapInArrow", "pandas UDF")
    ]


def _read(stage: Stage, path: str) -> DataFrame:
    return stage.spark.read.parquet(path)


def _counted(df: DataFrame, shed: Callable[[DataFrame], DataFrame]) -> DataFrame:
    """Count what comes in and what is kept, exactly, as the gate does."""
    came = df.observe(Observation(), F.count(F.lit(1)).alias("rows"))
    return shed(came).observe(Observation(), F.count(F.lit(1)).alias("rows"))


def _uniform(ids: np.ndarray) -> np.ndarray:
    """Draw a number per row from its identity, vectorised: what numpy can do best for it."""
    mixed = ids.astype(np.uint64) + np.uint64(SEED * 0x9E3779B97F4A7C15 % 2**64)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(11)) * 2.0**-53


def _by_gate(df: DataFrame) -> DataFrame:
    """Decide and weigh with the gate's own expressions."""
    kept = df.where(f"{uniform_sql(hash_sql(f'{SEED}L', ['id']))} < {RATE}D")
    return kept.selectExpr("*", f"1.0D / {RATE}D AS _weight")


def _by_arrow(df: DataFrame) -> DataFrame:
    schema = (
        f"{', '.join(f'{f.name} {f.dataType.simpleString()}' for f in df.schema)}, _weight double"
    )

    def shed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            kept = batch.filter(pa.array(_uniform(batch.column("id").to_numpy()) < RATE))
            weight = pa.array(np.full(kept.num_rows, 1 / RATE))
            yield pa.RecordBatch.from_arrays(
                [*kept.columns, weight], names=[*kept.schema.names, "_weight"]
            )

    return df.mapInArrow(shed, schema)


def _by_pandas(df: DataFrame) -> DataFrame:
    @F.pandas_udf("boolean")
    def keep(ids: pd.Series) -> pd.Series:
        return pd.Series(_uniform(ids.to_numpy()) < RATE)

    return df.where(keep("id")).withColumn("_weight", F.lit(1 / RATE))


def _narrow(spark: SparkSession, rows: int) -> DataFrame:
    """Three numbers that cost next to nothing to make, so that the ways are what is measured."""
    return spark.range(0, rows, 1, 2).selectExpr("id", "id % 1000 AS key", "id * 0.5D AS value")


def _text(spark: SparkSession, rows: int) -> DataFrame:
    return spark.range(0, rows, 1, 2).selectExpr(
        "id", "id % 1000 AS key", "concat(lpad(id, 20, '0'), repeat('text ', 36)) AS text"
    )
