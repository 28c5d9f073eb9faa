"""Streams are what their recipe says, and the same for the same numbers."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from spillway.sim.workloads import MS, Recipe


def test_every_cost_goes_to_as_many_keys_as_any_other() -> None:
    costs = Recipe().cost_by_key(3)
    values, counts = np.unique(costs, return_counts=True)
    assert values.tolist() == [(i + 1) * MS // 10 for i in range(64)]
    assert set(counts.tolist()) == {64}


@pytest.mark.parametrize("zipf", [0.0, 1.0, 2.0])
def test_keys_follow_their_distribution(zipf: float) -> None:
    """Chi-square over the ten most frequent keys and the rest, false-alarm rate 1e-4."""
    recipe = Recipe(zipf=zipf)
    counts = np.bincount(recipe.draw_keys(5), minlength=recipe.keys)
    weights = np.arange(1, recipe.keys + 1) ** -zipf
    expected = recipe.rows * weights / weights.sum()
    seen = [*counts[:10], counts[10:].sum()]
    assert stats.chisquare(seen, [*expected[:10], expected[10:].sum()]).pvalue > 1e-4


def test_the_same_numbers_give_the_same_stream() -> None:
    first, again, other = (Recipe(rows=500).stream(1, order) for order in (2, 2, 3))
    assert first.keys.tolist() == again.keys.tolist()
    assert first.keys.tolist() != other.keys.tolist()


def test_under_provisioning_is_the_share_of_work_that_is_too_much() -> None:
    stream = Recipe().stream(1, 1).under_provisioned(0.25)
    time_ns = float(stream.arrivals_ns[-1]) * stream.rows / (stream.rows - 1)
    assert time_ns / float(stream.costs_ns.sum()) == pytest.approx(0.75, rel=1e-6)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"rows": 0}, "rows"),
        ({"keys": 0}, "keys"),
        ({"zipf": -1.0}, "zipf"),
        ({"cost_ns_min": 0}, "costs"),
        ({"cost_ns_min": 10, "cost_ns_max": 9}, "costs"),
    ],
)
def test_nonsense_is_refused_by_name(options: dict[str, float], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Recipe(**options)  # type: ignore[arg-type]


def test_more_than_all_cannot_be_too_much() -> None:
    with pytest.raises(ValueError, match="share"):
        Recipe(rows=5).stream(1, 1).under_provisioned(1.0)
