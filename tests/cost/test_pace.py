"""The pace of instances: what is true of their differences is found, what is chance is not."""

import numpy as np

from spillway.cost.pace import NOTHING, Worked, paces, remember

ROWS = 64


def played(
    factors: tuple[float, ...], *, unknown: float, seed: int, batches: int = 12
) -> tuple[Worked, ...]:
    """Let instances work for some batches; `unknown` is the spread that no key explains."""
    draw = np.random.default_rng(seed)
    worked: tuple[Worked, ...] = ()
    for _ in range(batches):
        costs = draw.lognormal(0.0, unknown, size=(len(factors), ROWS))
        took = costs.sum(axis=1) * factors
        worked = remember(worked, [(ROWS, took_ns, ROWS) for took_ns in took])
    return worked


def test_differences_of_five_per_cent_are_found_where_costs_are_known() -> None:
    """The sums of 256 rows with a spread of 10 % are known to 0.6 %; five times that is allowed."""
    true = np.array([1.05, 1.025, 1.0, 0.975, 0.95])
    for seed in range(20):
        found = np.array(paces(played(tuple(true), unknown=0.1, seed=seed)))
        assert np.abs(found - true).max() < 0.03


def test_chance_alone_makes_no_paces_to_speak_of() -> None:
    """Equal instances, costs unknown: without the shrinking the spread would be 4 %."""
    off = []
    for seed in range(200):
        found = paces(played((1.0,) * 5, unknown=0.6, seed=seed)) or (1.0,) * 5
        off.append(np.std(found))
    assert np.mean(off) < 0.02


def test_an_instance_without_rows_leaves_all_alike() -> None:
    assert paces(remember((), [(10.0, 12.0, 10.0), (0.0, 0.0, 0.0)])) == ()
    assert paces([NOTHING, NOTHING]) == ()
    assert paces([]) == ()


def test_an_instance_that_pauses_keeps_what_is_known_of_it() -> None:
    both = remember((), [(10.0, 12.0, 10.0), (10.0, 10.0, 10.0)])
    assert remember(both, [(10.0, 12.0, 10.0)])[1] == both[1]
