"""CoD in strata: the rows of a group are told apart further, by how large their value is.

Every half octave of the value (floor(2 log2 |value|), by sign) is a stratum of its group, sampled
and weighed by itself, as `guard.window(strata=...)` does. What then is left to chance is how values
differ within a half octave. A stratum costs a row at least: where groups are rare, that is more
than the groups themselves cost.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spillway.estimate import groups as estimate
from spillway.estimate.moments import divided, sums
from spillway.shedders.group_sizes import Groups, sample_sizes
from spillway.studies.cod_windows import Judged, Rows, Window

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

IN_STRATA = "CoD cvopt, in strata"
_STEPS = 2.0  # to an octave
_ZERO = -5000  # the stratum of 0, below all that a double can be


def in_strata(window: Window, budget: float, random: np.random.Generator) -> Judged:
    """Sample a window in strata, and judge the means of its groups."""
    parts, parents = strata_of(window)
    kept = sizes(parts, parents, budget)
    sample = parts.shuffled(random).sample(kept)
    means = divided(sums(sample.values, sample.starts), kept)
    found = np.bincount(parents, parts.rows * means) / window.rows
    errors = estimate.error_sources(window.groups.means, found)
    return Judged(
        error=errors.mean_relative,
        kept=float(kept.sum() / window.total),
        missing=errors.missing / errors.groups,
    )


def sizes(parts: Window, parents: Ints, budget: float) -> Ints:
    """Return how many rows of every stratum are kept."""
    groups = Groups(
        rows=parts.rows,
        means=parts.groups.means,
        variances=parts.groups.variances,
        parents=parents,
    )
    return sample_sizes(groups, budget, allocation="cvopt")


def strata_of(window: Window) -> tuple[Window, Ints]:
    """Return the window with strata as its groups, and the place of each one's group.

    >>> rides = Rows(
    ...     time_s=np.arange(5.0),
    ...     group=np.array([7, 7, 7, 9, 9]),
    ...     value=np.array([8.0, 9.0, 16.0, 8.0, 0.0]),
    ... )
    >>> parts, parents = strata_of(Window.of(rides))
    >>> parts.rows.tolist(), parents.tolist()
    ([2, 1, 1, 1], [0, 0, 1, 1])
    """
    step = half_octaves(window.value)
    step -= step.min(initial=0)
    count = int(step.max(initial=0)) + 1
    group = window.code * count + step
    parts = Window.of(Rows(time_s=np.empty(0), group=group, value=window.value))
    return parts, parts.names // count


def half_octaves(values: Floats) -> Ints:
    """Number the half octaves of values, those below 0 apart from those above.

    >>> half_octaves(np.array([1.0, 1.4, 1.5, 2.0, 0.0, -1.0])).tolist()
    [0, 0, 2, 4, -10000, 1]
    """
    size = np.abs(values)
    steps = np.full(values.size, _ZERO, dtype=np.int64)
    some = size > 0
    steps[some] = np.floor(_STEPS * np.log2(size[some]))
    return 2 * steps + (values < 0)
