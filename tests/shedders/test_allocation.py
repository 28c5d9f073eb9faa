"""Budgets are spent and well spent: no other rates buy more worth, or vary less, for the work."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from spillway.shedders.allocation import least_variance, most_worth

GROUPS = st.lists(
    st.tuples(st.integers(1, 20), st.integers(1, 9), st.integers(1, 30)), min_size=1, max_size=8
)


def columns(groups: list[tuple[int, int, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    costs, worths, counts = (np.array(column, dtype=float) for column in zip(*groups, strict=True))
    return costs, worths, counts


@given(groups=GROUPS, part=st.floats(0.0, 1.2))
def test_the_most_worth_is_what_a_linear_program_finds(
    groups: list[tuple[int, int, int]], part: float
) -> None:
    costs, worths, counts = columns(groups)
    budget = part * float((costs * counts).sum())
    rates = most_worth(costs, budget, worths=worths, counts=counts)
    best = linprog(
        -worths * counts, A_ub=[costs * counts], b_ub=[budget], bounds=[(0, 1)] * costs.size
    )
    assert float((rates * worths * counts).sum()) == pytest.approx(-best.fun, rel=1e-7, abs=1e-7)
    assert float((rates * costs * counts).sum()) <= budget * (1 + 1e-9) + 1e-9


@given(groups=GROUPS, part=st.floats(0.02, 1.2), seed=st.integers(0, 2**32 - 1))
def test_no_other_rates_of_the_same_work_vary_less(
    groups: list[tuple[int, int, int]], part: float, seed: int
) -> None:
    costs, worths, counts = columns(groups)
    work = costs * counts
    budget = part * float(work.sum())
    rates = least_variance(costs, budget, worths=worths, counts=counts)
    assert float((rates * work).sum()) == pytest.approx(min(budget, work.sum()), rel=1e-9)
    other = np.random.default_rng(seed).uniform(0.01, 1.0, costs.size)
    other *= min(1.0, budget / float((other * work).sum()))  # spends at most as much

    def variance(p: np.ndarray) -> float:
        return float((counts * worths**2 * (1 - p) / p).sum())

    assert variance(rates) <= variance(other) * (1 + 1e-9) + 1e-9


def test_with_equal_worths_the_costliest_go_first() -> None:
    """Costs even on [0.1, 6.4] and a quarter too much work: 13.4 % of the rows, not 25 %."""
    costs = np.linspace(0.1, 6.4, 64)
    rates = most_worth(costs, 0.75 * float(costs.sum()))
    assert 1 - float(rates.mean()) == pytest.approx(0.134, abs=0.002)


def test_unbiased_totals_vary_less_than_uniform_ones_for_the_same_work() -> None:
    """As a statistic: 4,000 estimates each of a count, F-test, false-alarm rate 1e-6."""
    from scipy import stats

    rng = np.random.default_rng(7)
    costs = np.tile(np.linspace(0.1, 6.4, 64), 30)
    budget = 0.5 * float(costs.sum())
    rates = least_variance(costs, budget)
    draws = rng.random((4000, costs.size))
    ours = ((draws < rates) / rates).sum(axis=1)
    uniform = ((draws < 0.5) / 0.5).sum(axis=1)
    z = (ours.mean() - costs.size) / (ours.std() / np.sqrt(ours.size))
    assert abs(z) < stats.norm.isf(0.5e-6)  # unbiased
    ratio = float(uniform.var(ddof=1) / ours.var(ddof=1))
    assert ratio > stats.f.isf(1e-6, ours.size - 1, ours.size - 1)
    assert ratio > 1.1


@pytest.mark.parametrize(
    ("given_", "told"),
    [
        ({"costs": [1.0, 0.0]}, "costs"),
        ({"costs": [1.0, float("nan")]}, "costs"),
        ({"costs": [1.0], "worths": [-1.0]}, "worths"),
        ({"costs": [1.0], "counts": [-1.0]}, "counts"),
        ({"costs": [1.0], "budget": float("nan")}, "budget"),
    ],
)
def test_nonsense_is_refused_by_name(given_: dict[str, object], told: str) -> None:
    arguments = {"budget": 1.0, **given_}
    for allocate in (most_worth, least_variance):
        with pytest.raises(ValueError, match=told):
            allocate(**arguments)  # type: ignore[arg-type]
