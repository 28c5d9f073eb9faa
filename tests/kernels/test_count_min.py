"""The sketch of a gate in NumPy: Spark's shape and cells, and no other bytes are read as one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.cost.sketch import CostSketch, SketchShape
from spillway.kernels import count_min

items_strategy = st.lists(st.integers(0, count_min.ITEM_MASK), max_size=60)


def shared(items: np.ndarray) -> CostSketch:
    sketch = CostSketch(SketchShape(rows=count_min.ROWS, columns=count_min.COLUMNS))
    sketch.update(items, np.ones_like(items))
    return sketch


@given(items=items_strategy)
def test_the_cells_and_bytes_are_those_of_the_cost_sketch(items: list[int]) -> None:
    """`CostSketch` is compared with Spark's own class byte by byte."""
    found = np.array(items, dtype=np.int64)
    expected = shared(found)
    assert count_min.count(found).reshape(count_min.SHAPE).tolist() == expected.frequency.tolist()
    assert count_min.write(count_min.count(found)) == expected.spark_frequencies()
    assert tuple(expected.multipliers.tolist()) == count_min.MULTIPLIERS


@given(items=items_strategy)
def test_what_is_written_is_read(items: list[int]) -> None:
    counts = count_min.count(np.array(items, dtype=np.int64))
    read = count_min.read(count_min.write(counts))
    assert read is not None
    assert read.tolist() == counts.tolist()


GOOD = count_min.write(count_min.count(np.arange(9)))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        GOOD[:-1],
        GOOD + b"\0",
        b"\0\0\0\2" + GOOD[4:],
        GOOD[:20] + b"\7" * 8 + GOOD[28:],
        GOOD[:4] + b"\0" * 8 + GOOD[12:],
        GOOD[:-8] + b"\xff" * 8,
        CostSketch().spark_frequencies(),
    ],
    ids=["empty", "cut", "longer", "version", "multiplier", "total", "negative", "shape"],
)
def test_other_bytes_are_no_sketch(data: bytes) -> None:
    assert count_min.read(data) is None
