"""Made rides: the same in any slices, and with the numbers of the months they are fitted to."""

from __future__ import annotations

import numpy as np
import pytest

from spillway.workload.routes import HOURS, RIDES_PER_DAY, Rides, Routes

MONTH_RIDES = 222_177


@pytest.fixture(scope="module")
def month() -> Rides:
    """As many rides as the month has, all in one day."""
    return Routes(rows_per_hour=MONTH_RIDES / 24, seed=1).between(0, 24 * 60)


def test_slices_join_to_the_whole_and_seeds_differ() -> None:
    city = Routes(rows_per_hour=6_000, seed=3)
    whole = city.between(10, 30)
    parts = [city.between(10, 17), city.between(17, 30)]
    for name in ("pickup_s", "route", "fare"):
        joined = np.concatenate([getattr(part, name) for part in parts])
        assert (getattr(whole, name) == joined).all()
    other = Routes(rows_per_hour=6_000, seed=4).between(10, 30)
    assert other.fare.sum() != whole.fare.sum()


def test_rides_are_in_order_within_the_minutes_asked_for(month: Rides) -> None:
    assert (np.diff(month.pickup_s) >= 0).all()
    some = Routes(rows_per_hour=6_000).between(7, 9)
    assert some.pickup_s.min() >= 7 * 60
    assert some.pickup_s.max() < 9 * 60


def test_routes_are_as_many_and_as_rare_as_in_the_month(month: Rides) -> None:
    """18,559 routes, 7,098 ridden once, the busiest 1.4 % of the rides."""
    rides = np.bincount(month.route)
    assert np.count_nonzero(rides) == pytest.approx(18_559, rel=0.06)
    assert (rides == 1).sum() == pytest.approx(7_098, rel=0.15)
    assert rides.max() / month.route.size == pytest.approx(0.0136, rel=0.15)


def test_fares_are_those_of_the_month(month: Rides) -> None:
    """Mean $ 14.2; means of routes at 5, 50 and 95 %: 9.5, 26 and 57; steps of half a dollar."""
    assert month.fare.mean() == pytest.approx(14.2, rel=0.07)
    rides = np.bincount(month.route)
    means = np.bincount(month.route, month.fare)[rides > 0] / rides[rides > 0]
    assert np.quantile(means, [0.05, 0.5, 0.95]) == pytest.approx([9.5, 26.1, 57.5], rel=0.15)
    assert month.fare.min() >= 2.5
    assert (month.fare * 2 == np.rint(month.fare * 2)).all()


def test_fares_of_one_route_spread_as_in_the_month(month: Rides) -> None:
    """Of routes with 10 rides or more: 0.105, 0.22 and 0.57 in the logarithm."""
    rides = np.bincount(month.route)
    log = np.log(month.fare)
    mean = np.bincount(month.route, log) / np.maximum(rides, 1)
    squares = np.bincount(month.route, (log - mean[month.route]) ** 2)
    often = rides >= 10
    spread = np.sqrt(squares[often] / (rides[often] - 1))
    assert np.quantile(spread, [0.05, 0.5, 0.95]) == pytest.approx([0.105, 0.223, 0.567], rel=0.2)


def test_nights_have_fewer_rides_and_days_as_many_as_asked(month: Rides) -> None:
    hours = np.bincount((month.pickup_s // 3600 % 24).astype(int), minlength=24)
    expected = np.array(HOURS) / np.sum(HOURS) * month.route.size
    # 24 counts of thousands: 5 standard deviations are passed by chance once in 70,000 runs.
    assert (np.abs(hours - expected) < 5 * np.sqrt(expected)).all()
    flat = Routes(rows_per_hour=RIDES_PER_DAY, hourly=False).between(0, 60 * 24)
    assert flat.route.size == pytest.approx(24 * RIDES_PER_DAY, rel=0.01)


def test_popularity_drifts_over_the_day_as_in_the_month(month: Rides) -> None:
    """The shares of the busiest 300 differ between the quarters of a day by 0.126 to 0.166."""
    quarter = (month.pickup_s // 21_600 % 4).astype(int)
    top = np.argsort(-np.bincount(month.route))[:300]
    counts = np.stack([np.bincount(month.route[quarter == q], minlength=25_000) for q in range(4)])
    seen = counts[:, top].T.astype(float)
    expected = seen.sum(1, keepdims=True) * seen.sum(0) / seen.sum()
    excess = np.average(((seen - expected) ** 2 - expected) / expected**2, weights=expected)
    assert 0.1 <= excess <= 0.2


def test_a_change_is_complete_and_leaves_the_rest_alike() -> None:
    city = Routes(rows_per_hour=60_000, busy=500, change_min=60, hourly=False, seed=2)
    before, after = city.between(0, 60), city.between(60, 120)
    tops = [set(np.argsort(-np.bincount(r.route, minlength=25_000))[:100]) for r in (before, after)]
    assert len(tops[0] & tops[1]) <= 5  # expected: 0.4
    for rides in (before, after):
        assert np.unique(rides.route).size == pytest.approx(500, rel=0.02)
    steady = Routes(rows_per_hour=60_000, busy=500, change_min=120, hourly=False, seed=2)
    halves = [steady.between(0, 60), steady.between(60, 120)]
    tops = [set(np.argsort(-np.bincount(r.route, minlength=25_000))[:100]) for r in halves]
    assert len(tops[0] & tops[1]) >= 70


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows_per_hour": 0.0}, "rows_per_hour must be > 0 and finite, got 0.0"),
        ({"rows_per_hour": float("nan")}, "rows_per_hour must be > 0 and finite, got nan"),
        ({"routes": 0}, "routes must be >= 1, got 0"),
        ({"routes": 10, "busy": 11}, r"busy must be in 1..10, got 11"),
        ({"change_min": 0}, "change_min must be >= 1, got 0"),
        ({"fare_step": 0.0}, "fare_step must be > 0, got 0.0"),
        ({"seed": -1}, "seed must be >= 0, got -1"),
    ],
)
def test_nonsense_is_refused_by_name(changes: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Routes(**changes)  # type: ignore[arg-type]


def test_minutes_must_be_in_order() -> None:
    with pytest.raises(ValueError, match="minutes must be 0 <= first < last, got 3 and 3"):
        Routes().between(3, 3)
