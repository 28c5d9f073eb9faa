"""The places that bound a quantile are those that the hypergeometric distribution says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from spillway.estimate.order_statistics import bounds, lower_places, rows_for_bounds

Group = tuple[int, int, int]


@st.composite
def groups(draw: st.DrawFn) -> list[Group]:
    def group() -> Group:
        rows = draw(st.integers(1, 300))
        return rows, draw(st.integers(0, min(rows, 60))), draw(st.integers(1, rows))

    return [group() for _ in range(draw(st.integers(1, 8)))]


def places(many: list[Group], risk: float) -> np.ndarray:
    rows, kept, ranks = (np.array(column) for column in zip(*many, strict=True))
    return lower_places(rows, kept, ranks, risk)


def risk_of(place: int, group: Group) -> float:
    """The chance that the place-th smallest of the sample exceeds the value of that rank."""
    rows, kept, rank = group
    return float(stats.hypergeom.cdf(place - 1, rows, rank, kept))


@given(many=groups(), risk=st.floats(0.0005, 0.3))
def test_the_whole_place_is_the_last_within_the_risk(many: list[Group], risk: float) -> None:
    for place, group in zip(places(many, risk), many, strict=True):
        assert risk_of(int(place), group) <= risk + 1e-9
        assert int(place) == group[1] or risk_of(int(place) + 1, group) > risk - 1e-9


@given(many=groups(), risk=st.floats(0.001, 0.3))
def test_more_risk_allows_no_lower_place(many: list[Group], risk: float) -> None:
    assert (places(many, risk) >= places(many, risk / 2) - 1e-9).all()


def test_between_two_places_the_risk_is_met_for_uniform_values() -> None:
    """Six of very many, the median: at 1 + λ the risk is 2^-6 / (1 - λ), so λ = 0.375 meets 0.025.

    Interpolation by shares of the risk alone would stop at 1.1; ours is within 0.02 of exact.
    """
    place = float(places([(10**9, 6, 5 * 10**8)], 0.025)[0])
    assert abs(place - 1.375) < 0.02


def test_large_samples_agree_with_the_normal_limit() -> None:
    """100,000 of 400,000 rows, median: k/2 + 1/2 - 1.96 √(k/4 · 3/4)."""
    place = float(places([(400_000, 100_000, 200_000)], 0.025)[0])
    assert abs(place - (50_000.5 - 1.959964 * (25_000 * 0.75) ** 0.5)) < 0.1


def test_no_groups_have_no_places() -> None:
    none = np.array([], dtype=np.int64)
    assert lower_places(none, none, none, 0.025).size == 0


@pytest.mark.parametrize("q", [0.5, 0.1, 0.9, 0.95, 0.003])
def test_so_many_rows_and_no_fewer_give_both_bounds_in_a_group_of_any_size(q: float) -> None:
    enough = rows_for_bounds(q, 0.025)
    sizes = np.array([enough, enough + 1, 2 * enough, 1_000, 10**5, 10**9])
    low, high = bounds(np.maximum(sizes, enough), np.full(sizes.size, enough), q, 0.025)
    assert (low >= 1).all()
    assert (high <= enough).all()
    low, high = bounds(np.array([10**9]), np.array([enough - 1]), q, 0.025)
    assert low[0] < 1 or high[0] > enough - 1
