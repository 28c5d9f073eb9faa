"""Costs by key: learnt from reports, following changes, small; without reports the average."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.contracts import KeyedCostModel
from spillway.cost.average import AverageCost
from spillway.cost.by_key import CostByKey, _read_sketch, read_costs
from spillway.cost.fade import fade
from spillway.cost.heavy import HeavySketch
from spillway.cost.sketch import CostSketch
from spillway.cost.table import CostLookup
from spillway.sim.workloads import Recipe
from spillway.state import files
from spillway.values import CostState, Observation, TaskReport, total_report

RECIPE = Recipe(rows=4_000, keys=500)
COSTS = RECIPE.cost_by_key(1)


def report(
    order: int = 1, *, costs: np.ndarray = COSTS, instance: int = 0, rows: int | None = None
) -> TaskReport:
    keys = RECIPE.draw_keys(order)[:rows]
    sketch = HeavySketch()
    sketch.update(keys, costs[keys])
    busy = int(costs[keys].sum())
    return TaskReport(instance=instance, rows_in=keys.size, busy_ns=busy, costs=sketch.to_bytes())


def seen(*tasks: TaskReport, **changes: Any) -> Observation:
    rows = sum(task.rows_in for task in tasks)
    plain = Observation(batch_id=1, rows_in=rows, rows_kept=rows, duration_s=10.0, tasks=tasks)
    return replace(plain, **changes)


def learnt(*batches: Observation, model: CostByKey | None = None) -> CostState:
    state = CostState()
    for batch in batches:
        state = (model or CostByKey()).learn(state, batch)
    return state


def costs_of(state: CostState, keys: np.ndarray) -> np.ndarray:
    assert state.table is not None
    return CostLookup.of(state.table).estimate_ns(keys)


HEAVY = np.arange(50)


def test_the_model_offers_what_the_loop_asks_for() -> None:
    assert isinstance(CostByKey(), KeyedCostModel)
    assert not isinstance(AverageCost(), KeyedCostModel)


samples = st.lists(st.tuples(st.integers(0, 10**6), st.floats(0, 100)), max_size=50)


@settings(max_examples=50)
@given(samples, st.floats(0, 1e6))
def test_without_reports_it_is_the_average(pairs: list[tuple[int, float]], rows: float) -> None:
    by_key, average = CostState(), CostState()
    for kept, duration_s in pairs:
        batch = Observation(batch_id=0, rows_in=kept, rows_kept=kept, duration_s=duration_s)
        by_key = CostByKey().learn(by_key, batch)
        average = AverageCost().learn(average, batch)
    assert by_key == average
    assert CostByKey().forecast(by_key, rows) == AverageCost().forecast(average, rows)
    assert CostByKey().table(by_key) is None


def test_heavy_keys_get_their_exact_costs_from_the_reports_of_all_tasks() -> None:
    state = learnt(seen(report(1), report(2, instance=1)))
    assert np.abs(costs_of(state, HEAVY) - COSTS[HEAVY]).max() <= 50  # half a unit


def test_reports_in_any_order_of_tasks_give_one_forecast() -> None:
    first, second = report(1), report(2, instance=1)
    ahead = [
        CostByKey().forecast(learnt(seen(*t)), 100) for t in [(first, second), (second, first)]
    ]
    assert ahead[0] == ahead[1]


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"nonsense",
        b"\x78nonsense",
        HeavySketch(capacity=512).to_bytes(),
        CostSketch().to_bytes(),
        report(3).costs[:-1],
        report(3).costs[:200] + b"\xff" + report(3).costs[201:],
    ],
    ids=["none", "text", "zip", "size", "kind", "cut", "flipped"],
)
def test_damaged_bytes_are_passed_over_and_the_rest_counts(damage: bytes) -> None:
    good = report(1)
    alone = learnt(seen(good))
    assert learnt(seen(good, replace(report(2), costs=damage))).costs == alone.costs
    only = learnt(seen(replace(good, costs=damage)))
    assert (only.costs, only.table) == (b"", None)
    assert only.work  # what it took still counts
    assert learnt(seen(good), seen(good)) == learnt(
        replace(seen(good)), seen(good, replace(report(2), costs=damage, busy_ns=0, rows_in=0))
    )


def test_a_damaged_state_is_learnt_anew() -> None:
    state = replace(learnt(seen(report(1))), costs=b"damaged", instances=(b"damaged",))
    assert read_costs(CostByKey().learn(state, seen(report(2))).costs) is not None


# Changes ------------------------------------------------------------------------------------


def test_doubled_costs_replace_what_was_known_within_one_batch() -> None:
    state = learnt(*(seen(report(order)) for order in range(8)), seen(report(9, costs=2 * COSTS)))
    assert np.abs(costs_of(state, HEAVY) - 2 * COSTS[HEAVY]).max() <= 50


def test_a_change_of_less_than_a_quarter_is_merged_and_followed() -> None:
    """A window of 8,000 rows: after some 32,000 rows at the new costs the old ones have faded."""
    model = CostByKey(rows_max=8_000)
    new = np.rint(1.2 * COSTS).astype(np.int64)
    batches = [seen(report(order)) for order in range(8)]
    once = learnt(*batches, seen(report(8, costs=new)), model=model)
    share = (costs_of(once, HEAVY) / COSTS[HEAVY]).mean()
    assert 1.02 < share < 1.18
    batches += [seen(report(order, costs=new)) for order in range(8, 16)]
    state = learnt(*batches, model=model)
    assert (costs_of(state, HEAVY) / COSTS[HEAVY]).mean() == pytest.approx(1.2, abs=0.02)


def test_a_key_that_contradicts_loses_half_of_its_past_and_the_others_nothing() -> None:
    """Key 0 came 800 times at 6 ms, now 3 times a batch at 0.1: a dozen batches suffice."""
    state = learnt(told({0: (800, 6_000_000), 1: (800, 1_000_000)}))
    for _ in range(12):
        state = CostByKey().learn(state, told({0: (3, 100_000), 1: (400, 1_000_000)}))
    key, other = costs_of(state, np.array([0, 1])).tolist()
    assert key < 1_000_000
    assert other == 1_000_000
    read = read_costs(state.costs)
    assert read is not None
    assert read.table[2][read.table[0] == 1].sum() == 800 + 12 * 400


def told(keys: dict[int, tuple[int, int]]) -> Observation:
    """A report of keys with counts and costs."""
    rows = np.repeat(list(keys), [count for count, _ in keys.values()])
    costs = np.repeat([cost for _, cost in keys.values()], [count for count, _ in keys.values()])
    sketch = HeavySketch()
    sketch.update(rows, costs)
    busy = int(costs.sum())
    return seen(TaskReport(instance=0, rows_in=rows.size, busy_ns=busy, costs=sketch.to_bytes()))


def test_few_rows_replace_nothing() -> None:
    """With 255 rows a change is merged, with 256 it replaces."""
    known = seen(report(1))
    for rows, replaced in [(255, False), (256, True)]:
        state = learnt(known, seen(report(2, costs=5 * COSTS, rows=rows)))
        read = read_costs(state.costs)
        assert read is not None
        assert (read.rows_seen == rows) is replaced


def test_another_mix_of_the_same_keys_is_no_change() -> None:
    """Only the cheap keys come, as under a gate that sheds the costly: the mean falls by half."""
    cheap = np.flatnonzero(np.median(COSTS) > COSTS)
    keys = RECIPE.draw_keys(3)
    keys = keys[np.isin(keys, cheap)]
    sketch = HeavySketch()
    sketch.update(keys, COSTS[keys])
    task = TaskReport(instance=0, rows_in=keys.size, busy_ns=1, costs=sketch.to_bytes())
    read = read_costs(learnt(seen(report(1)), seen(report(2)), seen(task)).costs)
    assert read is not None
    assert read.rows_seen == 8_000 + keys.size


@settings(max_examples=30)
@given(seed=st.integers(0, 1000), rows=st.integers(0, 3000), keys=st.integers(1, 100_000))
def test_fading_halves_the_rows_at_the_same_costs_and_stays_readable(
    seed: int, rows: int, keys: int
) -> None:
    rng = np.random.default_rng(seed)
    model = HeavySketch(capacity=64)
    model.update(rng.integers(0, keys, rows), rng.integers(0, 10**6, rows))
    before = model.copy()
    fade(model)
    again = HeavySketch.from_bytes(model.to_bytes())  # its totals agree, or this raises
    assert again.rows_seen <= (before.rows_seen + before.heavy_keys.size) / 2 + 1
    kept = before.estimate_ns(before.heavy_keys)
    assert np.abs(again.estimate_ns(before.heavy_keys) - kept).max(initial=0) <= 1.0
    if before.sketch.rows_seen > 1000:
        assert again.sketch.mean_ns == pytest.approx(before.sketch.mean_ns, rel=1e-3)


def test_the_model_never_holds_more_than_its_rows_and_one_batch() -> None:
    state, model = CostState(), CostByKey(rows_max=10_000)
    for order in range(20):
        state = model.learn(state, seen(report(order)))
        read = read_costs(state.costs)
        assert read is not None
        assert read.rows_seen <= 10_000


# Forecasts ----------------------------------------------------------------------------------


def worked(rows: int, work_s: float, duration_s: float, **changes: Any) -> Observation:
    task = TaskReport(instance=0, rows_in=rows, busy_ns=round(work_s * 1e9))
    return seen(task, duration_s=duration_s, **changes)


def test_a_batch_takes_its_fixed_time_and_its_work() -> None:
    """0.3 s and half a second for each second of work, as on two cores."""
    halves = [
        [TaskReport(instance=i, rows_in=500 * k, busy_ns=k * 10**9) for i in (0, 1)]
        for k in (1, 2, 4, 8, 3)
    ]
    durations_s = (1.3, 2.3, 4.3, 8.3, 3.3)
    batches = [seen(*two, duration_s=s) for two, s in zip(halves, durations_s, strict=True)]
    ahead = CostByKey().forecast(learnt(*batches), 5_000)
    assert ahead is not None
    assert ahead.fixed_s == pytest.approx(0.3, rel=1e-6)
    assert ahead.work_s == pytest.approx(5.0, rel=1e-6)


def test_rows_that_come_in_cost_more_than_those_that_are_kept() -> None:
    """Kept rows took 1 ms each; by the estimates those that came were three times as dear."""
    batches = [
        worked(1000 * k, 1.0 * k, 1.0 * k, cost_ns_mean=6e5, cost_ns_kept=2e5) for k in (1, 2, 4, 8)
    ]
    ahead = CostByKey(line=AverageCost(fixed_s=0.0)).forecast(learnt(*batches), 1_000)
    assert ahead is not None
    assert ahead.work_s == pytest.approx(3.0)


@pytest.mark.parametrize("odd", [None, 0.0, -1.0, float("nan"), float("inf")])
def test_estimates_that_make_no_sense_do_not_matter(odd: float | None) -> None:
    batch = worked(1000, 1.0, 1.0)
    expected = learnt(batch).row_ns
    assert learnt(replace(batch, cost_ns_mean=odd, cost_ns_kept=2e5)).row_ns == expected
    assert learnt(replace(batch, cost_ns_mean=2e5, cost_ns_kept=odd)).row_ns == expected


def test_the_operators_clock_tells_its_span_from_what_the_batch_takes_beside() -> None:
    """4 s of work within 3 s (the busiest of two tasks), in a batch of 3.2 s."""
    tasks = [TaskReport(instance=i, rows_in=500, busy_ns=busy) for i, busy in [(0, 3), (1, 1)]]
    tasks = [replace(task, busy_ns=task.busy_ns * 10**9) for task in tasks]
    ahead = CostByKey().forecast(learnt(seen(*tasks, duration_s=3.2)), 2_000)
    assert ahead is not None
    assert ahead.fixed_s == pytest.approx(0.2)
    assert ahead.work_s == pytest.approx(2 * 3.0)


def test_tasks_one_after_the_other_take_longer_than_the_busiest() -> None:
    """Two tasks of 1 s on one slot: the span is from the first begin to the last end."""
    times = ((10, 11), (11, 12))
    tasks = [
        TaskReport(
            instance=i,
            rows_in=500,
            busy_ns=10**9,
            begun_at_ns=begun * 10**9,
            ended_at_ns=ended * 10**9,
        )
        for i, (begun, ended) in enumerate(times)
    ]
    ahead = CostByKey().forecast(learnt(seen(*tasks, duration_s=2.5)), 1_000)
    assert ahead is not None
    assert (ahead.fixed_s, ahead.work_s) == pytest.approx((0.5, 2.0))


def test_tasks_that_the_books_hold_as_one_took_as_long_as_they_did_side_by_side() -> None:
    """Two tasks of 2 s each within 2.1 s; without times of day their sum is all that is known."""
    tasks = tuple(
        TaskReport(
            instance=i,
            rows_in=5,
            busy_ns=2 * 10**9,
            begun_at_ns=begun,
            ended_at_ns=begun + 2 * 10**9,
        )
        for i, begun in enumerate((10**18, 10**18 + 10**8))
    )
    batch = seen(*tasks, duration_s=3.0)
    booked = replace(batch, tasks=(total_report(tasks),))
    assert (batch.work_span_s, booked.work_span_s) == pytest.approx((2.1, 2.1))
    timeless = replace(total_report(tasks), begun_at_ns=0, ended_at_ns=0)
    assert replace(batch, tasks=(timeless,)).work_span_s == 3.0


def test_an_operator_that_is_gone_leaves_the_average() -> None:
    plain = Observation(batch_id=9, rows_in=100, rows_kept=100, duration_s=1.0)
    state = learnt(worked(100, 1.0, 1.0), plain)
    assert state.work == ()
    assert CostByKey().forecast(state, 50) == AverageCost().forecast(state, 50)


# Instances ----------------------------------------------------------------------------------


def paced(*factors: float, rows: int = 1_000) -> Observation:
    tasks = [
        report(i, costs=np.rint(f * COSTS).astype(np.int64), instance=i, rows=rows)
        for i, f in enumerate(factors)
    ]
    return seen(*tasks)


@pytest.mark.parametrize(
    ("factors", "rows", "told_apart"),
    [
        ((1.0, 1.0, 1.0), 1_000, False),
        ((1.0, 1.15), 1_000, False),
        ((1.0, 2.0), 1_000, True),
        ((1.0, 2.0), 255, False),
    ],
)
def test_instances_have_costs_of_their_own_only_if_they_differ(
    factors: tuple[float, ...], rows: int, told_apart: bool
) -> None:
    state = learnt(paced(*factors, rows=rows))
    assert state.table is not None
    assert len(state.instances) == len(factors)
    assert len(state.table.instances) == (len(factors) if told_apart else 0)


def test_a_slow_instance_s_rows_cost_more_on_it() -> None:
    state = learnt(paced(1.0, 3.0), paced(1.0, 3.0))
    assert state.table is not None
    lookup = CostLookup.of(state.table)
    fast, slow = (lookup.estimate_ns(HEAVY, instance=i).mean() for i in (0, 1))
    assert slow / fast == pytest.approx(3.0, rel=0.1)


def test_instances_that_differ_a_little_have_paces() -> None:
    """The sums of 256 rows tell 5 % apart: the costs of keys alone would not."""
    state = learnt(*[paced(1.05, 1.0, 0.95)] * 3)
    assert state.table is not None
    assert state.table.instances == ()
    assert state.table.paces == pytest.approx((1.05, 1.0, 0.95), abs=0.015)
    on_each = CostLookup.of(state.table).by_instance_ns(HEAVY, 3)
    assert on_each[:, 0] / on_each[:, 2] == pytest.approx(1.05 / 0.95, rel=0.03)
    assert CostLookup.of(state.table).by_instance_ns(HEAVY, 4).shape == HEAVY.shape


def test_instances_that_are_alike_have_no_paces() -> None:
    state = learnt(*[paced(1.0, 1.0, 1.0)] * 3)
    assert state.table is not None
    assert state.table.paces == ()


def test_a_change_of_pace_is_followed_within_512_rows() -> None:
    before, after = paced(1.1, 0.9, rows=256), paced(0.9, 1.1, rows=256)
    state = learnt(*[before] * 8, *[after] * 2)
    assert state.table is not None
    assert state.table.paces == pytest.approx((0.9, 1.1), abs=0.03)


def test_too_many_instances_are_not_told_apart() -> None:
    state = learnt(seen(report(1), report(2, instance=64)))
    assert state.instances == ()
    assert state.table is not None
    assert learnt(seen(report(1, instance=-1))).instances == ()


def test_instances_are_forgotten_together_with_the_costs() -> None:
    state = learnt(paced(1.0, 1.0), paced(3.0, 3.0))
    read = _read_sketch(state.instances[0])
    assert read.rows_seen == 1_000


# Size ---------------------------------------------------------------------------------------


def test_the_state_survives_its_file_and_stays_small() -> None:
    """4,096 keys, 60,000 rows, two instances: below 48 kB as JSON."""
    recipe = Recipe(rows=30_000)
    tasks = []
    for i in range(2):
        stream, sketch = recipe.stream(1, i), HeavySketch()
        sketch.update(stream.keys, stream.costs_ns)
        tasks.append(TaskReport(instance=i, rows_in=1, busy_ns=1, costs=sketch.to_bytes()))
    state = learnt(seen(*tasks))
    data = files.encode("cost", state)
    assert files.decode(data, "cost", CostState) == state
    assert len(data) < 48_000


def test_asking_needs_no_compiled_code() -> None:
    """The gate's worker asks for plans: it must not wait seconds for numba."""
    script = """
import sys
import spillway as sw
from spillway.loop import Loop
from spillway.spark.cost_sql import array_sql
from spillway.spark.gate import Gate
from spillway.values import BatchAhead, CostState, LoopState
loop = Loop(controller=sw.FixedRate(0.5), cost=sw.CostByKey(), shedder=sw.LoadAware(key="k"))
loop.decide(LoopState(cost=CostState(work=((1.0, 1.0, 2.0),), row_ns=5.0)), BatchAhead(batch_id=1))
print("numba" in sys.modules)
"""
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert found.stdout.strip() == "False"


@pytest.mark.parametrize(
    "wrong",
    [{"changed": 0.0}, {"rows_max": 1}, {"instances_max": -1}, {"uneven": 1.0}],
    ids=str,
)
def test_a_wrong_argument_is_refused_by_its_name(wrong: dict[str, Any]) -> None:
    (name, value) = next(iter(wrong.items()))
    with pytest.raises(ValueError, match=rf"{name} must be .*{value}"):
        CostByKey(**wrong)
