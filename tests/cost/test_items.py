"""Keys of every type become 31-bit items, one by one and by the array alike."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.cost.items import ITEM_MASK, item_of, item_sql, items_of

LONGS = st.integers(-(2**63), 2**63 - 1)


@given(keys=st.lists(st.one_of(st.none(), st.text(max_size=80)), max_size=20))
def test_an_array_of_texts_is_its_texts_one_by_one(keys: list[str | None]) -> None:
    assert items_of(np.array(keys, dtype=object)).tolist() == [item_of(key) for key in keys]


@given(keys=st.lists(LONGS, max_size=20))
def test_an_array_of_numbers_is_its_numbers_one_by_one(keys: list[int]) -> None:
    expected = [item_of(key) for key in keys]
    assert items_of(np.array(keys, dtype=np.int64)).tolist() == expected
    assert items_of(pa.array(keys, type=pa.int64())).tolist() == expected


@given(keys=st.lists(st.one_of(st.none(), st.binary(max_size=80)), max_size=20))
def test_an_array_of_bytes_is_its_bytes_one_by_one(keys: list[bytes | None]) -> None:
    assert items_of(np.array(keys, dtype=object)).tolist() == [item_of(key) for key in keys]


@given(keys=st.lists(st.floats(), max_size=20))
def test_an_array_of_floats_is_its_floats_one_by_one(keys: list[float]) -> None:
    assert items_of(np.array(keys, dtype=np.float64)).tolist() == [item_of(key) for key in keys]


@pytest.mark.parametrize(
    "keys",
    [
        np.array(["a", "bc", ""]),
        np.array([b"a", b"bc"]),
        np.array([True, False]),
        pa.array(["x", None, "z"]).slice(1),
        pa.array([1, None, 3]),
        pa.array(["x", "y", "x"]).dictionary_encode(),
        pa.nulls(3),
        np.array([None, None], dtype=object),
    ],
    ids=str,
)
def test_other_spellings_of_an_array_are_read_too(keys: Any) -> None:
    assert items_of(keys).tolist() == [item_of(key) for key in keys.tolist()]


def test_missing_is_an_item_of_its_own_and_no_nan_or_minus_zero_has_two() -> None:
    assert item_of(None) == 42
    assert item_of(-0.0) == item_of(0.0)
    negative_nan = math.copysign(math.nan, -1.0)
    assert item_of(negative_nan) == item_of(math.nan)
    both = items_of(np.array([negative_nan, -0.0]))
    assert both.tolist() == [item_of(math.nan), item_of(0.0)]


@given(key=st.one_of(LONGS, st.text(), st.binary(), st.none(), st.floats()))
def test_an_item_has_31_bits(key: Any) -> None:
    assert 0 <= item_of(key) <= ITEM_MASK


def test_items_spread_evenly() -> None:
    """Chi-square over 256 cells of the lowest bits; a false alarm once in a million."""
    from scipy.stats import chi2

    counts = np.bincount(items_of(np.arange(256_000)) % 256, minlength=256)
    statistic = ((counts - 1000) ** 2 / 1000).sum()
    assert chi2.isf(1 - 5e-7, 255) < statistic < chi2.isf(5e-7, 255)


@pytest.mark.parametrize("key", [2**63, -(2**63) - 1, [1], 1j])
def test_a_key_that_spark_has_no_type_for_is_refused(key: Any) -> None:
    with pytest.raises(ValueError, match="key must"):
        item_of(key)


@pytest.mark.parametrize(
    "keys",
    [
        np.array([1, 2], dtype=np.uint64),
        np.array([1j]),
        np.zeros((2, 2)),
        np.array([1, "a"], dtype=object),
        np.array(["2026-01-01"], dtype="datetime64[ns]"),
    ],
    ids=lambda keys: str(keys.dtype),
)
def test_an_array_that_spark_has_no_column_for_is_refused(keys: Any) -> None:
    with pytest.raises(ValueError, match="keys must be"):
        items_of(keys)


def test_the_sql_names_the_same_mask() -> None:
    assert item_sql("`a b`") == f"(xxhash64(`a b`) & {2**31 - 1})"
