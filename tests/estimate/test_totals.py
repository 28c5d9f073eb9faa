"""Horvitz-Thompson totals: unbiased by z-test, intervals that cover by count. Seeded throughout.

Each z-test is two-sided at |z| < 4 (false alarms: 1 in 16,000); each coverage is held against the
binomial bound of the same rate. With fixed seeds a test passes or fails for good.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from spillway.estimate.totals import Estimate, count, mean, total, z_score

REPLICATES = 3_000
ROWS = 2_000
Z_MAX = 4.0

Estimator = Callable[[np.ndarray, np.ndarray], Estimate]

rng = np.random.default_rng(5)
VALUES = rng.gamma(2.0, 10.0, ROWS)
RATES = {
    "uniform": np.full(ROWS, 0.3),
    "three strata": np.repeat([0.1, 0.5, 1.0], [ROWS // 2, ROWS // 4, ROWS // 4]),
    "by value": np.clip(VALUES / VALUES.max() + 0.05, 0.0, 1.0),
    "against value": np.clip(5.0 / (VALUES + 5.0), 0.05, 1.0),
}
TRUTHS: dict[str, tuple[Estimator, float]] = {
    "count": (lambda values, weights: count(weights), float(ROWS)),
    "total": (total, float(VALUES.sum())),
    "mean": (mean, float(VALUES.mean())),
}


def replicates(estimator: Estimator, rates: np.ndarray, seed: int = 11) -> list[Estimate]:
    """Sample the rows anew (Poisson: each row on its own) and estimate from what was kept."""
    draws = np.random.default_rng(seed)
    estimates = []
    for _ in range(REPLICATES):
        kept = draws.random(ROWS) < rates
        estimates.append(estimator(VALUES[kept], 1.0 / rates[kept]))
    return estimates


@pytest.mark.parametrize("name", ["count", "total"])
@pytest.mark.parametrize("rates", RATES)
def test_totals_are_unbiased(rates: str, name: str) -> None:
    """z-test of the mean of 3,000 replicates; false-alarm rate 6e-5."""
    estimator, truth = TRUTHS[name]
    values = np.array([e.value for e in replicates(estimator, RATES[rates])])
    z = (values.mean() - truth) / (values.std(ddof=1) / math.sqrt(REPLICATES))
    assert abs(z) < Z_MAX


@pytest.mark.parametrize("rates", RATES)
def test_the_mean_is_unbiased_up_to_the_ratios_own_order(rates: str) -> None:
    """A ratio of two totals has a bias of order 1/n: below a tenth of its standard error."""
    values = np.array([e.value for e in replicates(mean, RATES[rates])])
    assert abs(values.mean() - VALUES.mean()) < 0.1 * values.std(ddof=1)


@pytest.mark.parametrize("name", TRUTHS)
@pytest.mark.parametrize("rates", RATES)
def test_95_per_cent_intervals_cover_95_per_cent(rates: str, name: str) -> None:
    """Binomial bound at 4 standard deviations, plus one point for the normal approximation."""
    estimator, truth = TRUTHS[name]
    covered = np.mean([e.low <= truth <= e.high for e in replicates(estimator, RATES[rates])])
    bound = Z_MAX * math.sqrt(0.95 * 0.05 / REPLICATES) + 0.01
    assert abs(covered - 0.95) < bound


@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.99])
def test_other_confidences_cover_what_they_state(confidence: float) -> None:
    estimates = replicates(lambda v, w: total(v, w, confidence), RATES["three strata"])
    covered = np.mean([e.low <= VALUES.sum() <= e.high for e in estimates])
    bound = Z_MAX * math.sqrt(confidence * (1 - confidence) / REPLICATES) + 0.01
    assert abs(covered - confidence) < bound


@pytest.mark.parametrize("rates", RATES)
def test_the_stated_variance_is_the_variance(rates: str) -> None:
    """The mean squared half-width over z^2 estimates the true variance of the total within 15 %."""
    estimates = replicates(total, RATES[rates])
    stated = np.mean([((e.high - e.value) / z_score(0.95)) ** 2 for e in estimates])
    assert stated == pytest.approx(np.var([e.value for e in estimates], ddof=1), rel=0.15)


@pytest.mark.parametrize("name", TRUTHS)
def test_weights_of_one_are_exact_with_an_interval_of_no_width(name: str) -> None:
    estimator, truth = TRUTHS[name]
    estimate = estimator(VALUES, np.ones(ROWS))
    assert estimate.value == pytest.approx(truth, rel=1e-12)
    assert estimate.low == estimate.value == estimate.high


def test_a_count_is_never_below_what_was_kept() -> None:
    estimate = count(np.array([1.0, 1.0, 100.0]))
    assert estimate.value == 102.0
    assert estimate.low == 3.0


def test_no_rows_count_and_sum_to_nothing() -> None:
    nothing = np.array([])
    assert count(nothing) == Estimate(value=0.0, low=0.0, high=0.0)
    assert total(nothing, nothing) == Estimate(value=0.0, low=0.0, high=0.0)


@pytest.mark.parametrize("confidence", [0.0, 1.0, -0.5, 95.0, math.nan])
def test_a_confidence_that_is_no_probability_is_refused_by_name(confidence: float) -> None:
    with pytest.raises(ValueError, match=r"confidence must be in \(0, 1\), got"):
        z_score(confidence)


@pytest.mark.parametrize(("confidence", "z"), [(0.6827, 1.0), (0.95, 1.96), (0.99, 2.576)])
def test_the_normal_quantiles_are_those_of_the_tables(confidence: float, z: float) -> None:
    assert z_score(confidence) == pytest.approx(z, abs=1e-3)
