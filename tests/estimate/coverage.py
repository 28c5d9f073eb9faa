"""How often intervals hold the truth, counted on generated windows.

    python -m tests.estimate.coverage             prints the table of docs/estimates.md
    python -m tests.estimate.coverage settings    prints the one of all settings

A window of the first has 200 groups of different means, a few large and many small as routes of
taxis are: 1,000 rows · rank^-0.8, but the last 40 have 8 rows. 15 % of the rows are sampled, in
proportion to the rows but at least two of every group. Only groups that are not kept whole count,
and only intervals that are finite on both sides.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import product

import numpy as np

from spillway.estimate.groups import (
    Estimates,
    GroupSample,
    means,
    quantiles,
    stratified_total,
)
from spillway.estimate.moments import means_and_errors
from spillway.estimate.student import t_scores
from spillway.shedders.group_sizes import Groups, sample_sizes

Draw = Callable[[np.random.Generator, int], np.ndarray]

VALUES: dict[str, Draw] = {
    "normal": lambda rng, size: rng.normal(10.0, 3.0, size),
    "uniform": lambda rng, size: rng.uniform(5.0, 15.0, size),
    "log-normal, σ = 0.5": lambda rng, size: rng.lognormal(2.0, 0.5, size),
    "log-normal, σ = 1": lambda rng, size: rng.lognormal(2.0, 1.0, size),
    "log-normal, σ = 2": lambda rng, size: rng.lognormal(2.0, 2.0, size),
}
Shape = tuple[int, int]
SETTINGS: dict[str, Callable[[np.random.Generator, Shape], np.ndarray]] = {
    "normal": lambda rng, size: rng.normal(10.0, 3.0, size),
    "uniform": lambda rng, size: rng.uniform(5.0, 15.0, size),
    "gamma, skewness 1": lambda rng, size: rng.gamma(4.0, size=size),
    "exponential": lambda rng, size: rng.exponential(size=size),
    "log-normal, σ = 0.25": lambda rng, size: rng.lognormal(2.0, 0.25, size),
    "log-normal, σ = 0.5": lambda rng, size: rng.lognormal(2.0, 0.5, size),
    "log-normal, σ by group": lambda rng, size: np.exp(
        0.22 * np.exp(0.5 * rng.standard_normal((size[0], 1))) * rng.standard_normal(size)
    ),  # as the fares of routes: 0.1, 0.22 and 0.5 at 5, 50 and 95 % of the groups
    "log-normal, σ = 1": lambda rng, size: rng.lognormal(2.0, 1.0, size),
}
STRONG = "log-normal, σ = 1"
SAMPLES = (2, 3, 5, 10, 30, 100)
WINDOWS = ((400, 0.98), (40, 0.75), (10, 0.5))  # groups, and the share that is shed
KEPT = {"2": (2, 2), "3-4": (3, 4), "5-9": (5, 9), "10-29": (10, 29), "30+": (30, 10**9)}
ROWS = np.append(np.ceil(1000 * np.arange(1.0, 161.0) ** -0.8).astype(np.int64), np.full(40, 8))
SIZES = sample_sizes(
    Groups(rows=ROWS, means=np.ones(ROWS.size), variances=np.ones(ROWS.size)),
    0.15 * float(ROWS.sum()),
    allocation="proportional",
)
SAMPLED = np.arange(ROWS.sum()) - np.repeat(np.cumsum(ROWS) - ROWS, ROWS) < np.repeat(SIZES, ROWS)


def window(draw: Draw, rng: np.random.Generator) -> tuple[GroupSample, GroupSample]:
    """Return all rows of a window, and the sample of it.

    Rows of a group are drawn alike and independently, so its first k are a random sample.
    """
    values = draw(rng, int(ROWS.sum())) * np.repeat(rng.uniform(0.5, 2.0, ROWS.size), ROWS)
    return sample(values, ROWS, ROWS), sample(values[SAMPLED], SIZES, ROWS)


def sample(values: np.ndarray, kept: np.ndarray, rows: np.ndarray) -> GroupSample:
    return GroupSample(values=values, starts=np.concatenate([[0], np.cumsum(kept)]), rows=rows)


def plain_means(part: GroupSample) -> Estimates:
    """Student's t as it is, without regard to skew: for comparison."""
    value, error = means_and_errors(part.values, part.starts, part.rows)
    reach = t_scores(0.95, np.maximum(part.kept - 1, 1)) * error
    return Estimates(value=value, low=value - reach, high=value + reach)


def held(found: Estimates, truth: np.ndarray) -> np.ndarray:
    return (found.low <= truth) & (truth <= found.high)


def group_coverage(
    estimate: Callable[[GroupSample], Estimates], draw: Draw, *, windows: int, seed: int = 1
) -> dict[str, tuple[float, int]]:
    """Return for every range of k the part of intervals that hold the truth, and their number."""
    rng = np.random.default_rng(seed)
    kept, good = [], []
    for _ in range(windows):
        whole, part = window(draw, rng)
        found = estimate(part)
        counts = (part.kept < part.rows) & np.isfinite(found.low) & np.isfinite(found.high)
        kept.append(part.kept[counts])
        good.append(held(found, estimate(whole).value)[counts])
    k, hit = np.concatenate(kept), np.concatenate(good)
    within = {name: (k >= least) & (k <= most) for name, (least, most) in KEPT.items()}
    within["all"] = np.ones_like(hit)
    return {
        name: (float(hit[which].mean()) if which.any() else np.nan, int(which.sum()))
        for name, which in within.items()
    }


def window_coverage(draw: Draw, *, windows: int, seed: int = 2) -> float:
    """Return the part of windows whose interval holds the total of the whole window."""
    rng = np.random.default_rng(seed)
    good = 0
    for _ in range(windows):
        whole, part = window(draw, rng)
        found = stratified_total(part)
        good += found.low <= whole.values.sum() <= found.high
    return good / windows


def setting_coverage(
    values: str, *, kept: int, groups: int, shed: float, intervals: int, seed: int = 3
) -> float:
    """Return the part of intervals that hold the mean; all groups have as many rows."""
    rng, rows, hits = np.random.default_rng(seed), round(kept / (1.0 - shed)), 0
    windows = intervals // groups
    for _ in range(windows):
        drawn = SETTINGS[values](rng, (groups, rows)) * rng.uniform(0.5, 2.0, (groups, 1))
        part = sample(drawn[:, :kept].ravel(), np.full(groups, kept), np.full(groups, rows))
        hits += int(held(means(part), drawn.mean(axis=1)).sum())
    return hits / (windows * groups)


def settings(intervals: int = 8_000) -> None:
    """Print a line for every kind of values and way to cut windows."""
    print(f"| values | groups, shed | {' | '.join(f'k = {k}' for k in SAMPLES)} |")
    print("|---|---|" + "---|" * len(SAMPLES))
    for values, (groups, shed) in product(SETTINGS, WINDOWS):
        shares = (
            setting_coverage(values, kept=kept, groups=groups, shed=shed, intervals=intervals)
            for kept in SAMPLES
        )
        cells = " | ".join(f"{100 * share:.1f} %" for share in shares)
        print(f"| {values} | {groups}, {shed:.0%} | {cells} |", flush=True)


def main(windows: int = 500) -> None:
    """Print the table as Markdown."""
    estimates: dict[str, Callable[[GroupSample], Estimates]] = {
        "mean": means,
        "mean, plain t": plain_means,
        "median": lambda part: quantiles(part, 0.5),
        "quantile 0.9": lambda part: quantiles(part, 0.9),
    }
    print(f"| values | estimate | {' | '.join(f'k = {k}' for k in KEPT)} | all |")
    print("|---|---|" + "---|" * (len(KEPT) + 1))
    for values, draw in VALUES.items():
        for name, estimate in estimates.items():
            shares = group_coverage(estimate, draw, windows=windows)
            cells = " | ".join("-" if n == 0 else f"{s:.1%}" for s, n in shares.values())
            print(f"| {values} | {name} | {cells} |")
        total = window_coverage(draw, windows=4 * windows)
        print(f"| {values} | total of the window |{' |' * len(KEPT)} {total:.1%} |")


if __name__ == "__main__":
    settings() if "settings" in sys.argv else main()
