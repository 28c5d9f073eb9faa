"""A table of keep rates keeps what the rates would keep, is small, and opens nothing by damage."""

from __future__ import annotations

import zlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.concept_values import KeepTable
from spillway.kernels import count_min
from spillway.shedders.keep_table import KeepLookup, pack
from spillway.values import Plan

CELLS = count_min.ROWS * count_min.COLUMNS


def random_rates(seed: int, low: float, whole: float) -> np.ndarray:
    rng = np.random.default_rng(seed)
    rates = np.exp(rng.uniform(np.log(low), 0.0, CELLS))
    return np.where(rng.random(CELLS) < whole, 1.0, np.minimum(rates, 0.999))


def plan_of(table: KeepTable | None, rate: float = 0.3) -> Plan:
    return Plan(rates=(1.0, rate), edges=(1.0,), keep=table)


@settings(max_examples=50)
@given(
    seed=st.integers(0, 1000),
    low=st.sampled_from([1e-6, 1e-3, 0.3]),
    whole=st.sampled_from([0.0, 0.2, 1.0]),
)
def test_levels_are_few_ascending_near_the_rates_and_keep_as_many_rows(
    seed: int, low: float, whole: float
) -> None:
    rates, counts = (
        random_rates(seed, low, whole),
        np.random.default_rng(seed).integers(0, 9, CELLS),
    )
    table = pack(rates, counts.astype(np.float64))
    lookup = KeepLookup.of(plan_of(table))
    found = lookup.levels[lookup.cells]
    assert len(table.levels) <= 64
    assert list(table.levels) == sorted(table.levels)
    assert table.levels[-1] == 1.0
    assert ((found == 1.0) == (rates == 1.0)).all()
    step = low ** (-1 / 63)
    assert (np.abs(np.log(found / rates)) <= np.log(step) + 1e-9).all()
    assert counts @ found == pytest.approx(counts @ rates, rel=1e-6)


def test_a_row_is_kept_at_the_greatest_rate_of_its_cells() -> None:
    rates, items = random_rates(3, 1e-3, 0.1), np.arange(5_000) * 429_467
    lookup = KeepLookup.of(plan_of(pack(rates, np.ones(CELLS))))
    rounded = lookup.levels[lookup.cells]
    expected = [max(rounded[cell] for cell in cells) for cells in count_min.cells_of(items).T]
    assert lookup.rates(items).tolist() == expected


GOOD = pack(random_rates(1, 0.01, 0.5), np.ones(CELLS))


@pytest.mark.parametrize(
    "table",
    [
        None,
        replace(GOOD, cells=b""),
        replace(GOOD, cells=GOOD.cells[:-5]),
        replace(GOOD, cells=zlib.compress(b"\0" * (CELLS - 1))),
        replace(GOOD, cells=zlib.compress(b"\x40" * CELLS)),
        replace(GOOD, levels=()),
        replace(GOOD, levels=GOOD.levels[:2]),
        replace(GOOD, levels=(0.5,) * 300),
    ],
)
def test_without_a_sound_table_all_rows_have_the_last_rate(table: KeepTable | None) -> None:
    lookup = KeepLookup.of(plan_of(table))
    assert set(lookup.rates(np.arange(1000)).tolist()) == {0.3}


def test_an_open_plan_keeps_all_whatever_its_table_says() -> None:
    assert set(KeepLookup.of(plan_of(GOOD, rate=1.0)).rates(np.arange(1000)).tolist()) == {1.0}
