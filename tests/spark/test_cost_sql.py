"""Spark looks costs up as Python does: bit by bit, for keys of every type."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from spillway.cost.heavy import HeavySketch
from spillway.cost.items import items_of
from spillway.cost.table import CostLookup, gate_array, pack
from spillway.spark.cost_sql import COST, TABLE, array_sql, cost_columns
from spillway.values import CostTable

ROWS = 3_000
RNG = np.random.default_rng(4)
NUMBERS = RNG.integers(-(2**62), 2**62, ROWS)

KEYS = {
    "bigint": pa.array(NUMBERS),
    "int": pa.array((NUMBERS % 999).astype(np.int32)),
    "text": pa.array([f"näme {n % 4_000}" if n % 11 else None for n in NUMBERS]),
    "binary": pa.array([str(n % 700).encode() for n in NUMBERS]),
    "double": pa.array([float(n % 50) / 7 if n % 5 else float("nan") for n in NUMBERS]),
    "boolean": pa.array([bool(n % 2) for n in NUMBERS]),
}


def in_text(table: CostTable | None) -> str:
    array = array_sql(gate_array(table).tolist(), held="int(rand(1))")
    return f"{array} AS {TABLE}"


def learnt(keys: pa.Array) -> HeavySketch:
    """A model of half of the keys, at 1 ns to 100 s, a few at none; the rest is new to it."""
    items = items_of(keys)[: ROWS // 2]
    sketch = HeavySketch()
    costs = np.exp(RNG.uniform(0, np.log(1e11), items.size)).astype(np.int64)
    sketch.update(items, costs)
    sketch.update(items[:100], np.zeros(100, dtype=np.int64))
    sketch.update(np.array([0, 2**31 - 1]), np.array([7_000, 9_000]))
    return sketch


def test_spark_s_costs_are_those_of_the_kernel_for_keys_of_all_types(spark: SparkSession) -> None:
    """One job over a table for each type of key."""
    tables = {name: pack(learnt(keys)) for name, keys in KEYS.items()}
    rows = spark.createDataFrame(pa.table(KEYS)).coalesce(1)
    for name, table in tables.items():
        priced = rows.selectExpr("*", in_text(table), *cost_columns(name))
        rows = priced.selectExpr(*rows.columns, f"{COST} AS cost_{name}")
    found = rows.select(*(f"cost_{name}" for name in KEYS)).toArrow()
    for name, keys in KEYS.items():
        items = items_of(keys)
        expected = CostLookup.of(tables[name]).estimate_ns(items)
        assert found[f"cost_{name}"].to_numpy().tolist() == expected.tolist()
        assert np.unique(expected).size > (10 if name != "boolean" else 1)


def test_without_a_table_every_row_costs_the_same(spark: SparkSession) -> None:
    rows = spark.range(500).selectExpr("*", in_text(None), *cost_columns("id"))
    assert [row[COST] for row in rows.select(COST).distinct().collect()] == [100.0]
