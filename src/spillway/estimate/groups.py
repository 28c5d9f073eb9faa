"""What samples of the groups of a window say about the groups, with confidence intervals.

Of the n rows of a group, k are a simple random sample without replacement (a window's bottom-k by
hash, cut to the allocation); n is known exactly. With the sample's mean x̄ and variance s²:

    mean      x̄      ± t · √((1 - k/n) s² / k)       t: Student's quantile, k - 1 degrees, with
                                                     allowance for skew (see `student`)
    sum       n x̄    ± n times that
    count     n      exactly
    quantile  as Spark's `percentile` on the sample; order statistics bound it, by exact
              hypergeometric probabilities (see `order_statistics`)
    window    Σ n x̄  ± t · √(Σ n² (1 - k/n) s² / k)  t: Satterthwaite's degrees

A group that was kept whole is exact. Where the sample is too small to bound a side (one row of
several for a mean, a few for a quantile) that side is infinite. A group with no row at all in the
sample is missing: no interval speaks of it, see `error_sources`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spillway.estimate import moments
from spillway.estimate.moments import divided, means_and_errors, skewness
from spillway.estimate.order_statistics import bounds
from spillway.estimate.student import skewed_scores, t_scores
from spillway.estimate.totals import Estimate, z_score

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSample:
    """The sampled values of all groups, one group after the other, and how many rows there were.

    Group g has the values `values[starts[g]:starts[g + 1]]` of its `rows[g]` rows.
    """

    values: Floats
    starts: Ints
    rows: Ints

    def __post_init__(self) -> None:
        if self.starts.size != self.rows.size + 1 or self.starts[0] != 0:
            raise ValueError(
                f"starts must be {self.rows.size + 1} positions from 0 on, got {self.starts}"
            )
        if self.starts[-1] != self.values.size or (self.kept < 0).any():
            raise ValueError(
                f"starts must rise to the number of values, {self.values.size}, got {self.starts}"
            )
        if (self.rows < np.maximum(self.kept, 1)).any():
            at = int(np.argmax(self.rows < np.maximum(self.kept, 1)))
            raise ValueError(
                f"rows must be at least 1 and the sampled ones ({self.kept[at]} of group {at}), "
                f"got {self.rows[at]}"
            )

    @property
    def kept(self) -> Ints:
        """How many rows of each group are in the sample."""
        return np.diff(self.starts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimates:
    """One value per group, and the interval that holds the truth with the stated confidence."""

    value: Floats
    low: Floats
    high: Floats


def means(sample: GroupSample, *, confidence: float = 0.95) -> Estimates:
    """Estimate the mean of every group.

    >>> fares = GroupSample(
    ...     values=np.array([10.0, 12.0, 14.0, 30.0, 32.0]),
    ...     starts=np.array([0, 3, 5]),
    ...     rows=np.array([300, 2]),
    ... )
    >>> found = means(fares)
    >>> found.value.tolist(), found.low.round(2).tolist(), found.high.round(2).tolist()
    ([12.0, 31.0], [6.3, 31.0], [17.7, 31.0])
    """
    value, error = means_and_errors(sample.values, sample.starts, sample.rows)
    return _spread(value, error, *_scores(sample, confidence))


def sums(sample: GroupSample, *, confidence: float = 0.95) -> Estimates:
    """Estimate the sum of every group: its mean times the rows that it has."""
    _, error = means_and_errors(sample.values, sample.starts, sample.rows)
    value = moments.sums(sample.values, sample.starts) * divided(sample.rows, sample.kept)
    return _spread(value, sample.rows * error, *_scores(sample, confidence))


def counts(sample: GroupSample) -> Estimates:
    """Return how many rows every group has: counted, not estimated."""
    rows = sample.rows.astype(np.float64)
    return Estimates(value=rows, low=rows, high=rows)


def quantiles(sample: GroupSample, q: float, *, confidence: float = 0.95) -> Estimates:
    """Estimate the q-quantile of every group (0.5: the median), whatever its distribution.

    >>> waits = GroupSample(
    ...     values=np.arange(20.0), starts=np.array([0, 20]), rows=np.array([4000])
    ... )
    >>> found = quantiles(waits, 0.5)
    >>> found.value.item(), round(found.low.item(), 1), round(found.high.item(), 1)
    (9.5, 5.2, 13.8)
    """
    if not 0 <= q <= 1:
        raise ValueError(f"q must be in [0, 1], got {q}")
    z_score(confidence)  # refuses what is no probability
    kept, starts = sample.kept, sample.starts[:-1]
    values = sample.values[np.lexsort((sample.values, np.repeat(np.arange(kept.size), kept)))]
    middle = (q * (kept - 1.0) + 1.0).astype(np.float64)
    value = np.where(kept > 0, _at(values, starts, kept, middle), np.nan)
    low, high, part = value.copy(), value.copy(), kept < sample.rows
    places = bounds(sample.rows[part], kept[part], q, (1.0 - confidence) / 2)
    for bound, place in zip((low, high), places, strict=True):
        bound[part] = _at(values, starts[part], kept[part], place)
    return Estimates(value=value, low=low, high=high)


def stratified_total(sample: GroupSample, *, confidence: float = 0.95) -> Estimate:
    """Estimate the sum over the whole window from the samples of its groups."""
    mean, error = means_and_errors(sample.values, sample.starts, sample.rows)
    variances = np.square(sample.rows * error)
    value, variance = (sample.rows * mean).sum(keepdims=True), variances.sum(keepdims=True)
    score = t_scores(confidence, _degrees(variances, sample.kept))
    found = _spread(value, np.sqrt(variance), score, score)
    return Estimate(value=float(value[0]), low=float(found.low[0]), high=float(found.high[0]))


def stratified_mean(sample: GroupSample, *, confidence: float = 0.95) -> Estimate:
    """Estimate the mean over the whole window from the samples of its groups; NaN over none."""
    total = stratified_total(sample, confidence=confidence)
    rows = float(sample.rows.sum()) or np.nan
    return Estimate(value=total.value / rows, low=total.low / rows, high=total.high / rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Top:
    """The groups of the highest values, highest first, and whether each surely belongs there."""

    groups: Ints
    certain: Bools


def top(estimates: Estimates, k: int) -> Top:
    """Return the k groups of the highest values; missing groups (NaN) have no place.

    A group belongs there for certain if fewer than k other groups could reach its low end, by
    their high ends. That is as sure as the intervals: each of them errs on its own, so for many
    groups take intervals of higher confidence. Equal values keep the order of the groups.

    >>> routes = Estimates(
    ...     value=np.array([5.0, 9.0, 7.0]),
    ...     low=np.array([4.0, 8.2, 4.5]),
    ...     high=np.array([6.0, 9.5, 8.0]),
    ... )
    >>> top(routes, 2)
    Top(groups=array([1, 2]), certain=array([ True, False]))
    """
    if k < 0:
        raise ValueError(f"k must be >= 0, got {k}")
    order = np.argsort(-estimates.value, kind="stable")
    best = order[~np.isnan(estimates.value[order])][:k]
    highs = np.sort(estimates.high)
    rivals = highs.size - np.searchsorted(highs, estimates.low[best], side="left") - 1
    return Top(groups=best, certain=rivals < k)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorSources:
    """The mean relative error of group results, told apart by where it comes from.

    The two parts add up to the mean: a missing group errs by 1 (100 %), any other by sampling.
    """

    groups: int
    missing: int
    from_missing: float
    from_sampling: float

    @property
    def mean_relative(self) -> float:
        """The mean over all groups of |found - truth| / |truth|."""
        return self.from_missing + self.from_sampling

    @property
    def missing_share(self) -> float:
        """The part of the error that missing groups cause; 0 if there is no error."""
        return self.from_missing / self.mean_relative if self.mean_relative else 0.0


def error_sources(truth: Floats, found: Floats) -> ErrorSources:
    """Compare group results with the true ones; NaN in `found` is a group that is missing.

    A group whose truth is 0 errs by 1 unless it was found to be 0.

    >>> sources = error_sources(np.array([10.0, 20.0, 5.0]), np.array([11.0, 20.0, np.nan]))
    >>> sources.missing, round(sources.mean_relative, 3), round(sources.missing_share, 2)
    (1, 0.367, 0.91)
    """
    if truth.shape != found.shape:
        raise ValueError(f"found must have the shape of truth {truth.shape}, got {found.shape}")
    missing = np.isnan(found)
    apart = np.abs(found - truth)
    errors = np.where(truth != 0, divided(apart, np.abs(truth)), (apart != 0).astype(np.float64))
    groups = max(truth.size, 1)
    return ErrorSources(
        groups=truth.size,
        missing=int(missing.sum()),
        from_missing=float(missing.sum()) / groups,
        from_sampling=float(errors[~missing].sum()) / groups,
    )


def _scores(sample: GroupSample, confidence: float) -> tuple[Floats, Floats]:
    skew = skewness(sample.values, sample.starts)
    return skewed_scores(confidence, sample.kept, skew)


def _degrees(variances: Floats, kept: Ints) -> Ints:
    """Return the degrees of freedom of a sum of estimated variances (Satterthwaite), at least 1."""
    total = float(variances.sum())
    if not 0 < total < np.inf:
        return np.array([1])
    fraction = float((np.square(variances / total) / np.maximum(kept - 1, 1)).sum())
    return np.array([max(int(1.0 / fraction), 1)])


def _spread(value: Floats, error: Floats, below: Floats, above: Floats) -> Estimates:
    """Go so many errors below and above; what is not known is infinite."""
    known = np.isfinite(value) & np.isfinite(error)
    centre, unit = np.where(known, value, 0.0), np.where(known, error, np.inf)
    return Estimates(value=value, low=centre - below * unit, high=centre + above * unit)


def _at(values: Floats, starts: Ints, kept: Ints, places: Floats) -> Floats:
    """Interpolate every group's sorted values at a place from 1 on; infinite beyond their ends."""
    padded = np.append(values, np.nan)  # for groups without values
    inside = np.clip(places, 1, np.maximum(kept, 1))
    whole = np.floor(inside)
    first = np.minimum(starts + whole.astype(np.int64) - 1, values.size)
    share, before, after = inside - whole, padded[first], padded[np.minimum(first + 1, values.size)]
    with np.errstate(invalid="ignore"):  # between infinite values
        mixed = np.where(share > 0, before + share * (after - before), before)
    return np.where(places < 1, -np.inf, np.where(places > kept, np.inf, mixed))
