"""Horvitz-Thompson totals from kept rows and their weights, with confidence intervals.

A row kept with probability p carries the weight w = 1 / p. Each row is decided on its own
(Poisson sampling), so with x = 1 for a count:

    total  = sum(w x)                 variance = sum(w (w - 1) x^2)
    mean   = sum(w x) / sum(w)        variance = sum(w (w - 1) (x - mean)^2) / sum(w)^2
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """An estimated value and the interval that holds the truth with the stated confidence."""

    value: float
    low: float
    high: float


def z_score(confidence: float) -> float:
    """Return the two-sided normal quantile of a confidence level.

    >>> round(z_score(0.95), 2)
    1.96
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be in (0, 1), got {confidence}")
    return NormalDist().inv_cdf(0.5 + confidence / 2)


def count(weights: Rows, confidence: float = 0.95) -> Estimate:
    """Estimate how many rows there were; never fewer than were kept."""
    estimate = total(np.ones_like(weights), weights, confidence)
    return Estimate(
        value=estimate.value, low=max(estimate.low, float(len(weights))), high=estimate.high
    )


def total(values: Rows, weights: Rows, confidence: float = 0.95) -> Estimate:
    """Estimate the sum of the values of all rows."""
    variance = float((weights * (weights - 1.0) * values**2).sum())
    return _interval(float((weights * values).sum()), variance, confidence)


def mean(values: Rows, weights: Rows, confidence: float = 0.95) -> Estimate:
    """Estimate the mean of the values of all rows; NaN over none."""
    size = float(weights.sum()) or float("nan")
    value = float((weights * values).sum()) / size
    variance = float((weights * (weights - 1.0) * (values - value) ** 2).sum()) / size**2
    return _interval(value, variance, confidence)


def _interval(value: float, variance: float, confidence: float) -> Estimate:
    reach = z_score(confidence) * variance**0.5
    return Estimate(value=value, low=value - reach, high=value + reach)
