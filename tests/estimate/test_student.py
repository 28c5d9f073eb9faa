"""Student's quantiles without SciPy equal SciPy's."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, stats

from spillway.estimate.student import skewed_scores, t_scores


@pytest.mark.parametrize("confidence", [0.01, 0.5, 0.8, 0.95, 0.99, 0.9999])
def test_quantiles_are_those_of_scipy(confidence: float) -> None:
    degrees = np.concatenate([np.arange(1, 301), [1000, 10**6, 10**12]])
    expected = stats.t.ppf(0.5 + confidence / 2, degrees)
    assert t_scores(confidence, degrees) == pytest.approx(expected, rel=1e-6)


def test_two_uniform_values_hold_their_mean_exactly_as_stated() -> None:
    """By area: two values in a square miss the mean within a wedge around its diagonal.

    With |x̄ - μ| > t |x₁ - x₂| / 2 the wedge's part of the square is 1 / (1 + t).
    """
    for confidence in (0.8, 0.95, 0.99):
        below, above = skewed_scores(confidence, np.array([2]), 0.0)
        assert below[0] == above[0] == pytest.approx(confidence / (1 - confidence))
        assert 1 / (1 + above[0]) == pytest.approx(1 - confidence)


def test_three_rows_are_half_way_between_normal_and_uniform_values() -> None:
    """The cone of three uniform values by an integral; the formula is half a per cent off it."""
    for confidence in (0.95, 0.99):
        t = float(stats.t.ppf(0.5 + confidence / 2, 2))
        below, above = skewed_scores(confidence, np.array([3]), 0.0)
        exact = above[0] ** 2 / t
        inside = integrate.quad(
            lambda angle, t=exact: (t + 2 * math.cos(angle)) ** -2, 0, math.pi / 3
        )
        assert below[0] == above[0] > t
        assert 1.5 * math.sqrt(3) * inside[0] == pytest.approx(1 - confidence, rel=0.01)


def test_skew_extends_the_side_of_the_long_tail_and_shortens_the_other_by_less() -> None:
    kept = np.array([3, 10, 1000])
    plain, _ = skewed_scores(0.95, kept, 0.0)
    below, above = skewed_scores(0.95, kept, 2.0)
    assert (below < plain).all()
    assert (above - plain > plain - below).all()
    mirrored = skewed_scores(0.95, kept, -2.0)
    assert (mirrored[0].tolist(), mirrored[1].tolist()) == (above.tolist(), below.tolist())


def test_for_many_rows_the_long_side_is_the_expansion_of_t() -> None:
    """z + γ (1 + 2 z²) / (6 √k), up to terms of 1 / k."""
    z, kept = float(stats.norm.ppf(0.975)), np.array([10_000])
    _, above = skewed_scores(0.95, kept, 2.0)
    assert above[0] == pytest.approx(z + 2.0 * (1 + 2 * z**2) / 600, abs=1e-3)


def test_no_groups_need_no_quantiles() -> None:
    assert t_scores(0.95, np.array([], dtype=np.int64)).size == 0


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95.0, math.nan])
def test_a_confidence_that_is_no_probability_is_refused(confidence: float) -> None:
    with pytest.raises(ValueError, match=r"confidence must be in \(0, 1\)"):
        t_scores(confidence, np.array([3]))
