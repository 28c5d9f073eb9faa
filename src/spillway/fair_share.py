"""Several guarded queries share one cluster fairly (DISSP)."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Literal

import numpy as np

from spillway.arguments import folder_of
from spillway.estimate.sic import SicState, SicWindow, Spread, result_sic
from spillway.guard import Guard
from spillway.objective import seconds
from spillway.state.fair_log import FairLog, Member


class FairShare:
    """Lets guards shed so that what their results lose is the same for all, or as weights say.

    Every guard publishes what its query needs in the folder `state`, and works out from all
    records which share of its own rows it may keep. Guards of other applications that name the same
    folder belong to it too: then `cores` says how many cores they have together.

    guards:  the members, before they protect anything; their names must differ. A query with
             several sources has a guard for each (`sic_of_queries`).
    weights: what members deserve, by name; 1 for those that are not named. 0 gets what is left.
    cores:   by default those of the applications.
    window:  the source time window, over which shares are made even: several batches long.
    split:   "random" keeps whole batches in random order: a rival, for comparison.

    >>> import spillway as sw
    >>> objective = sw.Latency(average="5 s")
    >>> guards = [sw.Guard(name, objective=objective, state=f"/checkpoints/{name}/spillway")
    ...           for name in ("rides", "fares")]
    >>> fair = sw.FairShare(guards, state="/checkpoints/fair", weights={"rides": 2})
    >>> fair.sic()  # nothing runs yet
    {}
    """

    def __init__(
        self,
        guards: Sequence[Guard],
        *,
        state: str | Path,
        weights: Mapping[str, float] | None = None,
        cores: float | None = None,
        window: str | timedelta = "30 s",
        split: Literal["fair", "random"] = "fair",
    ) -> None:
        """Make the guards members; nothing is read or written before their queries run."""
        given = dict(weights or {})
        _check(guards, given, cores, split)
        window_s = SicWindow(window_s=seconds(window)).window_s
        self._log = FairLog(folder=folder_of("state", state))
        for guard in guards:
            guard.belong(
                log=self._log,
                weight=float(given.get(guard.name, 1.0)),
                cores=cores,
                split=split,
                window_s=window_s,
            )

    def sic(self) -> dict[str, float]:
        """Return how much of its input is in the results of each member that runs, in [0, 1]."""
        now_s = time.time()
        return {
            member.name: SicWindow(window_s=member.window_s).sic(
                SicState(slots=member.sic), now_s=now_s
            )
            for member in self._log.fresh(now_s)
        }

    def sic_of_queries(self) -> dict[tuple[str, ...], float]:
        """Return the SIC of each query, by the names of its guards: of several sources the mean.

        Guards belong to one query if they have its checkpoint in common. A source of which the
        window has no rows does not count, and a query to which nothing came is left out.
        """
        now_s = time.time()
        queries: dict[str, list[Member]] = {}
        for member in self._log.fresh(now_s):
            queries.setdefault(member.owner, []).append(member)
        found = {
            tuple(m.name for m in sources): _sic(sources, now_s) for sources in queries.values()
        }
        return {names: sic for names, sic in found.items() if sic is not None}

    def spread(self) -> Spread | None:
        """Return how far the SIC of the queries lie apart; None while none runs."""
        sic = self.sic_of_queries()
        return Spread.of(list(sic.values())) if sic else None


def _sic(sources: Sequence[Member], now_s: float) -> float | None:
    """Return the SIC of a query with these sources; None if none of them has rows."""
    totals = [
        SicWindow(window_s=source.window_s).totals(SicState(slots=source.sic), now_s=now_s)
        for source in sources
    ]
    came, kept = (np.concatenate(counts) for counts in zip(*totals, strict=True))
    return result_sic(came, kept) if came.any() else None


def _check(
    guards: Sequence[Guard], weights: Mapping[str, float], cores: float | None, split: str
) -> None:
    names = Counter(guard.name for guard in guards)
    doubled = sorted(name for name, count in names.items() if count > 1)
    if not guards:
        raise ValueError("guards must be at least one, got none")
    if doubled:
        raise ValueError(f"guards must have different names, got {doubled} more than once")
    unknown = sorted(set(weights) - set(names))
    if unknown:
        raise ValueError(f"weights must be of the guards {sorted(names)}, got {unknown}")
    for name, weight in weights.items():
        if not 0 <= weight < math.inf:
            raise ValueError(f"weights must be finite and >= 0, got {weight} for {name!r}")
    if cores is not None and not 0 < cores < math.inf:
        raise ValueError(f"cores must be finite and > 0, got {cores}")
    if split not in ("fair", "random"):
        raise ValueError(f"split must be 'fair' or 'random', got {split!r}")
