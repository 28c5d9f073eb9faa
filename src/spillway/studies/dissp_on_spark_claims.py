"""What must hold of fair shedding on Spark: names, numbers and verdicts.

Fair and random are run in pairs. A number that swings from run to run is judged by its median over
the runs, with the least and the greatest beside it; useful work by all pairs together.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spillway.studies.dissp_claims import (
    APART,
    DEVIATION_MAX,
    JAIN_MIN,
    NONE,
    RANDOM,
    STARVES,
)
from spillway.studies.dissp_queries import OBJECTIVE_S
from spillway.studies.las_judge import claim
from spillway.studies.study import Claim, Results

Floats = NDArray[np.float64]

FAIR, ALONE = "fair share", "each for itself"
LATE = 2.0  # so many times the objective is out of control
AS_MUCH = 0.98  # of random's work: what runs of a minute can tell

_NOISE = "few batches fit into a window, and the engine's own time varies from batch to batch"
_SHORT = "the queue grows with time, and the run was too short for it"


def label(name: str, queries: int, number: int = 1) -> str:
    """Name a point: the how-manieth run with so many queries."""
    return f"{name} | {queries} | {number}"


def parts(point: str) -> tuple[str, int, int]:
    """Return what `label` put together.

    >>> parts(label("random", 8, 2))
    ('random', 8, 2)
    """
    name, queries, number = point.split(" | ")
    return name, int(queries), int(number)


def counts(results: Results) -> list[int]:
    """Return the numbers of queries that fair shedding was run with."""
    return sorted({parts(point)[1] for point in results if parts(point)[0] == FAIR})


def runs(results: Results, name: str, queries: int) -> list[int]:
    """Return the numbers of the runs, in order."""
    found = (parts(point) for point in results)
    return sorted(number for what, many, number in found if (what, many) == (name, queries))


def by_run(results: Results, name: str, queries: int, key: str) -> Floats:
    """Return, run by run, the mean of what was measured, over time or over the queries."""
    numbers = runs(results, name, queries)
    return np.array([results[label(name, queries, n)][key].mean() for n in numbers])


def typical(results: Results, name: str, queries: int, key: str) -> float:
    """Return the median over the runs of the mean of what was measured."""
    return float(np.median(by_run(results, name, queries, key)))


def overload(results: Results, name: str, queries: int) -> float:
    """Return by how much the work that came was more than what was done, in all runs."""
    needed, done = (by_run(results, name, queries, key).sum() for key in ("needed_s", "useful_s"))
    return _over(needed, done)


def latencies(results: Results, name: str, queries: int) -> Floats:
    """Return the mean latency of every query (a row for each run)."""
    numbers = runs(results, name, queries)
    return np.array([results[label(name, queries, n)]["latency_s"] for n in numbers])


def ratios(results: Results, queries: int, key: str) -> tuple[float, Floats]:
    """Return fair over random, in all pairs together and pair by pair; NaN for over nothing."""
    fair, random = (by_run(results, name, queries, key) for name in (FAIR, RANDOM))
    pairs = [_over(one, other) for one, other in zip(fair, random, strict=True)]
    return _over(fair.sum(), random.sum()), np.array(pairs)


def _over(one: float, other: float) -> float:
    return float(one / other) if other > 0 else float("nan")


def swing(values: Floats, form: str = ".3g") -> str:
    """Say a median, and from where to where the runs reach if there are several.

    >>> swing(np.array([0.02, 0.01, 0.04]))
    '0.02 (0.01 to 0.04 in 3 runs)'
    >>> swing(np.array([0.02]))
    '0.02'
    """
    median = format(np.median(values), form)
    if values.size == 1:
        return median
    return f"{median} ({values.min():{form}} to {values.max():{form}} in {values.size} runs)"


def claims(results: Results) -> list[Claim]:
    """Judge every number of queries, and those without a fair share."""
    found = [
        make(results, queries)
        for queries in counts(results)
        for make in (_close, _apart, _starves, _late, _work, _in_time)
    ]
    return [*found, *_rivals(results)]


def _close(results: Results, queries: int) -> Claim:
    """Judge the medians; where nothing was done nothing was measured."""
    deviation, jain = (by_run(results, FAIR, queries, key) for key in ("deviation", "jain"))
    done = by_run(results, FAIR, queries, "useful_s").min() > 0
    close = np.median(deviation) <= DEVIATION_MAX and np.median(jain) >= JAIN_MIN
    on = f"{queries} queries at {overload(results, FAIR, queries):.1f} times the capacity"
    return claim(
        "spread",
        f"{on}: SIC are numerically close",
        f"yes (here: deviation ≤ {DEVIATION_MAX}, Jain's index ≥ {JAIN_MIN})",
        f"deviation {swing(deviation, '.4f')}, Jain's index {swing(jain, '.4f')}",
        bool(close and done),
        why=_NOISE,
    )


def _apart(results: Results, queries: int) -> Claim:
    fair, random = (by_run(results, name, queries, "deviation") for name in (FAIR, RANDOM))
    apart = random / np.maximum(fair, 1e-9)
    return claim(
        "spread",
        f"beyond, {queries} queries: random shedding deviates at least 5 times as much",
        "not claimed",
        f"{swing(apart, '.1f')} times",
        bool(np.median(apart) >= APART),
        better=True,
        why=_NOISE,
    )


def _starves(results: Results, queries: int) -> Claim:
    """Judge by the worst moment of all runs."""
    found = (results[label(FAIR, queries, n)] for n in runs(results, FAIR, queries))
    least = min(float((run["least"] / np.maximum(run["average"], 1e-9)).min()) for run in found)
    return claim(
        "spread",
        f"beyond, {queries} queries: no query ever has less than {STARVES:.0%} of the mean SIC",
        "not claimed",
        f"least {least:.0%} of the mean at any time",
        least >= STARVES,
        better=True,
        why=_NOISE,
    )


def _late(results: Results, queries: int) -> Claim:
    """Judge each query by its mean over the runs: the objective is an average."""
    found = latencies(results, FAIR, queries)
    mean_s = found.mean(axis=0)
    greatest = f"; at most {found.max():.1f} s in one of {len(found)} runs"
    return claim(
        "spread",
        f"{queries} queries: every one holds its objective of {OBJECTIVE_S:g} s on average",
        "low queueing delays",
        f"from {mean_s.min():.1f} to {mean_s.max():.1f} s{greatest if len(found) > 1 else ''}",
        bool(mean_s.max() <= OBJECTIVE_S),
        why=_NOISE,
    )


def _work(results: Results, queries: int) -> Claim:
    return claim(
        "spread",
        f"beyond, {queries} queries: at least as much useful work as random (within 2 %)",
        "not claimed",
        _of_randoms(results, queries, "useful_s"),
        ratios(results, queries, "useful_s")[0] >= AS_MUCH,
        better=True,
        why=_why_less(results, queries),
    )


def _in_time(results: Results, queries: int) -> Claim:
    return claim(
        "spread",
        f"beyond, {queries} queries: at least as much of it within {OBJECTIVE_S:g} s (within 2 %)",
        "not claimed",
        _of_randoms(results, queries, "in_time_s"),
        ratios(results, queries, "in_time_s")[0] >= AS_MUCH,
        better=True,
        why=_NOISE,
    )


def _of_randoms(results: Results, queries: int, key: str) -> str:
    """Say how work compares in all pairs together, which is what counts, and in each."""
    together, pairs = ratios(results, queries, key)
    if pairs.size == 1:
        return f"{together:.3f} of random's"
    each = ", ".join(f"{pair:.2f}" for pair in pairs)
    return f"{together:.3f} of random's (pair by pair {each}; median {np.median(pairs):.2f})"


def _why_less(results: Results, queries: int) -> str:
    """Explain less work: a longer batch takes less of the engine's time for each row."""
    fair_s, random_s = (
        latencies(results, name, queries).mean(axis=0).max() for name in (FAIR, RANDOM)
    )
    if not random_s > fair_s:
        return _NOISE
    return (
        f"random does it in longer batches, of which the engine takes less: its slowest query "
        f"waits {random_s:.1f} s, that of the fair share {fair_s:.1f} s"
    )


def _rivals(results: Results) -> list[Claim]:
    made = []
    for queries in counts(results):
        if label(NONE, queries) in results:
            late = float(results[label(NONE, queries)]["latency_s"].max())
            made.append(
                claim(
                    "spread",
                    f"{queries} queries, no shedding: latency grows out of control",
                    "yes",
                    f"up to {late:.1f} s on average, objective {OBJECTIVE_S:g} s",
                    late > LATE * OBJECTIVE_S,
                    why=_SHORT,
                )
            )
        if label(ALONE, queries) in results:
            alone, fair = (typical(results, name, queries, "deviation") for name in (ALONE, FAIR))
            made.append(
                claim(
                    "spread",
                    f"beyond, {queries} queries: where each sheds for itself alone, SIC lie apart",
                    "local shedding is not fair",
                    f"deviation {alone:.3f} against {fair:.3f}",
                    alone >= APART * fair,
                    better=True,
                    why=_NOISE,
                )
            )
    return made
