"""The vectorised number of a row is the scalar one, which is Spark's own (tests/spark)."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from spillway.kernels.uniform import uniform, uniforms
from spillway.spark import uniform as gate

BIGINT = st.integers(-(2**63), 2**63 - 1)


@given(salt=BIGINT, numbers=st.lists(BIGINT, max_size=50))
def test_many_at_once_are_the_same_numbers_as_one_by_one(salt: int, numbers: list[int]) -> None:
    found = uniforms(salt, np.array(numbers, dtype=np.int64))
    assert found.tolist() == [uniform(salt, number) for number in numbers]


def test_the_gate_uses_this_very_function() -> None:
    assert gate.uniform is uniform


def test_the_numbers_of_neighbours_are_spread_evenly() -> None:
    """Chi-square over 100 cells, 99 degrees of freedom: above 168 with probability 2e-5."""
    found = np.histogram(uniforms(11, np.arange(100_000)), bins=100, range=(0, 1))[0]
    assert ((found - 1000) ** 2 / 1000).sum() < 168
