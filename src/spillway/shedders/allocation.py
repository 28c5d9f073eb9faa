"""Keep rates that fit a work budget: the most worth, or the least variance, for the cost.

Groups of rows are told apart by cost (seconds a row), worth (utility or size of a row) and count.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from spillway.kernels.allocation import density_cut, root_scale

Floats = NDArray[np.float64]


def most_worth(
    costs: ArrayLike, budget: float, *, worths: ArrayLike = 1.0, counts: ArrayLike = 1.0
) -> Floats:
    """Return the keep rates that buy the most worth; with equal worths they lose the fewest rows.

    >>> most_worth([1.0, 2.0, 4.0], budget=5.0).tolist()
    [1.0, 1.0, 0.5]
    """
    cost, worth, count = _checked(costs, worths, counts, budget)
    cut, share = density_cut(cost, worth, count, budget)
    density = worth / cost
    return np.where(density > cut, 1.0, np.where(density == cut, share, 0.0))


def least_variance(
    costs: ArrayLike, budget: float, *, worths: ArrayLike = 1.0, counts: ArrayLike = 1.0
) -> Floats:
    """Return keep rates ∝ worth / √cost, at most 1: estimated totals vary least for the work.

    >>> least_variance([1.0, 4.0], budget=1.5).tolist()
    [0.5, 0.25]
    """
    cost, worth, count = _checked(costs, worths, counts, budget)
    scale = root_scale(cost, worth, count, budget)
    return np.minimum(scale * worth / np.sqrt(cost), 1.0) if scale < np.inf else np.ones(cost.size)


def _checked(
    costs: ArrayLike, worths: ArrayLike, counts: ArrayLike, budget: float
) -> tuple[Floats, Floats, Floats]:
    if not budget >= 0:
        raise ValueError(f"budget must be >= 0, got {budget}")
    arrays = np.broadcast_arrays(
        *(np.asarray(given, dtype=np.float64) for given in (costs, worths, counts))
    )
    for name, array in zip(("costs", "worths"), arrays, strict=False):
        if array.ndim != 1 or not (np.isfinite(array) & (array > 0)).all():
            raise ValueError(f"{name} must be a list of finite numbers > 0, got {array}")
    if not (arrays[2] >= 0).all():
        raise ValueError(f"counts must be >= 0, got {arrays[2]}")
    cost, worth, count = (np.ascontiguousarray(array) for array in arrays)
    return cost, worth, count
