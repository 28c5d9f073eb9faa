"""The average cost of a row: DISSP's numbers, the fixed cost of a batch, and no nonsense learnt."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.cost.average import AverageCost
from spillway.values import CostState, Observation

PAPER = AverageCost(decay=1.0, fixed_s=0.0, samples_trusted=1)


def seen(rows_kept: int, duration_s: float, batch_id: int = 0) -> Observation:
    return Observation(
        batch_id=batch_id, rows_in=rows_kept, rows_kept=rows_kept, duration_s=duration_s
    )


def learnt(model: AverageCost, *samples: tuple[int, float]) -> CostState:
    state = CostState()
    for rows_kept, duration_s in samples:
        state = model.learn(state, seen(rows_kept, duration_s))
    return state


def test_dissp_worked_example_300_ms_for_5000_rows_is_60_us_a_row() -> None:
    """Section 5.3: 300 ms for 5000 rows make 0.06 ms a row; 250 ms then take about 4166 rows."""
    forecast = PAPER.forecast(learnt(PAPER, (5000, 0.3)), rows=1)
    assert forecast is not None
    assert forecast.work_s == pytest.approx(0.06e-3)
    assert forecast.fixed_s == 0.0
    assert math.floor(0.250 / forecast.work_s) == 4166


def test_the_average_weighs_rows_not_batches() -> None:
    state = learnt(PAPER, (9000, 0.9), (1000, 0.3))
    forecast = PAPER.forecast(state, rows=1)
    assert forecast is not None
    assert forecast.work_s == pytest.approx(1.2 / 10_000)


def test_the_window_holds_40_batches_and_forgets_the_41st() -> None:
    assert AverageCost().window == 40
    state = learnt(PAPER, (100, 100.0), *[(100, 1.0)] * 39)
    assert len(state.samples) == 40
    before = PAPER.forecast(state, rows=100)
    state = PAPER.learn(state, seen(100, 1.0))
    after = PAPER.forecast(state, rows=100)
    assert before is not None
    assert after is not None
    assert len(state.samples) == 40
    assert before.work_s == pytest.approx((4.0 + 39.0) / 40)  # an outlier counts fourfold at most
    assert after.work_s == pytest.approx(1.0)


def test_fixed_cost_and_cost_per_row_are_recovered_from_varied_noisy_batches() -> None:
    rng = np.random.default_rng(7)
    rows = rng.integers(500, 20_000, 40)
    noise = rng.normal(1.0, 0.05, 40)
    durations_s = (0.4 + 50e-6 * rows) * noise
    model = AverageCost()
    forecast = model.forecast(learnt(model, *zip(rows.tolist(), durations_s, strict=True)), rows=1)
    assert forecast is not None
    assert forecast.fixed_s == pytest.approx(0.4, rel=0.15)
    assert forecast.work_s == pytest.approx(50e-6, rel=0.10)


def test_a_few_wild_batches_do_not_move_the_fixed_cost() -> None:
    """Theil-Sen: the median of the slopes shrugs off 5 batches of 40 that stalled for a minute."""
    rng = np.random.default_rng(8)
    rows = rng.integers(500, 20_000, 40)
    durations_s = 0.4 + 50e-6 * rows
    durations_s[::8] += 60.0
    model = AverageCost()
    forecast = model.forecast(learnt(model, *zip(rows.tolist(), durations_s, strict=True)), rows=0)
    assert forecast is not None
    assert forecast.fixed_s == pytest.approx(0.4, rel=0.25)


def test_alike_batches_take_half_of_the_shortest_for_fixed_and_predict_themselves() -> None:
    model = AverageCost()
    state = learnt(model, (1000, 1.0), (1010, 1.02), (990, 0.98), (1000, 1.0))
    forecast = model.forecast(state, rows=1000)
    assert forecast is not None
    assert forecast.fixed_s == pytest.approx(0.49)
    assert forecast.duration_s == pytest.approx(1.0, rel=0.01)


def test_a_given_fixed_cost_is_used_as_it_stands() -> None:
    model = AverageCost(fixed_s=0.25, samples_trusted=1)
    forecast = model.forecast(learnt(model, (1000, 1.25)), rows=500)
    assert forecast is not None
    assert forecast.fixed_s == 0.25
    assert forecast.work_s == pytest.approx(0.5)


def test_nothing_is_said_before_the_first_batch() -> None:
    assert AverageCost().forecast(CostState(), rows=10) is None


@pytest.mark.parametrize("samples", [1, 2, 3, 4, 5, 40])
def test_the_first_batches_are_trusted_in_part(samples: int) -> None:
    """A starting engine is slow: k of its first 4 batches count as k / 4 of what they say."""
    model = AverageCost(samples_trusted=4)
    forecast = model.forecast(learnt(model, *[(100, 1.0)] * samples), rows=100)
    assert forecast is not None
    assert forecast.duration_s == pytest.approx(min(samples / 4, 1.0))


@pytest.mark.parametrize(
    ("rows_kept", "duration_s"),
    [(0, 1.0), (-5, 1.0), (10, 0.0), (10, -1.0), (10, math.nan), (10, math.inf), (10, -math.inf)],
)
def test_an_empty_batch_or_an_absurd_duration_teaches_nothing(
    rows_kept: int, duration_s: float
) -> None:
    before = learnt(PAPER, (100, 1.0))
    assert PAPER.learn(before, seen(rows_kept, duration_s)) is before


samples = st.lists(st.tuples(st.integers(1, 10**12), st.floats(1e-9, 1e9)), min_size=1, max_size=45)


@given(samples=samples, rows=st.floats(0, 1e12))
@settings(max_examples=100)
def test_no_samples_make_a_forecast_negative_infinite_or_nan(
    samples: list[tuple[int, float]], rows: float
) -> None:
    model = AverageCost(samples_trusted=1)
    forecast = model.forecast(learnt(model, *samples), rows)
    assert forecast is not None
    assert 0.0 <= forecast.fixed_s < math.inf
    assert 0.0 <= forecast.work_s < math.inf
    assert forecast.fixed_s <= min(duration_s for _, duration_s in samples[-40:])


@given(samples=samples)
@settings(max_examples=50)
def test_the_cost_state_never_outgrows_its_window(samples: list[tuple[int, float]]) -> None:
    model = AverageCost(window=10)
    state = learnt(model, *samples)
    expected = [(float(rows), duration_s) for rows, duration_s in samples[-10:]]
    assert list(state.samples) == expected


def test_one_clock_jump_of_an_hour_does_not_make_rows_look_expensive() -> None:
    """A single absurd duration among 39 alike ones less than doubles the forecast."""
    model = AverageCost()
    calm = learnt(model, *[(1000, 0.5)] * 39)
    jumped = model.learn(calm, seen(1000, 3600.5))
    before, after = model.forecast(calm, rows=1000), model.forecast(jumped, rows=1000)
    assert before is not None
    assert after is not None
    assert after.duration_s < 2 * before.duration_s


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"samples_trusted": 0}, "samples_trusted"),
        ({"samples_trusted": 41}, "samples_trusted"),
        ({"window": 0}, "window"),
        ({"fixed_s": -0.1}, "fixed_s"),
        ({"fixed_s": math.nan}, "fixed_s"),
    ],
)
def test_meaningless_settings_are_refused_by_name(arguments: dict[str, float], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        AverageCost(**arguments)  # type: ignore[arg-type]
