"""One operator on virtual time: exact queues, the naive LAS, the promises of the shipped one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.cost.sketch import SketchShape
from spillway.shedders.admission import Admission, Aim, Condition
from spillway.sim.one_operator import Policy, Run, Shedding, simulate
from spillway.sim.workloads import MS, Recipe, Stream
from tests.naive_las import paper_las, queue
from tests.naive_sketch import NaiveOperator

LIMIT_NS = 64 * MS // 10
SMALL = Recipe(rows=2000, keys=50)


def stream_of(*rows: tuple[int, int]) -> Stream:
    arrivals, costs = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    return Stream(keys=np.zeros(len(rows), dtype=np.int64), costs_ns=costs, arrivals_ns=arrivals)


def exact(**options: object) -> Shedding:
    las = Admission(limit_ns=LIMIT_NS, margin=1.0)
    return Shedding(policy=Policy.FULL_KNOWLEDGE, las=las, **options)  # type: ignore[arg-type]


def test_a_queue_computed_by_hand() -> None:
    """Rows at 0, 1, 2, 20 that take 5 each: waits 0, 4, 8, 0."""
    unlimited = Admission(limit_ns=10**9, margin=1.0)
    stream = stream_of((0, 5), (1, 5), (2, 5), (20, 5))
    run = simulate(stream, Shedding(policy=Policy.FULL_KNOWLEDGE, las=unlimited))
    assert run.latencies_ns.tolist() == [0, 4, 8, 0]


def test_full_knowledge_by_hand() -> None:
    """Limit 3 on the mean: waits 0, 4 (mean 2) pass, 8 (mean 4) goes, then 5 (mean 3) passes."""
    las = Admission(limit_ns=3, margin=1.0)
    stream = stream_of((0, 5), (1, 5), (2, 5), (5, 5), (6, 5))
    run = simulate(stream, Shedding(policy=Policy.FULL_KNOWLEDGE, las=las))
    assert run.latencies_ns.tolist() == [0, 4, -1, 5, -1]


@given(
    policy=st.sampled_from(
        [Policy.BASE_LINE, Policy.STRAW_MAN, Policy.FULL_KNOWLEDGE, Policy.DEFAULT]
    ),
    aim=st.sampled_from(list(Aim)),
    share=st.floats(-0.5, 0.9),
    seed=st.integers(0, 1000),
)
@settings(max_examples=40)
def test_waits_are_those_of_the_naive_queue_whoever_decides(
    policy: Policy, aim: Aim, share: float, seed: int
) -> None:
    stream = SMALL.stream(seed, seed).under_provisioned(share)
    las = Admission(limit_ns=LIMIT_NS, aim=aim)
    run = simulate(stream, Shedding(policy=policy, las=las, share=0.3), seed=seed)
    assert run.latencies_ns.tolist() == queue(stream, run.kept.tolist())
    assert ((run.weights > 0) == run.kept).all()
    assert (run.weights[run.kept] >= 1).all()


@given(seed=st.integers(0, 1000), share=st.floats(-0.2, 0.8))
@settings(max_examples=15)
def test_the_papers_las_is_the_naive_one(seed: int, share: float) -> None:
    stream = replace(SMALL, rows=1200).stream(seed, seed).under_provisioned(share)
    shape = SketchShape(rows=3, columns=20, seed=seed)
    las = Admission(limit_ns=LIMIT_NS, faithful=True, margin=1.0, factor=1.05)
    config = Shedding(policy=Policy.PAPER, las=las, shape=shape, window=100, tolerance=0.2)
    operator = NaiveOperator([int(m) for m in shape.multipliers], 20, 100, 0.2)
    wanted = paper_las(stream, limit_ns=LIMIT_NS, factor=1.05, operator=operator)
    assert simulate(stream, config).kept.tolist() == wanted


@given(seed=st.integers(0, 1000), share=st.floats(0.0, 0.9))
@settings(max_examples=20)
def test_full_knowledge_holds_the_limit_at_every_row(seed: int, share: float) -> None:
    """Theorem 4.1."""
    stream = SMALL.stream(seed, seed).under_provisioned(share)
    waits = simulate(stream, exact()).latencies_ns
    kept = waits[waits >= 0]
    assert (np.cumsum(kept) <= LIMIT_NS * np.arange(1, kept.size + 1)).all()


@pytest.mark.parametrize("share", [-0.1, 0.0, 0.25, 0.5, 0.9])
def test_the_shipped_las_meets_the_limit_from_the_first_row_on(share: float) -> None:
    """The mean over 30 runs, and at most 2 points more rows dropped than Full Knowledge."""
    ours, full = [], []
    for seed in range(30):
        stream = Recipe().stream(seed, seed).under_provisioned(share)
        ours.append(simulate(stream, Shedding(shape=SketchShape(seed=seed)), seed=seed))
        full.append(simulate(stream, exact()))
    assert np.mean([run.latency_ms_mean() for run in ours]) <= 6.4
    extra = np.mean([run.dropped() for run in ours]) - np.mean([run.dropped() for run in full])
    assert extra <= 0.02


def test_fewest_drops_30_percent_fewer_rows_than_full_knowledge() -> None:
    ours, full = [], []
    for seed in range(30):
        stream = Recipe().stream(seed, seed).under_provisioned(0.25)
        fewest = Admission(limit_ns=LIMIT_NS, aim=Aim.FEWEST)
        run = simulate(stream, Shedding(las=fewest, shape=SketchShape(seed=seed)), seed=seed)
        assert run.latency_ms_mean() <= 6.4
        ours.append(run.dropped())
        full.append(simulate(stream, exact()).dropped())
    assert np.mean(ours) <= 0.7 * np.mean(full)


def test_unbiased_totals_are_unbiased_and_vary_less_than_uniform_ones_for_the_work() -> None:
    """z-test (false-alarm rate 1e-4) over 100 runs; variance times work against Base Line's."""
    stream = Recipe(rows=8192).stream(3, 3).under_provisioned(0.4)
    las = Admission(limit_ns=10 * LIMIT_NS, aim=Aim.UNBIASED)
    uniform = Shedding(policy=Policy.BASE_LINE, las=las, share=0.4)
    ours = [simulate(stream, Shedding(las=las), seed=seed) for seed in range(100)]
    base = [simulate(stream, uniform, seed=seed) for seed in range(100)]
    counts = [run.weights[run.kept].sum() for run in ours]
    z = (np.mean(counts) - stream.rows) / (np.std(counts, ddof=1) / np.sqrt(len(counts)))
    assert abs(z) < 3.9

    def price(runs: list[Run]) -> float:
        work = np.mean([stream.costs_ns[run.kept].sum() for run in runs])
        return float(np.mean([run.count_variance() for run in runs]) * work)

    assert price(ours) < 0.95 * price(base)
    assert np.mean([run.latency_ms_mean() for run in ours]) <= 64


@pytest.mark.parametrize("condition", list(Condition))
def test_every_condition_is_held_closely(condition: Condition) -> None:
    stream = Recipe().stream(5, 5).under_provisioned(0.25)
    las = Admission(limit_ns=10 * LIMIT_NS, condition=condition)
    waits = simulate(stream, Shedding(las=las)).latencies_ns
    kept = waits[waits >= 0] / LIMIT_NS / 10
    if condition == Condition.EACH:
        assert np.quantile(kept, 0.99) <= 1.15
    latest = np.convolve(kept, np.ones(1024) / 1024, mode="valid")
    assert latest.max() <= (1.15 if condition == Condition.WINDOW else 10)
    assert kept.mean() <= 1.0


def test_feedback_that_takes_long_costs_accuracy_but_not_control() -> None:
    stream = Recipe().stream(5, 5).under_provisioned(0.25)
    slow = simulate(stream, Shedding(delay_ns=500 * MS))
    assert slow.latency_ms_mean() < 10 * 6.4
    assert slow.replies <= slow.requests


def test_a_run_is_its_seed() -> None:
    stream = SMALL.stream(1, 1).under_provisioned(0.5)
    las = Admission(limit_ns=LIMIT_NS, aim=Aim.UNBIASED)
    first, again, other = (simulate(stream, Shedding(las=las), seed=s) for s in (4, 4, 5))
    assert first.latencies_ns.tolist() == again.latencies_ns.tolist()
    assert first.latencies_ns.tolist() != other.latencies_ns.tolist()


def test_messages_are_counted() -> None:
    stream = SMALL.stream(1, 1).under_provisioned(-0.5)
    run = simulate(stream, Shedding(window=64))
    assert run.requests == run.kept.sum() // 16
    assert 5 + stream.rows // 64 <= run.sketches <= 6 + stream.rows // 64
    base = simulate(stream, Shedding(policy=Policy.BASE_LINE))
    assert (base.sketches, base.requests, base.replies) == (0, 0, 0)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"window": 0}, "window"),
        ({"delay_ns": -1}, "delay_ns"),
        ({"heavy_buckets": -1}, "heavy_buckets"),
        ({"prelude": -1}, "prelude"),
        ({"policy": Policy.PAPER}, "faithful"),
    ],
)
def test_nonsense_is_refused_by_name(options: dict[str, object], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Shedding(**options)  # type: ignore[arg-type]
