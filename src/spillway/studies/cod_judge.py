"""What CoD's claims and pictures have in common: names of the data, means, percentiles, words."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from spillway.studies.study import Results, Series

Floats = NDArray[np.float64]
Found = Mapping[str, Floats]

TAXI, GOOGLE, FINE, PACKETS = "taxi", "Google", "Google, class and priority", "packets"
MADE, FEW, SCALAR = "made rides", "made rides, 200 routes", "made rides, scalar"
GROUPED = (TAXI, GOOGLE, FINE, MADE, FEW)
RUN = "run"


def by_run(found: Found, key: str) -> Floats:
    """Return the mean over the windows of each run."""
    _, place = np.unique(found[RUN], return_inverse=True)
    return np.bincount(place, found[key]) / np.bincount(place)


def mean(found: Found, name: str, what: str = "error") -> float:
    """Return the median over the runs of the mean over their windows."""
    return float(np.median(by_run(found, f"{name}/{what}")))


def p95(found: Found, name: str, what: str = "error") -> float:
    """Return the 95th percentile over all windows of all runs."""
    return float(np.quantile(found[f"{name}/{what}"], 0.95))


def percent(value: float) -> str:
    """Write a share with as many digits as it needs.

    >>> [percent(value) for value in (0.912, 0.0214, 0.00321, 0.0)]
    ['91 %', '2.1 %', '0.32 %', '0 %']
    """
    return f"{100 * value:.2g} %" if value < 0.1 else f"{100 * value:.0f} %"


def bars(results: Results, name: str, value: str, *, shown: str = "") -> Series:
    """Draw a number of a rival over the data; from the least to the greatest run."""
    runs = {label: by_run(found, f"{name}/{value}") for label, found in results.items()}
    return Series(
        shown or name,
        tuple(results),
        tuple(float(np.median(each)) for each in runs.values()),
        tuple(float(each.min()) for each in runs.values()),
        tuple(float(each.max()) for each in runs.values()),
    )


def bars_p95(results: Results, name: str) -> Series:
    """Draw the 95th percentile of a rival's error over the data."""
    return Series(name, tuple(results), tuple(p95(found, name) for found in results.values()))
