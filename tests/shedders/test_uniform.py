"""Uniform shedding: one stratum, and exactly the budget's share of it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.shedders.uniform import Uniform
from spillway.values import Budget, Observation


@given(share=st.floats(0, 1))
@settings(max_examples=100)
def test_the_rate_is_the_budgets_share(share: float) -> None:
    plan = Uniform().plan(None, Budget(work_s_max=share, work_s_full=1.0, reason="overload"))
    assert plan.rates == (share,)
    assert plan.edges == ()
    assert plan.reason == "overload"


@pytest.mark.parametrize(("work_s_max", "work_s_full"), [(1.0, 1.0), (2.0, 1.0), (0.0, 0.0)])
def test_a_budget_that_suffices_sheds_nothing(work_s_max: float, work_s_full: float) -> None:
    budget = Budget(work_s_max=work_s_max, work_s_full=work_s_full, reason="within limits")
    assert not Uniform().plan(None, budget).sheds


def test_an_empty_budget_sheds_everything_and_leaves_the_floor_to_the_loop() -> None:
    budget = Budget(work_s_max=0.0, work_s_full=1.0, reason="overload")
    assert Uniform().plan(None, budget).rates == (0.0,)


def test_what_was_seen_does_not_matter() -> None:
    seen = Observation(batch_id=3, rows_in=9, rows_kept=1, duration_s=1.0, quantiles=(1.0, 2.0))
    budget = Budget(work_s_max=0.3, work_s_full=1.0, reason="overload")
    assert Uniform().plan(seen, budget) == Uniform().plan(None, budget)


def test_there_is_one_rate_for_each_stratum_and_nothing_to_observe() -> None:
    assert Uniform().strata == ("all",)
    assert Uniform().score is None
    assert Uniform().quantiles == ()
