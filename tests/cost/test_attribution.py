"""The time of slices becomes the cost of keys; slices are as short as can be afforded."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from spillway.cost.attribution import CELLS, Attribution, Pace, shared
from spillway.cost.heavy import HeavySketch
from spillway.kernels import attribution as kernel

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
MS = 1_000_000


class World:
    """Zipf keys whose costs lie between 0.1 and 6.4 ms, as in the papers."""

    def __init__(self, keys: int, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.shares = 1.0 / np.arange(1, keys + 1)
        self.shares /= self.shares.sum()
        self.costs_ns = self.rng.permutation(np.linspace(0.1, 6.4, keys)) * MS
        self.items = self.rng.choice(1 << 31, size=keys, replace=False)

    def slice(self, rows: int) -> tuple[Ints, int]:
        """Draw rows; the time of a slice is 2 % off, at random."""
        drawn = self.rng.choice(self.items.size, size=rows, p=self.shares)
        taken = self.costs_ns[drawn].sum() * (1.0 + 0.02 * self.rng.standard_normal())
        return self.items[drawn], int(taken)

    def error(self, estimates_ns: Floats) -> float:
        """Mean error over the rows, in units of their mean cost."""
        off = np.abs(estimates_ns - self.costs_ns)
        return float(self.shares @ off / (self.shares @ self.costs_ns))


def learnt(world: World, *, rows: int, slices: int) -> Attribution:
    attribution = Attribution()
    for _ in range(slices):
        attribution.learn(*world.slice(rows))
    return attribution


def by_sketch(
    world: World, *, rows: int, slices: int, divide: Callable[[HeavySketch, Ints, int], Ints]
) -> float:
    """Let a sketch learn from shares of the slices, and return its error."""
    sketch = HeavySketch()
    for _ in range(slices):
        items, taken_ns = world.slice(rows)
        sketch.update(items, divide(sketch, items, taken_ns))
    return world.error(sketch.estimate_ns(world.items))


@pytest.mark.parametrize(("rows", "slices"), [(1, 800), (3, 1200), (16, 1200), (64, 1600)])
def test_slices_that_mix_64_keys_are_told_apart_to_within_a_tenth(rows: int, slices: int) -> None:
    world = World(64)
    attribution = learnt(world, rows=rows, slices=slices)
    assert world.error(attribution.estimate_ns(world.items)) < 0.1


def test_equal_shares_never_tell_keys_apart() -> None:
    """With 16 rows a slice the error stays where it is, however many slices are seen."""
    errors = [
        by_sketch(
            World(64), rows=16, slices=slices, divide=lambda _, items, t: shared(items * 0 + 1.0, t)
        )
        for slices in (300, 3000)
    ]
    assert min(errors) > 0.3


def test_shares_by_the_estimates_so_far_are_far_slower() -> None:
    def by_estimate(sketch: HeavySketch, items: Ints, taken_ns: int) -> Ints:
        return shared(np.maximum(sketch.estimate_ns(items), 1.0), taken_ns)

    ours = World(64)
    error = ours.error(learnt(ours, rows=16, slices=1200).estimate_ns(ours.items))
    assert by_sketch(World(64), rows=16, slices=1200, divide=by_estimate) > 2 * error


def test_what_was_known_before_is_where_it_begins() -> None:
    world, known = World(64), HeavySketch()
    known.update(world.items, world.costs_ns.astype(np.int64))
    attribution = Attribution(known)
    assert world.error(attribution.estimate_ns(world.items)) < 0.01
    for _ in range(50):
        attribution.learn(*world.slice(32))
    assert world.error(attribution.estimate_ns(world.items)) < 0.05
    assert known.rows_seen == 64


def test_a_key_that_changes_is_followed() -> None:
    """Ten times as dear from one slice to the next; half the way is gone after 100 slices."""
    world = World(16)
    attribution = learnt(world, rows=4, slices=500)
    world.costs_ns[0] *= 10
    for _ in range(100):
        attribution.learn(*world.slice(4))
    assert attribution.estimate_ns(world.items[:1])[0] > 5 * world.costs_ns[0] / 10


def test_a_new_key_costs_the_mean_and_nothing_is_free() -> None:
    attribution = Attribution()
    assert attribution.mean_ns == 0.0
    attribution.learn(np.array([1, 1]), 200)
    assert attribution.estimate_ns(np.array([7])).tolist() == [100.0]
    attribution.learn(np.array([7]), 0)
    assert attribution.estimate_ns(np.array([7]))[0] >= 1.0


def test_a_slice_without_rows_teaches_nothing() -> None:
    attribution = Attribution()
    attribution.learn(np.zeros(0, dtype=np.int64), 5)
    assert attribution.mean_ns == 0.0
    assert attribution.shares_ns(np.zeros(0, dtype=np.int64), 0).size == 0


@given(
    items=st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=9), max_size=20),
    times=st.lists(st.integers(0, 10**12), min_size=20, max_size=20),
)
def test_the_filter_is_the_one_in_the_formula(items: list[list[int]], times: list[int]) -> None:
    """A slow twin with dictionaries: c += r n d / Σ n² d, d -= 0.3 d n² d / Σ n² d."""
    costs, doubts, counts = np.full(CELLS, np.nan), np.ones(CELLS), np.zeros(CELLS, dtype=np.int64)
    slow_costs: dict[int, float] = {}
    slow_doubts: dict[int, float] = {}
    for drawn, taken_ns in zip(items, times, strict=False):
        cells = np.array(drawn, dtype=np.int64)
        kernel.meet(costs, doubts, cells, np.full(cells.size, 50.0))
        kernel.learn_slice(costs, doubts, counts, cells, taken_ns, 1.0)
        n = {key: drawn.count(key) for key in drawn}
        for key in n:
            slow_costs.setdefault(key, 50.0)
            slow_doubts.setdefault(key, 1.0)
        left = taken_ns - sum(n[key] * slow_costs[key] for key in n)
        weight = sum(n[key] ** 2 * slow_doubts[key] for key in n)
        for key in n:
            part = n[key] * slow_doubts[key] / weight
            slow_costs[key] = max(slow_costs[key] + left * part, 1.0)
            slow_doubts[key] *= 1 - 0.3 * n[key] * part
    for key, cost in slow_costs.items():
        assert costs[key] == pytest.approx(cost, rel=1e-6, abs=1e-3)
        assert doubts[key] == pytest.approx(slow_doubts[key])
    assert not counts.any()


@given(
    weights=st.lists(st.floats(1e-3, 1e12), min_size=1, max_size=50), total=st.integers(0, 10**15)
)
def test_shares_add_up_exactly_and_none_is_negative(weights: list[float], total: int) -> None:
    parts = shared(np.array(weights), total)
    assert int(parts.sum()) == total
    assert (parts >= 0).all()


def paced(row_ns: float, *, own_ns: int, fixed_ns: float = 0.0, noise: float = 0.0) -> float:
    """Return the mean size of the last 40 of 200 slices."""
    pace, rng, sizes = Pace(rows=16, rows_max=10_000), np.random.default_rng(1), []
    for _ in range(200):
        rows = pace.next_rows(10_000)
        taken = fixed_ns + row_ns * rows * (1.0 + noise * rng.standard_normal() / rows**0.5)
        pace.took(rows, taken_ns=int(max(taken, 1.0)), own_ns=own_ns)
        sizes.append(rows)
    return float(np.mean(sizes[-40:]))


@pytest.mark.parametrize(
    ("row_ns", "own_ns", "fixed_ns", "most"),
    [(50e3, 150_000, 0.0, 0.01), (20e3, 50_000, 500e3, 0.06)],
)
def test_calls_take_a_small_part_of_the_time_and_no_smaller_one(
    row_ns: float, own_ns: int, fixed_ns: float, most: float
) -> None:
    """0.5 % at the full size, twice that at the half: 0.7 % on average.

    Of the operator's own fixed time only what is certain counts, so its part is larger.
    """
    rows = paced(row_ns, own_ns=own_ns, fixed_ns=fixed_ns, noise=0.5)
    assert 0.005 <= (own_ns + fixed_ns) / (rows * row_ns) <= most


def test_dear_rows_come_one_by_one_and_cheap_ones_as_they_are() -> None:
    assert paced(25e6, own_ns=150_000, noise=0.5) == 1.0
    assert paced(20.0, own_ns=150_000) > 7_000


def test_noise_is_not_taken_for_a_fixed_time() -> None:
    """Costs as different as the papers': slices stay within a few rows of what calls suggest."""
    wanted = 150_000 / (0.0125 * 3.2e6)  # 3.8 rows
    assert paced(3.2e6, own_ns=150_000, noise=0.57) < 6 * wanted
