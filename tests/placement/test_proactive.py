"""The scheduler's states, its account of work, and what it does beyond the paper."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from spillway.cost.sketch import SketchShape
from spillway.kernels.posg import rows_of
from spillway.placement.full_knowledge import FullKnowledge
from spillway.placement.least_loaded import LeastLoaded
from spillway.placement.proactive import (
    InstanceState,
    Proactive,
    ProactiveState,
    Published,
    Reply,
    Request,
    SchedulerState,
)
from spillway.placement.round_robin import RoundRobin

SHAPE = SketchShape(rows=4, columns=54, seed=1)
STATES = SchedulerState


def config(**given: Any) -> Proactive:
    window = 64 if given.get("mode") == "default" else 2
    return Proactive(**{"instances": 3, "shape": SHAPE, "mode": "paper", "window": window} | given)


def learnt(
    placement: Proactive, instance: int, costs_ns: dict[int, int], rows: int = 1
) -> Published:
    """What an instance publishes after it has executed these keys again and again."""
    state = placement.start_instance(instance)
    for _ in range(200):
        for key, cost_ns in costs_ns.items():
            news = state.executed(key, cost_ns)
            if news is not None and rows_of(news.model) >= rows:
                return news
    raise AssertionError("nothing was published")


def running(placement: Proactive, costs_ns: dict[int, int]) -> ProactiveState:
    """A scheduler in RUN whose Ĉ are all 0."""
    state = placement.start()
    for instance in range(placement.instances):
        state.published(learnt(placement, instance, costs_ns))
    for _ in range(placement.instances):
        _, request = state.place(1, 0)
        assert request is not None
        state.replied(Reply(instance=request.instance, epoch=request.epoch, delta_ns=0.0))
    assert state.state == STATES.RUN
    state.arrays.totals_ns[:] = 0
    return state


def test_rows_go_round_until_every_instance_has_published() -> None:
    placement = config()
    state = placement.start()
    assert [state.place(7, 0) for _ in range(4)] == [(0, None), (1, None), (2, None), (0, None)]
    for instance in (0, 1):
        state.published(learnt(placement, instance, {1: 10}))
        assert state.state == STATES.ROUND_ROBIN
    state.published(learnt(placement, 1, {1: 10}))  # the same one again
    assert state.state == STATES.ROUND_ROBIN
    state.published(learnt(placement, 2, {1: 10}))
    assert state.state == STATES.SEND_ALL


def test_the_next_k_rows_carry_the_requests_and_the_estimates_so_far() -> None:
    placement = config()
    state = placement.start()
    for instance in range(3):
        state.published(learnt(placement, instance, {1: 10}))
    placed = [state.place(1, 0) for _ in range(3)]
    expected = [Request(instance=i, epoch=1, estimate_ns=10.0) for i in range(3)]
    assert placed == list(enumerate(expected))
    assert state.state == STATES.WAIT_ALL


def test_deltas_count_when_all_of_the_epoch_are_in() -> None:
    state = running(config(), {1: 10, 2: 30})
    state.published(learnt(config(), 0, {1: 10}))
    for _ in range(3):
        state.place(1, 0)
    before = state.totals_ns
    assert state.replied(Reply(instance=2, epoch=2, delta_ns=5.0))
    assert state.replied(Reply(instance=0, epoch=2, delta_ns=-3.0))
    assert not state.replied(Reply(instance=0, epoch=2, delta_ns=99.0))  # a second one
    assert np.array_equal(state.totals_ns, before)
    assert state.state == STATES.WAIT_ALL
    assert state.replied(Reply(instance=1, epoch=2, delta_ns=0.0))
    assert np.array_equal(state.totals_ns - before, [-3.0, 0.0, 5.0])
    assert state.state == STATES.RUN


def test_a_reply_of_an_old_epoch_is_ignored() -> None:
    state = running(config(), {1: 10})
    state.published(learnt(config(), 0, {1: 10}))
    before = state.totals_ns
    assert not state.replied(Reply(instance=0, epoch=1, delta_ns=1e9))
    assert np.array_equal(state.totals_ns, before)


@pytest.mark.parametrize("rows", [0, 1, 3, 5])
def test_a_new_sketch_starts_over_in_any_state_but_round_robin(rows: int) -> None:
    state = running(config(), {1: 10})
    state.published(learnt(config(), 0, {1: 10}))
    for _ in range(rows):
        state.place(1, 0)
    assert state.epoch == 2
    state.published(learnt(config(), 1, {1: 10}))
    assert (state.state, state.epoch) == (STATES.SEND_ALL, 3)
    assert [state.place(1, 0)[0] for _ in range(3)] == [0, 1, 2]


def test_in_run_a_row_goes_to_the_least_total_and_adds_its_estimate_there() -> None:
    state = running(config(), {1: 10, 2: 30})
    placed = [state.place(key, 0)[0] for key in (2, 1, 1, 1, 1, 2)]
    assert placed == [0, 1, 2, 1, 2, 1]
    assert state.totals_ns.tolist() == [30.0, 50.0, 20.0]


def test_each_instance_is_charged_by_its_own_sketch() -> None:
    placement = config(instances=2)
    state = placement.start()
    state.published(learnt(placement, 0, {1: 10}))
    state.published(learnt(placement, 1, {1: 40}))
    assert (state.estimate_ns(1, 0), state.estimate_ns(1, 1)) == (10.0, 40.0)
    state.place(1, 0)
    state.place(1, 0)
    assert state.totals_ns.tolist() == [10.0, 40.0]


def test_an_unseen_key_costs_nothing_in_the_paper_and_the_mean_by_default() -> None:
    for mode, cost_ns in (("paper", 0.0), ("default", 20.0)):
        placement = config(mode=mode, sync_rows=0)
        state = placement.start()
        state.published(learnt(placement, 0, {1: 10, 2: 30}))
        if mode == "paper":
            state.published(learnt(placement, 1, {1: 10, 2: 30}))
            state.published(learnt(placement, 2, {1: 10, 2: 30}))
        assert state.estimate_ns(777, 0) == cost_ns


@pytest.mark.parametrize("mode", ["clamped", "default"])
def test_an_idle_instance_owes_nothing_for_what_it_once_did(mode: str) -> None:
    state = running(config(mode=mode, sync_rows=0), {1: 10})
    state.arrays.totals_ns[:] = [900.0, 0.0, 100.0]
    # At 1,000 all are idle, whatever they did before: the first is as good as any.
    assert state.place(1, 1_000)[0] == 0
    assert state.totals_ns[0] == 1_010.0


def test_by_the_papers_rules_an_idle_instance_is_still_held_to_its_past() -> None:
    state = running(config(), {1: 10})
    state.arrays.totals_ns[:] = [900.0, 0.0, 100.0]
    assert [state.place(1, 1_000)[0] for _ in range(3)] == [1, 1, 1]


def test_by_default_the_first_sketch_ends_round_robin_and_stands_in_for_the_others() -> None:
    placement = config(mode="default", sync_rows=0)
    state = placement.start()
    state.published(learnt(placement, 1, {1: 10, 2: 30}))
    assert state.state == STATES.SEND_ALL
    assert [state.estimate_ns(2, instance) for instance in range(3)] == [30.0] * 3
    state.published(learnt(placement, 0, {1: 10, 2: 50}))
    assert [state.estimate_ns(2, instance) for instance in range(3)] == [50.0, 30.0, 30.0]


def test_by_default_a_row_goes_where_it_is_done_first_if_speeds_differ() -> None:
    placement = config(instances=2, mode="default", sync_rows=0)
    state = placement.start()
    state.published(learnt(placement, 0, {1: 100}, rows=64))
    state.published(learnt(placement, 1, {1: 10}, rows=64))
    # The fast instance has done nine rows before the slow one has its first; the tenth is a tie,
    # which goes to the first instance.
    assert [state.place(1, 0)[0] for _ in range(12)] == [1] * 9 + [0, 1, 1]
    assert state.totals_ns.tolist() == [100.0, 110.0]


def test_a_difference_between_few_rows_is_no_difference_in_speed() -> None:
    placement = config(instances=2, mode="default", sync_rows=0)
    state = placement.start()
    state.published(learnt(placement, 0, {1: 100}))
    state.published(learnt(placement, 1, {1: 10}))
    assert [state.place(1, 0)[0] for _ in range(2)] == [0, 1]


def test_by_default_requests_go_along_every_so_many_rows() -> None:
    state = running(config(mode="default", sync_rows=5), {1: 10})
    epoch = state.epoch
    placed = [state.place(1, 0) for _ in range(20)]
    first = next(row for row, (_, request) in enumerate(placed) if request is not None)
    asked = [request.instance for _, request in placed if request is not None]
    assert first <= 5
    assert sorted(asked) == [0, 1, 2]  # no answer yet, so nobody is asked twice
    assert state.epoch == epoch + 1


def test_by_default_each_delta_counts_at_once() -> None:
    state = running(config(mode="default", sync_rows=0), {1: 10})
    state.published(learnt(config(mode="default"), 0, {1: 10}))
    instance, request = state.place(1, 0)
    assert request is not None
    before = state.totals_ns
    state.replied(Reply(instance=instance, epoch=request.epoch, delta_ns=7.0))
    assert state.totals_ns[instance] - before[instance] == 7.0


def test_the_default_publishes_in_an_eighth_of_the_window_and_the_paper_in_two_windows() -> None:
    def first(mode: str) -> int:
        state = config(mode=mode, window=64, tolerance=0.5).start_instance(0)
        costs = ((row, state.executed(row % 7, 5)) for row in range(1, 1000))
        return next(row for row, news in costs if news is not None)

    assert first("default") <= 64 // 8
    assert first("paper") == 2 * 64


def test_what_was_learnt_fades_by_default() -> None:
    """Twenty windows at 100 ns, then four at 120: the last publication is within 2 % of 120."""
    state: InstanceState = config(mode="default", window=64).start_instance(0)
    costs_ns = [100] * (64 * 20) + [120] * (64 * 4)
    told = [news for cost_ns in costs_ns if (news := state.executed(3, cost_ns)) is not None]
    scheduler = config(mode="default").start()
    scheduler.published(told[-1])
    assert scheduler.estimate_ns(3, 0) == pytest.approx(120, rel=0.02)


@pytest.mark.parametrize("mode", ["paper", "clamped", "default"])
def test_an_array_of_rows_goes_where_its_rows_would_go_one_by_one(mode: str) -> None:
    def fresh() -> ProactiveState:
        state = running(config(mode=mode, sync_rows=6), {1: 10, 2: 30, 3: 70})
        state.published(learnt(config(mode=mode), 1, {1: 12, 2: 31}))
        return state

    keys = np.random.default_rng(5).integers(0, 5, 50)
    now_ns = np.arange(50) * 9
    one_by_one, together = fresh(), fresh()
    single = [one_by_one.place(int(key), int(now)) for key, now in zip(keys, now_ns, strict=True)]
    placed = together.place_all(keys, now_ns)
    assert placed.instances.tolist() == [instance for instance, _ in single]
    requests = {row: request for row, (_, request) in enumerate(single) if request is not None}
    assert placed.requests == requests
    assert requests


def test_a_restored_scheduler_goes_on_as_the_other_would_have() -> None:
    placement = config(mode="default", sync_rows=4)
    state, twin = running(placement, {1: 10, 2: 30}), placement.start()
    twin.restore(state.snapshot())
    rows = [(1, 5), (2, 9), (2, 9), (1, 11), (7, 12), (1, 13)]
    assert [twin.place(*row) for row in rows] == [state.place(*row) for row in rows]
    with pytest.raises(ValueError, match="memory must have 'machine'"):
        twin.restore({})


def test_rivals_have_the_same_interface() -> None:
    keys, now_ns = np.array([0, 1, 0, 1]), np.arange(4)
    assert RoundRobin(instances=3).start().place(9, 0) == (0, None)
    exact = FullKnowledge(instances=2).start(np.array([[10, 10], [1, 1]]))
    assert exact.place_all(keys, now_ns).tolist() == [0, 1, 1, 0]
    least = LeastLoaded(instances=3).start()
    least.reported(np.array([2, 0, 1]))
    assert least.place_all(keys, now_ns).tolist() == [1, 1, 1, 1]
    least.reported(np.array([1, 1, 1]))
    assert sorted(least.place_all(keys[:3], now_ns[:3]).tolist()) == [0, 1, 2]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"instances": 0}, "instances must be >= 1, got 0"),
        ({"mode": "fast"}, "mode must be one of .*, got 'fast'"),
        ({"window": 0}, "window must be >= 1, got 0"),
        ({"tolerance": float("nan")}, "tolerance must be >= 0, got nan"),
        ({"sync_rows": -1}, "sync_rows must be >= 0, got -1"),
        ({"heavy_buckets": -1}, "heavy_buckets must be >= 0, got -1"),
    ],
)
def test_nonsense_is_refused_by_name(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        config(**given)


def test_rivals_refuse_nonsense_by_name() -> None:
    with pytest.raises(ValueError, match="instances must be >= 1, got 0"):
        RoundRobin(instances=0)
    with pytest.raises(ValueError, match="stale_ns must be >= 0, got -1"):
        LeastLoaded(instances=1, stale_ns=-1)
    with pytest.raises(ValueError, match="mode must be 'paper' or 'default'"):
        FullKnowledge(instances=1, mode="x")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"costs_ns must have the shape \(keys, 2\)"):
        FullKnowledge(instances=2).start(np.zeros((3, 1), dtype=np.int64))
    with pytest.raises(ValueError, match="backlogs must be 2 counts"):
        LeastLoaded(instances=2).start().reported(np.array([1]))
    with pytest.raises(ValueError, match=r"instance must be in 0\.\.2, got 3"):
        config().start_instance(3)
