"""The profile: a baseline run and one without each, what adds up, and what does not."""

from __future__ import annotations

import math

import pytest

from spillway.degrade.accuracy import RelativeError
from spillway.degrade.profile import Profile, Profiler, Run, own_losses
from spillway.degrade.subtask import Subtask, Subtasks

WORK = Subtasks([Subtask("m"), *(Subtask(name, optional=True) for name in "abc")])
TIMES_S = {"m": 0.004, "a": 0.001, "b": 0.002, "c": 0.003}


class Application:
    """Adds up what its subtasks give; `overlap` is counted once if a and b are both on."""

    def __init__(self, gives: dict[str, float], overlap: float = 0.0) -> None:
        self.gives, self.overlap = gives, overlap
        self.runs: list[frozenset[str]] = []

    def __call__(self, off: frozenset[str]) -> Run[dict[str, float]]:
        self.runs.append(off)
        on = [name for name in self.gives if name not in off]
        total = sum(self.gives[name] for name in on)
        if off.isdisjoint("ab"):
            total -= self.overlap
        busy_s = {name: 100 * TIMES_S[name] for name in on}
        return Run(result={"total": total}, rows=100, busy_s=busy_s)


def test_one_run_with_all_then_one_without_each_then_one_without_any() -> None:
    app = Application({"m": 70.0, "a": 10.0, "b": 15.0, "c": 5.0})
    profile = Profiler().profile(WORK, app, RelativeError())
    assert app.runs == [frozenset(off) for off in ("", "a", "b", "c", "abc")]
    assert profile.duration_s == pytest.approx(TIMES_S)
    assert profile.lost == pytest.approx({"a": 0.10, "b": 0.15, "c": 0.05})
    assert profile.together == {}
    assert profile.accuracy_without(["a", "c"]) == pytest.approx(0.85)


def test_pairs_are_measured_where_the_sum_is_badly_wrong_and_only_then() -> None:
    """Either of a and b gives most of what both give, so the loss of both is more than the sum."""
    app = Application({"m": 70.0, "a": 20.0, "b": 25.0, "c": 5.0}, overlap=20.0)
    profile = Profiler().profile(WORK, app, RelativeError())
    assert len(app.runs) == 1 + 3 + 1 + 3
    assert profile.lost == pytest.approx({"a": 0.0, "b": 0.05, "c": 0.05})
    assert profile.together == pytest.approx({("a", "b"): 0.2})
    for off in ("", "a", "b", "c", "ab", "ac", "bc", "abc"):
        exact = app(frozenset(off)).result["total"] / 100
        assert profile.accuracy_without(off) == pytest.approx(exact)


def test_given_pairs_are_measured_and_no_others() -> None:
    app = Application({"m": 70.0, "a": 20.0, "b": 25.0, "c": 5.0}, overlap=20.0)
    profile = Profiler().profile(WORK, app, RelativeError(), pairs=[("a", "c")])
    assert app.runs[4:] == [frozenset("ac")]
    assert profile.together == {}


def test_what_dependents_lose_by_themselves_is_not_counted_twice() -> None:
    chain = Subtasks(
        [
            Subtask("m"),
            Subtask("a", optional=True),
            Subtask("b", optional=True, inputs=("a",)),
            Subtask("c", optional=True, inputs=("b",)),
        ]
    )
    app = Application({"m": 70.0, "a": 10.0, "b": 15.0, "c": 5.0})
    profile = Profiler().profile(chain, app, RelativeError())
    assert app.runs[1] == frozenset("abc")
    assert profile.lost == pytest.approx({"a": 0.10, "b": 0.15, "c": 0.05})
    assert profile.accuracy_without(chain.closed("a")) == pytest.approx(0.7)


def test_noise_never_makes_a_loss_negative() -> None:
    chain = Subtasks([Subtask("a", optional=True), Subtask("b", optional=True, inputs=("a",))])
    assert own_losses(chain, {"a": 0.09, "b": 0.10}) == {"a": 0.0, "b": 0.10}


def test_the_median_of_all_runs_forgives_one_slow_run() -> None:
    steady = Application({"m": 70.0, "a": 10.0, "b": 15.0, "c": 5.0})

    def jittery(off: frozenset[str]) -> Run[dict[str, float]]:
        run = steady(off)
        slow = 50.0 if len(steady.runs) == 1 else 1.0
        busy_s = {name: s * slow for name, s in run.busy_s.items()}
        return Run(result=run.result, rows=run.rows, busy_s=busy_s)

    profile = Profiler().profile(WORK, jittery, RelativeError())
    assert profile.duration_s == pytest.approx(TIMES_S)


def test_without_optional_subtasks_one_run_is_enough() -> None:
    app = Application({"m": 70.0})
    profile = Profiler().profile(Subtasks([Subtask("m")]), app, RelativeError())
    assert app.runs == [frozenset()]
    assert profile.accuracy_without([]) == 1.0


def test_accuracy_stays_between_0_and_1() -> None:
    profile = Profile(
        duration_s={}, lost={"a": 0.8, "b": 0.1, "c": 0.5}, together={("a", "b"): -1.0}
    )
    assert profile.accuracy_without("ac") == 0.0
    assert profile.accuracy_without("ab") == 1.0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"duration_s": {"a": -1.0}}, "duration_s of 'a' must be finite and >= 0, got -1"),
        ({"duration_s": {"a": math.nan}}, "duration_s of 'a'"),
        ({"lost": {"a": 1.5}}, r"lost of 'a' must be in \[0, 1\], got 1.5"),
        ({"lost": {"a": math.nan}}, "lost of 'a'"),
        ({"together": {("a", "b"): 0.1}}, "together must name two that may be lost"),
        ({"lost": {"a": 0.0, "b": 0.0}, "together": {("a", "b"): 2.0}}, "together of 'a', 'b'"),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, dict[str, float]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Profile(**{"duration_s": {}, "lost": {}, **given})


def test_a_profile_must_fit_its_subtasks() -> None:
    with pytest.raises(ValueError, match=r"duration_s must be known of m, a, b, c, got \['c'\]"):
        Profile(duration_s={"m": 0.0, "a": 0.0, "b": 0.0}, lost={}).check(WORK)
    with pytest.raises(ValueError, match="lost must be known"):
        Profile(duration_s=TIMES_S, lost={"a": 0.0, "b": 0.0}).check(WORK)


def test_a_run_must_have_rows_and_a_measure_must_measure() -> None:
    with pytest.raises(ValueError, match="rows must be > 0, got 0"):
        Run(result=None, rows=0, busy_s={})

    class Percent:
        def accuracy(self, ideal: object, seen: object) -> float:
            return 100.0

    app = Application({"m": 70.0, "a": 10.0, "b": 15.0, "c": 5.0})
    with pytest.raises(ValueError, match=r"accuracy must be in \[0, 1\], got 100"):
        Profiler().profile(WORK, app, Percent())


def test_a_subtask_that_raises_ends_the_profiling_with_its_own_error() -> None:
    def broken(off: frozenset[str]) -> Run[dict[str, float]]:
        raise ZeroDivisionError("in subtask a")

    with pytest.raises(ZeroDivisionError, match="in subtask a"):
        Profiler().profile(WORK, broken, RelativeError())
