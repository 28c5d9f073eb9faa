"""Load-aware plans spend the budget's work, whatever the aim, and give up what the aim says."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.contracts import KeyedShedder, Shedder
from spillway.shedders.allocation import least_variance, most_worth
from spillway.shedders.load_aware import LoadAware
from spillway.shedders.semantic import Semantic
from spillway.values import SCORE_MAX, Budget, Plan

AIMS = ["faithful", "fewest", "unbiased"]
FLOOR = 0.01

costs = st.floats(100, 1e9)
worths = st.one_of(st.just(0.0), st.floats(1e-3, 1e3))
sample_strategy = st.lists(st.tuples(costs, worths), min_size=1, max_size=60)


def budget(share: float, *sample: tuple[float, float], keep_min: float = 0.001) -> Budget:
    return Budget(
        work_s_max=share, work_s_full=1.0, reason="overload", keep_min=keep_min, sample=sample
    )


def rates(shedder: LoadAware, plan: Plan, sample: Any) -> np.ndarray:
    """The keep rate of every row of the sample, as the gate finds it."""
    cost, worth = np.asarray(sample, dtype=np.float64).T
    if shedder.score is None:
        return np.full(cost.size, plan.rates[0])
    at = np.searchsorted(plan.edges, shedder.scores(cost, worth), side="right")
    return np.asarray(plan.rates)[at]


def test_it_is_a_shedder_with_a_key() -> None:
    shedder: Shedder = LoadAware(key="k")
    assert isinstance(shedder, KeyedShedder)
    assert not isinstance(Semantic(utility="u"), KeyedShedder)


@settings(max_examples=300)
@given(
    aim=st.sampled_from(AIMS),
    sample=sample_strategy,
    share=st.floats(0.0, 1.0),
    keep_min=st.sampled_from([0.001, 0.05, 0.4]),
)
def test_the_work_of_the_kept_rows_is_the_budget_s_share(
    aim: Any, sample: list[tuple[float, float]], share: float, keep_min: float
) -> None:
    """Exactly, as far as the floor of the rates allows; plans are in order and in bounds."""
    shedder = LoadAware(key="k", aim=aim)
    plan = shedder.plan(None, budget(share, *sample, keep_min=keep_min))
    assert len(plan.rates) == len(shedder.strata) == len(plan.edges) + 1
    assert list(plan.edges) == sorted(plan.edges)
    assert all(0.0 <= rate <= 1.0 for rate in plan.rates)
    cost = np.array([cost for cost, _ in sample])
    spent = float(cost @ np.maximum(rates(shedder, plan, sample), keep_min)) / cost.sum()
    assert spent == pytest.approx(max(share, keep_min), abs=1e-6)


@settings(max_examples=200)
@given(sample=sample_strategy, share=st.floats(0.02, 0.99))
def test_fewest_is_the_knapsack_s_best_above_the_floor(
    sample: list[tuple[float, float]], share: float
) -> None:
    sample = [(cost, max(worth, 1e-3)) for cost, worth in sample]
    shedder = LoadAware(key="k")
    cost, worth = np.array(sample).T
    left = (share - FLOOR) / (1 - FLOOR) * cost.sum()
    best = FLOOR + (1 - FLOOR) * most_worth(cost, left, worths=worth, counts=np.ones(cost.size))
    got = rates(shedder, shedder.plan(None, budget(share, *sample)), sample)
    assert worth @ got == pytest.approx(worth @ best, rel=1e-6)


def test_unbiased_is_the_least_variance_but_for_its_strata() -> None:
    """Over costs of 0.1 to 6.4 ms the variance is within 2 % of the best possible."""
    rng = np.random.default_rng(1)
    cost = rng.uniform(1e5, 6.4e6, 512)
    sample = [(value, 1.0) for value in cost.tolist()]
    shedder = LoadAware(key="k", aim="unbiased")
    for share in (0.2, 0.5, 0.8):
        got = rates(shedder, shedder.plan(None, budget(share, *sample)), sample)
        best = least_variance(cost, share * cost.sum())
        assert (1 / got - 1).sum() <= 1.02 * (1 / best - 1).sum()
        uniform = 512 * (1 / share - 1)
        assert (1 / got - 1).sum() < 0.95 * uniform


def test_unbiased_keeps_in_proportion_to_worth_over_the_root_of_cost() -> None:
    sample = [(1e6, 1.0), (4e6, 1.0), (4e6, 0.5)]
    shedder = LoadAware(key="k", aim="unbiased", utility="u")
    got = rates(shedder, shedder.plan(None, budget(0.3, *sample)), sample)
    assert got / got[0] == pytest.approx([1.0, 0.5, 0.25])


def test_the_costliest_go_first_and_a_valuable_row_stays() -> None:
    sample = [(1e5, 1.0), (1e6, 1.0), (6e6, 1.0)]
    assert rates(LoadAware(key="k"), LoadAware(key="k").plan(None, budget(0.16, *sample)), sample)[
        2
    ] == pytest.approx(FLOOR)
    rich = [(1e5, 1.0), (1e6, 1.0), (6e6, 1e3)]
    shedder = LoadAware(key="k", utility="u")
    got = rates(shedder, shedder.plan(None, budget(0.9, *rich)), rich)
    assert got[2] > 0.9
    assert got[1] < 0.5


def test_rows_that_are_all_alike_are_kept_by_chance() -> None:
    sample = [(100.0, 1.0)] * 7
    for aim in AIMS:
        shedder = LoadAware(key="k", aim=aim)  # type: ignore[arg-type]
        got = rates(shedder, shedder.plan(None, budget(0.3, *sample)), sample)
        assert got.tolist() == pytest.approx([0.3] * 7)


@pytest.mark.parametrize("aim", AIMS)
def test_without_a_sample_every_row_has_the_same_chance(aim: Any) -> None:
    plan = LoadAware(key="k", aim=aim).plan(None, budget(0.4))
    assert set(plan.rates) == {0.4}
    assert plan.unrated == 0.4
    assert set(plan.edges) <= {SCORE_MAX}


@pytest.mark.parametrize("aim", AIMS)
def test_within_the_budget_nothing_is_shed(aim: Any) -> None:
    plan = LoadAware(key="k", aim=aim).plan(None, budget(1.0, (1e6, 1.0), (1e7, 1.0)))
    assert not plan.sheds
    assert plan.reason == "overload"  # the controller's own words


@pytest.mark.parametrize("worth", [math.nan, -1.0])
def test_a_worth_that_is_none_scores_nothing_and_goes_by_chance(worth: float) -> None:
    shedder = LoadAware(key="k", utility="u")
    assert np.isnan(shedder.scores(np.array([1e6]), np.array([worth]))).all()
    assert shedder.plan(None, budget(0.25, (1e6, 1.0))).unrated == 0.25


def test_the_reason_is_in_words() -> None:
    def reason(share: float = 0.5, sample: bool = True, **arguments: Any) -> str:
        rows = ((1e6, 1.0),) if sample else ()
        return LoadAware(key="k", **arguments).plan(None, budget(share, *rows)).reason

    assert reason() == "overload: costliest keys first"
    assert reason(utility="u") == "overload: least worth for its cost first"
    assert reason(aim="unbiased") == "overload: costliest keys by chance"
    assert reason(aim="faithful") == "overload: rows as they come"
    assert reason(sample=False) == "overload: rows as they come, costs not known yet"


@pytest.mark.parametrize(
    ("wrong", "rule"),
    [
        ({"key": ""}, "key must name a column"),
        ({"aim": "most"}, r"aim must be .*'most'"),
        ({"utility": ""}, "utility must be"),
        ({"aim": "faithful", "utility": "u"}, r"utility has no use .*'u'"),
    ],
    ids=str,
)
def test_a_wrong_argument_is_refused_by_its_name(wrong: dict[str, Any], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        LoadAware(**{"key": "k", **wrong})
