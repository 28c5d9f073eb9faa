"""Concept-driven plans keep the budget's share and rare groups whole, and follow the window."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.concept_values import ConceptState, GroupsSeen
from spillway.contracts import ConceptShedder, KeyedShedder, Shedder
from spillway.shedders.concept import ConceptDriven
from spillway.shedders.concept_cells import Cells
from spillway.shedders.load_aware import LoadAware
from spillway.state import files
from spillway.values import LoopState, PinnedPlan, Plan
from tests.shedders.concept_rows import budget, learnt, rates, seen_of, zipf

PLAIN = ConceptDriven(by="route")
ALLOCATIONS = ["proportional", "congress", "neyman", "cvopt"]
HOUR = 3600.0


def shedder(allocation: str, **arguments: Any) -> ConceptDriven:
    value = "fare" if allocation in ("neyman", "cvopt") else None
    return ConceptDriven(by="route", allocation=allocation, value=value, **arguments)  # type: ignore[arg-type]


def fares(keys: np.ndarray, seed: int = 0) -> np.ndarray:
    """Values whose mean and spread differ from group to group."""
    rng, group = np.random.default_rng((5, seed)), keys % 97
    return (5.0 + group) * (1.0 + (0.02 + 0.01 * (group % 41)) * rng.standard_normal(keys.size))


def counts_of(state: ConceptState) -> np.ndarray:
    return Cells.of(state.now).counts


def test_it_is_a_shedder_by_groups() -> None:
    made: Shedder = PLAIN
    assert isinstance(made, ConceptShedder)
    assert not isinstance(made, KeyedShedder)
    assert not isinstance(LoadAware(key="k"), ConceptShedder)
    assert {ConceptDriven(by=["a", "b"]), ConceptDriven(by=("a", "b"))} == {
        ConceptDriven(by=("a", "b"))
    }


# The budget ---------------------------------------------------------------------------------


@settings(max_examples=100)
@given(
    allocation=st.sampled_from(ALLOCATIONS),
    groups=st.sampled_from([1, 5, 100, 20_000]),
    exponent=st.sampled_from([0.0, 0.8, 1.5]),
    share=st.floats(0.0, 0.999),
    keep_min=st.sampled_from([1e-3, 0.1]),
    rows_min=st.sampled_from([0, 2, 10]),
)
def test_no_more_than_the_budget_s_share_of_the_rows_that_were_seen_is_kept(
    allocation: str, groups: int, exponent: float, share: float, keep_min: float, rows_min: int
) -> None:
    """All rows are in the sample, so that the plan speaks of these very rows; rounding apart."""
    keys = zipf(groups, 3_000, exponent=exponent)
    policy = shedder(allocation, rows_min=rows_min)
    state = learnt(policy, seen_of(keys, values=fares(keys), sample_rows=3_000))
    plan = policy.plan(None, budget(share, state, keep_min=keep_min))
    found = rates(plan, keys)
    assert found.mean() <= 1.03 * max(share, keep_min)
    assert keep_min <= found.min()
    assert found.max() <= 1.0
    assert plan.rates[0] == 1.0
    assert len(plan.rates) == len(policy.strata) == len(plan.edges) + 1


@pytest.mark.parametrize("allocation", ALLOCATIONS)
@pytest.mark.parametrize("groups", [50, 3_000, 300_000])
@pytest.mark.parametrize(("share", "probe"), [(0.02, 1.0), (0.3, 0.1)])
def test_the_share_of_new_rows_that_is_kept_is_the_budget_s(
    allocation: str, groups: int, share: float, probe: float
) -> None:
    """From 30,000 rows, all or a tenth counted, 512 sampled; over six batches, and each of them."""
    policy, kept = shedder(allocation), []
    for seed in range(6):
        keys = zipf(groups, 30_000, seed=seed)
        seen = seen_of(keys, values=fares(keys, seed), batch_id=seed, probe=probe)
        plan = policy.plan(None, budget(share, learnt(policy, seen)))
        kept.append(rates(plan, zipf(groups, 30_000, seed=seed + 6)).mean())
    assert np.mean(kept) == pytest.approx(share, rel=0.1)
    assert np.array(kept) == pytest.approx(share, rel=0.3)


def test_within_the_budget_nothing_is_shed() -> None:
    plan = PLAIN.plan(None, budget(1.0, learnt(PLAIN, seen_of(zipf(50, 1000)))))
    assert not plan.sheds
    assert plan.keep is None
    assert plan.reason == "overload"  # the controller's own words


@pytest.mark.parametrize("state", [None, ConceptState()])
def test_while_no_groups_are_known_every_row_has_the_same_chance(
    state: ConceptState | None,
) -> None:
    plan = PLAIN.plan(None, budget(0.2, state))
    assert set(rates(plan, np.arange(100)).tolist()) == {0.2}
    assert plan.reason == "overload: rows as they come, groups not known yet"


# Rare and frequent groups -------------------------------------------------------------------


@pytest.mark.parametrize("allocation", ALLOCATIONS)
def test_rare_groups_are_whole_frequent_ones_are_thinned(allocation: str) -> None:
    keys = np.repeat(np.arange(60), [5_000] * 10 + [1] * 25 + [2] * 25)
    policy = shedder(allocation)
    state = learnt(policy, seen_of(keys, values=fares(keys)))
    found = rates(policy.plan(None, budget(0.05, state)), np.arange(60))
    assert (found[10:] == 1.0).all()
    assert (found[:10] < 0.15).all()


@pytest.mark.parametrize("allocation", ALLOCATIONS)
def test_of_every_group_the_minimum_is_kept_in_expectation(allocation: str) -> None:
    keys = np.repeat(np.arange(100), np.arange(1, 101) ** 2 // 5 + 1)
    policy = shedder(allocation, rows_min=7)
    state = learnt(policy, seen_of(keys, values=fares(keys)))
    found = rates(policy.plan(None, budget(0.1, state)), np.arange(100))
    sizes = np.bincount(keys)
    assert (found * sizes >= np.minimum(sizes, 7) * 0.97).all()  # rounded to levels


def test_a_group_that_was_not_seen_is_whole() -> None:
    state = learnt(PLAIN, seen_of(zipf(300, 50_000)))
    plan = PLAIN.plan(None, budget(0.05, state))
    unknown = rates(plan, np.arange(10**6, 10**6 + 5_000))
    assert (unknown == 1.0).mean() > 0.98  # the others share both cells with groups that were seen


def test_minima_that_would_take_the_whole_budget_leave_a_quarter_of_it_at_least() -> None:
    """10,000 groups of 3 rows and one of 70,000, at 2 %: the large one is not starved."""
    keys = np.concatenate([np.repeat(np.arange(10_000), 3), np.full(70_000, -1)])
    state = learnt(PLAIN, seen_of(keys))
    plan = PLAIN.plan(None, budget(0.02, state))
    assert rates(plan, keys).mean() <= 0.021
    assert rates(plan, np.array([-1]))[0] > 0.25 * 0.02


def test_every_missing_key_is_a_group_like_others() -> None:
    """NULL has the item 42: 3 of its rows among many of another group are whole."""
    from spillway.kernels import count_min

    items = np.array([42] * 2 + [99] * 5_000)
    sketch = count_min.write(count_min.count(items))
    groups = GroupsSeen(frequencies=sketch, sample=tuple((float(i), None, None) for i in items))
    seen = seen_of(np.zeros(items.size))
    state = PLAIN.learn(ConceptState(), replaced(seen, groups=groups))
    from spillway.shedders.keep_table import KeepLookup

    found = KeepLookup.of(PLAIN.plan(None, budget(0.1, state))).rates(np.array([42, 99]))
    assert found[0] == 1.0
    assert found[1] < 0.11


def replaced(seen: Any, **changes: Any) -> Any:
    from dataclasses import replace

    return replace(seen, **changes)


# Allocations --------------------------------------------------------------------------------


def total_variance(plan: Plan, keys: np.ndarray, values: np.ndarray) -> float:
    """Variance of the weighted total over all rows, kept one by one."""
    return float((np.square(values) * (1.0 / rates(plan, keys) - 1.0)).sum())


def relative_errors(plan: Plan, keys: np.ndarray, values: np.ndarray) -> float:
    """Sum over the groups of the squared relative error of the mean, to first order."""
    found, errors = rates(plan, keys), 0.0
    for group in np.unique(keys):
        x, p = values[keys == group], found[keys == group]
        errors += float((np.square(x - x.mean()) * (1 / p - 1)).sum()) / x.sum() ** 2
    return errors


def spread() -> tuple[np.ndarray, np.ndarray]:
    """50,000 rows of 40 groups whose means lie between 1 and 60, deviations between 1 and 100 %."""
    keys = zipf(40, 50_000, exponent=0.7, seed=3)
    rng, group = np.random.default_rng(1), keys % 40
    deviation = np.where(group % 4 == 0, 1.0, 0.01)
    return keys, (1.0 + 1.5 * group) * (1.0 + deviation * rng.standard_normal(keys.size))


def planned(allocation: str, share: float = 0.05) -> Plan:
    keys, values = spread()
    policy = shedder(allocation)
    batches = [seen_of(keys, values=values, batch_id=batch) for batch in range(8)]
    return policy.plan(None, budget(share, learnt(policy, *batches)))


def test_neyman_has_the_least_variance_of_the_total() -> None:
    variance = {name: total_variance(planned(name), *spread()) for name in ALLOCATIONS}
    assert min(variance, key=lambda name: variance[name]) == "neyman"
    assert variance["neyman"] < 0.85 * variance["proportional"]


def test_cvopt_has_the_least_relative_errors_of_the_groups_means() -> None:
    errors = {name: relative_errors(planned(name), *spread()) for name in ALLOCATIONS}
    assert min(errors, key=lambda name: errors[name]) == "cvopt"
    assert errors["cvopt"] < errors["proportional"] / 2


def test_congress_keeps_more_of_rare_groups_than_proportional_and_enough_of_frequent_ones() -> None:
    keys, _ = spread()
    sizes = np.bincount(keys - keys.min())
    groups = np.arange(sizes.size) + keys.min()
    congress, proportional = (
        rates(planned("congress"), groups),
        rates(planned("proportional"), groups),
    )
    rare, frequent = sizes.argsort()[:10], int(sizes.argmax())
    assert (congress[rare] > 1.3 * proportional[rare]).all()
    assert congress[frequent] > 0.4 * proportional[frequent]


def test_values_of_few_rows_lean_towards_the_pooled_ones() -> None:
    """A group of two sampled rows that happen to be equal does not count as one without spread."""
    keys = np.concatenate([np.repeat(np.arange(20), 200), [77, 77]])
    values = np.where(
        keys == 77, 50.0, 50.0 + 10.0 * np.random.default_rng(2).standard_normal(4002)
    )
    policy = shedder("neyman", rows_min=0)
    state = learnt(policy, seen_of(keys, values=values, sample_rows=4002))
    found = rates(policy.plan(None, budget(0.1, state)), np.array([77, 3]))
    assert found[0] > 0.9 * found[1]


@pytest.mark.parametrize("allocation", ["neyman", "cvopt"])
@pytest.mark.parametrize("odd", [math.nan, math.inf, 1e300, 0.0])
def test_values_that_are_none_absurd_or_all_alike_make_plans_all_the_same(
    allocation: str, odd: float
) -> None:
    keys = zipf(30, 5_000)
    policy = shedder(allocation)
    state = learnt(policy, seen_of(keys, values=np.full(keys.size, odd)))
    found = rates(policy.plan(None, budget(0.2, state)), keys)
    assert np.isfinite(found).all()
    assert found.mean() == pytest.approx(0.2, rel=0.1)


# Windows and drift --------------------------------------------------------------------------


def windowed(**arguments: Any) -> ConceptDriven:
    return ConceptDriven(by="route", time="pickup", size="1 hour", **arguments)


def at(keys: np.ndarray, time_s: float, **arguments: Any) -> Any:
    return seen_of(keys, times_s=np.full(keys.size, time_s), **arguments)


def test_the_batches_of_a_window_add_up_to_its_concept() -> None:
    batches = [zipf(200, 2_000, seed=seed) for seed in range(3)]
    seen = [at(keys, HOUR * 7 + 60.0 * i, batch_id=i) for i, keys in enumerate(batches)]
    state = learnt(windowed(), *seen)
    whole = learnt(windowed(), at(np.concatenate(batches), HOUR * 7))
    assert counts_of(state).tolist() == counts_of(whole).tolist()
    assert (state.now.window, state.now.rows) == (7, 6_000)


def test_a_new_window_begins_a_new_concept() -> None:
    old, new = zipf(200, 5_000), zipf(200, 5_000, named=1)
    state = learnt(windowed(), at(old, HOUR * 7), at(new, HOUR * 8, batch_id=1))
    assert counts_of(state).tolist() == counts_of(learnt(windowed(), at(new, 0.0))).tolist()
    assert (state.now.window, state.before) == (8, None)


def test_a_new_window_of_few_rows_is_filled_up_by_the_one_before() -> None:
    """Until it has 1,000 rows; then the one before is forgotten."""
    old, new = zipf(200, 5_000), zipf(200, 300, named=1)
    batches = [at(new, HOUR * 8 + i, batch_id=1 + i) for i in range(4)]
    state = learnt(windowed(), at(old, HOUR * 7), *batches[:1])
    assert state.before is not None
    assert state.before.window == 7
    plan = windowed().plan(None, budget(0.3, state))
    assert rates(plan, old).mean() < 0.5  # known, not whole
    assert learnt(windowed(), at(old, HOUR * 7), *batches[:3]).before is not None
    done = learnt(windowed(), at(old, HOUR * 7), *batches)
    assert done.before is None
    assert done.now.rows == 1_200


def test_windows_of_few_rows_each_keep_the_last_large_one() -> None:
    old, few = zipf(200, 5_000), zipf(200, 100, named=1)
    state = learnt(
        windowed(), at(old, 0.0), at(few, HOUR, batch_id=1), at(few, 2 * HOUR, batch_id=2)
    )
    assert state.before is not None
    assert state.before.window == 0


@pytest.mark.parametrize("absurd", [1e18, -1e18, None])
def test_absurd_or_missing_event_times_of_a_third_of_the_rows_end_no_window(
    absurd: float | None,
) -> None:
    keys = zipf(200, 3_000)
    times = [absurd if i % 3 == 0 else HOUR * 7 for i in range(keys.size)]
    state = learnt(windowed(), at(keys, HOUR * 7), seen_of(keys, times_s=times, batch_id=1))
    assert (state.now.window, state.now.rows) == (7, 6_000)


def test_a_batch_without_any_event_times_counts_to_the_window_before_it() -> None:
    keys = zipf(200, 3_000)
    state = learnt(windowed(), at(keys, HOUR * 7), seen_of(keys, batch_id=1))
    assert (state.now.window, state.now.rows) == (7, 6_000)


def test_without_windows_the_batches_fade() -> None:
    keys = [zipf(200, 4_000, seed=seed) for seed in range(2)]
    policy = ConceptDriven(by="route", decay=0.5)
    state = learnt(policy, *(seen_of(k, batch_id=i) for i, k in enumerate(keys)))
    single = [counts_of(learnt(policy, seen_of(k))) for k in keys]
    assert np.abs(counts_of(state) - (0.5 * single[0] + single[1])).max() <= 0.5  # whole numbers
    assert state.now.rows == 6_000


@pytest.mark.parametrize("allocation", ALLOCATIONS)
@pytest.mark.parametrize("by_window", [True, False])
def test_after_the_groups_have_changed_completely_the_next_batch_keeps_the_share(
    allocation: str, by_window: bool
) -> None:
    """Five batches of 100 groups, one of 100 others: the next plan keeps 10 % of these.

    The groups' means are no more than a quarter worse than if they had never been others.
    """
    policy = shedder(allocation, **({"time": "at", "size": "1 h"} if by_window else {}))
    old, new = zipf(100, 20_000), zipf(100, 20_000, named=1)
    batches = [at(old, 0.0, values=fares(old), batch_id=i) for i in range(5)]
    state = learnt(policy, *batches, at(new, HOUR, values=fares(new), batch_id=5))
    after = policy.plan(None, budget(0.1, state))
    assert rates(after, zipf(100, 20_000, seed=1, named=1)).mean() == pytest.approx(0.1, rel=0.1)
    steady = learnt(policy, *(at(new, 0.0, values=fares(new), batch_id=i) for i in range(6)))
    usual = policy.plan(None, budget(0.1, steady))
    errors = [relative_errors(plan, new, fares(new)) for plan in (after, usual)]
    assert errors[0] < 1.25 * errors[1]


# What is counted ----------------------------------------------------------------------------


def test_a_share_of_the_rows_counted_is_scaled_up_and_protected_rows_are_left_out() -> None:
    keys = zipf(200, 20_000)
    state = learnt(PLAIN, seen_of(keys, probe=0.1, protected=5_000))
    assert state.now.rows == 20_000
    assert counts_of(state).reshape(2, -1).sum(axis=1) == pytest.approx([20_000] * 2, rel=0.01)


@pytest.mark.parametrize(
    "groups",
    [
        None,
        GroupsSeen(frequencies=b""),
        GroupsSeen(frequencies=b"\0" * 77),
        GroupsSeen(frequencies=seen_of(np.zeros(0)).groups.frequencies),  # type: ignore[union-attr]
    ],
    ids=["missing", "empty", "damaged", "no rows"],
)
def test_a_missing_damaged_or_empty_sketch_changes_nothing(groups: GroupsSeen | None) -> None:
    state = learnt(PLAIN, seen_of(zipf(50, 1_000)))
    assert PLAIN.learn(state, replaced(seen_of(zipf(50, 9)), groups=groups)) is state


def test_a_tiny_batch_does_not_stand_for_what_is_to_come() -> None:
    keys = zipf(50, 5_000)
    state = learnt(PLAIN, seen_of(keys), seen_of(np.array([7, 7, 7]), batch_id=1))
    found = rates(PLAIN.plan(None, budget(0.1, state)), keys)
    assert found.mean() == pytest.approx(0.1, rel=0.15)


@pytest.mark.parametrize("damage", [b"", b"\x78\x01damaged", b"garbage"])
def test_a_damaged_state_is_as_good_as_none(damage: bytes) -> None:
    from dataclasses import replace

    good = learnt(windowed(), at(zipf(50, 500), 0.0), at(zipf(50, 200), HOUR, batch_id=1))
    for broken in (
        replace(good, latest=damage),
        replace(good, items=damage),
        replace(good, now=replace(good.now, counts=damage, moments=damage)),
    ):
        plan = windowed().plan(None, budget(0.2, broken))
        found = rates(plan, zipf(50, 500))
        assert ((found >= 0.001) & (found <= 1.0)).all()


def test_state_and_plan_stay_small_whatever_the_number_of_groups() -> None:
    """A million groups, 12 batches of 100,000 rows, values: below 64 kB each, as files."""
    policy = ConceptDriven(by="route", value="fare", time="pickup", size="1 hour")
    state = ConceptState()
    for batch in range(12):
        keys = zipf(1_000_000, 100_000, exponent=0.8, seed=batch % 4)
        seen = seen_of(keys, values=fares(keys), times_s=np.zeros(keys.size), batch_id=batch)
        state = policy.learn(state, seen)
    pinned = PinnedPlan(batch_id=0, salt=1, plan=policy.plan(None, budget(0.02, state)))
    assert len(files.encode("loop state", LoopState(concept=state))) < 64_000
    assert len(files.encode("plan", pinned)) < 16_000


# What is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "rule"),
    [
        ({"by": ""}, r"by must name .*''"),
        ({"by": []}, r"by must name .*\[\]"),
        ({"by": ["a", ""]}, "by must name"),
        ({"by": ["a", "a"]}, "by must name 1 to 16 different columns"),
        ({"by": None}, "by must name .*None"),
        ({"by": [3]}, r"by must name .*\[3\]"),
        ({"allocation": "senate"}, "allocation must be one of .*'senate'"),
        ({"allocation": "cvopt"}, "value must be .*None"),
        ({"allocation": "neyman", "value": ""}, "value must be .*''"),
        ({"value": ""}, "value must be .*''"),
        ({"allocation": "congress", "value": "fare"}, "value has no use .*'fare'"),
        ({"rows_min": -1}, "rows_min must be .*-1"),
        ({"rows_min": math.nan}, "rows_min must be .*nan"),
        ({"decay": 1.0}, r"decay must be in \[0, 1\), got 1.0"),
        ({"decay": math.nan}, "decay must be"),
        ({"time": "pickup"}, "time and size must be given together, got 'pickup' and None"),
        ({"size": "1 hour"}, "time and size must be given together"),
        ({"time": "", "size": "1 hour"}, "time must name a column, got ''"),
        ({"time": "pickup", "size": "soon"}, "size must be the length of a window.*'soon'"),
        ({"time": "pickup", "size": 30}, "size must be the length of a window.*30"),
        ({"time": "pickup", "size": "0 s"}, "size must be > 0, got '0 s'"),
        ({"time": "pickup", "size": timedelta(0)}, "size must be > 0"),
    ],
    ids=str,
)
def test_a_wrong_argument_is_refused_by_name_rule_and_value(
    wrong: dict[str, Any], rule: str
) -> None:
    with pytest.raises(ValueError, match=rule):
        ConceptDriven(**{"by": "route", **wrong})


def test_a_value_asks_for_small_relative_errors_unless_another_aim_is_named() -> None:
    keys, values = spread()
    seen = seen_of(keys, values=values)
    default, named = ConceptDriven(by="route", value="fare"), shedder("cvopt")
    plans = [policy.plan(None, budget(0.1, learnt(policy, seen))) for policy in (default, named)]
    assert plans[0] == plans[1]


def test_the_reason_is_in_words() -> None:
    state = learnt(PLAIN, seen_of(zipf(50, 1_000)))
    assert PLAIN.plan(None, budget(0.5, state)).reason == "overload: frequent groups thinned"
