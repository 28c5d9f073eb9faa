"""Sample sizes are within their bounds, spend the budget, and no other whole numbers do better."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.shedders.group_sizes import MEAN_MIN, Allocation, Groups, sample_sizes

ALLOCATIONS: tuple[Allocation, ...] = get_args(Allocation)
GROUP = st.tuples(st.integers(1, 60), st.integers(-40, 40), st.integers(0, 30))
WINDOWS = st.lists(GROUP, min_size=1, max_size=12)
SMALL = st.lists(
    st.tuples(st.integers(1, 7), st.integers(1, 9), st.integers(0, 9)), min_size=1, max_size=4
)


def window(groups: list[tuple[int, int, int]]) -> Groups:
    rows, means, deviations = (np.array(column) for column in zip(*groups, strict=True))
    variances = np.where(rows > 1, deviations.astype(float) ** 2, np.nan)
    return Groups(rows=rows, means=means.astype(float), variances=variances)


def claims(groups: Groups, allocation: Allocation) -> np.ndarray:
    """The size s of every group, written out one by one."""
    magnitudes = [abs(mean) for mean in groups.means]
    floor = MEAN_MIN * float(np.median([m for m in magnitudes if m > 0] or [1 / MEAN_MIN]))
    claim = {
        "proportional": lambda n, mean, deviation: n,
        "congress": lambda n, mean, deviation: max(n / groups.rows.sum(), 1 / groups.rows.size),
        "neyman": lambda n, mean, deviation: n * deviation,
        "cvopt": lambda n, mean, deviation: deviation / max(abs(mean), floor),
    }[allocation]
    deviations = np.sqrt(np.where(groups.rows > 1, groups.variances, 0.0))
    each = zip(groups.rows, groups.means, deviations, strict=True)
    return np.array([claim(*group) for group in each])


def loss(sizes: np.ndarray, kept: np.ndarray) -> tuple[int, float, float]:
    """What every allocation minimises: missing groups first, small ones if there must be any."""
    missing, some = kept == 0, kept > 0
    squares = sizes**2
    return (
        int(missing.sum()),
        float(squares[missing].sum()),
        float((squares[some] / kept[some]).sum()),
    )


def bounds(groups: Groups, rows_min: int, rows_max: int | None) -> tuple[np.ndarray, np.ndarray]:
    high = np.minimum(groups.rows, rows_max or 10**9)
    return np.minimum(rows_min, high), high


@pytest.mark.parametrize("allocation", ALLOCATIONS)
@given(
    groups=WINDOWS,
    budget=st.floats(0, 800),
    rows_min=st.integers(0, 4),
    more=st.none() | st.integers(0, 30),
)
def test_sizes_are_within_bounds_and_sum_to_the_budget(
    allocation: Allocation,
    groups: list[tuple[int, int, int]],
    budget: float,
    rows_min: int,
    more: int | None,
) -> None:
    concept = window(groups)
    rows_max = None if more is None else max(rows_min + more, 1)
    kept = sample_sizes(
        concept, budget, allocation=allocation, rows_min=rows_min, rows_max=rows_max
    )
    low, high = bounds(concept, rows_min, rows_max)
    assert kept.dtype == np.int64
    assert (low <= kept).all()
    assert (kept <= high).all()
    wanted = high.sum() if budget >= high.sum() else max(round(budget), low.sum())
    assert kept.sum() == wanted


@pytest.mark.parametrize("allocation", ALLOCATIONS)
@given(groups=SMALL, budget=st.integers(0, 28), rows_min=st.integers(0, 2))
def test_no_whole_numbers_do_better_among_all_that_there_are(
    allocation: Allocation, groups: list[tuple[int, int, int]], budget: int, rows_min: int
) -> None:
    """The slow, obvious twin: every allocation within the bounds and of the same sum."""
    concept = window(groups)
    sizes = claims(concept, allocation)
    kept = sample_sizes(concept, budget, allocation=allocation, rows_min=rows_min)
    low, high = bounds(concept, rows_min, None)
    choices = itertools.product(*(range(a, b + 1) for a, b in zip(low, high, strict=True)))
    losses = [loss(sizes, np.array(c)) for c in choices if sum(c) == kept.sum()]
    assert loss(sizes, kept) == pytest.approx(min(losses), rel=1e-12)


@pytest.mark.parametrize("allocation", ALLOCATIONS)
@given(seed=st.integers(0, 2**32 - 1), share=st.floats(0.001, 1), rows_min=st.integers(1, 3))
def test_no_row_is_worth_more_in_another_group(
    allocation: Allocation, seed: int, share: float, rows_min: int
) -> None:
    """The optimality condition of the convex problem (KKT), on windows of 500 groups.

    The least that a kept row above the minimum saves is the most that a further row would.
    """
    concept = generated(500, seed)
    budget = share * float(concept.rows.sum())
    kept = sample_sizes(concept, budget, allocation=allocation, rows_min=rows_min)
    low, high = bounds(concept, rows_min, None)
    squares = claims(concept, allocation) ** 2
    saved = (squares / np.maximum(kept * (kept - 1.0), 1e-9))[kept > low]
    offered = (squares / (kept * (kept + 1.0)))[kept < high]
    assert saved.min(initial=math.inf) >= offered.max(initial=0.0) * (1 - 1e-9)


@pytest.mark.parametrize("allocation", ["neyman", "cvopt"])
@given(groups=WINDOWS, share=st.floats(0.05, 0.95))
def test_moving_a_row_never_lowers_the_error_that_is_minimised(
    allocation: Allocation, groups: list[tuple[int, int, int]], share: float
) -> None:
    """Neyman: the variance of the total. Cvopt: the squared relative errors of the means."""
    concept = window([(n, mean or 1, deviation) for n, mean, deviation in groups])
    n, variances = concept.rows, np.where(concept.rows > 1, concept.variances, 0.0)
    kept = sample_sizes(concept, share * float(n.sum()), allocation=allocation)

    def error(k: np.ndarray) -> float:
        if allocation == "neyman":
            return float((n**2 * (1 - k / n) * variances / k).sum())
        return float((variances / concept.means**2 * (1 / k - 1 / n)).sum())

    for giver, taker in itertools.permutations(range(n.size), 2):
        moved = kept.copy()
        moved[giver] -= 1
        moved[taker] += 1
        if moved[giver] >= min(2, n[giver]) and moved[taker] <= n[taker]:
            assert error(moved) >= error(kept) * (1 - 1e-9) - 1e-9


def generated(groups: int, seed: int) -> Groups:
    """Sizes, means and spreads over several orders of magnitude."""
    rng = np.random.default_rng(seed)
    rows = np.ceil(1000 / np.arange(1, groups + 1) ** rng.uniform(0.2, 1.2)).astype(np.int64)
    means = rng.lognormal(2, 0.7, groups)
    return Groups(rows=rows, means=means, variances=(means * rng.lognormal(-1, 1, groups)) ** 2)


@pytest.mark.parametrize("allocation", ALLOCATIONS)
def test_away_from_the_bounds_sizes_are_proportional(allocation: Allocation) -> None:
    rng = np.random.default_rng(3)
    concept = Groups(
        rows=rng.integers(10**7, 10**8, 50),
        means=rng.uniform(10, 20, 50),
        variances=rng.uniform(1, 9, 50),
    )
    sizes = claims(concept, allocation)
    kept = sample_sizes(concept, 5_000_000, allocation=allocation)
    assert kept == pytest.approx(5_000_000 * sizes / sizes.sum(), abs=1.0)


@pytest.mark.parametrize("allocation", ALLOCATIONS)
@given(groups=WINDOWS, share=st.floats(0, 1), seed=st.integers(0, 2**32 - 1))
def test_the_order_of_the_groups_decides_among_equals_only(
    allocation: Allocation, groups: list[tuple[int, int, int]], share: float, seed: int
) -> None:
    def given_to(window_: list[tuple[int, int, int]]) -> list[tuple[tuple[int, int, int], int]]:
        concept = window(window_)
        kept = sample_sizes(concept, share * float(concept.rows.sum()), allocation=allocation)
        sizes = claims(concept, allocation)
        each = zip(concept.rows.tolist(), sizes.tolist(), kept.tolist(), strict=True)
        return sorted(each)  # type: ignore[arg-type]

    shuffled = [groups[i] for i in np.random.default_rng(seed).permutation(len(groups))]
    assert given_to(shuffled) == given_to(groups)


def test_among_equals_the_group_named_first_has_the_odd_row() -> None:
    alike = Groups(rows=np.full(3, 10), means=np.ones(3), variances=np.ones(3))
    for allocation in ALLOCATIONS:
        assert sample_sizes(alike, 11, allocation=allocation).tolist() == [4, 4, 3]


def test_several_columns_add_up_their_squares() -> None:
    """3² + 4² = 5²: as one column of spread 5."""
    rows = np.array([100, 100])
    two = Groups(rows=rows, means=np.ones((2, 2)), variances=np.array([[9.0, 16.0], [1.0, 0.0]]))
    one = Groups(rows=rows, means=np.ones(2), variances=np.array([25.0, 1.0]))
    for allocation in ("neyman", "cvopt"):
        kept = sample_sizes(two, 60, allocation=allocation)
        assert kept.tolist() == sample_sizes(one, 60, allocation=allocation).tolist() == [50, 10]


STRATA = st.lists(
    st.tuples(st.integers(1, 6), st.integers(1, 9), st.integers(0, 9), st.integers(0, 2)),
    min_size=1,
    max_size=4,
)


def in_strata(strata: list[tuple[int, int, int, int]]) -> Groups:
    plain = window([each[:3] for each in strata])
    _, parents = np.unique([each[3] for each in strata], return_inverse=True)
    return replace(plain, parents=parents)


@given(strata=STRATA, budget=st.integers(0, 24))
def test_sizes_of_strata_give_their_groups_the_least_squared_relative_errors(
    strata: list[tuple[int, int, int, int]], budget: int
) -> None:
    """Written out: a group's mean is that of its strata, weighed by their rows."""
    groups = in_strata(strata)
    parents = groups.parents
    assert parents is not None
    whole = np.bincount(parents, groups.rows)
    means = np.bincount(parents, groups.rows * groups.means) / whole
    variances = np.where(groups.rows > 1, groups.variances, 0.0)

    def error(kept: Sequence[int]) -> float:
        parts = (groups.rows / whole[parents]) ** 2 * variances / np.array(kept)
        return float((np.bincount(parents, parts) / means**2).sum())

    found = sample_sizes(groups, budget, allocation="cvopt", rows_min=1)
    total = min(max(budget, groups.rows.size), int(groups.rows.sum()))
    assert found.sum() == total
    every = itertools.product(*(range(1, rows + 1) for rows in groups.rows))
    best = min(error(kept) for kept in every if sum(kept) == total)
    assert error(found.tolist()) == pytest.approx(best, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("allocation", ALLOCATIONS)
def test_one_stratum_for_each_group_is_no_stratum_at_all(allocation: Allocation) -> None:
    plain = window([(60, 5, 2), (40, 9, 3), (7, 2, 1), (1, 4, 0)])
    same = replace(plain, parents=np.arange(4))
    found = [sample_sizes(each, 30, allocation=allocation) for each in (plain, same)]
    assert found[0].tolist() == found[1].tolist()


def test_every_stratum_has_a_row_and_every_group_its_least() -> None:
    groups = in_strata([(50, 5, 2, 0), (50, 9, 2, 0), (50, 1, 2, 0), (50, 5, 2, 1)])
    assert sample_sizes(groups, 0, allocation="cvopt", rows_min=2).tolist() == [1, 1, 1, 2]


@pytest.mark.parametrize("allocation", ALLOCATIONS)
@given(
    rows=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    data=st.data(),
    budget=st.floats(0, 200),
)
def test_absurd_moments_are_survived(
    allocation: Allocation, rows: list[int], data: st.DataObject, budget: float
) -> None:
    """NaN, infinite, huge, tiny, negative: any float64 at all."""
    moments = st.lists(
        st.floats(allow_nan=True, allow_infinity=True), min_size=len(rows), max_size=len(rows)
    )
    concept = Groups(
        rows=np.array(rows),
        means=np.array(data.draw(moments)),
        variances=np.array(data.draw(moments)),
    )
    kept = sample_sizes(concept, budget, allocation=allocation)
    assert (np.minimum(2, concept.rows) <= kept).all()
    assert (kept <= concept.rows).all()
    wanted = min(max(round(budget), np.minimum(2, concept.rows).sum()), concept.rows.sum())
    assert kept.sum() == wanted


def test_an_unknown_spread_counts_as_the_median_of_the_known() -> None:
    rows = np.full(4, 1000)
    for unknown in (math.nan, math.inf):
        told = Groups(rows=rows, means=np.ones(4), variances=np.array([1.0, 4.0, 100.0, unknown]))
        guessed = Groups(rows=rows, means=np.ones(4), variances=np.array([1.0, 4.0, 100.0, 4.0]))
        for allocation in ("neyman", "cvopt"):
            expected = sample_sizes(guessed, 300, allocation=allocation).tolist()
            assert sample_sizes(told, 300, allocation=allocation).tolist() == expected


def test_without_any_spread_rows_are_shared_by_size() -> None:
    still = Groups(rows=np.array([300, 100]), means=np.ones(2), variances=np.zeros(2))
    for allocation in ("neyman", "cvopt"):
        assert sample_sizes(still, 40, allocation=allocation).tolist() == [30, 10]


def test_groups_without_spread_get_what_the_others_cannot_use() -> None:
    mixed = Groups(
        rows=np.array([10, 300, 100]), means=np.ones(3), variances=np.array([1.0, 0.0, 0.0])
    )
    for allocation in ("neyman", "cvopt"):
        assert sample_sizes(mixed, 12, allocation=allocation).tolist() == [8, 2, 2]
        assert sample_sizes(mixed, 50, allocation=allocation).tolist() == [10, 30, 10]


def test_a_mean_near_zero_does_not_take_the_whole_budget() -> None:
    """Its relative error is unbounded: |mean| counts as 1 % of the median at least."""
    rows, variances = np.full(5, 10_000), np.full(5, 1.0)
    near = Groups(rows=rows, means=np.array([1e-12, 10, 10, 10, 10]), variances=variances)
    at_floor = Groups(rows=rows, means=np.array([0.1, 10, 10, 10, 10]), variances=variances)
    kept = sample_sizes(near, 1040, allocation="cvopt")
    assert kept.tolist() == sample_sizes(at_floor, 1040, allocation="cvopt").tolist()
    assert kept.tolist() == [1000, 10, 10, 10, 10]


@pytest.mark.parametrize("allocation", ALLOCATIONS)
def test_no_groups_have_no_sizes(allocation: Allocation) -> None:
    none = Groups(rows=np.array([], dtype=np.int64), means=np.array([]), variances=np.array([]))
    assert sample_sizes(none, 10, allocation=allocation).tolist() == []


@pytest.mark.parametrize("allocation", ALLOCATIONS)
def test_one_group_has_the_budget(allocation: Allocation) -> None:
    one = Groups(rows=np.array([10**9]), means=np.array([3.0]), variances=np.array([2.0]))
    assert sample_sizes(one, 12_345, allocation=allocation).tolist() == [12_345]
    assert sample_sizes(one, 0, allocation=allocation).tolist() == [2]
    assert sample_sizes(one, math.inf, allocation=allocation).tolist() == [10**9]


def test_a_million_groups_are_allocated_exactly() -> None:
    few = generated(1_000_000, 1)
    concept = Groups(rows=few.rows + 9, means=few.means, variances=few.variances)
    kept = sample_sizes(concept, 3_000_000, allocation="cvopt")
    low, high = bounds(concept, 2, None)
    squares = claims(concept, "cvopt") ** 2
    assert kept.sum() == 3_000_000
    saved = (squares / np.maximum(kept * (kept - 1.0), 1e-9))[kept > low]
    assert saved.min() >= (squares / (kept * (kept + 1.0)))[kept < high].max() * (1 - 1e-9)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"budget": -1.0}, "budget must be >= 0, got -1"),
        ({"budget": math.nan}, "budget must be >= 0, got nan"),
        ({"allocation": "best"}, "allocation must be one of .*got 'best'"),
        ({"rows_min": -1}, "rows_min must be >= 0, got -1"),
        ({"rows_min": 5, "rows_max": 4}, "rows_max must be .* got 4"),
        ({"rows_min": 0, "rows_max": 0}, "rows_max must be >= 1 .* got 0"),
    ],
)
def test_nonsense_is_refused_by_name(wrong: dict[str, object], told: str) -> None:
    concept = Groups(rows=np.array([5, 5]), means=np.ones(2), variances=np.ones(2))
    arguments = {"budget": 4.0, "allocation": "cvopt", **wrong}
    with pytest.raises(ValueError, match=told):
        sample_sizes(concept, **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"rows": np.array([1, 0])}, "rows must be"),
        ({"means": np.ones(3)}, "means must have"),
        ({"variances": np.ones((2, 2))}, "variances must have"),
        ({"parents": np.arange(3)}, "parents must have"),
    ],
)
def test_groups_that_do_not_fit_together_are_refused(wrong: dict[str, object], told: str) -> None:
    arguments = {"rows": np.array([5, 5]), "means": np.ones(2), "variances": np.ones(2), **wrong}
    with pytest.raises(ValueError, match=told):
        Groups(**arguments)  # type: ignore[arg-type]
