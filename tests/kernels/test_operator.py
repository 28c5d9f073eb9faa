"""The compiled machine of LAS and POSG is the listing, line by line."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.kernels import operator as kernel
from tests.kernels.test_sketch import cells, multipliers_of
from tests.naive_sketch import NaiveOperator

# Powers of two: means and their sums are exact in both, so η <= μ can be compared at the border.
COSTS = st.sampled_from([-5, 1024, 2048, 4096])
ROWS = st.lists(st.tuples(st.integers(0, 3), COSTS), max_size=60)


class Machine:
    """The kernel's arrays, two rows of four columns."""

    def __init__(self, window: int, tolerance: float) -> None:
        self.machine = np.zeros(kernel.MACHINE_SIZE, dtype=np.int64)
        self.frequency, self.work_ns = np.zeros((2, 2, 4), dtype=np.int64)
        self.means_ns = np.zeros((2, 4))
        self.multipliers = multipliers_of(2)
        self.rule = window, tolerance
        self.sent = tuple(np.zeros((2, 2, 4), dtype=np.int64))

    @property
    def state(self) -> tuple[np.ndarray, ...]:
        return self.machine, self.frequency, self.work_ns, self.means_ns, self.multipliers

    def executed(self, key: int, cost_ns: int) -> bool:
        return kernel.executed(*self.state, key, cost_ns, *self.rule, *self.sent)


@given(rows=ROWS, window=st.integers(1, 9), tolerance=st.sampled_from([0.0, 0.05, 0.3, 5.0]))
@settings(max_examples=300)
def test_it_publishes_what_the_listing_publishes_and_when(
    rows: list[tuple[int, int]], window: int, tolerance: float
) -> None:
    machine = Machine(window, tolerance)
    twin = NaiveOperator(machine.multipliers.tolist(), 4, window, tolerance)
    for key, cost_ns in rows:
        published = twin.executed(key, cost_ns)
        assert machine.executed(key, cost_ns) == (published is not None)
        if published:
            assert cells(machine.sent[0]) == published.count
            assert cells(machine.sent[1]) == {at: n for at, n in published.work.items() if n}
        assert cells(machine.frequency) == twin.sketch.count
        assert ("START", "STABILIZING")[machine.machine[kernel.PHASE]] == twin.state
    assert machine.machine[kernel.EXECUTED] == len(rows)


@given(rows=ROWS, window=st.integers(1, 9))
def test_a_batch_is_its_rows_one_by_one(rows: list[tuple[int, int]], window: int) -> None:
    single, batch = Machine(window, 0.3), Machine(window, 0.3)
    expected = [t + 1 for t, row in enumerate(rows) if single.executed(*row)]
    keys, costs_ns = np.array(rows, dtype=np.int64).reshape(-1, 2).T.copy()
    found, begin = [], 0
    while begin >= 0:
        begin = kernel.executed_rows(*batch.state, keys, costs_ns, begin, *batch.rule, *batch.sent)
        found.append(begin)
    assert found == [*expected, -1]
    for one, other in zip(single.state, batch.state, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("tolerance", [0.0, 0.05])
def test_steady_costs_are_published_after_two_windows(tolerance: float) -> None:
    machine = Machine(4, tolerance)
    assert [machine.executed(1, 64) for _ in range(8)] == [False] * 7 + [True]
    assert machine.sent[0].sum(axis=1).tolist() == [7, 7]  # the eighth is in the new sketch
    assert machine.frequency.sum(axis=1).tolist() == [1, 1]


def test_costs_that_keep_growing_are_not_published() -> None:
    machine = Machine(4, 0.05)
    assert not any(machine.executed(1, 2**t) for t in range(40))
    assert machine.machine[kernel.PHASE] == kernel.STABILIZING


def test_a_negative_cost_counts_as_none_here_too() -> None:
    machine = Machine(4, 0.05)
    machine.executed(1, -(2**63))
    assert machine.work_ns.sum() == 0
