"""A packed table says what the sketch says, to a unit; it is small, and damage is noticed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.cost.heavy import HeavySketch
from spillway.cost.sketch import CostSketch, SketchShape
from spillway.cost.table import (
    BUCKET_MULTIPLIER,
    BUCKETS,
    COLUMNS,
    MULTIPLIERS,
    PLACES,
    PRIME,
    UNIT_NS,
    CostLookup,
    cells_of,
    gate_array,
    pack,
    usual,
)
from spillway.kernels import heavy as heavy_kernel
from spillway.kernels import sketch as sketch_kernel
from spillway.sim.workloads import Recipe
from spillway.values import CostTable


def learnt(rows: int = 20_000, seed: int = 1) -> HeavySketch:
    stream = Recipe(rows=rows).stream(seed, seed)
    sketch = HeavySketch()
    sketch.update(stream.keys * 7919, stream.costs_ns)
    return sketch


def items(count: int = 4_096) -> np.ndarray:
    return np.arange(count) * 7919


def test_the_usual_sizes_and_hashes_are_those_of_a_new_sketch() -> None:
    new = HeavySketch()
    assert new.table.shape == (4, BUCKETS, PLACES)
    assert new.shape == SketchShape(rows=len(MULTIPLIERS), columns=COLUMNS)
    assert new.sketch.multipliers.tolist() == list(MULTIPLIERS)
    assert (BUCKET_MULTIPLIER, PRIME) == (heavy_kernel.MULTIPLIER, sketch_kernel.PRIME)


@settings(max_examples=50)
@given(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=50))
def test_numpy_and_the_kernel_find_the_same_cells(numbers: list[int]) -> None:
    given_items = np.array(numbers)
    found = cells_of(given_items, BUCKET_MULTIPLIER, BUCKETS)
    assert found.tolist() == heavy_kernel.buckets_of(given_items, BUCKETS).tolist()


def test_a_heavy_key_costs_its_exact_mean_to_half_a_unit() -> None:
    sketch = learnt()
    found = CostLookup.of(pack(sketch)).estimate_ns(sketch.heavy_keys)
    assert np.abs(found - sketch.estimate_ns(sketch.heavy_keys)).max() <= UNIT_NS / 2


def test_a_light_key_costs_its_least_cell_leaning_to_the_mean() -> None:
    """A cell of F rows counts as those and eight more at the mean."""
    sketch = learnt()
    light = np.setdiff1d(items(), sketch.heavy_keys)
    counts, mean = sketch.sketch.frequencies(light), sketch.mean_ns
    cells = sketch.sketch.estimate_ns(light)
    leaning = (cells * counts + 8 * mean) / (counts + 8)
    found = CostLookup.of(pack(sketch)).estimate_ns(light)
    # Of two cells with the same F the table takes the cheaper, the sketch the first.
    assert np.mean(np.abs(found - leaning) <= UNIT_NS) > 0.9


def test_an_unseen_key_costs_the_mean_or_what_is_said_of_it() -> None:
    sketch = HeavySketch()
    sketch.update(np.array([1]), np.array([5_000]))
    stranger = np.array([77])
    assert CostLookup.of(pack(sketch)).estimate_ns(stranger).tolist() == [5_000.0]
    table = pack(sketch, unseen_ns=9_000.0)
    assert CostLookup.of(table).estimate_ns(stranger).tolist() == [9_000.0]
    assert CostLookup.of(table).estimate_ns(np.array([1])).tolist() == [5_000.0]


def test_nothing_is_free_and_nothing_is_beyond_the_unit_s_range() -> None:
    sketch = HeavySketch()
    sketch.update(np.array([1, 2]), np.array([0, sketch_kernel.COST_NS_MAX]))
    free, dear = CostLookup.of(pack(sketch)).estimate_ns(np.array([1, 2])).tolist()
    assert free == UNIT_NS
    assert dear == (2**31 - 1) * UNIT_NS
    assert CostLookup.of(pack(HeavySketch())).estimate_ns(np.array([3])).tolist() == [UNIT_NS]


def test_foreseen_costs_are_the_found_ones_but_for_keys_that_came_once() -> None:
    sketch = learnt()
    lookup = CostLookup.of(pack(sketch))
    once = sketch.table[0][sketch.table[2] == 1]
    often = np.setdiff1d(items(), once)
    assert once.size > 10
    assert lookup.foresee_ns(often).tolist() == lookup.estimate_ns(often).tolist()
    as_new = replace_heavy(lookup).estimate_ns(once)
    assert lookup.foresee_ns(once).tolist() == as_new.tolist()


def replace_heavy(lookup: CostLookup) -> CostLookup:
    return replace(lookup, heavy=np.zeros((0, 1), dtype=np.int64))


def test_an_instance_has_costs_of_its_own() -> None:
    sketch, slow = learnt(), CostSketch()
    slow.update(np.full(1000, 5), np.full(1000, 80_000))
    lookup = CostLookup.of(pack(sketch, (CostSketch(), slow)))
    assert lookup.estimate_ns(np.array([5]), instance=1)[0] > 79_000


def test_the_gate_s_array_is_places_then_cells_and_alike_without_a_table() -> None:
    table = pack(learnt())
    lookup = CostLookup.of(table)
    flat = gate_array(table)
    assert flat.size == BUCKETS * PLACES + len(MULTIPLIERS) * COLUMNS
    assert flat[: BUCKETS * PLACES].tolist() == lookup.heavy.ravel().tolist()
    assert np.unique(gate_array(None)).tolist() == [0, 1]


@pytest.mark.parametrize(
    "other",
    [
        pack(HeavySketch(SketchShape(columns=10))),
        pack(HeavySketch(SketchShape(seed=3))),
        pack(HeavySketch(capacity=512)),
        pack(HeavySketch(capacity=1024, places=8)),
        replace(pack(HeavySketch()), heavy=b"damaged"),
        None,
    ],
    ids=["columns", "seed", "capacity", "places", "damaged", "none"],
)
def test_a_table_of_other_sizes_is_not_used(other: CostTable | None) -> None:
    assert usual(other) is None
    assert gate_array(other).tolist() == gate_array(None).tolist()


def test_a_full_table_is_small() -> None:
    """1,024 keys with their own costs and 216 cells: at most 12 kB, whatever was seen."""
    rng = np.random.default_rng(3)
    sketch = HeavySketch()
    sketch.update(rng.integers(0, 2**31, 200_000), rng.integers(0, 10**9, 200_000))
    table = pack(sketch)
    assert len(table.heavy) + len(table.counts) + len(table.cells) < 12_000


@pytest.mark.parametrize("spread", [0.0, 0.02, 0.2])
def test_the_spread_of_costs_is_that_of_the_rows(spread: float) -> None:
    """Of keys in the sketch and of heavy ones: 4,096 keys that differ by so much.

    Keys that share a cell of the sketch look alike, so that less is seen, never more.
    """
    rng = np.random.default_rng(2)
    drawn, costs_ns = rng.zipf(1.3, 20_000) % 4_096, 1e6 * rng.normal(1.0, spread, 4_096).clip(0.1)
    sketch = HeavySketch()
    sketch.update(items()[drawn], costs_ns[drawn].astype(np.int64))
    true_ns = float(costs_ns[drawn].std())
    assert 0.8 * true_ns - 1 <= CostLookup.of(pack(sketch)).spread_ns() <= 1.02 * true_ns + 100


def test_instances_differ_where_their_number_has_paces() -> None:
    sketch = HeavySketch()
    sketch.update(items(), np.full(4_096, 10**6))
    paced = CostLookup.of(replace(pack(sketch), paces=(0.9, 1.1)))
    assert [paced.differ(instances) for instances in (2, 3)] == [True, False]
    assert not CostLookup.of(pack(sketch)).differ(2)
