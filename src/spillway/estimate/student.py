"""Student's t: how many standard errors an interval needs when the error itself is estimated."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from spillway.estimate.totals import z_score

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_TABLE = 100  # degrees of freedom up to which the quantile is solved for
_CONE, _CORNER = math.sqrt(3) * math.pi / 2, 3 * math.sqrt(3) / math.pi


def t_scores(confidence: float, degrees: Ints) -> Floats:
    """Return the two-sided quantiles of Student's t for whole degrees of freedom >= 1.

    >>> t_scores(0.95, np.array([1, 4, 30, 10_000])).round(3).tolist()
    [12.706, 2.776, 2.042, 1.96]
    """
    few = np.minimum(degrees, _TABLE)
    table = np.zeros(int(few.max(initial=0)) + 1)
    for degree in np.unique(few):
        table[degree] = _solved(confidence, int(degree))
    return np.where(degrees <= _TABLE, table[few], _series(z_score(confidence), degrees))


def skewed_scores(confidence: float, kept: Ints, skewness: float) -> tuple[Floats, Floats]:
    """Return how many standard errors a mean of `kept` rows may be above and below the truth.

    Student's t, with changes where it would hold the truth less often than stated:

    - On the side of the long tail it is 1 + x times as much, x = |γ| (1 + 2 z²) / (6 z √k): the
      first term of the expansion of t for values of skewness γ, relative to z. On the other side
      it is divided by (1 + 2 x)^(1/4) = 1 + x / 2 - ..., half of what the expansion says. One γ
      stands for groups of different skewness: all of it is too little for the symmetric ones.
    - With two rows at least (1 - α) / α, with three half-way to what is exact for uniform values,
      as t is for normal ones.

    >>> below, above = skewed_scores(0.95, np.array([2, 10]), skewness=1.0)
    >>> below.round(2).tolist(), above.round(2).tolist()
    ([19.0, 2.06], [19.34, 2.79])
    """
    scores = t_scores(confidence, np.maximum(kept - 1, 1))
    least, z = _few(confidence, kept, scores), z_score(confidence)
    tail = np.abs(skewness) * (1.0 + 2.0 * z**2) / (6.0 * z * np.sqrt(np.maximum(kept, 1)))
    pair = kept == 2
    long = np.maximum(np.where(pair, scores, least) * (1.0 + tail), least)
    short = np.where(pair, least, least / (1.0 + 2.0 * tail) ** 0.25)
    return (short, long) if skewness >= 0 else (long, short)


def _few(confidence: float, kept: Ints, scores: Floats) -> Floats:
    """Raise t for two and three rows, by what is exact for uniform values.

    Two values of a square miss their mean within a wedge around its diagonal, 1 / (1 + t) of it;
    three of a cube within a cone, √3 π / 2 / (t + 3 √3 / π)² of it but for half a per cent.
    """
    miss = 1.0 - confidence
    two, three = confidence / miss, math.sqrt(_CONE / miss) - _CORNER
    half_way = np.sqrt(scores * np.maximum(scores, three))
    return np.where(kept == 2, np.maximum(scores, two), np.where(kept == 3, half_way, scores))


@lru_cache(maxsize=4096)
def _solved(confidence: float, degrees: int) -> float:
    """With t = √ν tan θ, P(|T| <= t) is the part of ∫ cos^(ν-1) over [0, π/2] up to θ."""
    wanted = confidence * _cosine_integral(degrees - 1, math.pi / 2)
    low, high = 0.0, math.pi / 2
    while (middle := (low + high) / 2) not in (low, high):
        if _cosine_integral(degrees - 1, middle) < wanted:
            low = middle
        else:
            high = middle
    return math.sqrt(degrees) * math.tan(low)


def _cosine_integral(power: int, angle: float) -> float:
    """Return the integral of cos^power from 0 to the angle, by parts."""
    sine, cosine = math.sin(angle), math.cos(angle)
    integral = sine if power % 2 else angle
    for m in range(2 + power % 2, power + 1, 2):
        integral = cosine ** (m - 1) * sine / m + (m - 1) / m * integral
    return integral


def _series(z: float, degrees: Ints) -> Floats:
    """Expand the quantile around the normal one in 1 / ν: within 1e-8 above 100 degrees."""
    per = 1.0 / np.maximum(degrees, 1)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + per * (first + per * (second + per * third))
