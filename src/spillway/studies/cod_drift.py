"""CoD's figure 2: how much the ten routes of highest mean fare change from window to window.

The distance is the share of the top ten that the window before had not; the overlap what both
have in common, of all that either has. The paper also calls distance what changes beside the set:
here the share of the rows that would have to be of another group for the frequencies to be alike
(total variation).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from spillway.studies.cod_data import Source
from spillway.studies.cod_judge import RUN
from spillway.studies.cod_windows import Pair, Window
from spillway.studies.las_judge import claim
from spillway.studies.study import Claim, Figure, Panel, Point, Results, Series

TOP = 10
DISTANCE, OVERLAP, FREQUENCIES = "distance", "overlap", "frequencies"
_Y = {
    DISTANCE: "distance: share of the top ten that is new",
    OVERLAP: "overlap: common to both top tens, of all in either",
    FREQUENCIES: "distance of the groups' frequencies",
}
_PAPER = 0.3


@dataclass(frozen=True, kw_only=True)
class Drift:
    """Figure 2."""

    sources: Mapping[str, Source]
    quick: Mapping[str, Source]
    id: str = "2"
    title: str = "Concept drift: what changes from one window to the next"
    runs: int = 4
    quick_runs: int = 1

    def points(self) -> Sequence[Point]:
        """Return a point for every stream and window."""
        return [Point(label, source.params) for label, source in self.sources.items()]

    def quick_points(self) -> Sequence[Point]:
        """Return the same with fewer windows."""
        return [Point(label, {**source.params, "quick": 1}) for label, source in self.quick.items()]

    def compute(self, point: Point, runs: range, seed: int) -> dict[str, list[float]]:
        """Compare every window of these runs with the one before it."""
        found: dict[str, list[float]] = {name: [] for name in (*_Y, RUN)}
        source = (self.quick if "quick" in point.params else self.sources)[point.label]
        for run in runs:
            for pair in source.pairs(run, seed):
                for name, value in drift(pair).items():
                    found[name].append(value)
                found[RUN].append(float(run))
        return found

    def draw(self, results: Results) -> Figure:
        """Draw means over the windows; bars reach from 5 to 95 % of them."""
        panels = (Panel(_Y[name], (_bar(results, name),)) for name in _Y)
        return Figure(self.id, self.title, tuple(panels))

    def claims(self, results: Results) -> list[Claim]:
        """Check that the top ten changes, and that made rides change as the real ones do."""
        taxi = [label for label in results if label.startswith("taxi")]
        claims = [_changes(label, results) for label in taxi]
        made = [label for label in results if label.startswith("few made rides")]
        claims += [
            _alike(label, real, results)
            for label in made
            for real in taxi
            if label.rsplit(", ", 1)[1] == real.rsplit(", ", 1)[1]
        ]
        return claims or [_changes(label, results) for label in made]


def drift(pair: Pair) -> dict[str, float]:
    """Say how far a window's concept is from the one before."""
    before, now = top(pair.before), top(pair.window)
    return {
        DISTANCE: len(now - before) / len(now),
        OVERLAP: len(now & before) / len(now | before),
        FREQUENCIES: frequency_distance(pair.before, pair.window),
    }


def top(window: Window) -> set[int]:
    """Return the ten groups of the highest mean; of equals, the lower names."""
    order = np.lexsort((window.names, -window.groups.means))
    return set(window.names[order[:TOP]].tolist())


def frequency_distance(one: Window, other: Window) -> float:
    """Return the total variation distance of the groups' shares of the rows."""
    names = np.union1d(one.names, other.names)
    shares = [np.zeros(names.size) for _ in range(2)]
    for share, window in zip(shares, (one, other), strict=True):
        share[np.searchsorted(names, window.names)] = window.rows / window.total
    return float(np.abs(shares[0] - shares[1]).sum() / 2.0)


def _bar(results: Results, name: str) -> Series:
    values = {label: found[name] for label, found in results.items()}
    return Series(
        name,
        tuple(label.replace(", ", "\n") for label in values),
        tuple(float(each.mean()) for each in values.values()),
        tuple(float(np.quantile(each, 0.05)) for each in values.values()),
        tuple(float(np.quantile(each, 0.95)) for each in values.values()),
    )


def _changes(label: str, results: Results) -> Claim:
    distance, overlap = (float(results[label][name].mean()) for name in (DISTANCE, OVERLAP))
    return claim(
        "2",
        f"{label}: the top ten changes by about 30 % from window to window",
        "30 % on average, up to 50 %",
        f"{distance:.0%} new, overlap {overlap:.0%}",
        _PAPER - 0.1 <= distance <= _PAPER + 0.2,
    )


def _alike(made: str, real: str, results: Results) -> Claim:
    ours, theirs = (float(results[label][DISTANCE].mean()) for label in (made, real))
    return claim(
        "2",
        f"{made}: made rides drift as the real ones, within 10 points",
        "not claimed",
        f"{ours:.0%} new, taxi {theirs:.0%}",
        abs(ours - theirs) <= 0.1,
    )
