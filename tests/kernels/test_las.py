"""The compiled shedder is the naive one; the eager operator speaks early and forgets on change."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.cost.sketch import SketchShape
from spillway.kernels import las
from tests.naive_las import NaiveShedder

CONDITIONS = {"average": las.AVERAGE, "each": las.EACH, "window": las.WINDOW}
ROWS = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 40)), max_size=60)


@given(rows=ROWS, limit=st.integers(0, 60), condition=st.sampled_from(sorted(CONDITIONS)))
def test_admission_is_the_naive_one(
    rows: list[tuple[int, int]], limit: int, condition: str
) -> None:
    naive = NaiveShedder(limit, condition)
    shedder, ring, now = np.zeros(las.SHEDDER_SIZE), np.zeros(4), 0
    for gap, cost in rows:
        now += gap
        wanted = naive.admit(float(cost), now)
        assert las.admit(shedder, ring, float(cost), now, float(limit), CONDITIONS[condition]) == (
            wanted
        )
    assert shedder[las.BUSY_UNTIL] == naive.busy_until
    assert shedder[las.ADMITTED] == len(naive.waits)


@given(rows=ROWS, limit=st.integers(0, 60))
def test_with_true_costs_the_mean_never_exceeds_the_limit(
    rows: list[tuple[int, int]], limit: int
) -> None:
    """Theorem 4.1: at every row, not only at the end."""
    shedder, ring, now = np.zeros(las.SHEDDER_SIZE), np.zeros(1), 0
    for gap, cost in rows:
        now += gap
        las.admit(shedder, ring, float(cost), now, float(limit), las.AVERAGE)
        assert shedder[las.LATENCY_SUM] <= limit * shedder[las.ADMITTED]


def test_in_debt_short_waits_still_pass_so_that_it_is_paid_back() -> None:
    shedder, ring = np.zeros(las.SHEDDER_SIZE), np.zeros(1)
    shedder[las.ADMITTED], shedder[las.LATENCY_SUM] = 10.0, 1000.0  # mean 100, limit 10
    assert las.admit(shedder, ring, 1.0, 0, 10.0, las.AVERAGE)
    shedder[las.BUSY_UNTIL] = 9.0
    assert not las.admit(shedder, ring, 1.0, 0, 10.0, las.AVERAGE)


def test_replies_that_overlap_correct_an_error_once() -> None:
    """Two rows ask while the estimate is 100 too low; both replies say so; it rises by 100."""
    shedder = np.zeros(las.SHEDDER_SIZE)
    shedder[las.BUSY_UNTIL] = 500.0
    for _ in range(2):
        las.corrected(shedder, 100.0, 7.0)
    assert shedder[las.BUSY_UNTIL] == 600.0
    assert shedder[las.LATENCY_SUM] == 7.0


def test_the_paper_asks_once_after_every_model_and_the_default_every_n_rows() -> None:
    shedder = np.zeros(las.SHEDDER_SIZE)
    las.received(shedder, 5.0, True)
    assert [bool(las.asks(shedder, 3, True)) for _ in range(4)] == [True, False, False, False]
    assert [bool(las.asks(shedder, 3, False)) for _ in range(6)] == [False, False, True] * 2


def learn(rows: list[tuple[int, int]], window: int = 64) -> tuple[las.Model, list[int]]:
    model, machine = las.new_model(4, 54, buckets=16), np.zeros(las.EAGER_SIZE, dtype=np.int64)
    multipliers = SketchShape().multipliers
    sent = [
        t + 1
        for t, (key, cost) in enumerate(rows)
        if las.learn_row(machine, *model, multipliers, key, cost, window)
    ]
    return model, sent


def test_an_eager_operator_publishes_after_1_row_then_twice_as_many_up_to_the_window() -> None:
    _, sent = learn([(1, 10)] * 300)
    assert sent == [1, 2, 4, 8, 16, 32, 64, 128, 192, 256]


def test_an_eager_operator_forgets_when_costs_have_changed() -> None:
    model, sent = learn([(1, 100)] * 512 + [(1, 200)] * 256)
    assert las.estimate(model, SketchShape().multipliers, 1, 0.0) == 200.0
    assert any(512 < row <= 512 + 128 + 8 for row in sent)  # and says so soon


def test_an_eager_operator_does_not_forget_what_only_varies_by_key() -> None:
    rng = np.random.default_rng(1)
    rows = [(int(key), int(10 * (key + 1))) for key in rng.integers(0, 40, 2000)]
    model, _ = learn(rows)
    assert las.mean_ns(model) == pytest.approx(np.mean([cost for _, cost in rows]))


@pytest.mark.parametrize("aim", [las.FEWEST, las.UNBIASED])
def test_an_idle_operator_takes_any_row_whatever_the_aim(aim: int) -> None:
    recent, shedder = las.new_recent(aim), np.zeros(las.SHEDDER_SIZE)
    recent.cut[0] = 1e9 if aim == las.FEWEST else 1e-9
    assert las.chance(aim, recent, shedder, 1.0, 50.0, 0, 10.0) == 1.0


def test_an_unbiased_chance_is_never_zero() -> None:
    recent, shedder = las.new_recent(las.UNBIASED), np.zeros(las.SHEDDER_SIZE)
    recent.cut[0], shedder[las.BUSY_UNTIL] = 0.0, 1e12
    assert 0 < las.chance(las.UNBIASED, recent, shedder, 1.0, 50.0, 0, 10.0) < 0.01
