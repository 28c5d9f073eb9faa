"""The execution plan: the thesis's tables number by number, and its slips named."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from spillway.degrade.execution_plan import OPTIONAL_MAX, Container, containers, execution_plan
from spillway.degrade.profile import Profile
from spillway.degrade.subtask import Subtask, Subtasks
from tests.degrade.making import all_selections, applications
from tests.degrade.thesis import (
    BY_ACCURACY,
    BY_DURATION,
    C1,
    C2,
    SMALL,
    SMALL_PROFILE,
    search_plan,
    search_profile,
    search_subtasks,
    small_plan,
)

# Durations and accuracies agree within one unit of the last digit printed.
S3_MS = 0.000012  # table 3.1 leaves the time of subtask 3 out of its durations
S9 = 0.0007  # and the loss of subtask 9, if anything else is off


def excluded(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def test_iterator_509_leaves_out_the_second_optional_subtask() -> None:
    """Section 3.4.4: 509 is 111111101, all positions but the second, so S4 is left out."""
    entry = execution_plan(search_subtasks(), search_profile()).entries[509]
    assert entry.excluded == ("4",)
    assert entry.included == ("1", "2", "3", "5", "6", "7", "8", "9", "10", "11", "12", "13")
    assert entry.number == 510  # by the rule; the thesis prints 254
    assert search_plan().entries[509].number == 254


def test_there_are_512_entries_from_the_mandatory_subtasks_alone_to_all() -> None:
    plan = execution_plan(search_subtasks(), search_profile())
    assert len(plan.entries) == 2**9
    assert (plan.mandatory.number, plan.mandatory.included) == (1, ("2", "3", "12", "13"))
    assert (plan.complete.number, plan.complete.excluded) == (512, ())
    assert plan.complete.accuracy == 1.0


def test_the_first_15_entries_by_duration_are_those_of_table_3_1() -> None:
    entries = search_plan().by_duration()[:15]
    assert [entry.number for entry in entries] == [row[0] for row in BY_DURATION]
    for entry, (_, off, _, accuracy, duration_ms) in zip(entries, BY_DURATION, strict=True):
        assert entry.excluded == excluded(off)
        assert 1e3 * entry.duration_s - S3_MS == pytest.approx(duration_ms, abs=1e-7)
        lost_with_others = S9 if "9" in entry.excluded and len(entry.excluded) > 1 else 0.0
        assert 100 * entry.accuracy + lost_with_others == pytest.approx(accuracy, abs=1.1e-4)


def test_the_local_columns_are_those_of_table_3_2() -> None:
    """Subtasks 1 to 5 are local; here the time of subtask 3 is counted."""
    c1 = Container(name="1", subtasks=("1", "2", "3", "4", "5"), limit_s=1.0)
    local = {entry.number: entry for entry in search_plan().local(c1).entries}
    for number, off, local_ms, _, _ in BY_DURATION:
        assert 1e3 * local[number].local_duration_s == pytest.approx(local_ms, abs=6e-7)
        assert set(local[number].local) == set(c1.subtasks) - set(excluded(off))


def test_row_422_of_table_3_1_has_the_numbers_of_another_selection() -> None:
    """It names 1, 7, 8 and 11 as left out, but its numbers are those of 11 alone."""
    plan = execution_plan(search_subtasks(), search_profile())
    by_off = {entry.excluded: entry for entry in plan.entries}
    assert 100 * by_off[("11",)].accuracy == pytest.approx(86.8458, abs=6e-5)
    assert 100 * by_off[("1", "7", "8", "11")].accuracy == pytest.approx(59.9351, abs=6e-5)


def test_the_first_15_entries_by_accuracy_are_those_of_table_5_6() -> None:
    """In its order but for subtask 9, whose loss the thesis drops beside others: they tie there."""
    entries = search_plan().by_accuracy()[:15]
    assert {entry.number for entry in entries} == {row[0] for row in BY_ACCURACY}
    printed = {number: (accuracy, ms) for number, _, accuracy, ms in BY_ACCURACY}
    assert [printed[entry.number][0] for entry in entries] == [row[2] for row in BY_ACCURACY]
    for entry in entries:
        accuracy, duration_ms = printed[entry.number]
        assert 1e3 * entry.duration_s - S3_MS == pytest.approx(duration_ms, abs=1e-7)
        lost_with_others = S9 if "9" in entry.excluded and len(entry.excluded) > 1 else 0.0
        assert 100 * entry.accuracy + lost_with_others == pytest.approx(accuracy, abs=1.1e-4)


def test_table_3_5_number_by_number() -> None:
    """Of its durations in all, entries 6 and 7 are printed as 19 and 18 ms; they are 20 and 19."""
    rows = [
        (
            e.number,
            e.excluded,
            e.local,
            round(1e3 * e.local_duration_s, 9),
            round(100 * e.accuracy, 9),
            round(1e3 * e.duration_s, 9),
        )
        for e in small_plan().by_duration()
    ]
    assert rows == [
        (8, (), ("S1", "S2", "S3"), 6, 100, 21),
        (6, ("S1",), ("S2", "S3"), 5, 80, 20),
        (7, ("S2",), ("S1", "S3"), 4, 90, 19),
        (5, ("S3",), ("S1", "S2"), 3, 85, 18),
        (4, ("S1", "S2"), ("S3",), 3, 70, 18),
        (3, ("S1", "S3"), ("S2",), 2, 65, 17),
        (2, ("S2", "S3"), ("S1",), 1, 75, 16),
        (1, ("S1", "S2", "S3"), (), 0, 55, 15),
    ]


def test_table_3_6_has_the_same_entries_by_accuracy() -> None:
    assert [entry.number for entry in small_plan().by_accuracy()] == [8, 7, 5, 6, 2, 4, 3, 1]


def test_a_container_has_the_share_of_the_limit_that_its_subtasks_take() -> None:
    """Section 3.4.6: four of ten subtasks of 100 ms have 400 ms of one second."""
    names = [f"s{k}" for k in range(10)]
    work = Subtasks(map(Subtask, names))
    profile = Profile(duration_s=dict.fromkeys(names, 0.1), lost={})
    split = containers(work, profile, {"one": names[:4], "two": names[4:]}, limit_s=1.0)
    assert [stage.limit_s for stage in split] == pytest.approx([0.4, 0.6])


def test_by_that_rule_the_containers_of_the_example_have_143_and_357_ms() -> None:
    split = containers(SMALL, SMALL_PROFILE, {"c1": C1.subtasks, "c2": C2.subtasks}, limit_s=0.5)
    assert [round(1e3 * stage.limit_s) for stage in split] == [143, 357]
    assert (C1.limit_s, C2.limit_s) == (0.2, 0.3)  # what the thesis gives them


@given(app=applications(n_max=6, pairs_max=3))
@settings(max_examples=100)
def test_every_possible_selection_is_in_the_plan_once(app: tuple[Subtasks, Profile]) -> None:
    subtasks, profile = app
    plan = execution_plan(subtasks, profile)
    assert sorted(map(sorted, (entry.excluded for entry in plan.entries))) == sorted(
        map(sorted, all_selections(subtasks))
    )
    for entry in plan.entries:
        assert entry.accuracy == profile.accuracy_without(entry.excluded)
        assert entry.duration_s == profile.duration_with(entry.included)


def test_without_optional_subtasks_there_is_one_entry() -> None:
    work = Subtasks([Subtask("m")])
    plan = execution_plan(work, Profile(duration_s={"m": 0.1}, lost={}))
    assert plan.mandatory == plan.complete
    assert plan.complete.accuracy == 1.0


def test_too_many_optional_subtasks_are_referred_to_the_frontier() -> None:
    names = [f"s{k}" for k in range(OPTIONAL_MAX + 1)]
    work = Subtasks(Subtask(name, optional=True) for name in names)
    profile = Profile(duration_s=dict.fromkeys(names, 0.1), lost=dict.fromkeys(names, 0.0))
    with pytest.raises(ValueError, match="at most 16 optional subtasks, got 17: use the frontier"):
        execution_plan(work, profile)


@pytest.mark.parametrize("numbers", [(1, 2), (1,) * 8])
def test_numbers_must_be_one_for_each_entry(numbers: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="numbers must be 8 different ones"):
        execution_plan(SMALL, SMALL_PROFILE, numbers=numbers)


@pytest.mark.parametrize(
    ("stages", "odd"),
    [
        ({"one": ["S1", "S2", "S3"]}, "S4', 'S5', 'S6"),
        ({"one": SMALL.names, "two": ["S1"]}, "S1"),
        ({"one": [*SMALL.names, "S7"]}, "S7"),
    ],
)
def test_stages_must_share_out_the_subtasks(stages: dict[str, list[str]], odd: str) -> None:
    with pytest.raises(ValueError, match=rf"every subtask once, got \['{odd}'\]"):
        containers(SMALL, SMALL_PROFILE, stages, limit_s=1.0)


def test_an_input_must_not_come_in_a_later_stage() -> None:
    work = Subtasks([Subtask("a"), Subtask("b", inputs=("a",))])
    profile = Profile(duration_s={"a": 1.0, "b": 1.0}, lost={})
    with pytest.raises(ValueError, match="'a' must not come in a later stage than 'b'"):
        containers(work, profile, {"one": ["b"], "two": ["a"]}, limit_s=1.0)


def test_a_limit_must_be_some_time() -> None:
    with pytest.raises(ValueError, match="limit_s of 'c' must be > 0, got 0"):
        Container(name="c", subtasks=("a",), limit_s=0.0)
    free = Profile(duration_s={"m": 0.0}, lost={})
    with pytest.raises(ValueError, match="must be > 0 to be shared out"):
        containers(Subtasks([Subtask("m")]), free, {"one": ["m"]}, limit_s=1.0)
