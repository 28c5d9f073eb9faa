"""Work goes before rows: the budget is filled, the profile followed, and rows go only beyond."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import spillway as sw
from spillway.cost.by_key import CostByKey
from spillway.degrade import remembered
from spillway.degrade.classifiers import Classifier, accuracy, binary, cost, duration
from spillway.degrade.degrade import Degrade
from spillway.degrade.execution_plan import ExecutionPlan
from spillway.degrade.profile import Profile
from spillway.degrade.remembered import OWN, Application, application, built
from spillway.degrade.subtask import Subtask, Subtasks
from spillway.loop import Loop
from spillway.objective import Latency
from spillway.overload.controller import FixedRate, HoldLatency
from spillway.state import files
from spillway.values import Budget, LoopState, Observation
from spillway.work_values import SubtaskRun, WorkDone, WorkState
from tests.degrade.making import applications
from tests.degrade.stream import Step, Stream

DOCS = Path(__file__).parents[2] / "docs" / "computational-shedding.md"
LIMIT_S = 2.0
WORK = Subtasks(
    [
        Subtask("m"),
        Subtask("a", optional=True),
        Subtask("b", optional=True, inputs=("a",)),
        Subtask("c", optional=True),
    ]
)
TIMES = {OWN: 20e-6, "m": 80e-6, "a": 100e-6, "b": 100e-6, "c": 200e-6}  # 0.5 ms a row
PROFILE = Profile(
    duration_s={name: s for name, s in TIMES.items() if name != OWN},
    lost={"a": 0.05, "b": 0.15, "c": 0.20},
)
LOST = {"a": 0.20, "b": 0.15, "c": 0.20}  # a run without a is one without b
HOLD = HoldLatency(objective=Latency(average=f"{LIMIT_S:g} s"))


def degrade(profile: Profile | None = PROFILE, complete: float = 0.02) -> Degrade:
    return Degrade(application=Application(subtasks=WORK, profile=profile, complete=complete))


def stream(
    rows_per_s: float, times: Mapping[str, float] = TIMES, policy: Degrade | None = None
) -> Stream:
    loop = Loop(controller=HOLD, cost=CostByKey(), degrade=policy or degrade())
    return Stream(loop=loop, rows_per_s=rows_per_s, times_s=lambda _: times, lost=LOST)


def burst(rows_per_s: float, policy: Degrade | None = None) -> Stream:
    """Return a stream that was calm for ten batches and is no longer."""
    flow = stream(500, policy=policy)
    flow.run(10)
    flow.rows_per_s = rows_per_s
    return flow


def budget(share: float) -> Budget:
    return Budget(work_s_max=share, work_s_full=1.0, reason="overload")


def taken(step: Step) -> float:
    """Return the share of the kept rows' complete work that was done."""
    work_ns = sum(run.busy_ns for run in step.seen.work.subtasks)  # type: ignore[union-attr]
    return work_ns / 1e9 / (step.seen.rows_kept * sum(TIMES.values()))


# What is decided -----------------------------------------------------------------------------


def test_below_overload_nothing_is_left_out() -> None:
    for step in stream(500).run(20):
        assert step.plan.rates == (1.0,)
        assert step.plan.mix is None or not (step.plan.mix.less.off or step.plan.mix.more.off)
        assert step.seen.done == 1.0


@pytest.mark.parametrize("rows_per_s", [3_000, 5_000, 8_000])
def test_under_load_the_deadline_holds_and_no_row_goes(rows_per_s: float) -> None:
    """All work would take 1.5 to 4 times the time there is; the mandatory part at most 0.8."""
    steps = burst(rows_per_s).run(40)
    assert all(step.seen.rows_kept == step.seen.rows_in for step in steps)
    assert max(step.seen.latency_s_mean or 0.0 for step in steps) <= LIMIT_S
    assert all(step.plan.mix and step.plan.mix.less.off for step in steps[5:])


def test_the_time_that_there_is_is_used() -> None:
    """The aim is 85 % of the limit: less than 5 % of it is given away."""
    steps = stream(5_000).run(60)[30:]
    latencies_s = [step.seen.latency_s_mean or 0.0 for step in steps]
    assert sum(latencies_s) / len(latencies_s) == pytest.approx(0.85 * LIMIT_S, rel=0.05)


def test_beyond_the_mandatory_work_rows_go_and_the_deadline_still_holds() -> None:
    """The mandatory work alone is 2.5 times too much."""
    steps = burst(25_000).run(40)
    assert max(step.seen.latency_s_mean or 0.0 for step in steps) <= LIMIT_S
    for step in steps[5:]:
        assert step.plan.mix is not None
        assert set(step.plan.mix.less.off) == {"a", "b", "c"}
        assert step.seen.rows_kept < step.seen.rows_in


def test_after_the_burst_all_work_is_done_again() -> None:
    flow = burst(6_000)
    flow.run(20)
    flow.rows_per_s = 500
    last = flow.run(10)[-1]
    assert last.seen.done == 1.0
    assert last.plan.mix is not None
    assert last.plan.mix.accuracy == 1.0


@pytest.mark.parametrize("rows_per_s", [500, 2_000, 3_000, 5_000, 8_000, 12_000, 25_000])
def test_the_table_in_the_docs_is_what_comes_out(rows_per_s: int) -> None:
    last = burst(rows_per_s).run(40)[-1]
    rows_only = stream(500)
    rows_only.loop = replace(rows_only.loop, degrade=None)
    rows_only.run(10)
    rows_only.rows_per_s = rows_per_s
    shed = [1.0 - step.seen.share for step in (last, rows_only.run(40)[-1])]
    assert last.plan.mix is not None
    line = (
        f"| {rows_per_s:,} | {rows_per_s * sum(TIMES.values()):.2f} × "
        f"| {100 * last.plan.mix.accuracy:.1f} % | {100 * shed[0]:.0f} % "
        f"| {last.seen.latency_s_mean:.2f} s | {100 * shed[1]:.0f} % |"
    )
    assert line in DOCS.read_text().splitlines()


def test_mandatory_work_takes_the_slack_before_rows_go() -> None:
    """A sixth of a row's work is mandatory: with half as much again as there is, it just fits."""
    tight = budget(1 / 9)
    kept = {slack: _kept(replace(tight, slack=slack)) for slack in (0.0, 0.25, 0.5, 0.6)}
    assert kept == pytest.approx({0.0: 2 / 3, 0.25: 2.5 / 3, 0.5: 1.0, 0.6: 1.0})


def test_optional_work_never_takes_the_slack() -> None:
    roomy = replace(budget(0.6), slack=0.5)
    mix = degrade().cut(WorkState(), roomy)[0]
    assert mix == degrade().cut(WorkState(), budget(0.6))[0]


def test_where_batches_take_longer_than_foreseen_no_row_goes() -> None:
    """One batch in eight takes 1.3 times as long; half of the time is enough for what must be."""
    steps = hiccups(burst(5_000)).run(80)
    assert all(step.seen.rows_kept == step.seen.rows_in for step in steps)


def _kept(budget: Budget) -> float:
    return degrade(complete=0.0).cut(WorkState(), budget)[1].share


def hiccups(flow: Stream) -> Stream:
    """Let every eighth batch take 1.3 times as long."""
    slow = {name: 1.3 * row_s for name, row_s in TIMES.items()}
    flow.times_s = lambda batch_id: TIMES if batch_id % 8 else slow
    return flow


@given(app=applications(5), share=st.floats(0.0, 1.0), complete=st.sampled_from([0.0, 0.01, 0.3]))
def test_every_budget_is_filled_by_work_or_by_rows(
    app: tuple[Subtasks, Profile], share: float, complete: float
) -> None:
    """Kept rows times the work of the mix is the budget, and rows go only with the least work."""
    subtasks, profile = app
    policy = Degrade(application=Application(subtasks=subtasks, profile=profile, complete=complete))
    mix, left = policy.cut(WorkState(), budget(share))
    if mix is None:
        assert sum(profile.duration_s.values()) == 0
        return
    mixed = mix.less.work + mix.fraction * (mix.more.work - mix.less.work)
    work = complete + (1 - complete) * mixed
    assert left.share * work == pytest.approx(share, abs=1e-6)
    if left.share < 1:
        assert mix.less == mix.more or mix.fraction == 0
        assert mix.less.off == policy.cut(WorkState(), budget(0.0))[0].less.off  # type: ignore[union-attr]


def test_until_the_subtasks_are_measured_the_next_shedder_acts_alone() -> None:
    mix, left = degrade(profile=None).cut(WorkState(), budget(0.3))
    assert mix is None
    assert left.share == 0.3


@pytest.mark.parametrize(
    ("share", "words"),
    [
        (1.0, "overload"),
        (0.7, "overload: without c on 73 %, all on 27 % of the rows; accuracy 0.856"),
        (0.01, "overload: without a, b, c; accuracy 0.608"),
    ],
)
def test_the_reason_says_what_is_left_out_on_which_rows(share: float, words: str) -> None:
    assert degrade().cut(WorkState(), budget(share))[1].reason == words


# What is learnt ------------------------------------------------------------------------------


def test_a_subtask_whose_cost_triples_is_followed_within_3_batches() -> None:
    """The plan is rebuilt in the third batch, and from the fourth on the deadline holds again."""
    flow = stream(4_000)
    flow.run(30)
    before = flow.state.work
    flow.times_s = lambda _: {**TIMES, "a": 3 * TIMES["a"]}
    steps = flow.run(20)
    known_s = [built(step.state.work).duration_s["a"] for step in steps]
    assert known_s[:2] == pytest.approx([TIMES["a"]] * 2)
    assert known_s[2:] == pytest.approx([3 * TIMES["a"]] * 18)
    assert flow.state.work.rebuilt == before.rebuilt + 1
    assert max(step.seen.latency_s_mean or 0.0 for step in steps[3:]) <= LIMIT_S


def test_what_is_off_is_followed_too_on_the_rows_that_run_complete() -> None:
    """c is off on all other rows; 2 % of some thousand rows are enough to see it get cheap."""
    flow = stream(7_000)
    off = flow.run(30)[-1].plan.mix
    assert off is not None
    assert "c" in off.less.off
    assert "c" in off.more.off
    flow.times_s = lambda _: {**TIMES, "c": TIMES["c"] / 20}
    last = flow.run(10)[-1].plan.mix
    assert last is not None
    assert "c" not in last.more.off


def test_losses_are_followed_in_turn() -> None:
    """Three measurements of each of the three optional subtasks: nine batches."""
    flow = stream(4_000)
    flow.run(5)
    flow.lost = {**LOST, "c": 0.01}
    flow.run(9)
    assert built(flow.state.work).lost["c"] == pytest.approx(0.01)
    assert built(flow.state.work).lost["a"] == pytest.approx(0.05)


def test_without_a_profile_the_first_warm_batch_makes_one() -> None:
    flow = stream(4_000, policy=degrade(profile=None))
    flow.run(1)
    assert flow.state.work == WorkState()  # the first batch of a start is several times slower
    flow.run(1)
    assert built(flow.state.work).duration_s == pytest.approx(TIMES)
    steps = flow.run(60)[30:]
    assert built(flow.state.work).lost == pytest.approx(PROFILE.lost)
    assert max(step.seen.latency_s_mean or 0.0 for step in steps) <= LIMIT_S
    assert all(step.seen.rows_kept == step.seen.rows_in for step in steps)


def test_the_share_of_the_work_that_was_done_is_that_of_the_true_times() -> None:
    for step in burst(6_000).run(20):
        assert step.state.seen is not None
        assert step.state.seen.done == pytest.approx(taken(step), rel=1e-3)


def test_a_native_pipeline_says_itself_how_much_was_done() -> None:
    seen = Observation(
        batch_id=0,
        rows_in=10,
        rows_kept=10,
        duration_s=1.0,
        work=WorkDone(rows_less=5, rows_more=5, done=0.75),
    )
    assert degrade().done(WorkState(), seen) == 0.75


def test_a_restart_goes_on_with_the_profile_that_it_had() -> None:
    flow, other = stream(4_000), stream(4_000)
    for each in (flow, other):
        each.times_s = lambda _: {**TIMES, "b": 2 * TIMES["b"]}
        each.run(20)
    other.restart()
    assert other.state == flow.state
    assert other.run(5) == flow.run(5)


def test_the_state_is_bounded() -> None:
    flow = stream(4_000)
    flow.run(20)
    size = len(files.encode("loop state", LoopState(work=flow.state.work)))
    flow.run(200)
    grown = len(files.encode("loop state", LoopState(work=flow.state.work)))
    assert size <= grown < 1.2 * size < 4096


def test_another_application_starts_anew() -> None:
    flow = stream(4_000)
    flow.run(20)
    fewer = Subtasks([Subtask("m"), Subtask("a", optional=True)])
    profile = Profile(duration_s={"m": 1e-4, "a": 1e-4}, lost={"a": 0.1})
    policy = Degrade(application=Application(subtasks=fewer, profile=profile))
    assert policy.cut(flow.state.work, budget(0.75))[0] == policy.cut(WorkState(), budget(0.75))[0]


def test_a_policy_that_was_not_told_the_subtasks_reads_them_from_the_state() -> None:
    """A gate in front of `run` is described before the subtasks are."""
    flow = stream(4_000)
    flow.run(20)
    assert Degrade().cut(flow.state.work, budget(0.5)) == degrade().cut(
        flow.state.work, budget(0.5)
    )
    assert application(flow.state.work).subtasks == WORK


def few_rows(rows: int = 29) -> Observation:
    """A batch in which every subtask took 1 ms for each of a few rows."""
    runs = tuple(SubtaskRun(name=name, rows=rows, busy_ns=rows * 1_000_000) for name in TIMES)
    return Observation(
        batch_id=0,
        rows_in=rows,
        rows_kept=rows,
        duration_s=1.0,
        work=WorkDone(rows_more=rows, subtasks=runs),
    )


def test_a_batch_of_too_few_rows_teaches_nothing_by_itself() -> None:
    flow = stream(4_000)
    flow.run(5)
    learnt = degrade().learn(flow.state.work, few_rows())
    assert replace(learnt, pending=()) == replace(flow.state.work, pending=())


def test_batches_of_few_rows_are_taken_together_until_they_are_enough() -> None:
    """7 rows each: the fifth batch brings 35, and three such measurements move the median of 5."""
    flow = stream(4_000)
    flow.run(5)
    state = flow.state.work
    known_s = []
    for _ in range(20):
        state = degrade().learn(state, few_rows(7))
        known_s.append(built(state).duration_s["c"])
    assert known_s[:14] == pytest.approx([TIMES["c"]] * 14)
    assert known_s[14:] == pytest.approx([1e-3] * 6)


def test_a_loss_behind_a_selective_filter_is_followed_on_few_rows_a_batch() -> None:
    """4 rows of the complete share are left in a batch: 8 batches make a measurement."""
    flow = stream(4_000)
    flow.run(5)
    state = flow.state.work
    run = SubtaskRun(name="c", judged=4, lost=4 * 0.6)
    work = WorkDone(rows_more=4, subtasks=(run,))
    lost = []
    for _ in range(24):
        state = degrade().learn(state, replace(few_rows(4), work=work))
        lost.append(built(state).lost["c"])
    assert lost[:23] == pytest.approx([0.2] * 23)
    assert lost[23] == pytest.approx(0.6)


def test_without_a_profile_few_rows_a_batch_make_one_too() -> None:
    state, policy = WorkState(), degrade(profile=None)
    for batch in range(5):
        assert not state.subtasks, batch
        state = policy.learn(state, few_rows(7))
    assert built(state).duration_s == pytest.approx(dict.fromkeys(TIMES, 1e-3))


# Which classifier ----------------------------------------------------------------------------


@pytest.mark.parametrize("make", [duration, accuracy, cost, binary])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 0.8, 1.0])
def test_a_classifier_of_the_thesis_takes_one_selection_within_the_budget(
    make: Callable[[ExecutionPlan], Classifier], share: float
) -> None:
    """And the frontier, which mixes two of them, is at least as accurate in the same time."""
    policy = replace(degrade(complete=0.0), classifier=make)
    state = stream(4_000).run(5)[-1].state.work
    mix, left = policy.cut(state, budget(share))
    best, _ = degrade(complete=0.0).cut(state, budget(share))
    assert mix is not None
    assert best is not None
    assert mix.less == mix.more
    assert mix.less.work <= share + 1e-9 or set(mix.less.off) == set(WORK.optional)
    assert best.accuracy >= mix.accuracy - 1e-9
    assert left.share == pytest.approx(min(share / mix.less.work, 1.0))


def test_the_table_is_built_once_for_as_long_as_the_profile_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flow = stream(4_000)
    flow.run(10)
    calls = []
    monkeypatch.setattr(remembered, "frontier", lambda *_, **__: calls.append(1))
    flow.run(10)
    assert not calls


# What is said --------------------------------------------------------------------------------


def guarded(shed: Any) -> sw.Guard:
    return sw.Guard("tweets", state="nowhere", control=FixedRate(0.5), shed=shed)


def test_shedders_compose_in_order_of_pain() -> None:
    rows, work = sw.Semantic(utility="u"), Degrade()
    for shed in ([work, rows], Degrade(then=rows)):
        loop = guarded(shed).loop
        assert loop.shedder == rows
        assert isinstance(loop.degrade, Degrade)
    assert guarded(work).loop.shedder == sw.Uniform()
    assert guarded([rows]).loop.degrade is None


@pytest.mark.parametrize(
    "shed",
    [
        [sw.Uniform(), Degrade()],
        [Degrade(), Degrade()],
        [sw.Uniform(), sw.Uniform()],
        [Degrade(then=sw.Uniform()), sw.Uniform()],
    ],
    ids=["rows first", "twice", "two of rows", "then and behind"],
)
def test_another_order_is_refused(shed: list[object]) -> None:
    with pytest.raises(ValueError, match="shed must be a shedder of rows, a Degrade, or one"):
        guarded(shed)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"complete": 1.0}, r"complete must be in \[0, 1\), got 1.0"),
        ({"complete": float("nan")}, r"complete must be in \[0, 1\), got nan"),
        ({"profile": Profile(duration_s={"m": 1.0}, lost={})}, "duration_s must be known of"),
        ({"subtasks": Subtasks([Subtask(OWN)])}, "names must not be"),
    ],
)
def test_a_wrong_application_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Application(**{"subtasks": WORK, **arguments})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rows_min": 0}, "rows_min must be >= 1, got 0"),
        ({"drift": 0.0}, "drift must be finite and > 0, got 0.0"),
        ({"then": Degrade()}, "then must be a shedder of rows"),
    ],
)
def test_a_wrong_policy_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(Degrade(), **arguments)
