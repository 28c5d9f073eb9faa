"""Semantic shedding: the least useful rows go first, and no more of them than the budget asks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.shedders.semantic import Semantic
from spillway.values import Budget, Observation, Plan

SHARES = [0.0, 0.001, 0.1, 0.25, 0.5, 0.75, 0.9, 0.999, 1.0]


def budget(share: float) -> Budget:
    return Budget(work_s_max=share, work_s_full=1.0, reason="overload")


def seen(shedder: Semantic, utilities: np.ndarray) -> Observation:
    """Observe a batch as Spark does: its percentiles are values of the sample itself."""
    found = np.quantile(utilities, shedder.quantiles, method="inverted_cdf")
    return Observation(
        batch_id=0,
        rows_in=len(utilities),
        rows_kept=len(utilities),
        duration_s=1.0,
        quantiles=tuple(float(value) for value in found),
    )


def rates_of(plan: Plan, utilities: np.ndarray) -> np.ndarray:
    """Apply the plan as the gate does: stratum i holds edges[i-1] <= score < edges[i]."""
    return np.asarray(plan.rates)[np.searchsorted(plan.edges, utilities, side="right")]


def kept_share(shedder: Semantic, utilities: np.ndarray, share: float) -> float:
    plan = shedder.plan(seen(shedder, utilities), budget(share))
    return float(rates_of(plan, utilities).mean())


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("bins", [2, 10, 140])
def test_the_kept_mass_of_continuous_utilities_is_the_budgets_share(
    bins: int, share: float
) -> None:
    utilities = np.random.default_rng(1).lognormal(0.0, 2.0, 20_000)
    kept = kept_share(Semantic(utility="u", bins=bins), utilities, share)
    assert kept == pytest.approx(share, abs=2 / len(utilities) * bins)


@pytest.mark.parametrize("share", SHARES)
def test_word_counts_with_heavy_ties_keep_the_budgets_share(share: float) -> None:
    """Discrete utilities: a quarter of the rows may share one value."""
    words = np.random.default_rng(2).poisson(3.0, 20_000).astype(float)
    kept = kept_share(Semantic(utility="words", bins=140), words, share)
    assert kept == pytest.approx(share, abs=1.5 / 140)


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("value", [0.0, -7.0, 1e300])
def test_rows_of_one_utility_are_shed_at_random(value: float, share: float) -> None:
    kept = kept_share(Semantic(utility="u", bins=140), np.full(1_000, value), share)
    assert kept == pytest.approx(share, abs=1.5 / 140)


def test_an_atom_of_most_rows_is_cut_within_itself() -> None:
    """90 % zeros: what goes comes out of the zeros, but for one bin of useful rows at most."""
    utilities = np.concatenate([np.zeros(900), np.arange(1, 101)]).astype(float)
    shedder = Semantic(utility="u", bins=100)
    plan = shedder.plan(seen(shedder, utilities), budget(0.5))
    rates = rates_of(plan, utilities)
    assert rates.mean() == pytest.approx(0.5, abs=0.015)
    assert (rates[900:] < 1.0).sum() <= len(utilities) / 100


utilities = st.lists(
    st.one_of(
        st.integers(0, 5).map(float),
        st.floats(-1e300, 1e300, allow_nan=False),
        st.sampled_from([0.0, 1.0, 1e6]),
    ),
    min_size=1,
    max_size=300,
)


@given(utilities=utilities, share=st.floats(0, 1), bins=st.integers(2, 200))
@settings(max_examples=150)
def test_any_sample_is_cut_to_the_share_within_one_and_a_half_bins(
    utilities: list[float], share: float, bins: int
) -> None:
    kept = kept_share(Semantic(utility="u", bins=bins), np.array(utilities), share)
    assert abs(kept - share) <= 1.5 / bins + 1e-9


@given(utilities=utilities, share=st.floats(0, 1), bins=st.integers(2, 200))
@settings(max_examples=100)
def test_a_more_useful_row_is_never_kept_at_a_lower_rate(
    utilities: list[float], share: float, bins: int
) -> None:
    shedder = Semantic(utility="u", bins=bins)
    ordered = np.sort(np.array(utilities))
    plan = shedder.plan(seen(shedder, ordered), budget(share))
    assert (np.diff(rates_of(plan, ordered)) >= 0).all()
    assert all(0.0 <= rate <= 1.0 for rate in (*plan.rates, plan.unrated))
    assert plan.edges[0] <= plan.edges[1]


@given(utilities=utilities, low=st.floats(0, 1), high=st.floats(0, 1))
@settings(max_examples=100)
def test_a_larger_budget_keeps_no_row_at_a_lower_rate_than_one_bin_allows(
    utilities: list[float], low: float, high: float
) -> None:
    low, high = sorted((low, high))
    shedder, sample = Semantic(utility="u", bins=50), np.array(utilities)
    assert kept_share(shedder, sample, low) <= kept_share(shedder, sample, high) + 1.5 / 50


@pytest.mark.parametrize("share", SHARES)
def test_without_quantiles_all_rows_are_shed_alike(share: float) -> None:
    plan = Semantic(utility="u").plan(None, budget(share))
    assert rates_of(plan, np.array([-1e308, 0.0, 1e308])) == pytest.approx(share)
    assert plan.unrated == share


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_rows_without_a_utility_are_kept_at_the_budgets_share(share: float) -> None:
    shedder = Semantic(utility="u", bins=4)
    assert shedder.plan(seen(shedder, np.arange(100.0)), budget(share)).unrated == share


def test_a_share_of_one_sheds_nothing_and_a_share_of_nothing_everything_it_saw() -> None:
    shedder, sample = Semantic(utility="u", bins=10), np.arange(1_000.0)
    assert not shedder.plan(seen(shedder, sample), budget(1.0)).sheds
    assert kept_share(shedder, sample, 0.0) == 0.0


def test_every_plan_fits_the_strata() -> None:
    shedder = Semantic(utility="u", bins=10)
    for share in SHARES:
        plan = shedder.plan(seen(shedder, np.arange(50.0)), budget(share))
        assert len(plan.rates) == len(shedder.strata)
        assert len(plan.edges) == len(shedder.strata) - 1


def test_the_quantiles_are_the_inner_edges_of_the_bins() -> None:
    assert Semantic(utility="u", bins=4).quantiles == (0.25, 0.5, 0.75)
    assert len(Semantic(utility="u").quantiles) == 139


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"utility": ""}, "utility"),
        ({"utility": "u", "bins": 1}, "bins"),
        ({"utility": "u", "bins": 1001}, "bins"),
    ],
)
def test_settings_that_make_no_bins_are_refused_by_name(
    arguments: dict[str, str | int], named: str
) -> None:
    with pytest.raises(ValueError, match=named):
        Semantic(**arguments)  # type: ignore[arg-type]
