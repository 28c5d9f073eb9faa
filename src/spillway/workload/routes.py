"""Taxi rides by route, made by the numbers of real months: popularity, fares, the course of a day.

Fitted to the green taxi trips of New York's Taxi and Limousine Commission (open data), March 2020
and, where it says so, January to March 2022; no row of theirs is in here.

- Popularity: 222,177 rides with a fare on 18,559 routes (pairs of zones), 7,098 of them ridden
  once. P(rank) ~ (rank + 20)^-1.2 over 25,000 routes gives 18,400 and 6,400, and the shares at the
  ranks 1, 10, 100, 1,000 and 5,000 within a sixth.
- Fare by distance: $ 4.7 and 2.57 a mile (2022: 4.2 and 3.05), by least squares.
- Distance of a route: lognormal, the shorter the more popular. Mean fares of routes at 5, 50 and
  95 %: $ 9.5, 26 and 57; a ride costs $ 14.2 on average.
- Spread of the fares of one route: standard deviation of their logarithms 0.105, 0.22 and 0.57 at
  5, 50 and 95 % of the routes.
- Rides by hour of the day; 13,900 rides a day (the days before 16 March; 2,400 in 2022).
- Drift: the shares of the 300 busiest routes differ between the quarters of a day by a relative
  variance of 0.126 (2022: 0.166) beyond chance; a cosine of amplitude 0.6 in the logarithm of the
  popularity, every route with a phase of its own, gives 0.145.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

RIDES_PER_DAY = 13_900.0
HOURS = (
    *(0.49, 0.33, 0.20, 0.21, 0.23, 0.24, 0.48, 0.90, 1.26, 1.40, 1.38, 1.35),
    *(1.35, 1.35, 1.48, 1.56, 1.64, 1.68, 1.59, 1.35, 1.15, 0.94, 0.78, 0.64),
)  # rides by hour of the day, 1 on average

_RANK_SHIFT, _RANK_EXPONENT = 20.0, 1.2
_RIDES_FITTED = 222_177
_FARE_START, _FARE_MILE, _FARE_MIN = 4.7, 2.57, 2.5
_MILES_LOG, _MILES_BY_LOG_RIDES, _MILES_SPREAD = 2.5, -0.36, 0.6
_SPREAD_MEDIAN, _SPREAD_SPREAD = 0.22, 0.5
_DAY_AMPLITUDE = 0.6
_MINUTE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rides:
    """Rides in order of pickup, in seconds since midnight of the first day."""

    pickup_s: Floats
    route: Ints
    fare: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Routes:
    """A city's rides: the same seed gives the same ones, in whatever minutes they are asked for.

    rows_per_hour: rides on average; `hourly` makes them fewer by night.
    busy:          how many of the routes are in use at a time; all if none.
    fare_step:     fares are multiples of it, as on the meter's display.
    change_min:    so often, in minutes, every route gets another popularity, and other routes come
                   into use: the concept changes completely. Never if none.

    >>> city = Routes(rows_per_hour=60_000, seed=4)
    >>> whole, tail = city.between(600, 603), city.between(601, 603)
    >>> bool((whole.fare[-tail.fare.size :] == tail.fare).all())
    True
    """

    rows_per_hour: float = RIDES_PER_DAY / 24
    routes: int = 25_000
    busy: int | None = None
    change_min: int | None = None
    hourly: bool = True
    fare_step: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.rows_per_hour < math.inf:
            raise ValueError(f"rows_per_hour must be > 0 and finite, got {self.rows_per_hour}")
        if self.routes < 1:
            raise ValueError(f"routes must be >= 1, got {self.routes}")
        if self.busy is not None and not 1 <= self.busy <= self.routes:
            raise ValueError(f"busy must be in 1..{self.routes}, got {self.busy}")
        if self.change_min is not None and self.change_min < 1:
            raise ValueError(f"change_min must be >= 1, got {self.change_min}")
        if not self.fare_step > 0:
            raise ValueError(f"fare_step must be > 0, got {self.fare_step}")
        if self.seed < 0:
            raise ValueError(f"seed must be >= 0, got {self.seed}")

    def between(self, first_min: int, last_min: int) -> Rides:
        """Return the rides that begin from one minute to just before another."""
        if not 0 <= first_min < last_min:
            raise ValueError(f"minutes must be 0 <= first < last, got {first_min} and {last_min}")
        minutes = [_minute(self, minute) for minute in range(first_min, last_min)]
        return Rides(
            pickup_s=np.concatenate([rides.pickup_s for rides in minutes]),
            route=np.concatenate([rides.route for rides in minutes]),
            fare=np.concatenate([rides.fare for rides in minutes]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _City:
    """What each rank and each route is: popularity and phase of a rank, fares of a route."""

    popularity: Floats
    phase: Floats
    fare_mean: Floats
    fare_spread: Floats


def _minute(stream: Routes, minute: int) -> Rides:
    random = np.random.default_rng((6, stream.seed, minute))
    hour = minute // 60 % 24
    rate = stream.rows_per_hour / 60.0 * (HOURS[hour] / _HOURS_MEAN if stream.hourly else 1.0)
    rows = int(random.poisson(rate))
    pickup_s = _MINUTE_S * (minute + np.sort(random.random(rows)))
    ranks = np.searchsorted(_cdf(stream, hour), random.random(rows), side="right")
    route = _in_use(stream, minute)[ranks]
    return Rides(pickup_s=pickup_s, route=route, fare=_fares(stream, route, random))


def _fares(stream: Routes, route: Ints, random: np.random.Generator) -> Floats:
    """Lognormal around the route's mean, in the meter's steps."""
    city = _city(stream.seed, stream.routes)
    spread = city.fare_spread[route]
    drawn = city.fare_mean[route] * np.exp(
        spread * random.standard_normal(route.size) - spread**2 / 2
    )
    return np.maximum(np.rint(drawn / stream.fare_step) * stream.fare_step, _FARE_MIN)


def _in_use(stream: Routes, minute: int) -> Ints:
    """The routes by rank, at that time."""
    if stream.change_min is None:
        return _routes_in_order(stream.routes)
    return _dealt(stream.seed, stream.routes, minute // stream.change_min)


@lru_cache(maxsize=4)
def _routes_in_order(routes: int) -> Ints:
    return np.arange(routes)


@lru_cache(maxsize=4)
def _dealt(seed: int, routes: int, turn: int) -> Ints:
    return np.random.default_rng((7, seed, turn)).permutation(routes)


@lru_cache(maxsize=48)
def _cdf(stream: Routes, hour: int) -> Floats:
    """Cumulative popularity by rank in an hour; ends in exactly 1, which no draw reaches."""
    city = _city(stream.seed, stream.routes)
    in_use = slice(None, stream.busy)
    turn = 2.0 * math.pi * (hour / 24.0 - city.phase[in_use])
    total = np.cumsum(city.popularity[in_use] * np.exp(_DAY_AMPLITUDE * np.cos(turn)))
    total /= total[-1]
    total[-1] = 1.0
    return total


@lru_cache(maxsize=8)
def _city(seed: int, routes: int) -> _City:
    random = np.random.default_rng((8, seed))
    popularity = (np.arange(1.0, routes + 1.0) + _RANK_SHIFT) ** -_RANK_EXPONENT
    popularity /= popularity.sum()
    ridden = np.log1p(_RIDES_FITTED * popularity)
    miles_log = _MILES_LOG + _MILES_BY_LOG_RIDES * ridden
    miles = np.exp(miles_log + _MILES_SPREAD * random.standard_normal(routes))
    spread = _SPREAD_MEDIAN * np.exp(_SPREAD_SPREAD * random.standard_normal(routes))
    return _City(
        popularity=popularity,
        phase=random.random(routes),
        fare_mean=_FARE_START + _FARE_MILE * miles,
        fare_spread=spread,
    )


_HOURS_MEAN = sum(HOURS) / len(HOURS)
