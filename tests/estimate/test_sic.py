"""Source information content: what rows carry, what operators pass on, what counts alone tell."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.estimate.sic import (
    SicState,
    SicWindow,
    Spread,
    aggregated,
    derived,
    filtered,
    jain,
    joined,
    result_sic,
    results_sic,
    row_sic,
    unanswered,
)

counts = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=5).map(
    lambda pairs: [(max(pair), min(pair)) for pair in pairs]
)


# What rows carry ------------------------------------------------------------------------------


def test_the_rows_of_all_sources_carry_one_in_all_and_each_source_the_same() -> None:
    rows = np.array([4, 10, 1000])
    assert (row_sic(rows) * rows).tolist() == pytest.approx([1 / 3] * 3)


def test_a_row_of_a_slow_source_carries_more() -> None:
    assert row_sic([4, 1000])[0] == 250 * row_sic([4, 1000])[1]


def test_a_silent_source_does_not_count() -> None:
    assert row_sic([10, 0]).tolist() == [0.1, 0.0]
    assert result_sic([10, 0], [10, 0]) == 1.0
    assert result_sic([10, 0], [5, 0]) == 0.5


def test_a_query_to_which_nothing_came_has_lost_nothing() -> None:
    assert result_sic([0, 0], [0, 0]) == 1.0
    assert results_sic([5, 0], [0, 0], [0, 1], count=3).tolist() == [0.0, 1.0, 1.0]


@given(counts)
def test_the_sic_of_a_result_is_the_mean_of_its_sources_shares(
    pairs: list[tuple[int, int]],
) -> None:
    came, kept = zip(*pairs, strict=True)
    shares = [k / c for c, k in pairs if c]
    assert result_sic(came, kept) == pytest.approx(np.mean(shares) if shares else 1.0)
    assert 0.0 <= result_sic(came, kept) <= 1.0


@given(st.lists(counts, min_size=1, max_size=4))
def test_many_queries_at_once_are_as_each_alone(queries: list[list[tuple[int, int]]]) -> None:
    owner = [number for number, pairs in enumerate(queries) for _ in pairs]
    came, kept = zip(*(pair for pairs in queries for pair in pairs), strict=True)
    alone = [result_sic(*zip(*pairs, strict=True)) for pairs in queries]
    assert results_sic(came, kept, owner, count=len(queries)).tolist() == pytest.approx(alone)


# What operators pass on -----------------------------------------------------------------------


def test_the_rows_that_pass_a_filter_carry_what_the_others_carried_too() -> None:
    sic = np.array([0.1, 0.1, 0.1, 0.1, 0.2])
    passes = np.array([True, False, False, True, True])
    windows = np.array([0, 0, 0, 0, 1])
    assert filtered(sic, passes, windows) == pytest.approx([0.2, 0.2, 0.2])


def test_a_window_without_a_result_is_answered_too() -> None:
    sic, windows = np.array([0.1, 0.1, 0.3]), np.array([0, 0, 1])
    passes = np.array([False, False, True])
    assert filtered(sic, passes, windows) == pytest.approx([0.3])
    assert unanswered(sic, windows, windows[passes]) == pytest.approx(0.2)


def test_an_aggregate_carries_the_sum_of_its_group() -> None:
    assert aggregated(np.array([0.1, 0.2, 0.3]), np.array([1, 0, 1])) == pytest.approx([0.2, 0.4])


def test_pairs_of_a_join_share_what_both_sides_carried() -> None:
    """Window 0: 2 rows on the left, 1 on the right, 3 pairs (say); window 1: 1 and 1, 1 pair."""
    left, right = np.array([0.1, 0.1, 0.1]), np.array([0.3, 0.2])
    found = joined(left, np.array([0, 0, 1]), right, np.array([0, 1]), np.array([0, 0, 0, 1]))
    assert found == pytest.approx([0.5 / 3] * 3 + [0.3])


@given(st.integers(0, 2**32 - 1), st.floats(0.05, 1.0), st.floats(0.05, 1.0))
def test_counts_alone_tell_what_rows_carry_through_filter_join_and_aggregation(
    seed: int, one: float, other: float
) -> None:
    """Two sources are shed, filtered, joined by window, aggregated by group."""
    rng = np.random.default_rng(seed)
    came = rng.integers(1, 60, size=2)
    kept = [rng.random(size) < rate for size, rate in zip(came, (one, other), strict=True)]
    sides, gone = [], 0.0
    for size, carried, stays in zip(came, row_sic(came), kept, strict=True):
        windows = rng.integers(0, 3, size=size)[stays]
        passes = rng.random(windows.size) < 0.6
        rows = np.full(windows.size, carried)
        gone += unanswered(rows, windows, windows[passes])
        sides.append((filtered(rows, passes, windows), windows[passes]))
    pairs = np.repeat(np.arange(3), rng.integers(0, 4, size=3))
    (left, left_windows), (right, right_windows) = sides
    both, windows = np.concatenate((left, right)), np.concatenate((left_windows, right_windows))
    pairs = pairs[np.isin(pairs, windows)]
    gone += unanswered(both, windows, pairs)
    rows = joined(left, left_windows, right, right_windows, pairs)
    results = aggregated(rows, rng.integers(0, 5, size=rows.size))
    expected = result_sic(came, [stays.sum() for stays in kept])
    assert results.sum() + gone == pytest.approx(expected)


def test_nothing_in_gives_nothing_out() -> None:
    none, nowhere = np.zeros(0), np.zeros(0, dtype=np.int64)
    assert derived(none, nowhere, nowhere).size == 0
    assert unanswered(none, nowhere, nowhere) == 0.0


# Over time ------------------------------------------------------------------------------------


def test_the_window_slides_and_forgets() -> None:
    window = SicWindow(window_s=4.0, slots=4)
    state = SicState()
    for second in range(10):
        state = window.learn(state, at_s=second, rows_in=[10, 2], rows_kept=[second, 2])
    assert len(state.slots) == 4
    # Seconds 6 to 9 of the first source: 30 of 40; all of the second.
    assert window.sic(state, now_s=9.5) == pytest.approx((30 / 40 + 1) / 2)
    assert window.sic(state, now_s=12.5) == pytest.approx((9 / 10 + 1) / 2)
    assert window.sic(state, now_s=13.5) == 1.0


def test_what_comes_late_counts_where_it_belongs_and_not_at_all_if_that_is_over() -> None:
    window = SicWindow(window_s=4.0, slots=4)
    state = window.learn(SicState(), at_s=9.0, rows_in=[10], rows_kept=[10])
    late = window.learn(state, at_s=7.0, rows_in=[10], rows_kept=[0])
    assert window.sic(late, now_s=9.0) == 0.5
    assert window.learn(late, at_s=1.0, rows_in=[10], rows_kept=[0]) == late


def test_a_source_may_join_later() -> None:
    window = SicWindow()
    state = window.learn(SicState(), at_s=1.0, rows_in=[10], rows_kept=[5])
    state = window.learn(state, at_s=1.1, rows_in=[10, 4], rows_kept=[5, 4])
    assert window.sic(state, now_s=2.0) == pytest.approx(0.75)


def test_what_is_to_come_splits_the_window_into_what_is_reached_and_what_can_be_gained() -> None:
    window = SicWindow()
    state = window.learn(SicState(), at_s=1.0, rows_in=[10, 5], rows_kept=[5, 5])
    before, gain = window.ahead(state, now_s=2.0, rows=[10, 0])
    assert (before, before + gain) == (
        pytest.approx((5 / 20 + 1) / 2),
        pytest.approx((15 / 20 + 1) / 2),
    )
    assert window.ahead(SicState(), now_s=0.0, rows=[4]) == (0.0, 1.0)
    assert window.ahead(SicState(), now_s=0.0, rows=[0]) == (1.0, 0.0)


# Over queries ---------------------------------------------------------------------------------


def test_jain_s_index_is_one_for_equals_and_one_nth_if_one_has_all() -> None:
    assert jain([0.3, 0.3, 0.3]) == pytest.approx(1.0)
    assert jain([0.3, 0.0, 0.0]) == pytest.approx(1 / 3)
    assert jain([0.0, 0.0]) == 1.0
    assert jain([1e-200, 1e-200]) == pytest.approx(1.0)


@given(st.lists(st.floats(0.001, 1.0), min_size=1, max_size=20), st.floats(0.01, 100.0))
def test_jain_s_index_has_no_unit_and_lies_between(values: list[float], scale: float) -> None:
    index = jain(values)
    assert 1 / len(values) - 1e-9 <= index <= 1 + 1e-9
    assert jain(np.array(values) * scale) == pytest.approx(index)


def test_the_spread_names_least_deviation_and_index() -> None:
    spread = Spread.of([0.2, 0.4])
    assert (spread.minimum, spread.deviation) == (0.2, pytest.approx(0.1))
    assert spread.jain == pytest.approx(0.9)


# Refusals -------------------------------------------------------------------------------------


def test_what_is_no_count_no_window_and_no_query_is_refused() -> None:
    with pytest.raises(ValueError, match=r"rows_in must be finite and >= 0, got \[-1\]"):
        result_sic([-1], [0])
    with pytest.raises(ValueError, match="rows_kept must be <= rows_in"):
        result_sic([1], [2])
    with pytest.raises(ValueError, match="rows_kept must have one count per source, 2, got 1"):
        result_sic([1, 1], [1])
    with pytest.raises(ValueError, match="window_s must be finite and > 0, got 0"):
        SicWindow(window_s=0)
    with pytest.raises(ValueError, match="slots must be >= 1, got 0"):
        SicWindow(slots=0)
    with pytest.raises(ValueError, match="sic must have a number for every query"):
        Spread.of([])
    with pytest.raises(ValueError, match="sic must have a number for every query"):
        Spread.of([0.5, float("nan")])


def test_rows_that_fade_count_for_less_and_leave_no_echo() -> None:
    """Shares that make the projected SIC 0.5 every time are all 0.5 after a batch that was whole.

    With a plain window the whole batch is missed when it leaves, and comes again.
    """

    def planned(window: SicWindow) -> list[float]:
        state, shares = SicState(), [1.0]
        for turn in range(40):
            if turn:
                before, gain = window.ahead(state, now_s=float(turn), rows=[100])
                shares.append(min(max((0.5 - before) / gain, 0.0), 1.0))
            kept = round(100 * shares[-1])
            state = window.learn(state, at_s=float(turn), rows_in=[100], rows_kept=[kept])
        return shares

    fading = planned(SicWindow(window_s=20.0, slots=40, fade_s=5.0))
    assert fading[10:] == pytest.approx([0.5] * 30, abs=0.06)
    plain = planned(SicWindow(window_s=10.0, slots=20))
    assert max(plain[10:]) > 0.9
    state = SicWindow(fade_s=10.0).learn(SicState(), at_s=0.0, rows_in=[100], rows_kept=[50])
    came, kept = SicWindow(fade_s=10.0).totals(state, now_s=5.0)
    assert (came[0], kept[0]) == pytest.approx((100 * math.exp(-0.5), 50 * math.exp(-0.5)))
    with pytest.raises(ValueError, match="fade_s must be > 0, got 0"):
        SicWindow(fade_s=0.0)
