"""Who keeps which rows of a window: CoD with every allocation, and its rivals.

Every rival is given what it would have: the share of rows to keep, and what it can know when.

- Uniform: every row with the same chance, as in the paper.
- equal reservoirs (StreamApprox): one of the same size for every group, filled as rows arrive. Its
  size is the budget over the number of groups, which is told it beforehand; at least one row.
- sampleBy, window before: Spark's `sampleBy`, a fraction for every group. The fractions are the
  best for the window before (by relative error); a group that it did not have is not kept.
- CoD: counts and moments of the window itself; in strata also those of half octaves of the value.

"Equal rows" gives a rival as many rows as CoD kept: rare groups cost volume, and a rival that
keeps less must err more. Uniform then keeps exactly so many rows; reservoirs have the size at which
they hold so many; fractions are scaled until so many are expected.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from spillway.shedders.group_sizes import Allocation, sample_sizes
from spillway.studies.cod_strata import IN_STRATA, in_strata
from spillway.studies.cod_windows import Judged, Pair, Window, judge

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

UNIFORM, RESERVOIRS, BEFORE = "Uniform", "equal reservoirs", "sampleBy, window before"
RIVALS = (UNIFORM, RESERVOIRS, BEFORE)
ALLOCATIONS: tuple[Allocation, ...] = get_args(Allocation)
PAPER, SHIPPED = "CoD proportional", "CoD cvopt"
_HALVINGS = 60


def cod(allocation: str) -> str:
    """Name CoD with an allocation."""
    return f"CoD {allocation}"


def equal(rival: str) -> str:
    """Name a rival that is given as many rows as CoD kept."""
    return f"{rival}, equal rows"


COD = tuple(cod(allocation) for allocation in ALLOCATIONS)
ALL = (*RIVALS, *map(equal, RIVALS), *COD, IN_STRATA)


def measure(pair: Pair, shed: float, random: np.random.Generator) -> dict[str, Judged]:
    """Let everybody sample a window of which this share is to be shed."""
    window, budget = pair.window, (1.0 - shed) * pair.window.total
    kept = by_concept(window, budget)
    kept |= _at(pair, budget, random)
    kept |= {
        equal(name): found
        for name, found in at_equal_rows(pair, int(kept[SHIPPED].sum()), random).items()
    }
    shuffled = window.shuffled(random)
    judged = {name: judge(window, shuffled, sizes) for name, sizes in kept.items()}
    return {**judged, IN_STRATA: in_strata(window, budget, random)}


def by_concept(window: Window, budget: float) -> dict[str, Ints]:
    """Return what CoD keeps, by allocation."""
    return {
        cod(allocation): sample_sizes(window.groups, budget, allocation=allocation)
        for allocation in ALLOCATIONS
    }


def _at(pair: Pair, budget: float, random: np.random.Generator) -> Mapping[str, Ints]:
    """What the rivals keep when they are given the budget."""
    rows = pair.window.rows
    size = max(int(budget / rows.size), 1)
    return {
        UNIFORM: random.binomial(rows, budget / pair.window.total),
        RESERVOIRS: np.minimum(rows, size),
        BEFORE: random.binomial(rows, fractions(pair, budget)),
    }


def at_equal_rows(pair: Pair, total: int, random: np.random.Generator) -> Mapping[str, Ints]:
    """What the rivals keep when they are given so many rows in all."""
    rows = pair.window.rows
    return {
        UNIFORM: _drawn(rows, total, random),
        RESERVOIRS: reservoirs(rows, total, random),
        BEFORE: random.binomial(rows, _scaled(fractions(pair, total), rows, total)),
    }


def _drawn(rows: Ints, total: int, random: np.random.Generator) -> Ints:
    """Count by group what a sample of exactly so many rows holds."""
    ends = np.cumsum(rows)
    chosen = random.permutation(int(ends[-1]))[:total]
    return np.bincount(np.searchsorted(ends, chosen, side="right"), minlength=rows.size)


def reservoirs(rows: Ints, total: int, random: np.random.Generator) -> Ints:
    """Return equal reservoirs that hold so many rows in all; the last ones go to random groups.

    >>> reservoirs(np.array([1, 5, 9]), 7, np.random.default_rng(0)).tolist()
    [1, 3, 3]
    """
    low, high = 0, int(rows.max())
    while low < high:
        middle = (low + high + 1) // 2
        if np.minimum(rows, middle).sum() <= total:
            low = middle
        else:
            high = middle - 1
    kept = np.minimum(rows, low)
    more = random.permutation(np.flatnonzero(rows > low))[: total - int(kept.sum())]
    kept[more] += 1
    return kept


def fractions(pair: Pair, budget: float) -> Floats:
    """Return what `sampleBy` keeps of every group, by the window before; 0 of those it had not."""
    before, names = pair.before, pair.window.names
    share = budget / pair.window.total
    sizes = sample_sizes(before.groups, share * before.total, allocation="cvopt")
    place = np.minimum(np.searchsorted(before.names, names), before.names.size - 1)
    known = before.names[place] == names
    return np.where(known, (sizes / before.rows)[place], 0.0)


def _scaled(fraction: Floats, rows: Ints, total: int) -> Floats:
    """Scale fractions until so many rows are expected, or all that can be."""
    low, high = 0.0, 1.0 / max(float(fraction[fraction > 0].min(initial=1.0)), 1e-12)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        if (rows * np.minimum(middle * fraction, 1.0)).sum() <= total:
            low = middle
        else:
            high = middle
    return np.minimum(low * fraction, 1.0)
