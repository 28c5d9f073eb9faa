"""What rows hold: keys, values and work that depend on the seed and the row number alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Hashes = NDArray[np.uint64]

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = 2**64 - 1
_KEYS_MAX = 10**7  # three tables of that length are held: 240 MB
_LANE_KEY, _LANE_VALUE, _LANE_MEAN, _LANE_WORK = range(4)
_SPREAD = 4096  # steps of the value's distribution
_GRAIN = 256.0  # values are whole 256ths, so sums are exact and the same in any order
_CHUNK_ROWS = 1 << 18


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """The exact answers over a set of rows."""

    count: int
    value_sum: float

    @property
    def value_mean(self) -> float:
        """Mean value; NaN over no rows."""
        return self.value_sum / self.count if self.count else float("nan")


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """Rows by number: the same seed gives the same row, in whatever slices it is asked for.

    - `key`: from 0, the most frequent first; `distribution` is `uniform` or `zipf:<exponent>`
    - `value`: a positive amount, lognormal (sigma 0.75) around a mean of 10 to 100 that each key
      draws once; a whole number of 256ths, so that sums are exact in any order below 2**45
    - `work_us`: drawn once per key, evenly from the inclusive range `1..64`, or constant: `300`

    >>> content = Content(seed=7, keys=3, distribution="uniform", work_us="300")
    >>> whole, tail = content.columns(np.arange(6)), content.columns(np.arange(4, 6))
    >>> whole["key"].tolist(), whole["work_us"].tolist()
    ([2, 2, 0, 0, 2, 1], [300, 300, 300, 300, 300, 300])
    >>> bool((whole["value"][4:] == tail["value"]).all())
    True
    """

    seed: int = 0
    keys: int = 1000
    distribution: str = "zipf:1.1"
    work_us: str = "1..64"

    def __post_init__(self) -> None:
        if not 1 <= self.keys <= _KEYS_MAX:
            raise ValueError(f"keys must be in 1..{_KEYS_MAX}, got {self.keys}")
        _exponent(self.distribution)
        _work_range(self.work_us)

    def columns(self, rows: Ints) -> dict[str, NDArray[np.int64] | NDArray[np.float64]]:
        """The columns `key`, `value` and `work_us` of the rows with these numbers."""
        keys, values = self._keys_and_values(rows)
        return {"key": keys, "value": values, "work_us": _tables(self).work_us[keys]}

    @property
    def mean_work_us(self) -> float:
        """Expected work of a row: capacity is 1e6 / mean_work_us rows a second and core."""
        tables = _tables(self)
        return float(np.diff(tables.cdf, prepend=0.0) @ tables.work_us)

    def truth(self, rows_total: int) -> Truth:
        """The exact answers over the first `rows_total` rows."""
        count, value_sum = self._sums(rows_total)
        return Truth(count=int(count.sum()), value_sum=float(value_sum.sum()))

    def truth_by_key(self, rows_total: int) -> dict[int, Truth]:
        """The exact answers over the first `rows_total` rows, for each key among them."""
        count, value_sum = self._sums(rows_total)
        return {
            int(key): Truth(count=int(count[key]), value_sum=float(value_sum[key]))
            for key in np.flatnonzero(count)
        }

    def _sums(self, rows_total: int) -> tuple[Ints, Floats]:
        count, value_sum = np.zeros(self.keys, np.int64), np.zeros(self.keys)
        for rows in _chunks(rows_total):
            keys, values = self._keys_and_values(rows)
            count += np.bincount(keys, minlength=self.keys)
            value_sum += np.bincount(keys, weights=values, minlength=self.keys)
        return count, value_sum

    def _keys_and_values(self, rows: Ints) -> tuple[Ints, Floats]:
        tables = _tables(self)
        draws = _uniforms(self.seed, _LANE_KEY, rows)
        keys = np.searchsorted(tables.cdf, draws, side="right").astype(np.int64)
        steps = _hashes(self.seed, _LANE_VALUE, rows) % np.uint64(_SPREAD)
        return keys, _grained(tables.value_mean[keys] * _lognormal()[steps.astype(np.intp)])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tables:
    """What each key is: cumulative probability, mean value, work."""

    cdf: Floats
    value_mean: Floats
    work_us: Ints


@lru_cache(maxsize=4)
def _tables(content: Content) -> _Tables:
    """Built once a process; a content travels to workers as its four numbers and texts."""
    every = np.arange(content.keys)
    low, high = _work_range(content.work_us)
    draws = _uniforms(content.seed, _LANE_WORK, every)
    return _Tables(
        cdf=_cdf(content.keys, _exponent(content.distribution)),
        value_mean=10.0 + 90.0 * _uniforms(content.seed, _LANE_MEAN, every),
        work_us=low + (draws * (high - low + 1)).astype(np.int64),
    )


def _cdf(keys: int, exponent: float) -> Floats:
    """Zipf's law, P(key) ~ (key + 1)^-exponent; ends in exactly 1, which no draw reaches."""
    cumulated = np.cumsum(np.arange(1.0, keys + 1.0) ** -exponent)
    return np.asarray(cumulated / cumulated[-1])


@lru_cache(maxsize=1)
def _lognormal() -> Floats:
    """Quantiles of a lognormal, scaled to mean 1; a table, so no slicing changes a bit."""
    normal = NormalDist(0.0, 0.75)
    steps = np.exp([normal.inv_cdf((step + 0.5) / _SPREAD) for step in range(_SPREAD)])
    return np.asarray(steps / steps.mean())


def _grained(values: Floats) -> Floats:
    return np.asarray(np.maximum(np.rint(values * _GRAIN), 1.0) / _GRAIN)


def _uniforms(seed: int, lane: int, numbers: Ints) -> Floats:
    """Uniform in [0, 1), from the upper 53 bits of the hash."""
    return (_hashes(seed, lane, numbers) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _hashes(seed: int, lane: int, numbers: Ints) -> Hashes:
    """Element `number` of the splitmix64 sequence that starts at a hash of seed and lane."""
    lane_start = _splitmix64(np.array([(seed * 4 + lane) & _MASK], np.uint64))
    return _splitmix64(lane_start + numbers.astype(np.uint64) * np.uint64(_GOLDEN))


def _splitmix64(states: Hashes) -> Hashes:
    """The output function of splitmix64 (Steele, Lea, Flood: Fast splittable PRNGs, 2014)."""
    mixed = states + np.uint64(_GOLDEN)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _chunks(rows_total: int) -> Iterator[Ints]:
    if rows_total < 0:
        raise ValueError(f"rows_total must be >= 0, got {rows_total}")
    for first in range(0, rows_total, _CHUNK_ROWS):
        yield np.arange(first, min(first + _CHUNK_ROWS, rows_total))


def _exponent(distribution: str) -> float:
    """Zipf's exponent; uniform is the exponent 0."""
    found = re.fullmatch(r"uniform|zipf:(\d+(?:\.\d+)?)", distribution)
    if not found:
        rule = "'uniform' or 'zipf:<exponent >= 0>'"
        raise ValueError(f"distribution must be {rule}, got {distribution!r}")
    return float(found[1] or 0)


def _work_range(work_us: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d{1,12})(?:\.\.(\d{1,12}))?", work_us)
    low, high = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
    if low > high:
        raise ValueError(f"work_us must be like '300' or '1..64', got {work_us!r}")
    return low, high
