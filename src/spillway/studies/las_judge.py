"""What the LAS study's claims have in common: names, tolerances, and how a claim is judged."""

from __future__ import annotations

from collections.abc import Mapping

from spillway.studies.study import Claim, Results, Verdict

BASE, STRAW, FULL = "Base Line", "Straw-Man", "Full Knowledge"
PAPER, DEFAULT, COLD = "LAS", "LAS default", "LAS, cold start"
FEWEST, UNBIASED = "LAS fewest", "LAS unbiased"
LIMIT_MS = 6.4
FAR = 5.0  # so many times τ is far from it
CLOSE = 1.25  # and so many times τ close to it
ROUNDING = 1.001


def claim(
    figure: str,
    statement: str,
    paper: str,
    ours: str,
    holds: bool,
    *,
    better: bool = False,
    why: str = "",
) -> Claim:
    """Judge a statement; the reason stands only where it does not hold."""
    verdict: Verdict = "does not hold" if not holds else "holds better" if better else "holds"
    return Claim(figure, statement, paper, ours, verdict, "" if holds else why)


def means(results: Results, name: str, key: str) -> dict[str, float]:
    """Return the mean over the runs, by point."""
    return {label: float(found[f"{name}/{key}"].mean()) for label, found in results.items()}


def worst(results: Results, name: str, key: str) -> float:
    """Return the largest value of any run at any point."""
    return max(float(found[f"{name}/{key}"].max()) for found in results.values())


def spread(values: Mapping[str, float], unit: str = " ms") -> str:
    """Say from where to where values reach."""
    return f"{min(values.values()):.3g} to {max(values.values()):.3g}{unit}"


def share_of(label: str) -> float:
    """Read a point's label, such as 25%."""
    return float(label.rstrip("%")) / 100
