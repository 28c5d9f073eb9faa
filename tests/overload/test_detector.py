"""Detectors: DISSP's cost model to the letter, and seconds with a cost for every query."""

from __future__ import annotations

import numpy as np
import pytest

from spillway.overload.detector import History, Interval, RowDetector, WorkDetector


def interval(
    rows: list[int], busy_s: list[float], elapsed_s: float = 0.25, locked_s: float = 0.0
) -> Interval:
    return Interval(
        elapsed_s=elapsed_s, rows=np.array(rows), busy_s=np.array(busy_s), locked_s=locked_s
    )


def heard(detector: RowDetector | WorkDetector, *intervals: Interval) -> History:
    history: History = ()
    for each in intervals:
        history = detector.learn(history, each)
    return history


def test_the_measured_interval_counts_and_not_the_nominal_one() -> None:
    """Section 5.3: 5,000 rows in 300 ms cost 0.06 ms each, so 250 ms hold 4,167."""
    detector = RowDetector()
    assert detector.capacity(heard(detector, interval([5000], [0.3], 0.3))) == pytest.approx(
        4166.7, 1e-4
    )


def test_the_average_runs_over_the_last_forty_intervals() -> None:
    detector = RowDetector()
    history = heard(detector, *[interval([100], [0.25])] * 40, interval([4100], [0.25]))
    assert len(history) == 40
    assert detector.capacity(history) == pytest.approx((39 * 100 + 4100) / 40)


def test_before_anything_is_known_nothing_is_limited() -> None:
    assert RowDetector().capacity(()) == float("inf")
    assert RowDetector().capacity(heard(RowDetector(), interval([0], [0.0]))) == float("inf")
    assert WorkDetector().sizes((), np.array([0]), np.array([50])).tolist() == [0.0]


def test_idle_time_makes_rows_expensive_for_the_paper_s_model_alone() -> None:
    """A node that was busy for a tenth of the time can do ten times as much."""
    idle = interval([10], [0.025])
    rows, work = RowDetector(), WorkDetector()
    assert rows.capacity(heard(rows, idle)) == pytest.approx(10)
    history = heard(work, idle)
    assert work.capacity(history) / work.sizes(history, np.array([0]), np.array([1]))[0] == (
        pytest.approx(100)
    )


def test_every_query_has_its_own_cost_and_an_unseen_one_the_mean() -> None:
    detector = WorkDetector()
    history = heard(detector, interval([10, 10, 0], [0.01, 0.05, 0.0]))
    assert detector.costs_s(history) == pytest.approx([0.001, 0.005, 0.003])
    sizes = detector.sizes(history, np.array([0, 1, 2]), np.array([5, 5, 5]))
    assert sizes == pytest.approx([0.005, 0.025, 0.015])


def test_the_shedder_s_own_time_is_not_for_work() -> None:
    detector = WorkDetector()
    history = heard(detector, interval([1], [0.1]), interval([1], [0.1], locked_s=0.05))
    assert detector.capacity(history) == pytest.approx(0.225)
    slow = heard(detector, interval([1], [0.1], locked_s=9.0))
    assert detector.capacity(slow) == 0.0


@pytest.mark.parametrize("make", [RowDetector, WorkDetector])
def test_intervals_without_length_and_averages_of_nothing_are_refused(
    make: type[RowDetector] | type[WorkDetector],
) -> None:
    with pytest.raises(ValueError, match="interval_s must be finite and > 0, got 0"):
        make(interval_s=0)
    with pytest.raises(ValueError, match="window must be >= 1, got 0"):
        make(window=0)
