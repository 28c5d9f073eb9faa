"""Fair choice among batches: algorithm 1, its weights, its capacity, and what no swap improves."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.shedders.fair import Backlog, EqualWork, Fair, Last, Random
from spillway.shedders.water_filling import shares
from tests import naive_fair


def backlog(
    queries: list[int],
    sizes: list[float],
    sic: list[float],
    projected: list[float],
    weights: list[float] | None = None,
) -> Backlog:
    return Backlog(
        queries=np.array(queries, dtype=np.int64),
        sizes=np.array(sizes, dtype=np.float64),
        sic=np.array(sic, dtype=np.float64),
        projected=np.array(projected, dtype=np.float64),
        **({} if weights is None else {"weights": np.array(weights, dtype=np.float64)}),
    )


# Three queries that have reached 0.30, 0.00 and 0.10. Batches 0-6 in order of arrival.
HAND = backlog(
    queries=[0, 1, 1, 2, 2, 1, 0],
    sizes=[10, 20, 5, 30, 10, 5, 40],
    sic=[0.10, 0.20, 0.05, 0.30, 0.10, 0.15, 0.40],
    projected=[0.30, 0.00, 0.10],
)


def chosen(kept: np.ndarray) -> list[int]:
    return np.flatnonzero(kept).tolist()


def test_the_paper_s_algorithm_on_an_example_worked_by_hand() -> None:
    """By hand, SIC of the queries before each step and the batch that is kept (rows so far).

    .30 .00 .10: query 1, its best is batch 1 (20).  .30 .20 .10: query 2, batch 3 (50).
    .30 .20 .40: query 1, batch 5 (55).              .30 .35 .40: query 0, batch 6 (95).
    .70 .35 .40: query 1, batch 2 (100).             .70 .40 .40: query 1 is done; query 2, 4 (110).
    """
    steps = {1: [1], 21: [1, 3], 51: [1, 3, 5], 56: [1, 3, 5, 6], 96: [1, 2, 3, 5, 6]}
    for rows, expected in steps.items():
        assert chosen(Fair(last=Last.OVER).keep(HAND, rows)) == expected
    assert chosen(Fair(last=Last.OVER).keep(HAND, 101)) == [1, 2, 3, 4, 5, 6]
    assert chosen(Fair(last=Last.OVER).keep(HAND, 1_000)) == list(range(7))


def test_within_the_capacity_a_batch_that_does_not_fit_is_passed_over() -> None:
    """20 rows: batch 1 fits exactly. 30: batch 3 (30 rows) does not, batch 4 of that query does.

    29: neither does; query 1 is next with batch 5, after which nothing fits.
    """
    whole = Fair(last=Last.WITHIN)
    assert chosen(whole.keep(HAND, 20)) == [1]
    assert chosen(whole.keep(HAND, 30)) == [1, 4]
    assert chosen(whole.keep(HAND, 29)) == [1, 5]


def test_of_the_last_batch_a_part_is_kept_that_fills_the_capacity() -> None:
    """26 rows: batch 1 (20) and 6 of the 30 rows of batch 3."""
    assert Fair().keep(HAND, 26).tolist() == [0, 1, 0, 0.2, 0, 0, 0]


def test_sic_after_adds_what_is_kept() -> None:
    assert HAND.sic_after(Fair().keep(HAND, 26)) == pytest.approx([0.30, 0.20, 0.16])


# Drawn backlogs ------------------------------------------------------------------------------


@st.composite
def backlogs(draw: st.DrawFn, *, alike: bool = False) -> Backlog:
    """Draw some batches of a few queries; `alike` makes all batches of one size."""
    count = draw(st.integers(1, 5))
    batches = draw(st.integers(0, 12))
    lists = [
        draw(st.lists(values, min_size=size, max_size=size))
        for values, size in (
            (st.integers(0, count - 1), batches),
            (st.just(1) if alike else st.integers(1, 9), batches),
            (st.integers(1, 16).map(lambda n: n / 64), batches),
            (st.integers(0, 32).map(lambda n: n / 64), count),
            (st.sampled_from([0.0, 0.5, 1.0, 2.0]), count),
        )
    ]
    return backlog(*lists)


@given(backlogs(), st.integers(0, 60), st.sampled_from(Last))
def test_the_choice_is_that_of_the_naive_version(
    waiting: Backlog, capacity: int, last: Last
) -> None:
    naive = naive_fair.keep(
        waiting.queries.tolist(),
        waiting.sizes.tolist(),
        waiting.sic.tolist(),
        waiting.projected.tolist(),
        waiting.weights.tolist(),
        capacity,
        last=last.name,
    )
    assert Fair(last=last).keep(waiting, capacity).tolist() == pytest.approx(naive)


@given(backlogs(), st.integers(0, 60), st.sampled_from([Fair(), Random(seed=3), EqualWork()]))
def test_the_capacity_is_never_exceeded_and_never_left_unused(
    waiting: Backlog, capacity: int, policy: Fair | Random | EqualWork
) -> None:
    kept = policy.keep(waiting, capacity)
    assert ((kept >= 0) & (kept <= 1)).all()
    assert ((kept > 0) & (kept < 1)).sum() <= 1
    assert kept @ waiting.sizes == pytest.approx(min(capacity, waiting.sizes.sum()))


@given(backlogs(), st.integers(0, 60), st.sampled_from([Fair, Random]))
def test_in_whole_batches_nothing_is_shed_that_would_still_fit(
    waiting: Backlog, capacity: int, make: type[Fair] | type[Random]
) -> None:
    kept = make(last=Last.WITHIN).keep(waiting, capacity)
    spent = kept @ waiting.sizes
    assert set(kept.tolist()) <= {0.0, 1.0}
    assert spent <= capacity
    assert (waiting.sizes[kept == 0] > capacity - spent).all()


@given(backlogs(), st.integers(0, 60), st.sampled_from([Last.PART, Last.OVER]))
def test_no_swap_of_a_kept_batch_for_a_shed_one_improves_the_least_sic(
    waiting: Backlog, capacity: int, last: Last
) -> None:
    """Stronger than the bound of one batch's worth, which one added batch cannot exceed anyway.

    The swap may even take more of the capacity than there is.
    """
    waiting = _without_weights(waiting)
    kept = Fair(last=last).keep(waiting, capacity)
    best = _least_active(waiting, kept)
    for out, into in product(np.flatnonzero(kept == 1), np.flatnonzero(kept < 1)):
        swapped = kept.copy()
        swapped[[out, into]] = 0.0, 1.0
        assert _least_active(waiting, swapped) <= best + 1e-12


def test_swaps_improve_a_random_choice() -> None:
    """So that the test above can fail."""
    waiting = backlog([0, 0, 1, 1], [1] * 4, [0.5] * 4, [0.0, 0.0])
    assert any(
        _least_active(waiting, Random(seed=seed).keep(waiting, 2)) == 0.0 for seed in range(20)
    )
    assert _least_active(waiting, Fair().keep(waiting, 2)) == 0.5


@given(backlogs(alike=True), st.integers(0, 8))
def test_with_batches_of_one_size_no_choice_at_all_has_a_greater_least_sic(
    waiting: Backlog, capacity: int
) -> None:
    waiting = _without_weights(waiting)
    size = min(waiting.queries.size, 8)
    waiting = backlog(
        waiting.queries[:size].tolist(),
        waiting.sizes[:size].tolist(),
        waiting.sic[:size].tolist(),
        waiting.projected.tolist(),
    )
    best = _least_active(waiting, Fair().keep(waiting, capacity))
    for bits in product([False, True], repeat=size):
        if sum(bits) <= capacity:
            assert _least_active(waiting, np.array(bits, dtype=float)) <= best + 1e-12


def _without_weights(waiting: Backlog) -> Backlog:
    return backlog(
        waiting.queries.tolist(),
        waiting.sizes.tolist(),
        waiting.sic.tolist(),
        waiting.projected.tolist(),
    )


def _least_active(waiting: Backlog, kept: np.ndarray) -> float:
    """Return the least SIC of the queries that have batches: nothing helps the others."""
    active = np.unique(waiting.queries)
    return float(waiting.sic_after(kept)[active].min(initial=1.0))


def shortfall(policy: Fair | Random, seed: int) -> tuple[float, float]:
    """Return by how much the least SIC misses the water level, and the worth of a batch.

    Queries of unequal rates and costs whose batches have unequal sizes; the rows of a query are
    alike, so that no choice of any rows at all can lift the least SIC above the level.
    """
    rng = np.random.default_rng(seed)
    count = 12
    queries = rng.integers(0, count, size=400)
    rows = rng.integers(1, 200, size=400).astype(float)
    totals = np.bincount(queries, weights=rows, minlength=count)
    costs = np.geomspace(1, 50, count)
    waiting = Backlog(
        queries=queries,
        sizes=rows * costs[queries],
        sic=rows / totals[queries],
        projected=np.zeros(count),
    )
    capacity = float(waiting.sizes.sum()) * rng.uniform(0.1, 0.9)
    level = float(shares(totals * costs, capacity).min())
    kept = policy.keep(waiting, capacity)
    return level - float(waiting.sic_after(kept).min()), float(waiting.sic.max())


def test_the_least_sic_is_within_one_batch_of_the_best_that_any_split_could_reach() -> None:
    for seed in range(50):
        missing, worth = shortfall(Fair(), seed)
        assert -1e-9 <= missing <= worth


def test_random_choice_is_not() -> None:
    found = [shortfall(Random(seed=seed), seed) for seed in range(50)]
    assert sum(missing > worth for missing, worth in found) > 25


# Equals, weights -------------------------------------------------------------------------------


def test_equal_queries_get_equal_shares() -> None:
    one = [0.05] * 20
    waiting = backlog(sorted([*range(4)] * 20), [3.0] * 80, one * 4, [0.0] * 4)
    sic = waiting.sic_after(Fair().keep(waiting, 120))
    assert sic == pytest.approx([0.5] * 4)


def test_sic_goes_in_proportion_to_weights() -> None:
    queries = np.repeat(np.arange(3), 1000)
    waiting = Backlog(
        queries=queries,
        sizes=np.ones(3000),
        sic=np.full(3000, 0.001),
        projected=np.zeros(3),
        weights=np.array([1.0, 2.0, 4.0]),
    )
    sic = waiting.sic_after(Fair().keep(waiting, 700))
    assert sic == pytest.approx([0.1, 0.2, 0.4], abs=0.001)


def test_a_query_of_weight_zero_gets_what_the_others_leave() -> None:
    waiting = backlog([0, 0, 1, 1], [1] * 4, [0.5] * 4, [0.0, 0.0], [0.0, 1.0])
    assert chosen(Fair().keep(waiting, 1)) == [2]
    assert chosen(Fair().keep(waiting, 2)) == [2, 3]
    assert chosen(Fair().keep(waiting, 3)) == [0, 2, 3]


def test_without_any_weight_all_are_equal() -> None:
    waiting = backlog([0, 0, 1, 1], [1] * 4, [0.5] * 4, [0.0, 0.0], [0.0, 0.0])
    assert chosen(Fair().keep(waiting, 2)) == [0, 2]


def test_a_silent_query_takes_nothing_and_breaks_nothing() -> None:
    waiting = backlog([1, 1], [1, 1], [0.5, 0.5], [0.0, 0.2, 0.0])
    assert chosen(Fair().keep(waiting, 1)) == [0]
    assert chosen(Fair().keep(backlog([], [], [], [0.0]), 1)) == []


def test_equal_work_favours_the_light_query_where_fair_does_not() -> None:
    """Query 1's batches cost ten times as much: of 110, equal work gives 51 to the one (its turn
    came first) and 59 to the other, fair ten batches to each.
    """
    queries = np.repeat([0, 1], 100)
    waiting = Backlog(
        queries=queries,
        sizes=np.where(queries == 0, 1.0, 10.0),
        sic=np.full(200, 0.01),
        projected=np.zeros(2),
    )
    assert waiting.sic_after(EqualWork().keep(waiting, 110)) == pytest.approx([0.51, 0.059])
    assert waiting.sic_after(Fair().keep(waiting, 110)) == pytest.approx([0.1, 0.1])


def test_random_choice_is_the_same_for_a_turn_and_another_for_the_next() -> None:
    waiting = backlog([0] * 50, [1] * 50, [0.02] * 50, [0.0])
    first = Random(seed=1).keep(waiting, 25, turn=1)
    assert np.array_equal(first, Random(seed=1).keep(waiting, 25, turn=1))
    assert not np.array_equal(first, Random(seed=1).keep(waiting, 25, turn=2))
    assert not np.array_equal(first, Random(seed=2).keep(waiting, 25, turn=1))


def test_random_choice_keeps_every_batch_equally_often() -> None:
    """Chi-square over 40 batches, 39 degrees of freedom; passed less than once in 10^5."""
    waiting = backlog([0] * 40, [1] * 40, [0.02] * 40, [0.0])
    kept = sum(Random(seed=1).keep(waiting, 10, turn=turn) for turn in range(2000))
    expected = 2000 * 10 / 40
    # Without replacement a batch's count varies by the factor (1 - 10/40) less.
    assert (((kept - expected) ** 2).sum() / (expected * 0.75)) * 39 / 40 < 91.7


# Refusals ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": np.array([1.0, -1.0])}, "weights must be finite and >= 0, got -1.0"),
        ({"weights": np.array([1.0, np.nan])}, "weights must be finite and >= 0, got nan"),
        ({"weights": np.ones(3)}, r"weights must have one value per query, 2, got \(3,\)"),
        ({"sic": np.array([0.1, np.inf])}, "sic must be finite and >= 0, got inf"),
        ({"sizes": np.array([1.0, -2.0])}, "sizes must be finite and >= 0, got -2.0"),
        ({"sizes": np.ones(3)}, r"sizes must have one value per batch, 2, got \(3,\)"),
        ({"projected": np.array([0.1, -0.1])}, "projected must be finite and >= 0, got -0.1"),
        ({"queries": np.array([0, 2])}, r"queries must be in \[0, 2\), got 0 to 2"),
        ({"queries": np.array([-1, 1])}, r"queries must be in \[0, 2\), got -1 to 1"),
    ],
)
def test_what_is_no_backlog_is_refused(change: dict[str, np.ndarray], message: str) -> None:
    good = {
        "queries": np.array([0, 1]),
        "sizes": np.ones(2),
        "sic": np.full(2, 0.1),
        "projected": np.zeros(2),
    }
    with pytest.raises(ValueError, match=message):
        Backlog(**(good | change))


@pytest.mark.parametrize("policy", [Fair(), Random(), EqualWork()])
@pytest.mark.parametrize("capacity", [-1.0, float("nan")])
def test_a_capacity_that_is_none_is_refused(
    policy: Fair | Random | EqualWork, capacity: float
) -> None:
    with pytest.raises(ValueError, match=f"capacity must be >= 0, got {capacity}"):
        policy.keep(HAND, capacity)
