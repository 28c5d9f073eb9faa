"""What placing rows by their cost can save is foreseen from their spread."""

from __future__ import annotations

import numpy as np
import pytest

from spillway.placement.gain import foreseen_gain_ns


@pytest.mark.parametrize("instances", [2, 5, 10, 64])
@pytest.mark.parametrize("each", [10, 50])
def test_it_is_what_the_slowest_has_beyond_the_mean(instances: int, each: int) -> None:
    """Costs uniform on [1, 64] ms; 400 batches tell the mean of the slowest to about 3 %."""
    costs = np.random.default_rng(instances).uniform(1e6, 64e6, (400, instances, each))
    sums = costs.sum(axis=2)
    beyond_ns = (sums.max(axis=1) - sums.mean(axis=1)).mean()
    foreseen_ns = foreseen_gain_ns(
        spread_ns=float(costs.std()), rows=instances * each, instances=instances
    )
    assert foreseen_ns == pytest.approx(beyond_ns, rel=0.12)  # Blom's formula is within 5 %
