"""How a work budget is divided over rows that differ in cost and worth.

Rows (or groups of alike rows) i have a cost, a worth and a count; all take arrays of equal length.
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, error_model="numpy")
def density_cut(costs, worths, counts, budget):
    """Return (θ, ρ): keep all of worth / cost above θ and the share ρ of those at θ.

    This buys the most worth for the budget: the fractional knapsack. With equal worths the
    costliest go first, so that the fewest rows are lost.
    """
    densities = worths / costs
    order = np.argsort(-densities)
    spent = 0.0
    at = 0
    while at < order.size:
        density, work, after = densities[order[at]], 0.0, at
        while after < order.size and densities[order[after]] == density:
            work += counts[order[after]] * costs[order[after]]
            after += 1
        if spent + work > budget:
            return density, max(budget - spent, 0.0) / work
        spent += work
        at = after
    return -1.0, 1.0


@njit(cache=True, error_model="numpy")
def root_scale(costs, worths, counts, budget):
    """Return κ such that keeping every row with probability min(1, κ · worth / √cost) spends it.

    For independent keeping and a total of values of size `worth`, no other probabilities that
    spend as much give the Horvitz-Thompson estimate less variance.
    """
    full_at = np.sqrt(costs) / worths  # the κ from which on a row is kept for certain
    order = np.argsort(full_at)
    certain = 0.0
    roots = (counts * worths * np.sqrt(costs)).sum()
    for i in order:
        kappa = max(budget - certain, 0.0) / roots if roots > 0.0 else np.inf
        if kappa <= full_at[i]:
            return kappa
        certain += counts[i] * costs[i]
        roots -= counts[i] * worths[i] * np.sqrt(costs[i])
    return np.inf
