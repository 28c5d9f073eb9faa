"""What the chapter on DISSP says about fair shedding, judged by what our runs give.

"fair (paper)" follows algorithm 1 and the cost model of eq. 5.1-5.3 to the letter; "fair by cost"
is what is shipped: seconds instead of rows, and never more than fits.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from spillway.studies.las_judge import claim, means
from spillway.studies.study import Claim, Results

Floats = NDArray[np.float64]

NONE, RANDOM, EQUAL = "no shedding", "random", "equal work"
PAPER, DEFAULT = "fair (paper)", "fair by cost"
BURSTS = "moving burst"
DEVIATION_MAX, JAIN_MIN = 0.03, 0.995  # close together
APART = 5.0  # so many times as far apart
LATENCY_S_MAX = 0.75  # three intervals: low queueing delays
LATE_S = 5.0  # and this is not low
STARVES = 0.5  # a query below so much of the mean starves

# Why a claim does not hold.
_ROWS = (
    "a row counts as an average row whatever its query, so that what is kept takes longer or less "
    "than the interval, and the buffer runs over or dry"
)
_IDLE = "t / n counts idle time as the cost of rows, so that a chance burst is taken for overload"
_CHANCE_BURST = "rows come by chance: for an interval they may be more than fits into it"
_CHANCE = "random keeps every batch with the same chance: only the scatter of few batches is left"


def overload_claims(results: Results) -> list[Claim]:
    """Judge the figure over the overload."""
    over = _overloaded(results)
    late = min(means(over, NONE, "latency_s").values())
    claims = _close("overload", results) + _apart("overload", over) + _fed("overload", over)
    claims += [_delays(name, over) for name in (PAPER, DEFAULT)]
    claims += [_as_much_work(name, over) for name in (PAPER, DEFAULT)]
    claims.append(
        claim(
            "overload",
            "without shedding latency grows out of control",
            "yes",
            f"99th percentile after a minute at least {late:.1f} s",
            late > LATE_S,
        )
    )
    return claims + _calm(results)


def _calm(results: Results) -> list[Claim]:
    """Below the capacity nothing should be shed."""
    calm = {label: found for label, found in results.items() if float(label) < 1}
    return [
        claim(
            "overload",
            f"nothing is shed below the capacity: {name}",
            "no shedding where N_discard is negative",
            f"{_most_shed(calm, name):.3%} of the rows in the worst run",
            _most_shed(calm, name) == 0.0,
            why=_IDLE if name == PAPER else _CHANCE_BURST,
        )
        for name in (PAPER, DEFAULT)
        if calm
    ]


def query_claims(results: Results) -> list[Claim]:
    """Judge the figure over the number of queries."""
    return _close("queries", results) + _apart("queries", results) + _fed("queries", results)


def rate_claims(results: Results) -> list[Claim]:
    """Judge the figure over unequal rates."""
    return _close("rates", results) + _apart("rates", results) + _fed("rates", results)


def cost_claims(results: Results) -> list[Claim]:
    """Judge the figure over unequal costs, where equal work for all is unfair."""
    claims = _close("costs", results) + _apart("costs", results) + _fed("costs", results)
    widest = max(results, key=float)
    equal, fair = (_mean(results, widest, name, "deviation") for name in (EQUAL, DEFAULT))
    return [
        *claims,
        claim(
            "costs",
            "the same resources for all queries favour small ones: a large spread",
            "yes",
            f"deviation {equal:.3f} against {fair:.3f} at 1:{widest}",
            equal > APART * fair,
        ),
    ]


def weight_claims(results: Results) -> list[Claim]:
    """Judge what the chapter does not have: weights."""
    return _close("weights", results, statement="beyond: SIC are in proportion to weights")


def burst_claims(results: Results) -> list[Claim]:
    """Judge bursts that move from query to query."""
    return _close("bursts", results) + _apart("bursts", results, 2.0) + _fed("bursts", results)


# ---- one claim each ----


def _close(
    figure: str, results: Results, statement: str = "SIC are numerically close"
) -> list[Claim]:
    return [_close_for(figure, results, name, statement) for name in (PAPER, DEFAULT)]


def _close_for(figure: str, results: Results, name: str, statement: str) -> Claim:
    deviation = max(means(results, name, "deviation").values())
    jain = min(means(results, name, "jain").values())
    return claim(
        figure,
        f"{statement}: {name}",
        f"yes (here: deviation ≤ {DEVIATION_MAX}, Jain's index ≥ {JAIN_MIN})",
        f"deviation at most {deviation:.4f}, Jain's index at least {jain:.4f}",
        deviation <= DEVIATION_MAX and jain >= JAIN_MIN,
        why=_ROWS if name == PAPER else "",
    )


def _apart(figure: str, results: Results, times: float = APART) -> list[Claim]:
    ratios = {
        label: _mean(results, label, RANDOM, "deviation")
        / max(_mean(results, label, DEFAULT, "deviation"), 1e-9)
        for label in results
    }
    least = min(ratios, key=lambda label: ratios[label])
    return [
        claim(
            figure,
            f"beyond: random shedding deviates at least {times:g} times as much",
            "not claimed",
            f"at least {ratios[least]:.1f} times (at {least}), up to {max(ratios.values()):.1f}",
            ratios[least] >= times,
            better=True,
            why=_CHANCE,
        )
    ]


def _fed(figure: str, results: Results) -> list[Claim]:
    """No query starves at any time in any run."""
    found = [_least_of_mean(results, name) for name in (RANDOM, DEFAULT)]
    return [
        claim(
            figure,
            f"beyond: at no time a query has less than {STARVES:.0%} of the mean SIC",
            "not claimed",
            f"least {found[1]:.0%} of the mean in any run; random {found[0]:.0%}",
            found[1] >= STARVES,
            better=True,
        )
    ]


def _delays(name: str, results: Results) -> Claim:
    latency = max(means(results, name, "latency_s").values())
    return claim(
        "overload",
        f"throughput is sustainable, queueing delays are low: {name}",
        f"yes (here: 99th percentile ≤ {LATENCY_S_MAX} s)",
        f"99th percentile at most {latency:.2f} s",
        latency <= LATENCY_S_MAX,
        why=_ROWS if name == PAPER else "",
    )


def _as_much_work(name: str, results: Results) -> Claim:
    ratios = [
        _mean(results, label, name, "useful_s") / _mean(results, label, RANDOM, "useful_s")
        for label in results
    ]
    return claim(
        "overload",
        f"beyond: at least as much useful work as random (within 1 %): {name}",
        "not claimed",
        f"{min(ratios):.3f} to {max(ratios):.3f} of random's",
        min(ratios) >= 0.99,
        better=True,
        why=_ROWS if name == PAPER else "",
    )


# ---- numbers ----


def _overloaded(results: Results) -> Results:
    return {label: found for label, found in results.items() if float(label) >= 1.5}


def _mean(results: Results, label: str, name: str, key: str) -> float:
    return float(results[label][f"{name}/{key}"].mean())


def _most_shed(results: Results, name: str) -> float:
    return max(float(found[f"{name}/shed"].max()) for found in results.values())


def _least_of_mean(results: Results, name: str) -> float:
    ratios: Sequence[Floats] = [
        found[f"{name}/minimum"] / np.maximum(found[f"{name}/mean"], 1e-9)
        for found in results.values()
    ]
    return min(float(each.min()) for each in ratios)
