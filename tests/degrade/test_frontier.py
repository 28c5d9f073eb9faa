"""The frontier: nothing beats it, it fills the budget, and it is at least as good as the four."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.degrade import classifiers
from spillway.degrade.execution_plan import Container, execution_plan
from spillway.degrade.frontier import Frontier, frontier
from spillway.degrade.profile import Profile
from spillway.degrade.subtask import Subtask, Subtasks
from spillway.kernels.uniform import uniform
from tests.degrade.making import all_selections, applications
from tests.degrade.thesis import C1, SMALL, SMALL_PROFILE, search_profile, search_subtasks

CLOSE = 1e-9


def points(found: Frontier) -> list[tuple[float, float]]:
    return list(zip(found.durations_s, found.accuracies, strict=True))


def enumerated(subtasks: Subtasks, profile: Profile) -> list[tuple[float, float]]:
    """Try all selections: (duration, accuracy) of each."""
    return [
        (
            profile.duration_with(set(subtasks.names) - off),
            profile.accuracy_without(off),
        )
        for off in all_selections(subtasks)
    ]


def best_within(found: Frontier, row_s: float) -> float:
    return found.accuracies[max(found.find(row_s), 0)]


def many(n: int, seed: int = 1, correlated: bool = False) -> tuple[Subtasks, Profile]:
    """Return n optional subtasks of random cost and worth."""
    rng = np.random.default_rng(seed)
    names = [f"s{k}" for k in range(n)]
    times = rng.random(n) / 100
    lost = times * rng.uniform(0.9, 1.1, n) if correlated else rng.random(n)
    return Subtasks(Subtask(name, optional=True) for name in names), Profile(
        duration_s=dict(zip(names, times.tolist(), strict=True)),
        lost=dict(zip(names, (lost / lost.sum()).tolist(), strict=True)),
    )


@given(app=applications(n_max=12))
@settings(max_examples=60)
def test_no_enumerated_selection_beats_it_with_any_dependencies(
    app: tuple[Subtasks, Profile],
) -> None:
    check_against_all(*app)


@pytest.mark.parametrize("seed", range(12))
def test_nor_with_twelve_subtasks_of_which_most_need_others_and_some_interact(seed: int) -> None:
    rng = np.random.default_rng(seed)
    names = [f"s{k}" for k in range(12)]
    members = []
    for k, name in enumerate(names):
        count = int(rng.integers(0, min(k, 2) + 1))
        inputs = rng.choice(names[:k], size=count, replace=False).tolist() if k else []
        members.append(Subtask(name, optional=True, inputs=tuple(inputs)))
    pairs = [(names[a], names[b]) for a, b in rng.integers(0, 12, (3, 2)) if a < b]
    profile = Profile(
        duration_s=dict(zip(names, rng.random(12).tolist(), strict=True)),
        lost=dict(zip(names, (rng.random(12) / 12).tolist(), strict=True)),
        together={pair: float(rng.uniform(-0.05, 0.05)) for pair in pairs},
    )
    check_against_all(Subtasks(members), profile)


@given(app=applications(n_max=8, pairs_max=8))
@settings(max_examples=60)
def test_nor_with_interactions(app: tuple[Subtasks, Profile]) -> None:
    check_against_all(*app)


def check_against_all(subtasks: Subtasks, profile: Profile) -> None:
    found, every = frontier(subtasks, profile), enumerated(subtasks, profile)
    assert found.resolution_s == 0.0
    for duration_s, accuracy in every:
        assert best_within(found, duration_s) >= accuracy - CLOSE
    for at, (duration_s, accuracy) in enumerate(points(found)):  # and they are what they say
        off = found.choice(at).off
        assert subtasks.closed(off) == set(off)
        on = set(subtasks.names) - set(off)
        assert duration_s == pytest.approx(profile.duration_with(on), abs=CLOSE)
        assert accuracy == pytest.approx(profile.accuracy_without(off), abs=CLOSE)


@given(app=applications(n_max=12))
@settings(max_examples=60)
def test_it_has_no_entry_too_many_and_grows_in_both(app: tuple[Subtasks, Profile]) -> None:
    """But for the last: all work is there even if some of it gains nothing."""
    found = frontier(*app)
    for (s, accuracy), (longer_s, more) in pairwise(points(found)[:-1]):
        assert longer_s > s
        assert more > accuracy
    assert found.choice(len(found) - 1).off == ()
    assert found.accuracies[-1] == max(found.accuracies)


@given(
    app=applications(n_max=7, pairs_max=2), rows=st.integers(1, 1000), limit_s=st.floats(0.001, 100)
)
@settings(max_examples=60)
def test_at_every_budget_it_is_at_least_as_accurate_as_the_best_of_the_four(
    app: tuple[Subtasks, Profile], rows: int, limit_s: float
) -> None:
    found, plan = frontier(*app), execution_plan(*app)
    ours, mixed = found.select(rows=rows, limit_s=limit_s), found.mix(rows=rows, limit_s=limit_s)
    for make in (
        classifiers.duration,
        classifiers.accuracy,
        classifiers.cost,
        classifiers.binary,
    ):
        theirs = make(plan).select(rows=rows, limit_s=limit_s)
        assert ours.accuracy >= theirs.accuracy - CLOSE
        assert mixed.accuracy >= theirs.accuracy - CLOSE
        at_their_duration = best_within(found, theirs.duration_s)
        assert at_their_duration >= theirs.accuracy - CLOSE
    if mixed.keep == 1.0:
        assert rows * ours.duration_s <= limit_s * (1 + CLOSE) + CLOSE
        assert rows * mixed.duration_s <= limit_s * (1 + CLOSE) + CLOSE


@given(app=applications(n_max=6), split=st.integers(0, 6), rows=st.integers(1, 500))
@settings(max_examples=40)
def test_in_a_container_too(app: tuple[Subtasks, Profile], split: int, rows: int) -> None:
    """Its own subtasks alone are chosen; what that switches off elsewhere is counted."""
    subtasks, profile = app
    names = subtasks.names[:split]
    here = Container(name="here", subtasks=names, limit_s=1.0)
    found = frontier(subtasks, profile, container=here)
    plan = execution_plan(subtasks, profile).local(here)
    for at in range(len(found)):
        choice = found.choice(at)
        assert choice.accuracy == pytest.approx(profile.accuracy_without(choice.off), abs=CLOSE)
        chosen = [name for name in choice.off if name in names]
        assert subtasks.closed(chosen) == set(choice.off)
    for make in (classifiers.duration, classifiers.accuracy):
        theirs = make(plan).select(rows=rows, limit_s=here.limit_s)
        ours = found.select(rows=rows, limit_s=here.limit_s)
        if rows * theirs.local_duration_s <= here.limit_s:  # else both do the least they can
            assert ours.accuracy >= theirs.accuracy - CLOSE


def test_what_an_earlier_stage_has_switched_off_stays_off() -> None:
    found = frontier(SMALL, SMALL_PROFILE, off=["S1"])
    assert all("S1" in found.choice(at).off for at in range(len(found)))
    assert found.accuracies[-1] == pytest.approx(0.8)
    assert found.durations_s[-1] == pytest.approx(0.020)


def test_the_frontier_of_the_worked_example() -> None:
    """Of the eight entries of table 3.5 five are left: 6, 4 and 3 are beaten by 7, 5 and 2."""
    found = frontier(SMALL, SMALL_PROFILE, container=C1)
    assert [(round(1e3 * s, 9), round(100 * a, 9)) for s, a in points(found)] == [
        (0, 55),
        (1, 75),
        (3, 85),
        (4, 90),
        (6, 100),
    ]


def test_at_50_rows_it_selects_entry_7_and_at_75_it_mixes_entries_2_and_5() -> None:
    """75 rows in 200 ms: 5 of 6 rows take 3 ms, one takes 1 ms: 83.3 % against 65 or 75."""
    found = frontier(SMALL, SMALL_PROFILE, container=C1)
    assert found.select(rows=50, limit_s=0.2).off == ("S2",)
    mix = found.mix(rows=75, limit_s=0.2)
    assert (mix.less.off, mix.more.off) == (("S2", "S3"), ("S3",))
    assert mix.fraction == pytest.approx(5 / 6)
    assert 75 * mix.duration_s == pytest.approx(0.2)
    assert mix.accuracy == pytest.approx(0.8333, abs=1e-4)


def test_the_tweet_search_has_a_frontier_of_few_of_its_512_entries() -> None:
    """Subtasks 9, 1, 8 and 4 go first: four of nine for a tenth of a per cent."""
    found = frontier(search_subtasks(), search_profile())
    assert len(found) == 21
    without_four = next(
        a for at, a in enumerate(found.accuracies) if found.choice(at).off == ("1", "4", "8", "9")
    )
    assert without_four > 0.999


@pytest.mark.parametrize(
    ("load", "by_duration", "by_accuracy", "mixed", "along_the_hull"),
    [
        (1.1, 86.85, 100.00, 100.00, 100.00),
        (1.5, 59.95, 99.95, 99.96, 99.96),
        (2, 59.95, 86.80, 88.64, 89.32),
        (3, 47.47, 66.19, 68.77, 69.83),
        (5, 39.33, 40.78, 44.01, 47.46),
        (10, 13.92, 13.92, 20.20, 27.31),
    ],
)
def test_the_table_of_the_documentation(
    load: float, by_duration: float, by_accuracy: float, mixed: float, along_the_hull: float
) -> None:
    app = search_subtasks(), search_profile()
    plan, found = execution_plan(*app), frontier(*app)
    at = {"rows": load / plan.complete.duration_s, "limit_s": 1.0}
    printed = pytest.approx(
        [by_duration] * 3 + [by_accuracy] * 2 + [mixed, along_the_hull], abs=6e-3
    )
    makers = (classifiers.duration, classifiers.cost, classifiers.binary, classifiers.accuracy)
    four = [make(plan).select(**at).accuracy for make in makers]
    ours = [found.select(**at).accuracy, found.mix(**at).accuracy, found.hull().mix(**at).accuracy]
    assert [100 * accuracy for accuracy in (*four, *ours)] == printed


@given(app=applications(n_max=10), row_s=st.floats(0, 2))
@settings(max_examples=40)
def test_the_budget_is_filled_exactly_between_the_least_and_all_work(
    app: tuple[Subtasks, Profile], row_s: float
) -> None:
    found = frontier(*app)
    mix = found.mix(rows=1, limit_s=row_s)
    least_s, all_s = found.durations_s[0], found.durations_s[-1]
    assert mix.keep * mix.duration_s == pytest.approx(min(row_s, all_s), abs=1e-9)
    assert (mix.keep < 1.0) == (row_s < least_s - 1e-10 * all_s)
    assert 0.0 <= mix.fraction <= 1.0


def test_each_row_decides_by_its_own_hash_and_the_same_again() -> None:
    """The share of 100,000 rows is within 4 sigma of the fraction (false alarm 6e-5)."""
    mix = frontier(SMALL, SMALL_PROFILE, container=C1).mix(rows=75, limit_s=0.2)
    numbers = np.array([uniform(7, row) for row in range(100_000)])
    taken = mix.takes_more(numbers)
    sigma = math.sqrt(mix.fraction * (1 - mix.fraction) / numbers.size)
    assert abs(taken.mean() - mix.fraction) < 4 * sigma
    shuffled = np.random.default_rng(3).permutation(numbers.size)
    assert (mix.takes_more(numbers[shuffled]) == taken[shuffled]).all()


def test_no_time_at_all_is_a_share_of_no_rows() -> None:
    mix = frontier(SMALL, SMALL_PROFILE).mix(rows=10, limit_s=0.0)
    assert mix.keep == 0.0
    assert mix.less.off == ("S1", "S2", "S3")
    assert frontier(SMALL, SMALL_PROFILE).mix(rows=0, limit_s=0.0).less.off == ()


@given(app=applications(n_max=10), row_s=st.floats(0, 2), last=st.integers(-5, 2000))
@settings(max_examples=60)
def test_the_search_from_the_last_entry_finds_the_same(
    app: tuple[Subtasks, Profile], row_s: float, last: int
) -> None:
    found = frontier(*app)
    assert found.find_near(row_s, last) == found.find(row_s)


def test_the_search_from_the_last_entry_looks_at_log_of_the_way() -> None:
    class Counted(tuple):  # type: ignore[type-arg]
        looks = 0

        def __getitem__(self, at: object) -> object:
            Counted.looks += 1
            return super().__getitem__(at)  # type: ignore[index]

    found = frontier(*many(20, correlated=True))
    assert len(found) > 500
    object.__setattr__(found, "_reach_s", Counted(found._reach_s))
    for way in (0, 1, 10, 100, 400):
        for last, place in ((50, 50 + way), (50 + way, 50)):
            Counted.looks = 0
            low, high = found._bracket(found.durations_s[place], last)
            assert low <= place + 1 <= high
            assert Counted.looks <= 3 + math.log2(way + 1)
            assert high - low <= max(2 * way, 1)


@given(app=applications(n_max=9, pairs_max=2), row_s=st.floats(0, 2))
@settings(max_examples=40)
def test_mixing_along_the_hull_is_at_least_as_accurate_as_mixing_neighbours(
    app: tuple[Subtasks, Profile], row_s: float
) -> None:
    found = frontier(*app)
    hull = found.hull()
    assert set(points(hull)) <= set(points(found))
    ours, neighbours = hull.mix(rows=1, limit_s=row_s), found.mix(rows=1, limit_s=row_s)
    assert ours.accuracy >= neighbours.accuracy - CLOSE
    assert ours.duration_s == pytest.approx(neighbours.duration_s, abs=1e-9)


def test_thirty_subtasks_are_exact_and_agree_with_an_exact_knapsack() -> None:
    """Times in whole milliseconds, so that a table over them gives the truth for every budget."""
    rng = np.random.default_rng(5)
    ms, worth = rng.integers(1, 30, 30), rng.random(30)
    names = [f"s{k}" for k in range(30)]
    work = Subtasks(Subtask(name, optional=True) for name in names)
    lost = worth / worth.sum()
    found = frontier(
        work,
        Profile(
            duration_s=dict(zip(names, (ms / 1e3).tolist(), strict=True)),
            lost=dict(zip(names, lost.tolist(), strict=True)),
        ),
    )
    best = np.zeros(int(ms.sum()) + 1)
    for time, gain in zip(ms, lost, strict=True):
        best[time:] = np.maximum(best[time:], best[:-time] + gain)
    ours = np.array([best_within(found, budget / 1e3) for budget in range(best.size)])
    np.testing.assert_allclose(ours, best, atol=CLOSE)
    assert found.resolution_s == 0.0


def test_where_there_are_too_many_entries_it_says_how_exact_it_is_and_is_that_exact() -> None:
    """Loss nearly in proportion to duration: a great many selections are on the frontier."""
    app = many(20, correlated=True)
    exact, coarse = frontier(*app), frontier(*app, size_max=500)
    assert exact.resolution_s == 0.0
    assert len(coarse) <= 500 < len(exact)
    assert 0 < coarse.resolution_s < 20 * exact.durations_s[-1] / 498
    for s, accuracy in points(exact):
        assert best_within(coarse, s + coarse.resolution_s) >= accuracy - CLOSE
    assert coarse.choice(len(coarse) - 1).off == ()


@pytest.mark.parametrize("size_max", [16, 50, 200])
def test_however_coarse_the_least_and_all_work_are_there(size_max: int) -> None:
    coarse = frontier(*many(20, correlated=True), size_max=size_max)
    assert coarse.durations_s[0] == 0.0
    assert len(coarse.choice(0).off) == 20
    assert coarse.choice(len(coarse) - 1).off == ()


@given(app=applications(n_max=9, pairs_max=1), size_max=st.integers(16, 40))
@settings(max_examples=40)
def test_with_dependencies_the_stated_resolution_holds_too(
    app: tuple[Subtasks, Profile], size_max: int
) -> None:
    coarse = frontier(*app, size_max=size_max)
    for s, accuracy in enumerated(*app):
        assert best_within(coarse, s + coarse.resolution_s) >= accuracy - CLOSE


def test_rounding_makes_no_entries() -> None:
    """30 subtasks of 1 to 3 ms, a tenth per ms lost: at most one entry for each whole ms."""
    names = [f"s{k}" for k in range(30)]
    times = {name: (1 + k % 3) / 1e3 for k, name in enumerate(names)}
    lost = {name: s / 0.06 for name, s in times.items()}
    work = Subtasks(Subtask(name, optional=True) for name in names)
    found = frontier(work, Profile(duration_s=times, lost={k: v / 30 for k, v in lost.items()}))
    assert len(found) == 61


def test_without_optional_subtasks_it_is_all_the_work_or_fewer_rows() -> None:
    found = frontier(Subtasks([Subtask("m")]), Profile(duration_s={"m": 0.1}, lost={}))
    assert len(found) == 1
    mix = found.mix(rows=100, limit_s=5.0)
    assert mix.less == mix.more
    assert (mix.less.off, mix.keep) == ((), 0.5)


def test_work_that_gains_nothing_is_done_where_there_is_time_for_it() -> None:
    work = Subtasks([Subtask("m"), Subtask("idle", optional=True)])
    found = frontier(work, Profile(duration_s={"m": 0.1, "idle": 0.1}, lost={"idle": 0.0}))
    assert found.select(rows=1, limit_s=0.2).off == ()
    assert found.select(rows=1, limit_s=0.19).off == ("idle",)


def test_more_than_62_optional_subtasks_are_refused() -> None:
    with pytest.raises(ValueError, match="optional subtasks must be <= 62, got 63"):
        frontier(*many(63))


@pytest.mark.parametrize(("rows", "limit_s"), [(-1, 1.0), (math.nan, 1.0), (1, -1.0)])
def test_amounts_that_are_none_are_refused(rows: float, limit_s: float) -> None:
    with pytest.raises(ValueError, match="rows and limit_s must be >= 0"):
        frontier(SMALL, SMALL_PROFILE).mix(rows=rows, limit_s=limit_s)
