"""A fair share: members tell each other what they need, and come to the same split."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

import spillway as sw
from spillway.estimate.sic import SicState, SicWindow
from spillway.overload.fair import Capacity, FairBudget
from spillway.spark.membership import Membership, Reporter
from spillway.state.fair_log import FairLog, Member
from spillway.values import (
    Budget,
    ControllerState,
    CostState,
    Forecast,
    LoopState,
    Observation,
    TaskReport,
)

NOW_S = 1_000.0


def member(name: str, **changes: object) -> Member:
    """A query that needs a whole core."""
    usual = Member(
        name=name,
        owner=f"run of {name}",
        app="app",
        cores=1.0,
        at_s=NOW_S,
        rows_per_s=100.0,
        cost_s=0.01,
    )
    return replace(usual, **changes)  # type: ignore[arg-type]


def share(folder: Path, name: str, **changes: object) -> float:
    membership = Membership(name=name, log=FairLog(folder=folder), cores=0.7)
    return replace(membership, **changes).share(NOW_S)  # type: ignore[arg-type]


def publish(folder: Path, *members: Member) -> None:
    for each in members:
        FairLog(folder=folder).publish(each)


def guard(name: str, folder: Path) -> sw.Guard:
    return sw.Guard(name, objective=sw.Latency(average="2 s"), state=folder / name)


def test_members_whose_needs_differ_keep_the_same_share(tmp_path: Path) -> None:
    """0.7 of a core for 0.5 + 3 cores of work: a fifth for both."""
    publish(tmp_path, member("light", cost_s=0.005), member("heavy", cost_s=0.03))
    found = [share(tmp_path, name) for name in ("light", "heavy")]
    assert found == pytest.approx([0.2, 0.2])


def test_who_kept_less_so_far_keeps_more_now(tmp_path: Path) -> None:
    """Both need a core, 0.7 are there: with 0.5 and 0.2 of the rows to come all are even again.

    Who is far ahead keeps half of what it would have without a past, and not less.
    """

    def kept(rows: int) -> tuple[tuple[int, tuple[int, ...], tuple[int, ...]], ...]:
        window = SicWindow(window_s=90.0, slots=120)
        state = window.learn(SicState(), at_s=NOW_S, rows_in=[100], rows_kept=[rows])
        return state.slots

    publish(tmp_path, member("behind", sic=kept(30)), member("ahead", sic=kept(60)))
    found = [share(tmp_path, name) for name in ("behind", "ahead")]
    assert found == pytest.approx([0.5, 0.2], abs=0.005)  # a slot is not quite now
    publish(tmp_path, member("ahead", sic=kept(100)))
    assert share(tmp_path, "ahead") == pytest.approx(0.175)


def test_what_the_tasks_of_a_member_cannot_do_in_time_is_left_to_the_others(
    tmp_path: Path,
) -> None:
    """2.8 cores, but the rows of `narrow` all go through one task: of 2 s of work it can do 1."""
    publish(tmp_path, member("narrow", cost_s=0.02, spread=1.0), member("wide", cost_s=0.02))
    assert share(tmp_path, "narrow", cores=2.8) == pytest.approx(0.5)
    assert share(tmp_path, "wide", cores=2.8) == pytest.approx((2.8 - 1.0) / 2.0)


def test_a_weight_of_zero_gets_what_is_left(tmp_path: Path) -> None:
    publish(tmp_path, member("paid", cost_s=0.005), member("free", weight=0.0))
    assert share(tmp_path, "paid") == 1.0
    assert share(tmp_path, "free") == pytest.approx(0.2)


def test_a_member_that_died_or_is_unreadable_or_unknown_does_not_count(tmp_path: Path) -> None:
    publish(tmp_path, member("alive"), member("dead", at_s=NOW_S - 60.0))
    (tmp_path / "broken.json").write_text("{")
    assert share(tmp_path, "alive") == pytest.approx(0.7)
    assert share(tmp_path, "new") == 1.0  # its own objective decides until it has published


def test_the_member_of_the_worst_latency_says_how_much_all_may_do(tmp_path: Path) -> None:
    publish(tmp_path, member("a"), member("b", gain=0.9), member("c", gain=0.6))
    assert [share(tmp_path, name) for name in "abc"] == pytest.approx([0.14, 0.14, 0.14])


def test_without_a_number_the_cores_of_all_applications_count(tmp_path: Path) -> None:
    publish(tmp_path, member("a"), member("b", app="other", cores=2.0))
    assert share(tmp_path, "a", cores=None) == 1.0
    assert share(tmp_path, "a", cores=0.7) == pytest.approx(0.35)


def test_random_keeps_whole_batches_within_the_same_capacity(tmp_path: Path) -> None:
    publish(tmp_path, *(member(f"q{i}") for i in range(4)))
    found = sorted(share(tmp_path, f"q{i}", split="random") for i in range(4))
    assert found == pytest.approx([0.0, 0.0, 0.0, 0.7])


def test_a_batch_that_piled_up_is_announced_and_has_to_be_done_in_the_time_that_is_due(
    tmp_path: Path,
) -> None:
    """600 rows came in 12 s; with 10 s on average a batch may take 0.85 · 10 / 1.5 s."""
    publish(tmp_path, member("q", owner="query", began_at_s=NOW_S - 12.0, batch_id=3), member("r"))
    membership = Membership(
        name="q", log=FairLog(folder=tmp_path), cores=0.7, objective=sw.Latency(average="10 s")
    )
    found = membership.share(NOW_S, rows=600.0, query_id="query", after=3)
    told = FairLog(folder=tmp_path).read("q")
    assert told is not None
    assert (told.batch_s, told.rows) == (pytest.approx(5.667, abs=0.001), pytest.approx(600.0))
    assert found == pytest.approx(0.7 / (told.demand + 1.0))
    assert share(tmp_path, "r") == pytest.approx(found)  # the others know it at once
    stranger = membership.share(NOW_S, rows=6.0, query_id="another query", after=-1)
    assert FairLog(folder=tmp_path).read("q") == told  # who has the same name announces nothing
    assert stranger == pytest.approx(found)


def test_a_second_query_of_a_name_is_refused_while_the_first_is_alive(tmp_path: Path) -> None:
    publish(tmp_path, member("q"))
    with pytest.raises(ValueError, match="name must differ among the members, got 'q' twice"):
        publish(tmp_path, member("q", owner="another"))
    publish(tmp_path, member("q", at_s=NOW_S + 1.0))  # the same query, after a restart
    publish(tmp_path, member("q", owner="another", at_s=NOW_S + 60.0))  # the first has ended


def test_the_fair_budget_counts_and_a_fixed_rate_only_lowers_it() -> None:
    ahead = Forecast(fixed_s=0.1, work_s=2.0)

    def budget(own: sw.FixedRate | sw.HoldLatency, share: float) -> Budget:
        return FairBudget(own=own).budget(ControllerState(share=share), None, ahead)

    fixed, holds = sw.FixedRate(0.5), sw.HoldLatency(objective=sw.Latency(average="1 s"))
    assert (budget(fixed, 0.2).share, budget(fixed, 0.2).reason) == (0.2, "fair share")
    assert (budget(fixed, 0.8).share, budget(fixed, 0.8).reason) == (0.5, "fixed rate")
    assert budget(holds, 0.8).share == 0.8  # what it foresees alone would be less
    assert budget(holds, 1.0).share < 0.5  # nothing is short but its own time
    seen = Observation(batch_id=0, rows_in=1, rows_kept=1, duration_s=1.0)
    assert FairBudget(own=fixed).learn(ControllerState(share=0.3), seen).share == 0.3


def test_the_capacity_follows_the_latency_and_stays_within_bounds() -> None:
    capacity = Capacity()
    assert capacity.corrected(0.6, latency_s=8.5, limit_s=10.0, most=9.0) == pytest.approx(0.6)
    late = capacity.corrected(0.6, latency_s=9.9, limit_s=10.0, most=9.0)
    broken = capacity.corrected(0.6, latency_s=10.1, limit_s=10.0, most=9.0)
    assert broken < late < 0.6
    assert capacity.corrected(0.6, latency_s=1e9, limit_s=10.0, most=9.0) == pytest.approx(0.36)
    assert capacity.corrected(0.6, latency_s=2.0, limit_s=10.0, most=9.0) > 0.7
    assert capacity.corrected(0.6, latency_s=2.0, limit_s=10.0, most=0.65) == 0.65
    assert capacity.corrected(0.05, latency_s=1e9, limit_s=1.0, most=9.0) == 0.05
    for latency_s in (0.0, -1.0, float("nan"), float("inf")):
        assert capacity.corrected(0.6, latency_s=latency_s, limit_s=1.0, most=9.0) == 0.6


def test_what_rows_waited_for_a_batch_that_is_over_is_no_reason_to_give_up_more() -> None:
    capacity, objective = Capacity(), sw.Latency(average="10 s")

    def told_s(duration_s: float, latency_s: float | None) -> float:
        seen = Observation(
            batch_id=1, rows_in=9, rows_kept=9, duration_s=duration_s, latency_s_mean=latency_s
        )
        return capacity.latency_s(objective, seen)

    due_s = capacity.due_s(objective)
    assert told_s(4.0, 6.0) == 6.0  # as measured
    assert told_s(4.0, 40.0) == pytest.approx(4.0 + due_s / 2)  # the batch before took a minute
    assert told_s(20.0, 31.0) == 30.0  # and now this one does
    assert told_s(8.0, None) == 12.0  # nobody knows when rows came


def reporter(folder: Path, **changes: object) -> Reporter:
    membership = Membership(name="q", log=FairLog(folder=folder), weight=2.0)
    changed = replace(membership, **changes)  # type: ignore[arg-type]
    return Reporter(changed, app="app", cores=4.0)


def batch(number: int, **changes: object) -> Observation:
    usual = Observation(batch_id=number, rows_in=100, rows_kept=25, duration_s=1.0)
    return replace(usual, **changes)  # type: ignore[arg-type]


def test_a_reporter_tells_rate_cost_spread_and_sic(tmp_path: Path) -> None:
    telling = reporter(tmp_path)
    state = LoopState(query_id="query", cost=CostState(row_ns=5e6))
    tasks = tuple(TaskReport(instance=i, rows_in=10, busy_ns=10**8 * (i + 1)) for i in range(2))
    for number in range(2):
        seen = batch(number, tasks=tasks)
        telling.tell(seen, state, run_id="run", started_at_s=NOW_S + 2.0 * number)
    (told,) = FairLog(folder=tmp_path).fresh(NOW_S + 3.0)
    assert (told.rows_per_s, told.cost_s, told.batch_s) == (50.0, 0.005, 2.0)
    assert (told.weight, told.gain, told.cores, told.owner) == (2.0, None, 4.0, "query")
    assert (told.batch_id, told.began_at_s) == (1, NOW_S + 2.0)
    assert told.spread == pytest.approx(2 / 3)
    assert [kept for _, _, kept in told.sic] == [(25,), (25,)]


def test_the_first_batch_is_told_too_with_what_its_operator_took(tmp_path: Path) -> None:
    """The cost model learns nothing from it, but the others must know."""
    tasks = (TaskReport(instance=0, rows_in=25, busy_ns=5 * 10**8),)
    reporter(tmp_path).tell(batch(0, tasks=tasks), LoopState(), run_id="run", started_at_s=NOW_S)
    (told,) = FairLog(folder=tmp_path).fresh(NOW_S + 1.0)
    assert (told.cost_s, told.rows_per_s) == (pytest.approx(0.02), 100.0)


def test_a_start_goes_on_with_what_was_told_before_it(tmp_path: Path) -> None:
    objective, state = sw.Latency(average="10 s"), LoopState(query_id="query")
    publish(tmp_path, member("other", gain=0.4, at_s=NOW_S + 21.0))
    first = reporter(tmp_path, objective=objective)
    for number in range(4):
        seen = batch(number, latency_s_mean=20.0, duration_s=20.0)
        first.tell(seen, state, run_id="one", started_at_s=NOW_S + 2.0 * number)
    before = FairLog(folder=tmp_path).read("q")
    assert before is not None
    assert before.gain is not None
    assert before.gain < 0.4  # of the others' gain, which it began with
    again = reporter(tmp_path, objective=objective)
    again.tell(batch(4, latency_s_mean=99.0), state, run_id="two", started_at_s=NOW_S + 9.0)
    after = FairLog(folder=tmp_path).read("q")
    assert after is not None
    assert after.gain == before.gain  # a cold batch says nothing
    assert len(after.sic) == 5


def test_guards_become_members_and_sic_is_read_from_the_records(tmp_path: Path) -> None:
    guards = [guard("a", tmp_path), guard("b", tmp_path)]
    fair = sw.FairShare(guards, state=tmp_path / "fair", weights={"b": 2})
    assert fair.sic() == {}
    assert fair.spread() is None
    assert all(isinstance(each.loop.controller, FairBudget) for each in guards)
    with pytest.raises(ValueError, match="guard 'a' must be fresh"):
        sw.FairShare(guards[:1], state=tmp_path / "other")


def test_the_sic_of_a_query_is_the_mean_of_its_sources_that_have_rows(tmp_path: Path) -> None:
    """Half of 300 rows and all of 100, a silent third; another query; one that idles."""
    now = time.time()

    def told(name: str, owner: str, *counts: int) -> Member:
        rows_in, rows_kept = counts[:1], counts[1:]
        state = SicWindow().learn(SicState(), at_s=now, rows_in=rows_in, rows_kept=rows_kept)
        return member(name, owner=owner, at_s=now, window_s=10.0, sic=state.slots)

    fair = sw.FairShare([guard("a", tmp_path)], state=tmp_path / "fair")
    publish(
        tmp_path / "fair",
        told("left", "pairs", 300, 150),
        told("right", "pairs", 100, 100),
        told("silent", "pairs", 0, 0),
        told("other", "alone", 100, 60),
        told("idle", "idles", 0, 0),
    )
    found = fair.sic_of_queries()
    assert found == {
        ("left", "right", "silent"): pytest.approx(150 / (2 * 300) + 100 / (2 * 100)),
        ("other",): pytest.approx(0.6),
    }
    spread = fair.spread()
    assert spread is not None
    assert spread.deviation == pytest.approx(0.075)  # of two queries, not of five guards


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"names": ()}, "guards must be at least one"),
        ({"names": ("a", "a")}, "guards must have different names"),
        ({"weights": {"a": -1.0}}, "weights must be finite and >= 0, got -1.0 for 'a'"),
        ({"weights": {"c": 1.0}}, "weights must be of the guards"),
        ({"cores": 0}, "cores must be finite and > 0"),
        ({"window": "0 s"}, "window_s must be finite and > 0"),
        ({"window": "soon"}, "a duration must be a number with a unit"),
        ({"split": "equal"}, "split must be 'fair' or 'random'"),
        ({"state": "s3://bucket/fair"}, "state must be a path or a file: URL"),
    ],
)
def test_what_is_no_fair_share_is_refused_by_name(
    tmp_path: Path, arguments: dict[str, object], told: str
) -> None:
    names = arguments.pop("names", ("a", "b"))
    given = {"state": tmp_path / "fair", **arguments}
    with pytest.raises(ValueError, match=told):
        sw.FairShare([guard(name, tmp_path) for name in names], **given)  # type: ignore
