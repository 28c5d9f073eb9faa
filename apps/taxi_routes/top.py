"""The query: the routes of the highest fares in a window, from a sample of its rides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from spillway.estimate.groups import GroupSample, means, quantiles, top

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

SCHEMA = (
    "rank int, route bigint, fare double, low double, high double, certain boolean, "
    "rides bigint, used bigint, window_rides bigint, window_used bigint, window_routes bigint"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopRoutes:
    """Averages the fares of every route, orders the routes by it and takes the first.

    It gets the sampled rides of a window with `_weight`: how many rides of its route each of them
    stands for. Beside the fare it tells the interval that holds the true one in 95 of 100 cases,
    and whether the route surely belongs among the first.

    >>> rides = pd.DataFrame({"route": [3, 8, 8], "fare": [9.0, 20.0, 30.0], "_weight": 1.0})
    >>> TopRoutes(routes=1)(rides)[["rank", "route", "fare", "rides"]].values.tolist()
    [[1.0, 8.0, 25.0, 2.0]]
    """

    routes: int = 10
    of: Literal["mean", "median"] = "mean"
    rides_min: int = 1

    def __call__(self, rides: pd.DataFrame) -> pd.DataFrame:
        """Return the first routes of a window, of those with enough rides."""
        route, code = np.unique(rides["route"].to_numpy(), return_inverse=True)
        ridden = np.rint(np.bincount(code, rides["_weight"].to_numpy())).astype(np.int64)
        often = ridden >= self.rides_min
        sample = _sample(code, rides["fare"].to_numpy(), ridden, often)
        found = means(sample) if self.of == "mean" else quantiles(sample, 0.5)
        best = top(found, self.routes)
        chosen = best.groups
        return pd.DataFrame(
            {
                "rank": np.arange(1, chosen.size + 1, dtype=np.int32),
                "route": route[often][chosen],
                "fare": found.value[chosen],
                "low": found.low[chosen],
                "high": found.high[chosen],
                "certain": best.certain,
                "rides": sample.rows[chosen],
                "used": sample.kept[chosen],
                "window_rides": int(ridden.sum()),
                "window_used": len(rides),
                "window_routes": route.size,
            }
        )


def _sample(code: Ints, fare: Floats, ridden: Ints, often: Bools) -> GroupSample:
    """The fares of the routes that are wanted, one route after the other."""
    order = np.argsort(code, kind="stable")
    order = order[often[code[order]]]
    kept = np.bincount(code, minlength=ridden.size)[often]
    starts = np.concatenate([[0], np.cumsum(kept)])
    return GroupSample(values=fare[order], starts=starts, rows=ridden[often])
