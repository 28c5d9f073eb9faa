"""What no allocation can do better: the least error of a window, and how its groups differ.

A mean of k of n rows, if it is normal, errs by √(2/π) v √(1/k - 1/n) relative to the group's mean,
v = σ / |μ|. That is convex in k up to n / 2; from there on the straight line to k = n, where
nothing errs, is below it. So the least Σ over all k of one sum has every group at a common slope λ,

    k³ (1 - k/n) = (v / 2λ)²   if that is below n / 2,   else k = n,

or more than that: Σ min(error + λ k) - λ Σ k is a bound from below whatever λ, and greatest there.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spillway.studies.cod_windows import Window

Floats = NDArray[np.float64]

LEAST, VARIATION = "least possible", "variation"
_NORMAL = (2.0 / np.pi) ** 0.5
_STEPS, _ROUNDS = 20, 6
_SLOPES = (1e-12, 1e2)


def limits(window: Window, kept: float) -> dict[str, float]:
    """Return the least error of `kept` rows, and σ / |μ| at 5, 50 and 95 % of the groups.

    Groups of a single row do not vary: 0 if there is no other.
    """
    variation = variations(window)
    several = variation[window.rows > 1] if (window.rows > 1).any() else np.zeros(1)
    low, middle, high = np.quantile(several, (0.05, 0.5, 0.95)).tolist()
    return {
        f"{LEAST}/error": least_error(window.rows.astype(np.float64), variation, kept),
        f"{VARIATION}/low": low,
        f"{VARIATION}/middle": middle,
        f"{VARIATION}/high": high,
    }


def variations(window: Window) -> Floats:
    """Return σ / |μ| of every group; 0 of a single row, and where the mean is 0."""
    spread = np.sqrt(np.where(window.rows > 1, window.groups.variances, 0.0))
    mean = np.abs(window.groups.means)
    return np.divide(spread, mean, out=np.zeros_like(spread), where=mean > 0)


def least_error(rows: Floats, variation: Floats, kept: float) -> float:
    """Bound from below the mean relative error of any `kept` rows, one at least of every group.

    >>> alike = least_error(np.full(4, 1e9), np.full(4, 0.5), 400)
    >>> round(alike, 4), round(0.5 * (2 / np.pi) ** 0.5 / 100**0.5, 4)
    (0.0399, 0.0399)
    """
    low, high = np.log(_SLOPES)
    bound = 0.0
    for _ in range(_STEPS):
        slope = float(np.exp((low + high) / 2))
        sizes, errors = _at_slope(rows, variation, slope)
        bound = max(bound, float(errors.sum() + slope * (sizes.sum() - kept)))
        low, high = (np.log(slope), high) if sizes.sum() > kept else (low, np.log(slope))
    return float(_NORMAL * bound / rows.size)


def _at_slope(rows: Floats, variation: Floats, slope: float) -> tuple[Floats, Floats]:
    """Return the sizes that minimise error + slope · size, group by group, and their errors."""
    wanted = np.square(variation / (2.0 * slope)) / rows**3
    share = np.cbrt(np.minimum(wanted, 1.0 / 16.0))
    for _ in range(_ROUNDS):  # each errs at most a third as much as the one before
        share = np.minimum(np.cbrt(np.minimum(wanted, 1.0 / 16.0) / (1.0 - share)), 0.5)
    sizes = np.maximum(share * rows, 1.0)
    errors = variation * np.sqrt(np.maximum(1.0 / sizes - 1.0 / rows, 0.0))
    whole = errors + slope * sizes >= slope * rows
    return np.where(whole, rows, sizes), np.where(whole, 0.0, errors)
