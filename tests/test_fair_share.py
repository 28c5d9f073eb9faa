"""A fair share: members tell each other what they need, and come to the same split."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import spillway as sw
from spillway.fair_share import FairShare
from spillway.overload.fair import FairBudget
from spillway.spark.membership import Membership, Reporter
from spillway.state.fair_log import FairLog, Member
from spillway.values import (
    Budget,
    ControllerState,
    CostState,
    Forecast,
    LoopState,
    Observation,
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
    membership = Membership(name=name, log=FairLog(folder=folder), cores=1.0)
    return replace(membership, **changes).share(NOW_S)  # type: ignore[arg-type]


def publish(folder: Path, *members: Member) -> None:
    for each in members:
        FairLog(folder=folder).publish(each)


def guard(name: str, folder: Path) -> sw.Guard:
    return sw.Guard(name, objective=sw.Latency(average="2 s"), state=folder / name)


def test_members_whose_needs_differ_keep_the_same_share(tmp_path: Path) -> None:
    """0.9 of a core for 0.5 + 4 cores of work: a fifth for both."""
    publish(tmp_path, member("light", cost_s=0.005), member("heavy", cost_s=0.04))
    found = [share(tmp_path, name) for name in ("light", "heavy")]
    assert found == pytest.approx([0.2, 0.2])


def test_a_weight_of_zero_gets_what_is_left(tmp_path: Path) -> None:
    publish(tmp_path, member("paid", cost_s=0.005), member("free", weight=0.0))
    assert share(tmp_path, "paid") == 1.0
    assert share(tmp_path, "free") == pytest.approx(0.4)


def test_a_member_that_died_or_is_unreadable_or_unknown_does_not_count(tmp_path: Path) -> None:
    publish(tmp_path, member("alive"), member("dead", at_s=NOW_S - 60.0))
    (tmp_path / "broken.json").write_text("{")
    assert share(tmp_path, "alive") == pytest.approx(0.9)
    assert share(tmp_path, "new") == 1.0  # its own objective decides until it has published


def test_a_late_member_lowers_the_capacity_of_all(tmp_path: Path) -> None:
    publish(tmp_path, member("a"), member("b", gain=0.5))
    assert share(tmp_path, "a") == pytest.approx(0.9 * 0.5 / 2)


def test_without_a_number_the_cores_of_all_applications_count(tmp_path: Path) -> None:
    publish(tmp_path, member("a"), member("b", app="other", cores=2.0))
    assert share(tmp_path, "a", cores=None) == 1.0
    assert share(tmp_path, "a", cores=1.0) == pytest.approx(0.45)


def test_random_keeps_whole_batches_within_the_same_capacity(tmp_path: Path) -> None:
    publish(tmp_path, *(member(f"q{i}") for i in range(4)))
    found = sorted(share(tmp_path, f"q{i}", split="random") for i in range(4))
    assert found == pytest.approx([0.0, 0.0, 0.0, 0.9])


def test_a_second_run_of_a_name_is_refused_while_the_first_is_alive(tmp_path: Path) -> None:
    publish(tmp_path, member("q"))
    with pytest.raises(ValueError, match="name must differ among the members, got 'q' twice"):
        publish(tmp_path, member("q", owner="another"))
    publish(tmp_path, member("q", owner="another", at_s=NOW_S + 60.0))  # after a restart


def test_the_smaller_of_fair_and_own_budget_counts() -> None:
    policy = FairBudget(own=sw.FixedRate(0.5))
    ahead = Forecast(fixed_s=0.1, work_s=2.0)

    def budget(share: float) -> Budget:
        return policy.budget(ControllerState(share=share), None, ahead)

    assert (budget(0.2).share, budget(0.2).reason) == (0.2, "fair share")
    assert (budget(0.8).share, budget(0.8).reason) == (0.5, "fixed rate")
    seen = Observation(batch_id=0, rows_in=1, rows_kept=1, duration_s=1.0)
    assert policy.learn(ControllerState(share=0.3), seen).share == 0.3


def test_a_reporter_tells_rate_cost_and_sic(tmp_path: Path) -> None:
    log = FairLog(folder=tmp_path)
    reporter = Reporter(Membership(name="q", log=log, weight=2.0), app="app", cores=4.0)
    state = LoopState(cost=CostState(row_ns=5e6), controller=ControllerState(gain=0.7))
    for batch in range(2):
        seen = Observation(batch_id=batch, rows_in=100, rows_kept=25, duration_s=1.0)
        reporter.tell(seen, state, run_id="run", started_at_s=NOW_S + 2.0 * batch)
    (told,) = log.fresh(NOW_S + 3.0)
    assert (told.rows_per_s, told.cost_s, told.batch_s) == (50.0, 0.005, 2.0)
    assert (told.weight, told.gain, told.cores, told.owner) == (2.0, 0.7, 4.0, "run")
    assert [kept for _, _, kept in told.sic] == [(25,), (25,)]


def test_guards_become_members_and_sic_is_read_from_the_records(tmp_path: Path) -> None:
    guards = [guard("a", tmp_path), guard("b", tmp_path)]
    fair = FairShare(guards, state=tmp_path / "fair", weights={"b": 2})
    assert fair.sic() == {}
    assert fair.spread() is None
    assert all(isinstance(each.loop.controller, FairBudget) for each in guards)
    with pytest.raises(ValueError, match="guard 'a' must be fresh"):
        FairShare(guards[:1], state=tmp_path / "other")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"names": ()}, "guards must be at least one"),
        ({"names": ("a", "a")}, "guards must have different names"),
        ({"weights": {"a": -1.0}}, "weights must be finite and >= 0, got -1.0 for 'a'"),
        ({"weights": {"c": 1.0}}, "weights must be of the guards"),
        ({"cores": 0}, "cores must be finite and > 0"),
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
        FairShare([guard(name, tmp_path) for name in names], **given)  # type: ignore[attr-defined]
