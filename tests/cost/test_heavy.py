"""Heavy keys are exact, the rest is a sketch, and no row is lost between the two."""

from __future__ import annotations

import math
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.cost.heavy import HeavySketch
from spillway.cost.items import items_of
from spillway.cost.sketch import CostSketch, SketchShape
from spillway.kernels.sketch import COST_NS_MAX
from spillway.sim.workloads import Recipe

ROWS = st.lists(st.tuples(st.integers(0, 30), st.integers(-5, 10**9)), max_size=80)
SMALL = SketchShape(rows=2, columns=3)


def ints(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def filled(rows: list[tuple[int, int]], capacity: int = 8, places: int = 2) -> HeavySketch:
    sketch = HeavySketch(SMALL, capacity=capacity, places=places)
    sketch.update(*np.array(rows, dtype=np.int64).reshape(-1, 2).T)
    return sketch


def totals(sketch: HeavySketch) -> tuple[int, int]:
    return sketch.rows_seen, sketch.work_total_ns


def truth(rows: list[tuple[int, int]]) -> tuple[int, int]:
    return len(rows), sum(max(cost_ns, 0) for _, cost_ns in rows)


@given(rows=ROWS, capacity=st.sampled_from([0, 2, 8]))
def test_totals_are_exact_whatever_was_evicted(rows: list[tuple[int, int]], capacity: int) -> None:
    sketch = filled(rows, capacity)
    assert totals(sketch) == truth(rows)
    if rows:
        assert sketch.mean_ns == truth(rows)[1] / len(rows)


@given(rows=ROWS, others=ROWS, more=ROWS)
@settings(max_examples=150)
def test_totals_are_exact_whatever_was_merged(
    rows: list[tuple[int, int]], others: list[tuple[int, int]], more: list[tuple[int, int]]
) -> None:
    sketch = filled(rows)
    sketch.merge(filled(others))
    for key, cost_ns in more:
        sketch.update_one(key, cost_ns)
    assert totals(sketch) == truth(rows + others + more)


@given(rows=ROWS.filter(bool))
def test_every_estimate_lies_between_the_least_and_the_greatest_cost(
    rows: list[tuple[int, int]],
) -> None:
    estimates = filled(rows).estimate_ns(np.arange(-50, 50))
    costs = [max(cost_ns, 0) for _, cost_ns in rows]
    assert estimates.min() >= min(costs)
    assert estimates.max() <= max(costs) * (1 + 1e-15)


@given(rows=ROWS)
def test_a_batch_is_its_rows_one_by_one(rows: list[tuple[int, int]]) -> None:
    single = filled([])
    for key, cost_ns in rows:
        single.update_one(key, cost_ns)
    assert single.to_bytes() == filled(rows).to_bytes()


@given(rows=ROWS)
def test_capacity_0_is_the_sketch_alone(rows: list[tuple[int, int]]) -> None:
    alone = CostSketch(SMALL)
    alone.update(*np.array(rows, dtype=np.int64).reshape(-1, 2).T)
    heavy = filled(rows, capacity=0)
    keys = np.arange(40)
    assert heavy.sketch.to_bytes() == alone.to_bytes()
    assert heavy.estimate_ns(keys).tolist() == alone.estimate_ns(keys).tolist()
    assert heavy.heavy_keys.size == 0


def test_as_many_keys_as_places_are_all_exact() -> None:
    sketch = HeavySketch(SketchShape(columns=1), capacity=4, places=4)
    sketch.update(ints(1, 2, 3, 4, 4), ints(10, 20, 30, 40, 41))
    assert sketch.estimate_ns(ints(1, 2, 3, 4)).tolist() == [10.0, 20.0, 30.0, 40.5]
    assert sorted(sketch.heavy_keys) == [1, 2, 3, 4]


def test_an_unseen_key_costs_the_mean_of_all_rows_with_the_heavy_ones() -> None:
    sketch = HeavySketch(SketchShape(columns=1000), capacity=1, places=1)
    assert sketch.estimate_ns(ints(5)).tolist() == [0.0]
    assert math.isnan(sketch.mean_ns)
    sketch.update(ints(1, 2), ints(100, 300))  # 1 was evicted by 2
    assert sketch.heavy_keys.tolist() == [2]
    assert sketch.estimate_ns(ints(1, 2, 77)).tolist() == [100.0, 300.0, 200.0]


def test_the_heaviest_keys_of_a_skewed_stream_are_exact() -> None:
    recipe = Recipe(zipf=1.5)
    stream, costs = recipe.stream(0, 0), recipe.cost_by_key(0)
    items = items_of(np.arange(recipe.keys))
    sketch = HeavySketch()
    sketch.update(items[stream.keys], stream.costs_ns)
    assert sketch.estimate_ns(items[:50]).tolist() == costs[:50].tolist()


def test_at_the_papers_size_the_heavy_part_makes_the_error_three_times_smaller() -> None:
    """4 x 54, Zipf 1.0: the median of 9 streams."""
    factors = [weighted_error(capacity=0, seed=s) / weighted_error(1024, s) for s in range(9)]
    assert np.median(factors) >= 3


def weighted_error(capacity: int, seed: int) -> float:
    recipe = Recipe()
    stream, costs = recipe.stream(seed, seed), recipe.cost_by_key(seed)
    items = items_of(np.arange(recipe.keys))
    sketch = HeavySketch(SketchShape(seed=seed), capacity=capacity)
    sketch.update(items[stream.keys], stream.costs_ns)
    counts = np.bincount(stream.keys, minlength=recipe.keys)
    wrong = np.abs(sketch.estimate_ns(items) - costs)
    return float((counts * wrong).sum() / (counts * costs).sum())


# Merging


def test_a_key_that_both_know_stays_exact() -> None:
    one, other = filled([(1, 10)] * 3), filled([(1, 20)] * 2)
    one.merge(other)
    assert one.heavy_keys.tolist() == [1]
    assert one.estimate_ns(ints(1)).tolist() == [14.0]


def test_of_two_full_tables_the_greatest_ranks_stay_and_the_rest_goes_into_the_sketch() -> None:
    one = filled([(1, 10)] * 3 + [(2, 20)], capacity=2)
    other = filled([(3, 30)] * 2 + [(4, 40)] * 5, capacity=2)
    one.merge(other)
    assert sorted(one.heavy_keys) == [1, 4]
    assert one.sketch.rows_seen == 3  # keys 2 and 3
    assert totals(one) == (11, 30 + 20 + 60 + 200)
    assert other.rows_seen == 7  # untouched


def test_merging_with_itself_doubles() -> None:
    sketch = filled([(key, key) for key in range(20)])
    seen, work = totals(sketch)
    sketch.merge(sketch)
    assert totals(sketch) == (2 * seen, 2 * work)


def test_a_table_of_another_size_does_not_merge() -> None:
    for other in (filled([], capacity=4), filled([], places=1), HeavySketch(capacity=8, places=2)):
        with pytest.raises(ValueError, match="other must have shape, capacity and places"):
            filled([]).merge(other)


def test_a_copy_is_independent_and_a_reset_forgets() -> None:
    sketch = filled([(1, 5), (2, 6)])
    twin = sketch.copy()
    assert twin.to_bytes() == sketch.to_bytes()
    twin.update_one(1, 7)
    assert (sketch.rows_seen, twin.rows_seen) == (2, 3)
    sketch.reset()
    assert sketch.to_bytes() == filled([]).to_bytes()


def test_an_insane_cost_counts_as_nothing_or_as_a_day() -> None:
    sketch = filled([(1, -(2**63)), (2, 2**63 - 1)])
    sketch.update_one(3, 2**70)
    assert totals(sketch) == (3, 2 * COST_NS_MAX)


@pytest.mark.parametrize(
    ("capacity", "places"), [(-4, 4), (6, 4), (1 << 23, 4), (8, 0), (8, -2), (650, 65)]
)
def test_a_table_that_is_no_rectangle_or_too_large_is_refused(capacity: int, places: int) -> None:
    with pytest.raises(ValueError, match="must be in"):
        HeavySketch(capacity=capacity, places=places)


# Bytes


@given(rows=ROWS, capacity=st.sampled_from([0, 2, 8]))
def test_bytes_bring_back_the_same_sketch(rows: list[tuple[int, int]], capacity: int) -> None:
    sketch = filled(rows, capacity)
    again = HeavySketch.from_bytes(sketch.to_bytes())
    assert again.to_bytes() == sketch.to_bytes()
    again.update_one(1, 1)  # it is alive
    assert again.rows_seen == sketch.rows_seen + 1


def example() -> bytes:
    return filled([(key, key) for key in range(12)], capacity=4).to_bytes()


def test_every_truncation_is_refused() -> None:
    data = example()
    for size in range(len(data)):
        with pytest.raises(ValueError, match="data must"):
            HeavySketch.from_bytes(data[:size])
    with pytest.raises(ValueError, match="data must"):
        HeavySketch.from_bytes(data + b"\0")


def test_every_damaged_bit_is_refused() -> None:
    data = example()
    for bit in range(8 * len(data)):
        bad = bytearray(data)
        bad[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError, match="must"):
            HeavySketch.from_bytes(bytes(bad))


@given(data=st.binary(max_size=200))
@settings(max_examples=200)
def test_foreign_bytes_are_refused(data: bytes) -> None:
    for start in (b"", b"SWH1", CostSketch(SMALL).to_bytes()):
        with pytest.raises(ValueError, match="must"):
            HeavySketch.from_bytes(start + data)


def crafted(table: np.ndarray) -> bytes:
    """The bytes of a sketch whose table is what somebody wrote into it, with a fitting checksum."""
    sketch = HeavySketch(SMALL, capacity=4, places=2)
    sketch.table[:] = table
    return sketch.to_bytes()


@pytest.mark.parametrize(
    ("entry", "rule"),
    [
        ((0, 1, -1, 5), "no negative numbers"),
        ((0, 1, 1, -5), "no negative numbers"),
        ((0, 1, 2, 5), "rank every key at least by its count"),
        ((7, 0, 0, 0), "empty places empty"),
        ((0, 3, 0, 0), "empty places empty"),
        ((1, 1, 1, 5), "in its own bucket"),
    ],
)
def test_crafted_entries_are_refused_by_their_rule(
    entry: tuple[int, int, int, int], rule: str
) -> None:
    table = np.zeros((4, 2, 2), dtype=np.int64)
    table[:, 0, 0] = entry
    with pytest.raises(ValueError, match=rule):
        HeavySketch.from_bytes(crafted(table))


def test_a_key_in_two_places_is_refused() -> None:
    table = np.zeros((4, 2, 2), dtype=np.int64)
    table[:, 0, 0] = table[:, 0, 1] = (0, 1, 1, 5)
    with pytest.raises(ValueError, match="every heavy key once"):
        HeavySketch.from_bytes(crafted(table))


@pytest.mark.parametrize("capacity", [2**31 - 4, -4, 3])
def test_a_size_in_the_header_that_cannot_be_is_refused_before_anything_is_allocated(
    capacity: int,
) -> None:
    body = struct.pack(">4sii", b"SWH1", capacity, 2) + bytes(100)
    with pytest.raises(ValueError, match="capacity must be in"):
        HeavySketch.from_bytes(body + struct.pack(">I", zlib.crc32(body)))
