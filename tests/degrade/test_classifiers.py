"""The classifiers: the worked examples of the thesis, and what each of them promises."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.degrade.classifiers import (
    Classifier,
    accuracy,
    binary,
    cost,
    duration,
    load,
    overload_amount,
    overloaded,
)
from spillway.degrade.execution_plan import ExecutionPlan, execution_plan
from spillway.degrade.profile import Profile
from spillway.degrade.subtask import Subtasks
from tests.degrade.making import applications
from tests.degrade.thesis import C1, C2, SMALL, SMALL_NUMBERS, SMALL_PROFILE, small_plan

ALL = (duration, accuracy, cost, binary)
LIMIT_S = C1.limit_s


def test_50_rows_of_6_ms_are_half_too_much_for_200_ms() -> None:
    """Section 3.5.1, eq. 3.2 to 3.5: 300 ms of work; the printed sign of eq. 3.5 gives -0.5."""
    total = load(rows=50, row_s=0.006, limit_s=LIMIT_S)
    assert total == pytest.approx(300 / 200)
    assert overloaded(total)
    assert overload_amount(total) == pytest.approx(0.5)


def test_600_ms_of_work_in_500_ms_are_100_ms_too_much() -> None:
    """Section 3.4.6."""
    total = load(rows=1, row_s=0.6, limit_s=0.5)
    assert overload_amount(total) * 500 == pytest.approx(100)


def test_work_that_just_fits_is_no_overload() -> None:
    assert not overloaded(load(rows=50, row_s=0.004, limit_s=LIMIT_S))
    assert overload_amount(0.3) == 0.0


@pytest.mark.parametrize("classifier", ALL)
def test_at_50_rows_all_four_select_entry_7(
    classifier: Callable[[ExecutionPlan], Classifier],
) -> None:
    """Sections 3.5.1, 3.6.1 and 3.7.1: 4 ms a row, 200 ms in all, 90 % accurate."""
    entry = classifier(small_plan()).select(rows=50, limit_s=LIMIT_S)
    assert entry.number == 7
    assert entry.local == ("S1", "S3")
    assert entry.accuracy == pytest.approx(0.9)


def test_duration_tries_8_6_7_and_accuracy_8_7() -> None:
    """The walks of sections 3.5.1 and 3.6.1."""
    assert [entry.number for entry in duration(small_plan()).entries[:4]] == [8, 6, 7, 5]
    assert [entry.number for entry in accuracy(small_plan()).entries[:2]] == [8, 7]


@pytest.mark.parametrize("classifier", [duration, cost, binary])
def test_at_3_ms_a_row_the_selection_is_entry_5(
    classifier: Callable[[ExecutionPlan], Classifier],
) -> None:
    """Section 3.8.1 says 75 rows in 200 ms; 3 ms a row are 75 rows in 225 ms."""
    assert classifier(small_plan()).select(rows=75, limit_s=0.225).number == 5


def test_at_75_rows_in_200_ms_entry_5_is_too_long_and_the_next_that_fits_is_selected() -> None:
    """200 / 75 is 2.67 ms: entries 3 (2 ms, 65 %) by duration, 2 (1 ms, 75 %) by accuracy."""
    plan = small_plan()
    selected = [make(plan).select(rows=75, limit_s=LIMIT_S).number for make in ALL]
    assert selected == [3, 2, 3, 3]


def test_the_middle_of_eight_entries_is_entry_5_so_binary_search_finds_it_at_once() -> None:
    """Section 3.8.1: the fourth entry of the plan is compared first."""
    entries = binary(small_plan()).entries
    assert entries[(len(entries) - 1) // 2].number == 5


@pytest.mark.parametrize("classifier", ALL)
def test_below_the_limit_nothing_is_left_out(
    classifier: Callable[[ExecutionPlan], Classifier],
) -> None:
    for rows in (0, 1, 33):
        assert classifier(small_plan()).select(rows=rows, limit_s=LIMIT_S).number == 8


@pytest.mark.parametrize("classifier", ALL)
def test_if_nothing_fits_the_mandatory_subtasks_alone_run(
    classifier: Callable[[ExecutionPlan], Classifier],
) -> None:
    plan = execution_plan(SMALL, SMALL_PROFILE, numbers=SMALL_NUMBERS)
    entry = classifier(plan).select(rows=1000, limit_s=0.5)
    assert entry.number == 1
    assert entry.included == ("S4", "S5", "S6")
    only_mandatory = classifier(plan.local(C2)).select(rows=1000, limit_s=C2.limit_s)
    assert only_mandatory.local == ("S4", "S5", "S6")


plans = st.builds(lambda app: execution_plan(*app), applications(n_max=5, pairs_max=2))


@given(plan=plans, rows=st.floats(0, 1e4), limit_s=st.floats(1e-6, 10))
@settings(max_examples=80)
def test_what_is_selected_is_on_time_or_the_fallback(
    plan: ExecutionPlan, rows: float, limit_s: float
) -> None:
    for make in ALL:
        entry = make(plan).select(rows=rows, limit_s=limit_s)
        on_time = rows * entry.local_duration_s <= limit_s * (1 + 1e-12)
        assert on_time or entry == plan.mandatory


@given(plan=plans, rows=st.floats(0, 1e4), limit_s=st.floats(1e-6, 10))
@settings(max_examples=80)
def test_duration_cost_and_binary_select_the_same(
    plan: ExecutionPlan, rows: float, limit_s: float
) -> None:
    """But for the rounding of a division: then the two differ by one place at most."""
    chosen = [make(plan).select(rows=rows, limit_s=limit_s) for make in (duration, cost, binary)]
    assert chosen[1] == chosen[2]
    if chosen[0] != chosen[1]:
        assert math.isclose(rows * max(e.duration_s for e in chosen), limit_s, rel_tol=1e-12)


@given(plan=plans, row_s_max=st.floats(1e-6, 1))
@settings(max_examples=80)
def test_binary_finds_what_the_halving_of_the_thesis_finds(
    plan: ExecutionPlan, row_s_max: float
) -> None:
    """Step by step as in section 3.8, turned round for a descending table."""
    entries = plan.by_duration()
    low, high, found = 0, len(entries) - 1, plan.mandatory
    while low <= high:
        middle = (low + high) // 2
        if entries[middle].duration_s == row_s_max:
            found = entries[middle]
            break
        if entries[middle].duration_s > row_s_max:
            low = middle + 1
        else:
            found, high = entries[middle], middle - 1
    selected = binary(plan).select(rows=1, limit_s=row_s_max)
    assert selected.duration_s == found.duration_s
    assert selected.accuracy >= found.accuracy


@given(plan=plans, limits_s=st.lists(st.floats(1e-6, 1), max_size=8))
@settings(max_examples=80)
def test_binary_finds_the_same_wherever_it_found_the_last_one(
    plan: ExecutionPlan, limits_s: list[float]
) -> None:
    used = binary(plan)
    edges_s = [entry.duration_s for entry in plan.entries if entry.duration_s > 0]
    for limit_s in (*limits_s, *edges_s, *edges_s[::-1]):
        for _ in range(2):
            fresh = binary(plan).select(rows=1, limit_s=limit_s)
            assert used.select(rows=1, limit_s=limit_s) == fresh


@pytest.mark.parametrize(("rows", "limit_s"), [(-1, 1.0), (math.nan, 1.0), (1, 0.0), (1, math.nan)])
def test_amounts_that_are_none_are_refused(rows: float, limit_s: float) -> None:
    with pytest.raises(ValueError, match="rows must be >= 0 and limit_s > 0"):
        binary(small_plan()).select(rows=rows, limit_s=limit_s)
    with pytest.raises(ValueError, match="limit_s must be > 0, got 0"):
        load(rows=1, row_s=1.0, limit_s=0)


def test_without_optional_subtasks_every_classifier_selects_all() -> None:
    work = Subtasks([member for member in SMALL if not member.optional])
    times = {name: SMALL_PROFILE.duration_s[name] for name in work.names}
    plan = execution_plan(work, Profile(duration_s=times, lost={}))
    for make in ALL:
        for rows in (1, 10**6):
            assert make(plan).select(rows=rows, limit_s=0.2).included == work.names
