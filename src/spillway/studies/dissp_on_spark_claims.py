"""What must hold of fair shedding on Spark: names, numbers and verdicts."""

from __future__ import annotations

import numpy as np

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

FAIR, ALONE = "fair share", "each for itself"
LATE = 2.0  # so many times the objective is out of control
AS_MUCH = 0.98  # of random's work: what a run of a minute can tell

_NOISE = "few batches fit into a window, and the engine's own time varies from batch to batch"
_SHORT = "the queue grows with time, and the run was too short for it"


def label(name: str, queries: int) -> str:
    """Name a point."""
    return f"{name} | {queries}"


def counts(results: Results) -> list[int]:
    """Return the numbers of queries that fair shedding was run with."""
    return sorted(int(name.split(" | ")[1]) for name in results if name.startswith(FAIR))


def mean(results: Results, name: str, queries: int, key: str) -> float:
    """Return the mean of what was measured, over time or over the queries."""
    return float(results[label(name, queries)][key].mean())


def overload(results: Results, name: str, queries: int) -> float:
    """Return by how much the work that came was more than what was done."""
    return mean(results, name, queries, "needed_s") / mean(results, name, queries, "useful_s")


def claims(results: Results) -> list[Claim]:
    """Judge every number of queries, and those without a fair share."""
    found = [each for queries in counts(results) for each in _of(results, queries)]
    return [*found, *_rivals(results)]


def _of(results: Results, queries: int) -> list[Claim]:
    fair = results[label(FAIR, queries)]
    deviation, jain = (mean(results, FAIR, queries, key) for key in ("deviation", "jain"))
    apart = mean(results, RANDOM, queries, "deviation") / max(deviation, 1e-9)
    least = float((fair["least"] / np.maximum(fair["average"], 1e-9)).min())
    slowest = float(fair["latency_s"].max())
    work = mean(results, FAIR, queries, "useful_s") / mean(results, RANDOM, queries, "useful_s")
    on = f"{queries} queries at {overload(results, FAIR, queries):.1f} times the capacity"
    return [
        claim(
            "spread",
            f"{on}: SIC are numerically close",
            f"yes (here: deviation ≤ {DEVIATION_MAX}, Jain's index ≥ {JAIN_MIN})",
            f"deviation {deviation:.4f}, Jain's index {jain:.4f}",
            deviation <= DEVIATION_MAX and jain >= JAIN_MIN,
            why=_NOISE,
        ),
        claim(
            "spread",
            f"beyond, {queries} queries: random shedding deviates at least 5 times as much",
            "not claimed",
            f"{apart:.1f} times",
            apart >= APART,
            better=True,
            why=_NOISE,
        ),
        claim(
            "spread",
            f"beyond, {queries} queries: no query ever has less than {STARVES:.0%} of the mean SIC",
            "not claimed",
            f"least {least:.0%} of the mean at any time",
            least >= STARVES,
            better=True,
            why=_NOISE,
        ),
        claim(
            "spread",
            f"{queries} queries: every one holds its objective of {OBJECTIVE_S:g} s on average",
            "low queueing delays",
            f"from {fair['latency_s'].min():.1f} to {slowest:.1f} s",
            slowest <= OBJECTIVE_S,
            why=_NOISE,
        ),
        claim(
            "spread",
            f"beyond, {queries} queries: at least as much useful work as random (within 2 %)",
            "not claimed",
            f"{work:.3f} of random's",
            work >= AS_MUCH,
            better=True,
            why=_NOISE,
        ),
    ]


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
            alone, fair = (mean(results, name, queries, "deviation") for name in (ALONE, FAIR))
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
