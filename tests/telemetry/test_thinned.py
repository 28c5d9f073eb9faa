"""A thinned history: bounded, and the same least, greatest and mean as the whole one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.telemetry.thinned import Thinned


@given(
    st.lists(
        st.tuples(*[st.one_of(st.floats(-1e6, 1e6), st.just(float("nan")))] * 2), max_size=200
    ),
    st.sampled_from([2, 4, 8]),
)
def test_buckets_are_those_of_the_rows_cut_into_equal_stretches(
    rows: list[tuple[float, float]], buckets: int
) -> None:
    thinned = Thinned(columns=2, buckets=buckets)
    for row in rows:
        thinned.add(row)
    each = thinned.rows_each
    stretches = [np.array(rows[at : at + each]) for at in range(0, len(rows), each)]
    assert len(thinned.means()) == len(stretches) <= buckets
    for at, stretch in enumerate(stretches):
        for column in range(2):
            known = stretch[:, column][~np.isnan(stretch[:, column])]
            found = [
                part[at, column] for part in (thinned.least(), thinned.greatest(), thinned.means())
            ]
            wanted = [known.min(), known.max(), known.mean()] if known.size else [np.nan] * 3
            assert found == pytest.approx(wanted, nan_ok=True, abs=1e-6)


def test_a_long_history_takes_no_more_memory_than_a_short_one() -> None:
    thinned = Thinned(columns=3)
    size = thinned._parts.nbytes
    for number in range(20_000):
        thinned.add((float(number), 1.0, float("nan")))
    assert thinned._parts.nbytes == size
    assert len(thinned._pending) < thinned.rows_each == 64
    assert len(thinned.means()) <= 512


@pytest.mark.parametrize("buckets", [0, 1, 7])
def test_buckets_that_cannot_be_halved_are_refused(buckets: int) -> None:
    with pytest.raises(ValueError, match=f"buckets must be even and >= 2, got {buckets}"):
        Thinned(columns=1, buckets=buckets)
