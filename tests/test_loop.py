"""The loop: pure, within its limits for every policy, and unmoved by late or doubled news."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.concept_values import KeepTable
from spillway.contracts import Floats
from spillway.cost.average import AverageCost
from spillway.cost.by_key import CostByKey
from spillway.cost.heavy import HeavySketch
from spillway.cost.table import pack
from spillway.loop import Loop, batch_rows
from spillway.objective import Latency
from spillway.overload.controller import FixedRate, HoldLatency
from spillway.shedders.semantic import Semantic
from spillway.state import files
from spillway.values import (
    BatchAhead,
    Budget,
    CostState,
    CostTable,
    Limits,
    LoopState,
    Observation,
    Plan,
    StratumCount,
    TaskReport,
)


@dataclass(frozen=True)
class Stubborn:
    """A user's shedder that answers with the plan it was given, whatever the budget."""

    answer: Plan
    strata: tuple[str, ...] = ("low", "middle", "high")
    score: str | None = "u"
    quantiles: tuple[float, ...] = ()

    def plan(self, seen: Observation | None, budget: Budget) -> Plan:
        return self.answer


def seen(batch_id: int, **changes: object) -> Observation:
    plain = Observation(
        batch_id=batch_id,
        rows_in=1_000,
        rows_kept=1_000,
        duration_s=0.5,
        latency_s_mean=0.75,
        offset_span=1_000.0,
        quantiles=(1.0, 2.0),
        strata=(StratumCount(name="all", rows_in=1_000, rows_kept=1_000),),
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def holding(**parts: object) -> Loop:
    return Loop(controller=HoldLatency(objective=Latency(average="2 s")), **parts)  # type: ignore[arg-type]


def fed(loop: Loop, batches: int = 10, **changes: object) -> LoopState:
    state = LoopState()
    for batch_id in range(batches):
        state = loop.learn(state, seen(batch_id, **changes), query_id="q", run_id="r")
    return state


def clamped(
    *rates: float, edges: tuple[float, ...] = (1.0, 2.0), unrated: float = 1.0
) -> tuple[Plan, int]:
    loop = Loop(
        controller=FixedRate(0.5),
        shedder=Stubborn(Plan(rates=rates, edges=edges, unrated=unrated, reason="mine")),
    )
    return loop.decide(LoopState(), BatchAhead(batch_id=0))


# Limits -------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep_min", [0.001, 0.05, 1.0])
def test_no_rate_falls_below_the_floor(keep_min: float) -> None:
    loop = holding(limits=Limits(keep_min=keep_min))
    plan, faults = loop.decide(fed(loop), BatchAhead(batch_id=10, rows=1e12))
    assert plan.rates == (keep_min,)
    assert faults == 0


def test_the_kept_share_rises_at_most_by_the_given_factor() -> None:
    loop = holding(limits=Limits(rise_max=3.0))
    state = fed(loop, rows_in=100_000)
    assert state.seen is not None
    assert state.seen.share == 0.01
    plan, _ = loop.decide(state, BatchAhead(batch_id=10, rows=10.0))
    assert plan.rates == pytest.approx((0.03,))


def test_the_rise_starts_from_the_floor_when_nothing_was_kept() -> None:
    loop = holding(limits=Limits(keep_min=0.01, rise_max=2.0))
    state = loop.learn(fed(loop), seen(10, rows_kept=0), query_id="q", run_id="r")
    plan, _ = loop.decide(state, BatchAhead(batch_id=11, rows=10.0))
    assert plan.rates == pytest.approx((0.02,))


def test_rows_that_an_operator_refused_do_not_close_the_gate() -> None:
    loop = replace(holding(limits=Limits(rise_max=2.0)), controller=FixedRate(1.0))
    last = seen(10, rows_kept=0)
    refused = replace(last, rows_refused=last.rows_in)
    state = loop.learn(fed(loop), refused, query_id="q", run_id="r")
    plan, _ = loop.decide(state, BatchAhead(batch_id=11, rows=10.0))
    assert plan.rates == (1.0,)


def test_a_fall_is_not_limited() -> None:
    """A tenfold surprise must be met in that very batch."""
    loop = holding(limits=Limits(rise_max=1.1))
    plan, _ = loop.decide(fed(loop), BatchAhead(batch_id=10, rows=1e6))
    assert plan.rates[0] < 0.01


def test_a_stale_signal_holds_for_stale_batches_and_then_decays_to_open() -> None:
    loop = holding(limits=Limits(stale_batches=3, keep_min=1e-6))
    state = fed(loop)
    shares = [
        loop.decide(state, BatchAhead(batch_id=batch_id, rows=1e6))[0].rates[0]
        for batch_id in range(10, 40)
    ]
    assert shares[0] == shares[1] == shares[2] == shares[3] < 0.01
    assert all(low < high for low, high in pairwise(shares[3:13]))
    assert shares[4] == pytest.approx(1 - (1 - shares[0]) / 2)
    assert shares[-1] == pytest.approx(1.0, abs=1e-6)


def test_a_stale_signal_says_so() -> None:
    loop = holding()
    plan, _ = loop.decide(fed(loop), BatchAhead(batch_id=30, rows=1e6))
    assert plan.reason == "no recent observation"


def test_within_limits_staleness_changes_nothing() -> None:
    loop = holding()
    plan, _ = loop.decide(fed(loop), BatchAhead(batch_id=1_000, rows=10.0))
    assert not plan.sheds
    assert plan.reason == "within limits"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"keep_min": 0.0}, "keep_min"),
        ({"keep_min": 1.1}, "keep_min"),
        ({"keep_min": math.nan}, "keep_min"),
        ({"rise_max": 1.0}, "rise_max"),
        ({"rise_max": math.nan}, "rise_max"),
        ({"stale_batches": 0}, "stale_batches"),
        ({"timeout_s": 0.0}, "timeout_s"),
        ({"timeout_s": math.inf}, "timeout_s"),
        ({"timeout_s": math.nan}, "timeout_s"),
    ],
)
def test_limits_that_bound_nothing_are_refused_by_name(
    arguments: dict[str, float], named: str
) -> None:
    with pytest.raises(ValueError, match=f"{named} must be"):
        Limits(**arguments)  # type: ignore[arg-type]


# Nonsense from a user's policy ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("rate", "mended", "faults"),
    [
        (0.0, 0.001, 0),
        (1.0, 1.0, 0),
        (0.5, 0.5, 0),
        (-1.0, 0.001, 1),
        (2.0, 1.0, 1),
        (math.nan, 1.0, 1),
        (math.inf, 1.0, 1),
        (-math.inf, 0.001, 1),
    ],
)
def test_a_rate_is_clamped_into_floor_and_one_and_nonsense_is_counted(
    rate: float, mended: float, faults: int
) -> None:
    plan, counted = clamped(0.5, rate, 1.0)
    assert plan.rates == (0.5, mended, 1.0)
    assert counted == faults
    assert clamped(0.5, 0.5, 0.5, unrated=rate)[0].unrated == mended


def test_every_nonsensical_rate_is_counted() -> None:
    assert clamped(-1.0, 2.0, math.nan, unrated=math.inf)[1] == 4


@pytest.mark.parametrize(
    ("rates", "edges"),
    [
        ((), (1.0, 2.0)),
        ((0.5,), (1.0, 2.0)),
        ((0.5,) * 4, (1.0, 2.0)),
        ((0.5,) * 3, ()),
        ((0.5,) * 3, (1.0,)),
        ((0.5,) * 3, (1.0, 2.0, 3.0)),
        ((0.5,) * 3, (2.0, 1.0)),
        ((0.5,) * 3, (math.nan, 1.0)),
        ((0.5,) * 3, (1.0, math.nan)),
    ],
)
def test_a_plan_that_does_not_fit_its_strata_opens_the_gate_and_is_counted(
    rates: tuple[float, ...], edges: tuple[float, ...]
) -> None:
    plan, faults = clamped(*rates, edges=edges)
    assert not plan.sheds
    assert (len(plan.rates), len(plan.edges)) == (3, 2)
    assert faults == 1
    assert "does not fit" in plan.reason


@pytest.mark.parametrize("edges", [(-math.inf, 0.0), (0.0, math.inf), (-math.inf, math.inf)])
def test_infinite_edges_become_something_that_survives_the_plan_log(
    edges: tuple[float, ...],
) -> None:
    """JSON has no infinity: a pinned plan with one would be read as damaged by every replay."""
    plan, _ = clamped(0.5, 0.5, 0.5, edges=edges)
    assert files.decode(files.encode("plan", plan), "plan", Plan) == plan


def test_the_open_plan_fits_every_shedder_and_sheds_nothing() -> None:
    for loop in (holding(), holding(shedder=Semantic(utility="u"))):
        plan = loop.open_plan("open: test")
        assert not plan.sheds
        assert len(plan.rates) == len(loop.shedder.strata) == len(plan.edges) + 1
        assert plan.reason == "open: test"


@given(rates=st.lists(st.floats(), min_size=3, max_size=3), unrated=st.floats())
@settings(max_examples=100)
def test_whatever_the_policy_says_every_rate_ends_within_floor_and_one(
    rates: list[float], unrated: float
) -> None:
    plan, faults = clamped(*rates, unrated=unrated)
    assert all(0.001 <= rate <= 1.0 for rate in (*plan.rates, plan.unrated))
    assert faults == sum(not 0 <= rate <= 1 for rate in (*rates, unrated))


# What is learnt ------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_id", [0, 5, 9])
def test_a_doubled_or_late_observation_changes_nothing(batch_id: int) -> None:
    loop = holding()
    state = fed(loop)
    assert loop.learn(state, seen(batch_id, duration_s=99.0), query_id="q", run_id="r") is state


def test_a_dropped_observation_is_no_obstacle() -> None:
    loop = holding()
    state = loop.learn(fed(loop), seen(14), query_id="q", run_id="r")
    assert state.batch_id == 14
    assert len(state.cost.samples) == 10


def test_another_query_resets_positions_and_keeps_costs() -> None:
    loop = holding()
    before = fed(loop)
    after = loop.learn(before, seen(0, rows_in=7, rows_kept=7), query_id="other", run_id="r2")
    assert after.query_id == "other"
    assert after.batch_id == 0
    assert after.spans == ((1_000.0, 7.0),)
    assert after.seen is not None
    assert after.seen.rows_in == 7
    assert after.cost == before.cost


def test_another_query_does_not_inherit_quantiles() -> None:
    loop = holding()
    after = loop.learn(fed(loop), seen(0, quantiles=()), query_id="other", run_id="r2")
    assert after.seen is not None
    assert after.seen.quantiles == ()


def test_the_first_batch_of_a_run_is_kept_out_of_the_cost_model() -> None:
    loop = holding()
    first = loop.learn(LoopState(), seen(0, duration_s=30.0), query_id="q", run_id="r")
    assert first.cost == CostState()
    second = loop.learn(first, seen(1), query_id="q", run_id="r")
    assert second.cost.samples == ((1_000.0, 0.5),)
    restarted = loop.learn(second, seen(2, duration_s=30.0), query_id="q", run_id="r2")
    assert restarted.cost == second.cost
    assert restarted.batch_id == 2
    warm = loop.learn(restarted, seen(3), query_id="q", run_id="r2")
    assert len(warm.cost.samples) == 2


def test_the_last_known_quantiles_are_kept_when_a_batch_showed_none() -> None:
    loop = holding()
    state = loop.learn(fed(loop), seen(10, quantiles=(), rows_in=0), query_id="q", run_id="r")
    assert state.seen is not None
    assert state.seen.quantiles == (1.0, 2.0)
    assert state.seen.rows_in == 0


def test_a_batch_in_which_no_window_ended_changes_nothing_but_the_position() -> None:
    loop = holding()
    before = fed(loop)
    idle = replace(seen(10, rows_in=0), rows_kept=0, strata=())
    assert loop.learn(before, idle, query_id="q", run_id="r") == replace(before, batch_id=10)


def test_the_state_is_bounded() -> None:
    state = fed(holding(), batches=200)
    assert len(state.spans) <= 40
    assert len(state.cost.samples) <= 40


# Batch sizes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("rows_per_offset", [1, 7, 1000])
def test_batch_rows_are_exact_where_an_offset_stands_for_a_fixed_number_of_rows(
    rows_per_offset: int,
) -> None:
    loop, state = holding(), LoopState()
    for batch_id, offsets in enumerate([3, 50, 1, 999]):
        rows = offsets * rows_per_offset
        state = loop.learn(
            state, seen(batch_id, rows_in=rows, rows_kept=rows, offset_span=float(offsets))
        )
    assert batch_rows(state, 12_345.0) == 12_345 * rows_per_offset
    assert batch_rows(state, 0.0) == 0.0


def test_batch_rows_are_unknown_without_a_span_or_without_history() -> None:
    assert batch_rows(fed(holding()), None) is None
    assert batch_rows(LoopState(), 10.0) is None


@pytest.mark.parametrize("span", [None, 0.0, -5.0, math.nan])
def test_a_batch_without_a_sane_span_teaches_no_sizes(span: float | None) -> None:
    state = fed(holding(), offset_span=span)
    assert state.spans == ()
    assert batch_rows(state, 10.0) is None


def test_an_unknown_size_is_taken_to_be_the_last_one() -> None:
    loop = holding()
    state = fed(loop, rows_in=100_000, rows_kept=50_000, duration_s=5.0)
    like_last = loop.decide(state, BatchAhead(batch_id=10))
    assert like_last == loop.decide(state, BatchAhead(batch_id=10, rows=100_000.0))


# Purity --------------------------------------------------------------------------------------


def test_the_same_inputs_give_the_same_outputs_and_inputs_are_untouched() -> None:
    loop = holding(shedder=Semantic(utility="u", bins=3))
    state = fed(loop, rows_in=9_000)
    copy = files.decode(files.encode("s", state), "s", LoopState)
    ahead = BatchAhead(batch_id=10, rows=50_000.0)
    assert loop.decide(state, ahead) == loop.decide(copy, ahead) == loop.decide(state, ahead)
    assert loop.learn(state, seen(10)) == loop.learn(copy, seen(10))
    assert state == copy


def test_a_cold_start_without_knowledge_keeps_everything() -> None:
    plan, faults = holding().decide(LoopState(), BatchAhead(batch_id=0, rows=1e9))
    assert not plan.sheds
    assert faults == 0
    assert plan.reason == "cost not known yet"


def test_an_empty_batch_ahead_is_no_trouble() -> None:
    loop = holding()
    plan, faults = loop.decide(fed(loop), BatchAhead(batch_id=10, rows=0.0))
    assert not plan.sheds
    assert faults == 0


def test_the_state_survives_a_round_trip_through_a_file(tmp_path: Path) -> None:
    state = fed(holding(), rows_in=9_000, latency_s_p99=1 / 3)
    files.write(tmp_path / "state.json", "loop state", state)
    assert files.read(tmp_path / "state.json", "loop state", LoopState) == state


latencies = st.one_of(st.none(), st.floats())


@given(
    mean_s=latencies,
    p99_s=latencies,
    duration_s=st.floats(),
    kept=st.integers(0, 1_000),
    span=st.one_of(st.none(), st.floats()),
)
@settings(max_examples=100)
def test_no_observation_however_absurd_stops_the_loop_or_poisons_its_state(
    mean_s: float | None, p99_s: float | None, duration_s: float, kept: int, span: float | None
) -> None:
    """After it, a plan is made without error, and the state survives being written down."""
    loop = holding()
    absurd = seen(
        10,
        latency_s_mean=mean_s,
        latency_s_p99=p99_s,
        duration_s=duration_s,
        rows_kept=kept,
        offset_span=span,
    )
    state = loop.learn(fed(loop), absurd, query_id="q", run_id="r")
    plan, faults = loop.decide(state, BatchAhead(batch_id=11, rows=2_000.0))
    assert faults == 0
    assert 0.001 <= plan.rates[0] <= 1.0
    files.decode(files.encode("s", state), "s", LoopState)


# Costs by key -------------------------------------------------------------------------------


class Asked:
    """A load-aware shedder that notes the budget it was asked with."""

    key, worth, score, strata, quantiles = "k", "1.0D", None, ("all",), ()

    def __init__(self) -> None:
        self.budgets: list[Budget] = []

    def scores(self, costs_ns: Floats, worths: Floats) -> Floats:
        return worths / costs_ns

    def plan(self, seen: Observation | None, budget: Budget) -> Plan:
        self.budgets.append(budget)
        return Plan(rates=(budget.share,))


def table_of(costs: dict[int, int]) -> CostTable:
    sketch = HeavySketch()
    for item, cost_ns in costs.items():
        sketch.update(np.full(9, item), np.full(9, cost_ns))
    return pack(sketch)


def test_every_plan_carries_what_keys_cost_and_an_open_one_nothing() -> None:
    costs = table_of({5: 1_000})
    loop, state = holding(cost=CostByKey()), LoopState(cost=CostState(table=costs))
    assert loop.decide(state, BatchAhead(batch_id=0))[0].costs == costs
    assert loop.open_plan("open").costs is None
    assert holding(cost=CostByKey()).decide(LoopState(), BatchAhead(batch_id=0))[0].costs is None


def test_a_cost_model_without_a_table_works_as_ever() -> None:
    state = LoopState(cost=CostState(table=table_of({5: 1_000})))
    plan, faults = holding(cost=AverageCost()).decide(state, BatchAhead(batch_id=0))
    assert (plan.costs, faults) == (None, 0)


def test_the_sample_is_priced_by_the_table_that_the_gate_will_use() -> None:
    shedder = Asked()
    loop = Loop(controller=FixedRate(0.5), cost=CostByKey(), shedder=shedder)
    observed = seen(0, sample=((5.0, 1.0), (6.0, 3.0)))
    for costs in ({5: 1_000, 6: 2_000}, {5: 7_000, 6: 500}):
        state = LoopState(seen=observed, cost=CostState(table=table_of(costs)))
        loop.decide(state, BatchAhead(batch_id=1))
        assert shedder.budgets[-1].sample == ((costs[5], 1.0), (costs[6], 3.0))
    loop.decide(LoopState(seen=observed), BatchAhead(batch_id=1))
    assert shedder.budgets[-1].sample == ()


def test_a_shedder_is_told_the_floor_of_the_rates() -> None:
    shedder = Asked()
    limits = Limits(keep_min=0.2)
    Loop(controller=FixedRate(0.5), shedder=shedder, limits=limits).decide(
        LoopState(), BatchAhead(batch_id=0)
    )
    assert shedder.budgets[0].keep_min == 0.2


def test_reports_are_learnt_and_not_remembered_and_a_tiny_sample_replaces_no_large_one() -> None:
    loop = holding(cost=CostByKey())
    large = tuple((float(i), 1.0) for i in range(100))
    task = TaskReport(instance=0, rows_in=10, busy_ns=10**9)
    state = LoopState()
    for batch_id, sample in enumerate([(), large, large[:3], ()]):
        observed = seen(batch_id, tasks=(task,), sample=sample)
        state = loop.learn(state, observed, query_id="q", run_id="r")
    assert state.seen is not None
    assert (state.seen.tasks, state.seen.sample) == ((), large)
    assert len(state.cost.work) == 3


def test_rates_of_numpy_become_plain_numbers() -> None:
    """They would print as `np.float64(…)` in the gate's SQL."""
    plan, _ = clamped(*np.array([0.1, 0.5, 1.0]), edges=tuple(np.array([1.0, 2.0])))
    assert {type(number) for number in (*plan.rates, *plan.edges)} == {float}


# Groups -------------------------------------------------------------------------------------


def test_levels_of_a_keep_table_are_put_into_bounds_and_nonsense_is_counted() -> None:
    table = KeepTable(levels=(0.0, 0.2, math.nan, 7.0), cells=b"as it is")
    shedder = Stubborn(
        Plan(rates=(1.0, 0.5), edges=(1.0,), keep=table), strata=("whole", "thinned"), score=None
    )
    plan, faults = Loop(
        controller=FixedRate(0.5), shedder=shedder, limits=Limits(keep_min=0.1)
    ).decide(LoopState(), BatchAhead(batch_id=0))
    assert plan.keep == KeepTable(levels=(0.1, 0.2, 1.0, 1.0), cells=b"as it is")
    assert faults == 2


def test_a_shedder_by_groups_learns_them_and_the_observation_forgets_them() -> None:
    from spillway.shedders.concept import ConceptDriven
    from tests.shedders.concept_rows import seen_of, zipf

    loop = Loop(controller=FixedRate(0.1), shedder=ConceptDriven(by="route"))
    shown = seen_of(zipf(50, 3_000))
    state = loop.learn(LoopState(), shown, query_id="q", run_id="r")
    assert state.concept.now.rows == 3_000
    assert state.seen is not None
    assert state.seen.groups is None
    assert loop.learn(state, shown, query_id="q", run_id="r") is state  # doubled
    plan, faults = loop.decide(state, BatchAhead(batch_id=1, rows=3_000.0))
    assert (plan.keep is not None, faults) == (True, 0)
    assert holding().learn(LoopState(), shown).concept == LoopState().concept
