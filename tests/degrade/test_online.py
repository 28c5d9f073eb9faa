"""Online profiling: a lasting change shows after 3 batches, an outlier never."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from spillway.degrade.frontier import frontier
from spillway.degrade.online import Measured, OnlineProfile, OnlineState
from spillway.degrade.profile import Profile
from spillway.degrade.subtask import Subtask, Subtasks

WORK = Subtasks(
    [
        Subtask("m"),
        Subtask("a", optional=True),
        Subtask("b", optional=True, inputs=("a",)),
        Subtask("c", optional=True),
    ]
)
BUILT = Profile(
    duration_s={"m": 0.004, "a": 0.001, "b": 0.002, "c": 0.003},
    lost={"a": 0.10, "b": 0.15, "c": 0.05},
)
ONLINE = OnlineProfile(subtasks=WORK)


def batch(rows: int = 1000, **times_s: float) -> Measured:
    """A batch in which the named subtasks took other times."""
    times = {**BUILT.duration_s, **times_s}
    return Measured(
        rows=dict.fromkeys(times, rows), busy_s={name: rows * s for name, s in times.items()}
    )


def after(seen: list[Measured], online: OnlineProfile = ONLINE) -> OnlineState:
    state = online.start(BUILT)
    for measured in seen:
        state = online.learn(state, measured)
    return state


def test_before_the_first_batch_the_profile_is_the_given_one() -> None:
    now = ONLINE.profile(ONLINE.start(BUILT))
    assert now.duration_s == BUILT.duration_s
    assert now.lost == pytest.approx(BUILT.lost, abs=1e-15)
    assert not ONLINE.drift(ONLINE.start(BUILT)).rebuild


def test_a_subtask_whose_cost_triples_is_followed_within_3_batches() -> None:
    tripled = batch(c=0.009)
    assert not ONLINE.drift(after([tripled] * 2)).rebuild
    state = after([tripled] * 3)
    drift = ONLINE.drift(state)
    assert drift.rebuild
    assert drift.slowest == "c"
    assert drift.duration == pytest.approx(0.6)  # 6 ms more, of 10 ms
    assert ONLINE.profile(state).duration_s["c"] == pytest.approx(0.009)


@pytest.mark.parametrize("window", [1, 3, 5, 9])
def test_the_number_of_batches_is_half_the_window_and_one(window: int) -> None:
    online = OnlineProfile(subtasks=WORK, window=window)
    needed = window // 2 + 1
    assert not online.drift(after([batch(c=0.009)] * (needed - 1), online)).rebuild
    assert online.drift(after([batch(c=0.009)] * needed, online)).rebuild


def test_with_noisy_times_the_tripled_cost_is_followed_as_fast_and_noise_rebuilds_nothing() -> None:
    """Times vary by 10 % from batch to batch (standard deviation).

    The median of 5 then varies by about 5 %: of the most expensive subtask (4 of 10 ms) by 2 % of
    the whole, so 5 % is 2.5 sigma away and rare; 1,000 quiet batches may not rebuild in more than
    5 % of them.
    """
    rng = np.random.default_rng(11)

    def noisy(**times_s: float) -> Measured:
        times = {**BUILT.duration_s, **times_s}
        return batch(**{name: s * rng.normal(1.0, 0.1) for name, s in times.items()})

    state, rebuilds = ONLINE.start(BUILT), 0
    for _ in range(1000):
        state = ONLINE.learn(state, noisy())
        rebuilds += ONLINE.drift(state).rebuild
    assert rebuilds <= 50
    for _ in range(3):
        state = ONLINE.learn(state, noisy(c=0.009))
    assert ONLINE.drift(state).rebuild
    assert ONLINE.profile(state).duration_s["c"] == pytest.approx(0.009, rel=0.35)


def test_two_outliers_in_a_row_change_nothing() -> None:
    state = after([batch()] * 5 + [batch(c=90.0)] * 2)
    assert ONLINE.profile(state).duration_s == pytest.approx(BUILT.duration_s)


def test_what_is_off_keeps_its_last_numbers() -> None:
    only_m = Measured(rows={"m": 1000}, busy_s={"m": 4.0})
    state = after([batch(c=0.009)] * 3 + [only_m] * 20)
    assert ONLINE.profile(state).duration_s["c"] == pytest.approx(0.009)


@pytest.mark.parametrize(
    "seen",
    [
        batch(rows=99, c=0.009),
        Measured(rows={"c": 1000}, busy_s={"c": -1.0}),
        Measured(rows={"c": 1000}, busy_s={"c": math.nan}),
        Measured(rows={"c": 1000}, busy_s={"c": math.inf}),
        Measured(busy_s={"c": 9.0}),
        Measured(rows={"x": 1000}, busy_s={"x": 1.0}),
        Measured(lost_rows=99, lost={("c",): 0.9}),
        Measured(lost_rows=1000, lost={("c",): math.nan, ("a",): 1.5, ("x",): 0.9}),
        Measured(lost_rows=1000, lost={("m",): 0.9, ("a", "b", "c"): 0.9, ("c", "c"): 0.9}),
    ],
)
def test_what_is_too_little_or_cannot_be_does_not_count(seen: Measured) -> None:
    now = ONLINE.profile(after([seen] * 10))
    assert now.duration_s == BUILT.duration_s
    assert now.lost == pytest.approx(BUILT.lost, abs=1e-15)
    assert now.together == {}


def test_losses_follow_the_share_of_complete_rows() -> None:
    """A run without a is a run without b: what b loses by itself is taken off."""
    seen = Measured(lost_rows=500, lost={("a",): 0.50, ("b",): 0.30})
    state = after([seen] * 3)
    assert ONLINE.profile(state).lost == pytest.approx({"a": 0.20, "b": 0.30, "c": 0.05})
    assert ONLINE.drift(state).accuracy == pytest.approx(0.15)
    assert ONLINE.drift(state).rebuild


def test_a_pair_that_comes_to_interact_shows_after_3_measurements() -> None:
    joint = Measured(lost_rows=500, lost={("b", "c"): 0.50})
    assert ONLINE.profile(after([joint] * 2)).together == {}
    state = after([joint] * 3)
    assert ONLINE.profile(state).together == pytest.approx({("b", "c"): 0.30})
    assert ONLINE.drift(state).rebuild


def test_after_the_plan_was_rebuilt_the_drift_is_gone_until_the_next() -> None:
    state = ONLINE.rebuilt(after([batch(c=0.009)] * 5))
    assert not ONLINE.drift(state).rebuild
    for _ in range(3):
        state = ONLINE.learn(state, batch())
    assert ONLINE.drift(state).rebuild


def test_the_rebuilt_frontier_gives_up_first_what_has_become_expensive() -> None:
    before = frontier(WORK, BUILT)
    state = after([batch(a=0.02)] * 3)
    now = frontier(WORK, ONLINE.profile(state))
    assert before.choice(len(before) - 2).off == ("c",)
    assert ("a", "b") in {now.choice(at).off for at in range(len(now))}
    assert now.durations_s[-1] == pytest.approx(0.029)


def test_memory_is_bounded() -> None:
    state = after([batch(), Measured(lost_rows=500, lost={("b", "c"): 0.50})] * 50)
    assert {len(seen) for seen in (*state.duration_s.values(), *state.lost.values())} == {5}


def test_a_free_application_has_no_drift_and_one_that_becomes_dear_has() -> None:
    free = replace(BUILT, duration_s=dict.fromkeys(BUILT.duration_s, 0.0))
    state = ONLINE.start(free)
    assert not ONLINE.drift(state).rebuild
    for _ in range(3):
        state = ONLINE.learn(state, batch())
    assert ONLINE.drift(state).rebuild


@pytest.mark.parametrize(
    "wrong", [{"window": 0}, {"rows_min": 0}, {"duration_drift": 0.0}, {"accuracy_drift": math.nan}]
)
def test_bounds_that_bound_nothing_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        OnlineProfile(subtasks=WORK, **wrong)  # type: ignore[arg-type]
