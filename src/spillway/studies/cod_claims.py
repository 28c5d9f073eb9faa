"""What CoD's paper says about its figures 9 and 10, checked against our runs, and what is beyond.

Every claim is computed from the results at hand: data that is not there makes no claim.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from spillway.studies.cod_judge import (
    FEW,
    GOOGLE,
    GROUPED,
    MADE,
    TAXI,
    Floats,
    Found,
    by_run,
    mean,
    p95,
    percent,
)
from spillway.studies.cod_limits import LEAST, VARIATION
from spillway.studies.cod_rivals import COD, PAPER, RIVALS, SHIPPED, UNIFORM, equal
from spillway.studies.cod_strata import IN_STRATA
from spillway.studies.las_judge import claim
from spillway.studies.study import Claim, Results

GAIN = 10.0  # so many times less error than Uniform
ALLOCATION_GAIN = 1.5
_UNIFORM_ERRS = {TAXI: 0.8, GOOGLE: 0.4, MADE: 0.8}
_SIGMAS = 3.0  # a chance of 0.1 % to call equals unequal, on the worse side
_RARE = (
    "every group keeps two rows, or all if it has fewer: with as many rare groups as here "
    "that alone is more than the budget"
)


def accuracy_claims(results: Results) -> list[Claim]:
    """Figure 9."""
    claims = []
    for label, found in results.items():
        claims += _grouped(label, found) if label in GROUPED else _scalar(label, found)
    return claims


def _grouped(label: str, found: Found) -> list[Claim]:
    lost = max(float(found[f"{name}/missing"].max()) for name in (*COD, IN_STRATA))
    claims = [
        claim(
            "9",
            f"{label}: no group is missing with CoD",
            "zero missing groups",
            f"CoD {percent(lost)}, Uniform {percent(mean(found, UNIFORM, 'missing'))}",
            lost == 0,
        ),
        _equal_rows(label, found),
    ]
    return claims if label == FEW else [*claims, *_of_the_paper(label, found)]


def _of_the_paper(label: str, found: Found) -> list[Claim]:
    kept, least = mean(found, SHIPPED, "kept"), _UNIFORM_ERRS.get(label)
    claims = [_ten_times(label, found, name) for name in (PAPER, SHIPPED, *_strata(found))]
    claims += [_close_to_ten(label, found, name) for name in (PAPER, SHIPPED)]
    claims.append(
        claim(
            "9",
            f"{label}: a fiftieth of the rows is kept",
            "2 % (98 % shed)",
            percent(kept),
            kept <= 0.0205,
            why=_RARE,
        )
    )
    if least is not None:
        claims.append(_uniform_errs(label, mean(found, UNIFORM), least))
    return claims


def _uniform_errs(label: str, error: float, least: float) -> Claim:
    return claim(
        "9",
        f"{label}: Uniform's mean error exceeds {percent(least)}",
        f"more than {percent(least)}",
        percent(error),
        error > least,
        why="the part of the trace that is used here has 4 classes with at least 190 rows in every "
        "window: Uniform hardly ever misses one",
    )


def _ten_times(label: str, found: Found, name: str) -> Claim:
    ours, uniform = mean(found, name), mean(found, UNIFORM)
    ratio = uniform / ours if ours else np.inf
    return claim(
        "9",
        f"{label}: the error of {name} is at least {GAIN:.0f} times below Uniform's",
        "more than an order of magnitude",
        f"{percent(ours)} against {percent(uniform)}: {ratio:.3g} times",
        ratio >= GAIN,
        why="in proportion a rare group gets two or three rows"
        if name == PAPER
        else f"Uniform misses hardly any group here; {_least(found, uniform)} it",
    )


def _least(found: Found, than: float) -> str:
    """Say the least error to be expected of any allocation, and how far below another it is."""
    least = mean(found, LEAST)
    ratio = than / least if least else np.inf
    return (
        "of all allocations of as many rows with no group missing the best is to be expected to "
        f"err by about {100 * least:.3g} %, {ratio:.3g} times below"
    )


def _close_to_ten(label: str, found: Found, name: str) -> Claim:
    average, high = mean(found, name), p95(found, name)
    return claim(
        "9",
        f"{label}: mean and 95th percentile of the error of {name} are at most about 10 %",
        "below, or close to, 10 %",
        f"{percent(average)}, {percent(high)}",
        average <= 0.1 and high <= 0.12,
        better=high <= 0.05,
        why="few rows of a rare class are kept in proportion to its share",
    )


def _equal_rows(label: str, found: Found, figure: str = "9") -> Claim:
    """Compare run by run: rivals and CoD sample the same shuffled windows."""
    ours = by_run(found, f"{SHIPPED}/error")
    theirs = {name: by_run(found, f"{equal(name)}/error") for name in RIVALS}
    more = {name: errors - ours for name, errors in theirs.items()}
    return claim(
        figure,
        f"{label}: beyond: at equal kept rows no rival errs less than {SHIPPED}, within "
        f"{_SIGMAS:.0f} standard errors",
        "not claimed",
        f"{100 * ours.mean():.3g} %; "
        + ", ".join(_against(name, theirs[name], more[name]) for name in RIVALS),
        all(each.mean() >= -_SIGMAS * _noise(each) for each in more.values()),
        better=all(each.mean() > _SIGMAS * _noise(each) for each in more.values()),
    )


def _against(name: str, errors: Floats, more: Floats) -> str:
    """Say a rival's error, and if it is no other than CoD's."""
    same = " (the same rows)" if not more.any() else ""
    tie = " (a tie)" if more.any() and abs(more.mean()) <= _SIGMAS * _noise(more) else ""
    return f"{name} {100 * errors.mean():.3g} %{same}{tie}"


def _noise(differences: Floats) -> float:
    """Return the standard error of their mean; of one there is no telling."""
    if differences.size < 2:
        return float("inf")
    return float(differences.std(ddof=1) / np.sqrt(differences.size))


def _scalar(label: str, found: Found) -> list[Claim]:
    ours, uniform = (by_run(found, f"{name}/error") for name in (SHIPPED, UNIFORM))
    more = ours - uniform
    noise = _noise(more)
    return [
        claim(
            "9",
            f"{label}: of a scalar CoD's error is equal to Uniform's, within {_SIGMAS:.0f} "
            "standard errors of their difference",
            "the same for both",
            f"CoD {percent(float(ours.mean()))}, Uniform {percent(float(uniform.mean()))}; "
            f"difference {100 * more.mean():+.2g} ± {100 * noise:.1g} points",
            abs(float(more.mean())) <= _SIGMAS * noise,
            better=False,
        )
    ]


def allocation_claims(results: Results) -> list[Claim]:
    """Beyond the paper: the allocation that is best for the relative errors."""
    claims = []
    for label, found in results.items():
        errors = {name: mean(found, name) for name in (*COD, *_strata(found))}
        told = ", ".join(f"{name} {percent(error)}" for name, error in errors.items())
        for name in (SHIPPED, *_strata(found)):
            ratio = errors[PAPER] / errors[name] if errors[name] else np.inf
            claims.append(
                claim(
                    "allocations",
                    f"{label}: beyond: {name} errs at least {ALLOCATION_GAIN:g} times less than "
                    "the paper's proportional allocation",
                    "not claimed",
                    f"{told}: {ratio:.2f} times",
                    ratio >= ALLOCATION_GAIN,
                    better=True,
                    why=_alike(found, errors[PAPER]),
                )
            )
    return claims


def _strata(found: Found) -> tuple[str, ...]:
    """Return CoD in strata, where that keeps no more rows than without."""
    same = mean(found, IN_STRATA, "kept") <= 1.01 * mean(found, SHIPPED, "kept")
    return (IN_STRATA,) if same else ()


def _alike(found: Found, proportional: float) -> str:
    low, middle, high = (mean(found, VARIATION, part) for part in ("low", "middle", "high"))
    return (
        f"all groups are frequent and too alike: σ / μ is {low:.2g}, {middle:.2g} and {high:.2g} "
        f"at 5, 50 and 95 % of them; {_least(found, proportional)} the proportional one"
    )


def volume_claims(results: Results) -> list[Claim]:
    """Figure 10."""
    data = dict.fromkeys(label.rsplit(", ", 1)[0] for label in results)
    return [_claim for name in data for _claim in _volume(name, results)]


def _volume(data: str, results: Results) -> list[Claim]:
    labels = [label for label in results if label.rsplit(", ", 1)[0] == data]
    uniform = [mean(results[label], UNIFORM) for label in labels]
    most, least = results[labels[0]], results[labels[-1]]
    kept = mean(most, SHIPPED, "kept")
    theirs = mean(least, UNIFORM, "kept")
    worse = max(mean(results[label], SHIPPED) - mean(results[label], PAPER) for label in labels)
    return [
        claim(
            "10",
            f"{data}: Uniform's error falls as more rows are kept",
            "almost linearly",
            ", ".join(map(percent, uniform)),
            all(later < before for before, later in pairwise(uniform)),
        ),
        *(
            claim(
                "10",
                f"{data}: {name} with the most shed errs less than Uniform with the least",
                "much higher accuracy",
                f"{labels[0].rsplit(', ', 1)[1]}: {percent(mean(most, name))}; Uniform, "
                f"{labels[-1].rsplit(', ', 1)[1]}: {percent(uniform[-1])}",
                mean(most, name) < uniform[-1],
            )
            for name in (PAPER, SHIPPED)
        ),
        claim(
            "10",
            f"{data}: and keeps 25 times fewer rows for it",
            "a percentage 25 times smaller",
            f"{percent(kept)} against {percent(theirs)}",
            theirs >= 24 * kept,
            why=_RARE,
        ),
        claim(
            "10",
            f"{data}: beyond: at no rate {SHIPPED} errs more than {PAPER}",
            "not claimed",
            "; ".join(
                f"{label.rsplit(', ', 1)[1]}: {percent(mean(results[label], SHIPPED))} against "
                f"{percent(mean(results[label], PAPER))}"
                for label in labels
            ),
            worse <= 1e-9,
            better=True,
        ),
        *(_equal_rows(label, results[label], "10") for label in labels if _free(results[label])),
    ]


def _free(found: Found) -> bool:
    """Say whether the budget, and not the least rows of every group, decides what is kept."""
    return mean(found, SHIPPED, "kept") <= 1.02 * mean(found, UNIFORM, "kept")
