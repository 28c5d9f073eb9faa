"""A sketch is published when its means stand still, and a restored publisher goes on unchanged."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.cost.publisher import Phase, Publisher, Publishing
from spillway.cost.sketch import CostSketch, SketchShape
from spillway.sim.workloads import Recipe

ROWS = st.lists(st.tuples(st.integers(0, 5), st.sampled_from([1024, 2048, 4096])), max_size=60)
SMALL = Publishing(window=4, tolerance=0.3, shape=SketchShape(rows=2, columns=3))


def columns(rows: list[tuple[int, int]]) -> np.ndarray:
    return np.array(rows, dtype=np.int64).reshape(-1, 2).T


def test_the_defaults_are_the_papers() -> None:
    config = Publishing()
    assert (config.window, config.tolerance) == (1024, 0.05)
    assert (config.shape.rows, config.shape.columns) == (4, 54)


def test_it_starts_stabilises_publishes_and_starts_again() -> None:
    publisher = Publisher(SMALL)
    phases, sent = [], []
    for _ in range(8):
        sent.append(publisher.executed(1, 100))
        phases.append(publisher.phase)
    assert phases == [Phase.START] * 3 + [Phase.STABILIZING] * 4 + [Phase.START]
    assert [sketch.rows_seen for sketch in sent if sketch] == [7]
    assert (publisher.rows_executed, publisher.published) == (8, 1)


def test_a_published_sketch_is_not_touched_again() -> None:
    publisher = Publisher(SMALL)
    sent = [sketch for _ in range(40) if (sketch := publisher.executed(1, 100))]
    assert [sketch.rows_seen for sketch in sent] == [7, 8, 8, 8, 8]


@given(rows=ROWS)
def test_a_batch_publishes_what_its_rows_publish_one_by_one(rows: list[tuple[int, int]]) -> None:
    single, batch = Publisher(SMALL), Publisher(SMALL)
    one_by_one = [sketch for row in rows if (sketch := single.executed(*row))]
    together = batch.executed_rows(*columns(rows))
    assert [s.to_bytes() for s in together] == [s.to_bytes() for s in one_by_one]
    assert batch.snapshot() == single.snapshot()


@given(rows=ROWS, later=ROWS)
def test_a_restored_publisher_goes_on_as_if_nothing_had_happened(
    rows: list[tuple[int, int]], later: list[tuple[int, int]]
) -> None:
    original = Publisher(SMALL)
    original.executed_rows(*columns(rows))
    restored = Publisher.restore(original.snapshot(), SMALL)
    assert restored.snapshot() == original.snapshot()
    sent = [p.executed_rows(*columns(later)) for p in (original, restored)]
    assert [s.to_bytes() for s in sent[0]] == [s.to_bytes() for s in sent[1]]
    assert restored.snapshot() == original.snapshot()


def test_no_row_is_lost_between_the_published_and_the_one_that_fills() -> None:
    """The rows that were published and those that a next publication would have are all rows."""
    stream = Recipe(zipf=2.0).stream(0, 0)
    publisher = Publisher()
    sent = publisher.executed_rows(stream.keys, stream.costs_ns)
    assert len(sent) == publisher.published > 1
    filling = CostSketch.from_bytes(publisher.snapshot()[28 + 8 * 4 * 54 : -4])
    parts = [*sent, filling]
    assert sum(sketch.rows_seen for sketch in parts) == stream.rows
    assert sum(sketch.work_total_ns for sketch in parts) == int(stream.costs_ns.sum())


def test_negative_and_absurd_costs_count_as_in_a_sketch() -> None:
    publisher, sketch = Publisher(SMALL), CostSketch(SMALL.shape)
    for cost_ns in (-5, 2**80):
        publisher.executed(1, cost_ns)
        sketch.update_one(1, cost_ns)
    assert publisher.snapshot()[:-4].endswith(sketch.to_bytes())


@pytest.mark.parametrize(
    "bad", [{"window": 0}, {"window": -1}, {"tolerance": -0.1}, {"tolerance": float("nan")}]
)
def test_a_rule_that_means_nothing_is_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be >="):
        Publishing(**bad)  # type: ignore[arg-type]


def snapshot() -> bytes:
    publisher = Publisher(SMALL)
    publisher.executed_rows(*columns([(1, 64), (2, 32), (1, 64), (3, 16), (3, 8)]))
    return publisher.snapshot()


def test_every_truncation_and_every_damaged_byte_is_refused() -> None:
    data = snapshot()
    for size in range(len(data)):
        with pytest.raises(ValueError, match="data must"):
            Publisher.restore(data[:size], SMALL)
    for at in range(len(data)):
        bad = bytearray(data)
        bad[at] ^= 0x10
        with pytest.raises(ValueError, match="data must"):
            Publisher.restore(bytes(bad), SMALL)


@pytest.mark.parametrize(
    ("at", "value", "rule"),
    [
        (4, struct.pack(">q", 2), "phase"),
        (12, struct.pack(">q", -1), "counts in order"),
        (20, struct.pack(">q", 9), "counts in order"),
        (28, struct.pack(">d", float("nan")), "finite means"),
        (28, struct.pack(">d", -1.0), "finite means"),
    ],
)
def test_a_crafted_snapshot_with_a_fitting_checksum_is_refused(
    at: int, value: bytes, rule: str
) -> None:
    data = snapshot()
    body = (data[:at] + value + data[at + 8 :])[:-4]
    with pytest.raises(ValueError, match=rule):
        Publisher.restore(body + struct.pack(">I", zlib.crc32(body)), SMALL)


def test_a_snapshot_of_another_shape_is_refused() -> None:
    for shape in (SketchShape(rows=2, columns=4), SketchShape(rows=2, columns=3, seed=9)):
        with pytest.raises(ValueError, match="data must"):
            Publisher.restore(snapshot(), Publishing(shape=shape))
