"""Where the windows of CoD's figures come from: real traces of a folder, or made rides.

Real data is read from the folder that the user names, and never copied. What is taken of it:

- taxi: green taxi trips with a fare > 0, by pickup; a route is a pair of zones.
- Google: task events after the start of the trace (t > 0); the CPU that a task requests.
- packets: the head of a trace of 1989, the only part that has sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow.csv as csv
from numpy.typing import NDArray

from spillway.studies.cod_windows import Pair, Rows, pairs, starts_of
from spillway.studies.study import Param
from spillway.workload.routes import Routes

Floats = NDArray[np.float64]

_MINUTE_S = 60.0
_TAXI_ZONES = 1000  # more than there are: a route is pickup * 1000 + dropoff
_PRIORITIES = 100
FILES = {
    "taxi": "taxi_green_tlc/green_*.csv.gz",
    "google": "google_task_events/task_events_*.csv.gz",
    "packets": "packets/bc_*_with_size.csv.gz",
}


class Source(Protocol):
    """Gives the windows of a run, each with the one before it."""

    @property
    def params(self) -> Mapping[str, Param]: ...

    def pairs(self, run: int, seed: int) -> Iterator[Pair]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """Windows of made rides: every run has a city and a time of day of its own."""

    rows: int = 100_000  # of a window, on average
    size_min: int = 30
    slide_min: int = 10
    windows: int = 3
    routes: int = 25_000
    busy: int | None = None
    change_windows: int | None = None
    scalar: bool = False
    fare_step: float = 0.5

    @property
    def params(self) -> Mapping[str, Param]:
        """What the windows depend on."""
        return {name: float(getattr(self, name) or 0) for name in self.__dataclass_fields__}

    def pairs(self, run: int, seed: int) -> Iterator[Pair]:
        """Cut the run's windows."""
        first_min = 24 * 60 + run % 24 * 60
        if self.change_windows is not None:
            first_min -= first_min % (self.change_windows * self.slide_min)
        last_min = first_min + self.size_min + (self.windows - 1) * self.slide_min
        starts = _MINUTE_S * np.arange(
            first_min, last_min - self.size_min + 1, self.slide_min, dtype=np.float64
        )
        rows = self.stream(first_min - self.slide_min, last_min, (seed, run))
        yield from pairs(rows, starts, **self._times)

    def stream(self, first_min: int, last_min: int, seed: tuple[int, int]) -> Rows:
        """Return the rides between two minutes."""
        city = Routes(
            rows_per_hour=self.rows * 60.0 / self.size_min,
            routes=self.routes,
            busy=self.busy,
            change_min=None
            if self.change_windows is None
            else self.change_windows * self.slide_min,
            hourly=False,
            fare_step=self.fare_step,
            seed=seed[0] * 1_000_000 + seed[1],
        )
        rides = city.between(first_min, last_min)
        group = np.zeros_like(rides.route) if self.scalar else rides.route
        return Rows(time_s=rides.pickup_s, group=group, value=rides.fare)

    @property
    def _times(self) -> dict[str, float]:
        return {"size_s": _MINUTE_S * self.size_min, "slide_s": _MINUTE_S * self.slide_min}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """Windows of a real trace: a run takes every `stride`-th of them, or all."""

    folder: str
    kind: str
    size_s: float
    slide_s: float
    stride: int = 1

    @property
    def params(self) -> Mapping[str, Param]:
        """What the windows depend on; another file has another size."""
        paths = sorted(Path(self.folder).glob(FILES[self.kind.split()[0]]))
        return {
            "kind": self.kind,
            "bytes": sum(path.stat().st_size for path in paths),
            "size_s": self.size_s,
            "slide_s": self.slide_s,
            "stride": self.stride,
        }

    def pairs(self, run: int, seed: int) -> Iterator[Pair]:
        """Cut the run's windows."""
        for rows in read(self.folder, self.kind):
            starts = starts_of(rows, size_s=self.size_s, slide_s=self.slide_s)
            chosen = starts[run % self.stride :: self.stride]
            yield from pairs(rows, chosen, size_s=self.size_s, slide_s=self.slide_s)


def present(folder: str) -> set[str]:
    """Say which of the real traces a folder has; a folder without any is refused."""
    found = {kind for kind, pattern in FILES.items() if any(Path(folder).glob(pattern))}
    if not found:
        rule = " or ".join(FILES.values())
        raise ValueError(f"data must be a folder with {rule}, got {folder!r}")
    return found


@lru_cache(maxsize=4)
def read(folder: str, kind: str) -> tuple[Rows, ...]:
    """Read the traces of a kind, one for each file."""
    paths = sorted(Path(folder).glob(FILES[kind.split()[0]]))
    return tuple(_ordered(READERS[kind](path)) for path in paths)


def _taxi(path: Path) -> Rows:
    names = ["lpep_pickup_datetime", "PULocationID", "DOLocationID", "fare_amount"]
    table = csv.read_csv(path, convert_options=csv.ConvertOptions(include_columns=names))
    pickup, start, end, fare = (table[name].to_numpy() for name in names)
    time_s = pickup.astype("datetime64[s]").astype(np.float64)
    rows = Rows(time_s=time_s, group=_TAXI_ZONES * start + end, value=fare.astype(np.float64))
    return _where(rows, rows.value > 0)


def _events(path: Path) -> tuple[Any, ...]:
    places = (0, 7, 8, 9)  # time, scheduling class, priority, CPU request: schema.csv of the trace
    table = csv.read_csv(
        path,
        read_options=csv.ReadOptions(column_names=[f"c{place}" for place in range(13)]),
        convert_options=csv.ConvertOptions(include_columns=[f"c{place}" for place in places]),
    )
    return tuple(table[f"c{place}"].to_numpy() for place in places)


def _google(path: Path) -> Rows:
    time_us, scheduling, _, cpu = _events(path)
    rows = Rows(time_s=time_us / 1e6, group=scheduling, value=cpu.astype(np.float64))
    return _where(rows, (time_us > 0) & ~np.isnan(rows.value))


def _google_fine(path: Path) -> Rows:
    time_us, scheduling, priority, cpu = _events(path)
    group = _PRIORITIES * scheduling + priority
    rows = Rows(time_s=time_us / 1e6, group=group, value=cpu.astype(np.float64))
    return _where(rows, (time_us > 0) & ~np.isnan(rows.value))


def _packets(path: Path) -> Rows:
    table = csv.read_csv(path)
    time_us, size = (table[name].to_numpy() for name in ("timestamp_us", "size_bytes"))
    group = np.zeros(size.size, dtype=np.int64)
    return Rows(time_s=time_us / 1e6, group=group, value=size.astype(np.float64))


READERS: dict[str, Callable[[Path], Rows]] = {
    "taxi": _taxi,
    "google": _google,
    "google fine": _google_fine,
    "packets": _packets,
}


def _where(rows: Rows, wanted: NDArray[np.bool_]) -> Rows:
    return replace(
        rows, time_s=rows.time_s[wanted], group=rows.group[wanted], value=rows.value[wanted]
    )


def _ordered(rows: Rows) -> Rows:
    """Sort by time: the files are by the time of recording."""
    order = np.argsort(rows.time_s, kind="stable")
    return Rows(time_s=rows.time_s[order], group=rows.group[order], value=rows.value[order])
