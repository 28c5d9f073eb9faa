"""Splitting the time of a node: equal levels, nothing above whole, nothing left unused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.shedders.water_filling import shares

demand = st.floats(0.001, 1000.0)
weight = st.floats(0.001, 1000.0)
had = st.floats(0.0, 1.0)
gain = st.floats(0.01, 1.0)
queries = st.lists(st.tuples(demand, weight, had, gain), min_size=1, max_size=12)
share = st.floats(0.0, 1.5)

Query = tuple[float, float, float, float]


def columns(drawn: list[Query]) -> tuple[np.ndarray, ...]:
    demands, weights, before, gains = np.array(drawn).T
    return demands, weights, before, gains


def filled(drawn: list[Query], capacity: float) -> np.ndarray:
    demands, weights, before, gains = columns(drawn)
    return shares(demands, capacity, weights, before=before, gains=gains)


def test_three_queries_by_hand() -> None:
    """Demands 1, 2, 4 and weights 1, 2, 1; capacity 3.5. At level λ they spend λ, 4 λ and 4 λ.

    9 λ = 3.5 has λ = 0.389, where none is whole. With 6 the second is: λ + 2 + 4 λ = 6, λ = 0.8.
    """
    assert shares([1, 2, 4], 3.5, [1, 2, 1]) == pytest.approx([3.5 / 9, 7 / 9, 3.5 / 9])
    assert shares([1, 2, 4], 6.0, [1, 2, 1]) == pytest.approx([0.8, 1.0, 0.8])


def test_a_query_that_is_ahead_waits_until_the_others_have_caught_up() -> None:
    """Before 0.5 and 0.1, the coming rows are worth 0.5 each: 0.2 s lift the second to 0.3."""
    assert shares([0.5, 0.5], 0.2, before=[0.5, 0.1], gains=0.5) == pytest.approx([0.0, 0.4])
    assert shares([0.5, 0.5], 0.6, before=[0.5, 0.1], gains=0.5) == pytest.approx([0.2, 1.0])


@given(queries, share)
def test_no_share_is_above_whole_and_the_capacity_is_used_unless_all_are_whole(
    drawn: list[Query], part: float
) -> None:
    demands = columns(drawn)[0]
    capacity = part * demands.sum()
    found = filled(drawn, capacity)
    assert (found >= 0).all()
    assert (found <= 1).all()
    if (found == 1).all():
        assert demands.sum() <= capacity * (1 + 1e-9)
    else:
        assert demands @ found == pytest.approx(capacity, rel=1e-9, abs=1e-12)


@given(queries, share)
def test_levels_are_equal_but_for_those_who_are_whole_or_ahead(
    drawn: list[Query], part: float
) -> None:
    demands, weights, before, gains = columns(drawn)
    found = filled(drawn, part * demands.sum())
    level = (before + gains * found) / weights
    gaining = found > 1e-9
    for mine in np.flatnonzero(gaining):
        behind = level < level[mine] * (1 - 1e-7)
        assert (found[behind] >= 1 - 1e-9).all(), "a query gained while one below it could have"


@given(queries, share)
def test_equal_queries_get_equal_shares_in_any_order(drawn: list[Query], part: float) -> None:
    twice = drawn + drawn
    capacity = part * columns(twice)[0].sum()
    found = filled(twice, capacity)
    assert np.array_equal(found[: len(drawn)], found[len(drawn) :])
    assert filled(twice[::-1], capacity)[::-1] == pytest.approx(found, rel=1e-9, abs=1e-9)


@given(queries, share, share)
def test_more_capacity_never_takes_from_anyone(
    drawn: list[Query], one: float, other: float
) -> None:
    total = columns(drawn)[0].sum()
    less, more = (filled(drawn, part * total) for part in sorted((one, other)))
    assert (more >= less - 1e-9).all()


@given(queries, share, st.sampled_from([1e-6, 0.5, 4.0, 1e6]))
def test_the_units_of_time_and_of_weights_do_not_matter(
    drawn: list[Query], part: float, scale: float
) -> None:
    demands, weights, before, gains = columns(drawn)
    capacity = part * demands.sum()
    found = filled(drawn, capacity)
    longer = shares(demands * scale, capacity * scale, weights, before=before, gains=gains)
    heavier = shares(demands, capacity, weights * scale, before=before, gains=gains)
    assert longer == pytest.approx(found, rel=1e-6, abs=1e-9)
    assert heavier == pytest.approx(found, rel=1e-6, abs=1e-9)


@given(queries, st.floats(0.0, 0.999))
def test_no_other_split_has_a_greater_least_level(drawn: list[Query], part: float) -> None:
    """Nobody can be lifted: what all would need to stand a little higher is more than there is."""
    demands, weights, before, gains = columns(drawn)
    capacity = part * demands.sum()
    level = (before + gains * filled(drawn, capacity)) / weights
    whole = (before + gains) / weights
    higher = level.min() * (1 + 1e-6) + 1e-9
    if (whole > higher).all():
        needed = demands @ np.clip((higher * weights - before) / gains, 0, 1)
        assert needed > capacity


# Edges ------------------------------------------------------------------------------------------


def test_a_query_without_demand_is_whole_and_takes_nothing() -> None:
    assert shares([0.0, 2.0], 1.0).tolist() == [1.0, 0.5]
    assert shares([0.0, 2.0], 1.0, weights=[0.0, 1.0]).tolist() == [1.0, 0.5]


def test_a_query_of_weight_zero_gets_what_the_others_leave() -> None:
    assert shares([1.0, 1.0, 2.0], 0.5, [1.0, 0.0, 0.0]).tolist() == [0.5, 0.0, 0.0]
    assert shares([1.0, 1.0, 2.0], 2.5, [1.0, 0.0, 0.0]).tolist() == [1.0, 0.5, 0.5]


def test_without_any_weight_all_are_equal() -> None:
    assert shares([1.0, 3.0], 2.0, [0.0, 0.0]).tolist() == [0.5, 0.5]


def test_no_queries_no_capacity_and_too_much_of_it() -> None:
    assert shares([], 1.0).size == 0
    assert shares([1.0, 2.0], 0.0).tolist() == [0.0, 0.0]
    assert shares([1.0, 2.0], float("inf")).tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        (([1.0, 1.0], 1.0, [1.0, -2.0]), "weights must be finite and >= 0, got -2.0"),
        (([1.0, 1.0], 1.0, float("nan")), "weights must be finite and >= 0, got nan"),
        (([1.0, -1.0], 1.0), "demands must be finite and >= 0, got -1.0"),
        (([1.0, float("inf")], 1.0), "demands must be finite and >= 0, got inf"),
        ((1.0, 1.0), "demands must be a list with one number per query, got 1.0"),
        (([1.0], -1.0), "capacity must be >= 0, got -1.0"),
        (([1.0], float("nan")), "capacity must be >= 0, got nan"),
        (([1.0, 1.0], 1.0, [1.0]), r"weights must have one value per query, 2, got \(1,\)"),
    ],
)
def test_what_is_no_demand_weight_or_capacity_is_refused(
    given_: tuple[object, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        shares(*given_)  # type: ignore[arg-type]


def test_a_gain_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match=r"gains must be finite and > 0, got 0\.0"):
        shares([1.0], 0.5, gains=0.0)
