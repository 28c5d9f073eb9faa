"""Taxi rides in order of pickup: real ones from a folder, or made by a seed."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.csv as arrow_csv
from numpy.typing import NDArray

from spillway.workload.routes import Routes

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

FILES, ZONES = "taxi_green_tlc/green_*.csv.gz", "taxi_green_tlc/taxi_zone_centroids.csv"
ZONES_MAX = 1000  # a route is pickup zone * 1000 + dropoff zone
_COLUMNS = ["lpep_pickup_datetime", "PULocationID", "DOLocationID", "fare_amount"]
_HOUR_S = 3600
_NEW_YEAR_S = 1_577_836_800  # made rides begin with 2020


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which rides: so many hours of them, from an hour of the first day on.

    `data` is a folder of real ones; without it they are made, `rows_per_hour` of them.
    """

    data: str | None = None
    first_hour: int = 8
    hours: int = 2
    rows_per_hour: int = 60_000
    seed: int = 1


class Rides(NamedTuple):
    """When a ride began, in seconds since 1970, on which route, and what it cost."""

    pickup_s: Floats
    route: Ints
    fare: Floats


@lru_cache(maxsize=2)
def load(choice: Choice) -> Rides:
    """Return the rides; read or made once by every process."""
    rides = _made(choice) if choice.data is None else _read(Path(choice.data), choice)
    if not rides.fare.size:
        raise ValueError(f"there are no rides in {choice}")
    return rides


def _made(choice: Choice) -> Rides:
    city = Routes(rows_per_hour=float(choice.rows_per_hour), seed=choice.seed)
    first = 60 * choice.first_hour
    made = city.between(first, first + 60 * choice.hours)
    return Rides(_NEW_YEAR_S + made.pickup_s, made.route, made.fare)


def _read(folder: Path, choice: Choice) -> Rides:
    """Read the first month of a folder: rides with a fare, sorted by pickup."""
    options = arrow_csv.ConvertOptions(include_columns=_COLUMNS)
    table = arrow_csv.read_csv(first_file(folder), convert_options=options)
    pickup, start, end, fare = (table[name].to_numpy() for name in _COLUMNS)
    pickup_s = pickup.astype("datetime64[s]").astype(np.float64)
    first_s = pickup_s.min() // 86_400 * 86_400 + _HOUR_S * choice.first_hour
    wanted = (fare > 0) & (pickup_s >= first_s) & (pickup_s < first_s + _HOUR_S * choice.hours)
    order = np.flatnonzero(wanted)[np.argsort(pickup_s[wanted], kind="stable")]
    route = ZONES_MAX * start.astype(np.int64) + end
    return Rides(pickup_s[order], route[order], fare[order].astype(np.float64))


def first_file(folder: Path) -> Path:
    """Return the first file of rides in a folder; a folder without any is refused."""
    found = sorted(folder.glob(FILES))
    if not found:
        raise ValueError(f"data must be a folder with {FILES}, got {str(folder)!r}")
    return found[0]


def names(folder: str | None) -> dict[int, str]:
    """Return the names of the zones, by number; none without the file."""
    path = Path(folder or "") / ZONES
    if folder is None or not path.is_file():
        return {}
    with path.open(encoding="utf-8", newline="") as file:
        return {int(line["LocationID"]): line["zone"] for line in csv.DictReader(file)}


def named(route: int, zones: dict[int, str]) -> str:
    """Name a route by its zones, or by its number.

    >>> named(74075, {74: "East Harlem North", 75: "East Harlem South"}), named(12, {})
    ('East Harlem North to East Harlem South', 'route 12')
    """
    if not zones:
        return f"route {route}"
    start, end = divmod(route, ZONES_MAX)
    return f"{zones.get(start, f'zone {start}')} to {zones.get(end, f'zone {end}')}"
