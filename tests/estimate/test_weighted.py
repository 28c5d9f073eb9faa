"""Weighted quantiles and group results: exact without shedding, unbiased, intervals that cover.

z-tests are two-sided at |z| < 4.5 (false alarms: 7 in a million each); seeds are fixed.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.estimate import totals
from spillway.estimate.groups import top
from spillway.estimate.weighted import (
    group_counts,
    group_means,
    group_sums,
    quantile,
    unseen_rows_max,
)

Z_MAX = 4.5
REPLICATES = 1000
ROWS = 2000
rng = np.random.default_rng(12)
VALUES = rng.gamma(2.0, 10.0, ROWS)
GROUPS = rng.choice(6, ROWS, p=[0.4, 0.25, 0.15, 0.1, 0.06, 0.04])
RATES = {
    "uniform": np.full(ROWS, 0.1),
    "most": np.full(ROWS, 0.8),
    "three strata": np.repeat([0.05, 0.3, 1.0], [ROWS // 2, ROWS // 4, ROWS // 4]),
    "by value": np.clip(VALUES / VALUES.max() + 0.05, 0.0, 1.0),
    "against value": np.clip(5.0 / (VALUES + 5.0), 0.05, 1.0),
}
NUMBERS = st.floats(-1e6, 1e6)


@given(values=st.lists(NUMBERS, min_size=1, max_size=20), q=st.floats(0, 1), w=st.floats(1, 1000))
def test_rows_of_equal_weights_have_their_own_quantile(
    values: list[float], q: float, w: float
) -> None:
    found = quantile(np.array(values), np.full(len(values), w), q)
    assert found.value == pytest.approx(np.quantile(values, q), rel=1e-9, abs=1e-6)
    assert found.low <= found.value <= found.high


@given(
    rows=st.lists(st.tuples(NUMBERS, st.integers(1, 5)), min_size=1, max_size=12),
    q=st.floats(0, 1),
)
def test_a_weight_counts_like_as_many_rows(rows: list[tuple[float, int]], q: float) -> None:
    """The share of rows below the result is at most q, and with the result at least, give or take
    the row where it lies.
    """
    values = np.array([value for value, _ in rows])
    weights = np.array([float(weight) for _, weight in rows])
    found = quantile(values, weights, q).value
    shares = weights / weights.sum()
    slack = shares.max() + 1e-4
    assert shares[values < found].sum() <= q + slack
    assert shares[values <= found].sum() >= q - slack


def test_without_shedding_a_quantile_is_exact() -> None:
    found = quantile(VALUES, np.ones(ROWS), 0.9)
    assert found.value == found.low == found.high == np.quantile(VALUES, 0.9)


def replicates(q: float, rates: np.ndarray, seed: int = 4) -> list[totals.Estimate]:
    draws = np.random.default_rng(seed)
    found = []
    for _ in range(REPLICATES):
        kept = draws.random(ROWS) < rates
        found.append(quantile(VALUES[kept], 1.0 / rates[kept], q))
    return found


@pytest.mark.parametrize("rates", RATES)
@pytest.mark.parametrize("q", [0.1, 0.5, 0.9])
def test_95_per_cent_intervals_of_quantiles_cover_95_per_cent(rates: str, q: float) -> None:
    """Binomial bound at 4 standard deviations, plus one point for the normal approximation."""
    truth = float(np.quantile(VALUES, q))
    covered = np.mean([e.low <= truth <= e.high for e in replicates(q, RATES[rates])])
    assert abs(covered - 0.95) < 4 * math.sqrt(0.95 * 0.05 / REPLICATES) + 0.01


@pytest.mark.parametrize("rates", RATES)
def test_the_share_below_an_estimated_median_is_a_half_on_average(rates: str) -> None:
    """A quantile is unbiased in F up to the order 1 / kept: within a tenth of its own spread."""
    ordered = np.sort(VALUES)
    found = [e.value for e in replicates(0.5, RATES[rates])]
    shares = np.searchsorted(ordered, found) / ROWS
    assert abs(shares.mean() - 0.5) < 0.1 * shares.std(ddof=1)


def test_few_rows_leave_a_side_open() -> None:
    few = quantile(np.array([1.0, 2.0, 3.0]), np.full(3, 50.0), 0.5)
    assert (few.low, few.value, few.high) == (-math.inf, 2.0, math.inf)
    assert quantile(VALUES[:100], np.full(100, 2.0), 1.0).high == math.inf
    nothing = quantile(np.array([]), np.array([]), 0.5)
    assert math.isnan(nothing.value)
    assert (nothing.low, nothing.high) == (-math.inf, math.inf)


@given(st.lists(st.tuples(st.integers(0, 4), NUMBERS, st.floats(1, 50)), min_size=1, max_size=30))
def test_results_by_group_are_the_totals_of_each_group(
    rows: list[tuple[int, float, float]],
) -> None:
    groups, values, weights = (np.array(column) for column in zip(*rows, strict=True))
    found = {
        "count": group_counts(groups, weights),
        "sum": group_sums(groups, values, weights),
        "mean": group_means(groups, values, weights),
    }
    for group in range(groups.max() + 1):
        of = groups == group
        lone = of.sum() == 1 and weights[of][0] > 1
        for name, each in found.items():
            got = (each.value[group], each.low[group], each.high[group])
            if not of.any():
                assert math.isnan(got[0])
                assert got[2] == math.inf
            elif name == "mean" and lone:
                assert got[1:] == (-math.inf, math.inf)
            else:
                formula = {
                    "count": lambda v, w: totals.count(w),
                    "sum": totals.total,
                    "mean": totals.mean,
                }[name](values[of], weights[of])
                expected = (formula.value, formula.low, formula.high)
                assert got == pytest.approx(expected, rel=1e-6, abs=1e-3)


@pytest.mark.parametrize("rates", RATES)
def test_sums_by_group_are_unbiased(rates: str) -> None:
    """z-test of 6 groups over 1,000 replicates, false-alarm rate 7e-6 each."""
    draws, rate = np.random.default_rng(6), RATES[rates]
    found = np.zeros((REPLICATES, 6))
    for at in range(REPLICATES):
        kept = draws.random(ROWS) < rate
        sums = np.bincount(GROUPS[kept], minlength=6) * 0.0
        value = group_sums(GROUPS[kept], VALUES[kept], 1.0 / rate[kept]).value
        sums[: value.size] = np.nan_to_num(value)  # nothing kept: nothing found
        found[at] = sums
    truth = np.bincount(GROUPS, VALUES)
    z = (found.mean(axis=0) - truth) / (found.std(axis=0, ddof=1) / REPLICATES**0.5)
    assert (np.abs(z) < Z_MAX).all()


def test_a_certain_place_among_the_top_groups_is_rarely_wrong() -> None:
    """The three heaviest of six groups: places called certain are right in 95 % and more."""
    draws, rate = np.random.default_rng(7), 0.2
    heaviest = set(np.argsort(-np.bincount(GROUPS))[:3].tolist())
    certain, right = 0, 0
    for _ in range(500):
        kept = draws.random(ROWS) < rate
        found = top(group_counts(GROUPS[kept], np.full(kept.sum(), 1 / rate)), 3)
        sure = found.groups[found.certain].tolist()
        certain += len(sure)
        right += len(heaviest & set(sure))
    assert certain > 500
    assert right / certain > 0.95


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5])
def test_a_group_with_more_rows_than_the_unseen_maximum_is_seen(rate: float) -> None:
    """By the binomial itself: just above it the chance to lose all rows is below 5 %."""
    rows = unseen_rows_max(rate)
    assert (1 - rate) ** (rows + 1e-6) < 0.05
    assert (1 - rate) ** (rows - 1) > 0.05


def test_if_all_are_kept_none_is_unseen() -> None:
    assert unseen_rows_max(1.0) == 0.0


def test_nonsense_is_refused_by_name() -> None:
    one = np.ones(1)
    for q in (-0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match=r"q must be in \[0, 1\], got"):
            quantile(one, one, q)
    for confidence in (0.0, 1.0, math.nan):
        with pytest.raises(ValueError, match="confidence must be in"):
            quantile(one, one, 0.5, confidence)
        with pytest.raises(ValueError, match="confidence must be in"):
            unseen_rows_max(0.5, confidence)
    for rate in (0.0, 1.5, math.nan):
        with pytest.raises(ValueError, match=r"rate must be in \(0, 1\]"):
            unseen_rows_max(rate)
