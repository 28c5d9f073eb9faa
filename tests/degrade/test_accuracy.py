"""Accuracy: the footrule of the thesis with lost items last, and relative errors of numbers."""

import math
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.degrade.accuracy import (
    Footrule,
    RelativeError,
    displacement,
    fractional_ranks,
    ranked,
    shares_of_displacement,
)
from tests.degrade.thesis import SEARCH

orders = st.permutations(range(8))


def test_of_ten_items_the_missing_one_is_tenth() -> None:
    """Section 5.2.6.1: the first of ten is lost, the others move up by one, it goes to place 10."""
    ideal = ranked(range(10))
    assert displacement(ideal, ranked(range(1, 10))) == 9 + 9
    assert displacement(ideal, ranked(range(9))) == 0


def test_several_lost_items_follow_in_their_ideal_order() -> None:
    ideal = ranked("abcde")
    assert displacement(ideal, ranked("ce")) == displacement(ideal, ranked("ceabd"))
    assert displacement(ideal, {}) == 0


def test_items_that_do_not_belong_there_are_taken_out_first() -> None:
    ideal = ranked("abc")
    assert displacement(ideal, ranked("xaybzc")) == 0
    assert displacement(ideal, ranked("xcba")) == displacement(ideal, ranked("cba"))


@given(one=orders, other=orders)
def test_it_is_the_sum_of_distances_and_does_not_care_which_is_ideal(
    one: list[int], other: list[int]
) -> None:
    expected = sum(abs(one.index(item) - other.index(item)) for item in range(8))
    assert displacement(ranked(one), ranked(other)) == expected
    assert displacement(ranked(other), ranked(one)) == expected


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
def test_the_worst_order_of_all_has_accuracy_zero_and_no_other_less(n: int) -> None:
    ideal = ranked(range(n))
    found = {Footrule().accuracy(ideal, ranked(order)) for order in permutations(range(n))}
    assert min(found) == 0.0
    assert max(found) == 1.0


def test_of_one_item_only_its_presence_counts() -> None:
    assert Footrule().accuracy(ranked("a"), ranked("ba")) == 1.0
    assert Footrule().accuracy(ranked("a"), ranked("b")) == 0.0
    assert Footrule().accuracy({}, ranked("b")) == 1.0


def test_equals_share_the_mean_of_their_places() -> None:
    ranks = fractional_ranks({"a": 1.0, "b": 3.0, "c": 1.0, "d": 1.0, "e": 0.0})
    assert ranks == {"b": 1.0, "a": 3.0, "c": 3.0, "d": 3.0, "e": 5.0}


@given(scores=st.dictionaries(st.integers(), st.integers(0, 5), min_size=1))
def test_fractional_ranks_add_up_as_whole_ones_do(scores: dict[int, int]) -> None:
    n = len(scores)
    assert math.fsum(fractional_ranks(scores).values()) == n * (n + 1) / 2


def test_an_item_stands_in_a_ranking_once() -> None:
    with pytest.raises(ValueError, match="different"):
        ranked("aba")


def test_the_contributions_of_table_5_4_are_shares_of_displacement() -> None:
    """Its displacements are printed as whole numbers: the shares agree within one of them."""
    moved = {name: float(seen) for name, (_, _, seen) in SEARCH.items() if seen is not None}
    shares, one = shares_of_displacement(moved), 1 / sum(moved.values())
    for name, (contributed, _, _) in SEARCH.items():
        if contributed is not None:
            assert shares[name] == pytest.approx(contributed / 100, abs=one)


def test_nothing_moved_is_no_share() -> None:
    assert shares_of_displacement({"a": 0.0}) == {"a": 0.0}


@pytest.mark.parametrize(
    ("seen", "accuracy"),
    [
        ({"a": 10.0, "b": -4.0}, 1.0),
        ({"a": 9.0, "b": -4.0}, 0.95),
        ({"a": 11.0, "b": -4.4}, 0.9),
        ({"b": -4.0}, 0.5),
        ({"a": math.nan, "b": math.inf}, 0.0),
        ({"a": 500.0, "b": -4.0}, 0.5),
        ({"a": 10.0, "b": -4.0, "strange": 1.0}, 1.0),
        ({}, 0.0),
    ],
)
def test_numbers_are_right_as_far_as_they_are_near(seen: dict[str, float], accuracy: float) -> None:
    found = RelativeError().accuracy({"a": 10.0, "b": -4.0}, seen)
    assert found == pytest.approx(accuracy, abs=1e-12)


def test_where_nothing_is_due_only_nothing_is_right() -> None:
    assert RelativeError().accuracy({"a": 0.0}, {"a": 0.0}) == 1.0
    assert RelativeError().accuracy({"a": 0.0}, {"a": 0.1}) == 0.0
    assert RelativeError().accuracy({}, {}) == 1.0
