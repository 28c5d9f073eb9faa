"""What LAS's paper says about its figures 4 to 8, checked against our runs.

Every claim is computed from the results at hand: with `--quick` from fewer points and runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from spillway.studies.las_beyond import aim_claims, cold_claims, shipped_claims, total_claims
from spillway.studies.las_judge import (
    BASE,
    CLOSE,
    DEFAULT,
    FAR,
    FULL,
    LIMIT_MS,
    PAPER,
    ROUNDING,
    STRAW,
    claim,
    means,
    share_of,
    spread,
    worst,
)
from spillway.studies.study import Claim, Results

Floats = NDArray[np.float64]


def provisioning_claims(results: Results) -> list[Claim]:
    """Figure 4."""
    over = {label: found for label, found in results.items() if share_of(label) >= 0.1}
    room = [label for label in results if share_of(label) < 0]
    latency = {
        name: means(over, name, "latency_ms") for name in (BASE, STRAW, PAPER, DEFAULT, FULL)
    }
    claims = [_superfluous(results[label]) for label in room]
    bad = min(min(latency[BASE].values()), min(latency[STRAW].values()))
    claims.append(
        claim(
            "4",
            "overloaded, Base Line and Straw-Man exceed τ by far",
            "huge exceeding latency",
            f"at least {bad:.3g} ms",
            bad > FAR * LIMIT_MS,
        )
    )
    violated = worst(over, PAPER, "latency_ms")
    claims += [
        claim(
            "4",
            "LAS is quite close to τ, which it violates in some runs",
            "about 6.4 ms, some above",
            f"means {spread(latency[PAPER])}, worst run {violated:.3g} ms",
            max(latency[PAPER].values()) <= CLOSE * LIMIT_MS and violated > LIMIT_MS,
        ),
        claim(
            "4",
            "Full Knowledge always abides by τ",
            "always",
            f"worst run {worst(over, FULL, 'latency_ms'):.3g} ms",
            worst(over, FULL, "latency_ms") <= LIMIT_MS * ROUNDING,
        ),
        *_dropped_order(over),
        *shipped_claims(results),
    ]
    return claims


def _superfluous(found: Mapping[str, Floats]) -> Claim:
    dropped = max(float(found[f"{name}/dropped"].mean()) for name in (BASE, STRAW, PAPER, FULL))
    waits = [float(found[f"{name}/latency_ms"].mean()) for name in (BASE, STRAW, PAPER, FULL)]
    return claim(
        "4",
        "with 10 % room all perform alike, shedding is superfluous",
        "same level",
        f"{min(waits):.3g} to {max(waits):.3g} ms, at most {dropped:.2%} dropped",
        dropped < 0.01 and max(waits) < 1.1 * min(waits),
    )


def _dropped_order(over: Results) -> list[Claim]:
    dropped = {name: means(over, name, "dropped") for name in (BASE, STRAW, PAPER, FULL)}
    near = max(abs(dropped[BASE][label] - dropped[STRAW][label]) for label in over)
    ordered = all(
        dropped[STRAW][label] - 0.005 <= dropped[FULL][label] <= dropped[PAPER][label] + 0.005
        for label in over
    )
    extra = max(dropped[PAPER][label] - dropped[BASE][label] for label in over)
    return [
        claim(
            "4",
            "Base Line and Straw-Man drop the same, LAS slightly more, Full Knowledge in between",
            "same, slightly more, in the middle",
            f"differ by at most {near:.2%}; LAS at most {extra:.1%} of the rows more",
            near < 0.01 and ordered,
        )
    ]


def threshold_claims(results: Results) -> list[Claim]:
    """Figure 5."""
    wait = {name: means(results, name, "latency_ms") for name in (STRAW, PAPER, FULL, BASE)}
    near = {label: wait[FULL][label] / float(label) for label in results if 0 < float(label) < 12.8}
    large = [label for label in results if float(label) >= 0.8]
    dropped = {name: means(results, name, "dropped") for name in (STRAW, PAPER, FULL, BASE)}
    small = min(results, key=float)
    more = dropped[STRAW][small] / dropped[BASE][small] - 1
    return [
        claim(
            "5",
            "Full Knowledge perfectly approaches every τ",
            "equal to τ; slightly less at 12.8",
            f"{min(near.values()):.3f} to {max(near.values()):.3f} of τ",
            min(near.values()) >= 0.97 and max(near.values()) <= ROUNDING,
        ),
        claim(
            "5",
            "with the smallest τ Straw-Man drops many more rows than Base Line",
            "many more",
            f"{more:+.0%}",
            more > 0.05,
        ),
        claim(
            "5",
            "from τ = 0.8 ms on LAS is largely better than Straw-Man",
            "largely better",
            "; ".join(
                f"τ {label}: {wait[PAPER][label]:.3g} against {wait[STRAW][label]:.3g} ms"
                for label in large
            ),
            all(2 * wait[PAPER][label] < wait[STRAW][label] for label in large),
        ),
        claim(
            "5",
            "LAS drops slightly more rows than Full Knowledge",
            "slightly more",
            f"{_points(dropped[PAPER], dropped[FULL])} points of the rows",
            all(dropped[PAPER][label] > dropped[FULL][label] - 0.002 for label in large)
            and max(dropped[PAPER][label] - dropped[FULL][label] for label in large) < 0.06,
            why="where τ is less than the mean cost of a row the sketch's errors are as large "
            "as τ: LAS then admits too many rows and exceeds τ",
        ),
    ]


def _points(ours: Mapping[str, float], theirs: Mapping[str, float]) -> str:
    extra = [100 * (ours[label] - theirs[label]) for label in ours]
    return f"{min(extra):.2f} to {max(extra):.2f}"


def largest_cost_claims(results: Results) -> list[Claim]:
    """Figure 6."""
    near = {label: means(results, PAPER, "latency_ms")[label] / float(label) for label in results}
    ratio = {
        label: float((found[f"{PAPER}/dropped"] / found[f"{BASE}/dropped"] - 1).mean())
        for label, found in results.items()
    }
    return [
        claim(
            "6",
            "LAS behaves consistently whatever the largest cost",
            "consistent",
            f"latency {min(near.values()):.2f} to {max(near.values()):.2f} of τ",
            max(near.values()) < 1.5 * min(near.values()),
        ),
        claim(
            "6",
            "its shedding ratio is always positive",
            "positive",
            spread(ratio, ""),
            min(ratio.values()) > 0,
        ),
    ]


def distribution_claims(results: Results) -> list[Claim]:
    """Figure 7."""
    wait = {name: means(results, name, "latency_ms") for name in (BASE, STRAW, PAPER)}
    ratio = {
        label: float((found[f"{PAPER}/dropped"] / found[f"{BASE}/dropped"] - 1).mean())
        for label, found in results.items()
    }
    first, last = next(iter(results)), list(results)[-1]
    span = {
        name: [float(np.ptp(results[label][f"{name}/latency_ms"])) for label in (first, last)]
        for name in (BASE, STRAW)
    }
    bad = min(min(wait[BASE].values()), min(wait[STRAW].values()))
    return [
        claim(
            "7",
            "Straw-Man and Base Line are bad with any distribution",
            "invariably bad",
            f"at least {bad:.3g} ms",
            bad > FAR * LIMIT_MS,
            why="where one key makes nearly all rows they all cost the same, and counting rows is "
            "as good as knowing costs",
        ),
        claim(
            "7",
            "their span between best and worst run grows with the skew",
            "grows",
            ", ".join(f"{name} {low:.0f} to {high:.0f} ms" for name, (low, high) in span.items())
            + f" from {first} to {last}",
            all(high > low for low, high in span.values()),
            why="few runs do not show the worst ones",
        ),
        claim(
            "7",
            "LAS performs better the more the distribution is skewed",
            "improves",
            f"{wait[PAPER][first]:.3g} ms at {first}, {wait[PAPER][last]:.3g} ms at {last}",
            wait[PAPER][last] < wait[PAPER][first],
        ),
        claim(
            "7",
            "its shedding ratio decreases with the skew",
            "decreases",
            f"{ratio[first]:.3f} at {first}, {ratio[last]:.3f} at {last}",
            ratio[last] < 0.99 * ratio[first],
            why="the factor 1 + ε decides: with 25 % too much work it drops 1 - 0.75 / 1.05 = "
            "28.6 % of the rows, whatever the distribution",
        ),
    ]


def precision_claims(results: Results) -> list[Claim]:
    """Figure 8."""
    wait, dropped = means(results, PAPER, "latency_ms"), means(results, PAPER, "dropped")
    coarse = max(results, key=float)
    fine = [label for label in results if float(label) <= 0.1]
    return [
        claim(
            "8",
            "coarse sketches overestimate: LAS drops much and hardly any row waits",
            "latency close to 0",
            f"ε = {coarse}: {wait[coarse]:.2g} ms, {dropped[coarse]:.0%} dropped",
            wait[coarse] < 0.25 * LIMIT_MS and dropped[coarse] > 1.2 * min(dropped.values()),
        ),
        claim(
            "8",
            "from ε = 0.1 down the latency is below or equal to τ",
            "at most 6.4 ms",
            "; ".join(f"ε = {label}: {wait[label]:.3g} ms" for label in fine),
            all(wait[label] <= LIMIT_MS * ROUNDING for label in fine),
            why="a smaller ε also means a smaller factor 1 + ε: between two synchronisations "
            "nothing holds back an estimate that is too low",
        ),
        claim(
            "8",
            "finer sketches drop fewer rows",
            "fewer",
            "; ".join(f"ε = {label}: {dropped[label]:.1%}" for label in results),
            dropped[min(results, key=float)] <= min(dropped[label] for label in fine) + 0.002,
        ),
    ]


CLAIMS: dict[str, Callable[[Results], list[Claim]]] = {
    "4": provisioning_claims,
    "5": threshold_claims,
    "6": largest_cost_claims,
    "7": distribution_claims,
    "8": precision_claims,
    "cold": cold_claims,
    "aims": aim_claims,
    "totals": total_claims,
}
