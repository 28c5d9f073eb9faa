"""Student's quantiles without SciPy equal SciPy's."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

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


def test_skew_extends_the_side_of_the_long_tail_only() -> None:
    kept = np.array([3, 10, 1000])
    t = t_scores(0.95, kept - 1)
    below, above = skewed_scores(0.95, kept, 2.0)
    assert below.tolist() == t.tolist()
    assert (above > t).all()
    mirrored = skewed_scores(0.95, kept, -2.0)
    assert (mirrored[0].tolist(), mirrored[1].tolist()) == (above.tolist(), below.tolist())


def test_no_groups_need_no_quantiles() -> None:
    assert t_scores(0.95, np.array([], dtype=np.int64)).size == 0


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95.0, math.nan])
def test_a_confidence_that_is_no_probability_is_refused(confidence: float) -> None:
    with pytest.raises(ValueError, match=r"confidence must be in \(0, 1\)"):
        t_scores(confidence, np.array([3]))
