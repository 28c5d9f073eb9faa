"""The planner without Spark: one plan per batch for good, and open whatever breaks."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pytest

from spillway.loop import Loop
from spillway.objective import Latency
from spillway.overload.controller import FixedRate, HoldLatency
from spillway.shedders.semantic import Semantic
from spillway.spark.control import Planner, check_micro_batch, in_time
from spillway.spark.uniform import salt_of
from spillway.state.memory import Memory
from spillway.state.plan_log import PlanLog
from spillway.values import Budget, Limits, LoopState, Observation, PinnedPlan, Plan

TIMEOUT_S = 0.1


@dataclass
class Policy:
    """A user's shedder: answers by a function."""

    answer: Callable[[], Any]
    strata: tuple[str, ...] = ("low", "high")
    score: str | None = "u"
    quantiles: tuple[float, ...] = ()
    calls: list[Budget] = field(default_factory=list)

    def plan(self, seen: Observation | None, budget: Budget) -> Plan:
        self.calls.append(budget)
        answer: Plan = self.answer()
        return answer


def planner(
    state: Path,
    policy: Any = None,
    *,
    rate: float = 0.25,
    on_error: Literal["open", "last"] = "open",
    checkpoint: Path | None = None,
) -> Planner:
    parts = {} if policy is None else {"shedder": policy}
    loop = Loop(controller=FixedRate(rate), limits=Limits(timeout_s=TIMEOUT_S), **parts)
    return Planner(loop=loop, state=state, checkpoint=checkpoint, on_error=on_error)


def raising(error: BaseException) -> Callable[[], Any]:
    def answer() -> Any:
        raise error

    return answer


@pytest.fixture
def hanging() -> Iterator[Callable[[], Any]]:
    """A policy that hangs until the test is over."""
    over = threading.Event()
    yield lambda: over.wait(30)
    over.set()


def is_open(pinned: PinnedPlan, strata: int = 2) -> bool:
    return not pinned.plan.sheds and len(pinned.plan.rates) == strata


# Pinning -------------------------------------------------------------------------------------


def test_a_plan_is_pinned_under_its_batch_with_a_salt_of_its_own(tmp_path: Path) -> None:
    first, second = planner(tmp_path).plan_for(0, "q"), planner(tmp_path).plan_for(1, "q")
    seed = Memory(folder=tmp_path).seed()
    assert (first.salt, second.salt) == (salt_of(seed, 0), salt_of(seed, 1))
    assert first.salt != second.salt
    assert first.plan.rates == (0.25,)
    assert first.faults == 0
    assert PlanLog.of(tmp_path, "q").read(0) == first


def test_a_pinned_plan_is_used_again_and_the_policy_is_not_asked_twice(tmp_path: Path) -> None:
    policy = Policy(lambda: Plan(rates=(0.1, 1.0), edges=(5.0,), reason="mine"))
    first = planner(tmp_path, policy).plan_for(3, "q")
    assert planner(tmp_path, policy).plan_for(3, "q") == first
    assert len(policy.calls) == 1


def test_a_replay_agrees_after_state_and_policy_settings_changed(tmp_path: Path) -> None:
    first = planner(tmp_path, rate=0.25).plan_for(3, "q")
    seen = Observation(batch_id=3, rows_in=1_000_000, rows_kept=10, duration_s=60.0)
    Memory(folder=tmp_path).save(LoopState(query_id="q", batch_id=3, seen=seen))
    assert planner(tmp_path, rate=0.9).plan_for(3, "q") == first
    assert planner(tmp_path, Policy(raising(ValueError()), ("all",))).plan_for(3, "q") == first


def test_a_replay_after_the_shedder_was_changed_gets_a_plan_that_fits_its_strata(
    tmp_path: Path,
) -> None:
    """A restart with another shedder in mid-batch: the gate reads a rate for each stratum."""
    planner(tmp_path).plan_for(3, "q")
    changed = planner(tmp_path, Semantic(utility="u")).plan_for(3, "q")
    assert len(changed.plan.rates) == 3
    assert len(changed.plan.edges) == 2


def test_another_query_id_has_another_log(tmp_path: Path) -> None:
    planner(tmp_path, rate=0.25).plan_for(0, "a")
    assert planner(tmp_path, rate=0.5).plan_for(0, "b").plan.rates == (0.5,)


def test_the_query_id_of_the_checkpoint_is_used_where_none_is_given(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text('{"id":"from-the-checkpoint"}')
    made = planner(tmp_path / "s", checkpoint=tmp_path).plan_for(0)
    assert PlanLog.of(tmp_path / "s", "from-the-checkpoint").read(0) == made


def test_threads_that_plan_at_once_agree(tmp_path: Path) -> None:
    start, made = threading.Barrier(8), []

    def plan(rate: float) -> None:
        start.wait()
        made.append(planner(tmp_path, rate=rate).plan_for(0, "q"))

    threads = [threading.Thread(target=plan, args=(0.1 * i,)) for i in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 8
    assert len(set(made)) == 1


PLAN_MANY = """
import json, sys
from pathlib import Path
from spillway.loop import Loop
from spillway.overload.controller import FixedRate
from spillway.spark.control import Planner
planner = Planner(loop=Loop(controller=FixedRate(float(sys.argv[2]))), state=Path(sys.argv[1]),
                  checkpoint=None)
print("ready", flush=True)
sys.stdin.readline()
plans = [planner.plan_for(batch_id, "q") for batch_id in range(30)]
print(json.dumps([[p.salt, *p.plan.rates] for p in plans]))
"""


def test_processes_that_plan_at_once_agree(tmp_path: Path) -> None:
    planners = [
        subprocess.Popen(
            [sys.executable, "-c", PLAN_MANY, str(tmp_path), rate],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rate in ("0.25", "0.75")
    ]
    for process in planners:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in planners:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    plans = [json.loads(process.communicate(timeout=60)[0]) for process in planners]
    assert len(plans[0]) == 30
    assert plans[0] == plans[1]


# A policy that fails -------------------------------------------------------------------------

BROKEN: dict[str, Callable[[], Any]] = {
    "raises": raising(ValueError("my mistake")),
    "returns None": lambda: None,
    "returns text": lambda: "keep all",
    "rates are text": lambda: Plan(rates=("a", "b"), edges=(1.0,)),  # type: ignore[arg-type]
    "too few rates": lambda: Plan(rates=(0.5,), edges=(1.0,)),
    "too many edges": lambda: Plan(rates=(0.5, 0.5), edges=(1.0, 2.0)),
    "recurses": lambda: BROKEN["recurses"](),
    "says what cannot be encoded": raising(ValueError("\udcff")),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_policy_opens_the_gate_and_is_counted(tmp_path: Path, broken: str) -> None:
    made = planner(tmp_path, Policy(BROKEN[broken])).plan_for(0, "q")
    assert is_open(made)
    assert made.faults == 1
    assert made.plan.reason.startswith("open: ")
    assert planner(tmp_path, Policy(BROKEN[broken])).plan_for(0, "q") == made


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_policy_that_exits_takes_nobody_along(tmp_path: Path) -> None:
    made = planner(tmp_path, Policy(raising(SystemExit(1)))).plan_for(0, "q")
    assert is_open(made)
    assert made.faults == 1


def test_rates_of_nan_open_the_gate_and_each_is_counted(tmp_path: Path) -> None:
    nonsense = Plan(rates=(float("nan"), float("nan")), edges=(1.0,))
    made = planner(tmp_path, Policy(lambda: nonsense)).plan_for(0, "q")
    assert is_open(made)
    assert made.faults == 2


def test_infinite_edges_are_pinned_so_that_a_replay_agrees(tmp_path: Path) -> None:
    policy = Policy(lambda: Plan(rates=(0.5, 1.0), edges=(float("inf"),), reason="mine"))
    first = planner(tmp_path, policy).plan_for(0, "q")
    replayed = planner(tmp_path, policy).plan_for(0, "q")
    assert replayed == first


def test_a_hanging_policy_opens_the_gate_in_time(
    tmp_path: Path, hanging: Callable[[], Any]
) -> None:
    began_s = time.monotonic()
    made = planner(tmp_path, Policy(hanging)).plan_for(0, "q")
    assert time.monotonic() - began_s < 5.0  # of 30 that the policy hangs; the limit is 0.1
    assert is_open(made)
    assert made.faults == 1
    assert "TimeoutError" in made.plan.reason


def test_a_policy_that_always_hangs_does_not_pile_up_threads(
    tmp_path: Path, hanging: Callable[[], Any]
) -> None:
    """Promise 6: what the driver holds does not grow with the stream."""
    before = threading.active_count()
    made = [planner(tmp_path, Policy(hanging)).plan_for(batch_id, "q") for batch_id in range(6)]
    assert all(is_open(each) for each in made)
    assert threading.active_count() - before <= 2


def test_the_reason_of_a_failure_is_bounded_and_on_one_printable_line(tmp_path: Path) -> None:
    """The text of an error reaches logs and ledger: it must not forge lines or colours there."""
    error = ValueError("x\nWARNING forged line \x1b[31m" + "y" * 10_000)
    reason = planner(tmp_path, Policy(raising(error))).plan_for(0, "q").plan.reason
    assert "ValueError" in reason
    assert len(reason) <= 600
    assert reason.isprintable()


def test_on_error_last_uses_the_plan_of_the_batch_before(tmp_path: Path) -> None:
    good = Policy(lambda: Plan(rates=(0.125, 0.5), edges=(5.0,), reason="mine"))
    before = planner(tmp_path, good).plan_for(0, "q")
    made = planner(tmp_path, Policy(raising(ValueError())), on_error="last").plan_for(1, "q")
    assert (made.plan.rates, made.plan.edges) == (before.plan.rates, before.plan.edges)
    assert made.faults == 1
    assert made.salt != before.salt


def test_on_error_last_says_why_it_went_back(tmp_path: Path) -> None:
    """The ledger's reason is that of the plan: it should not claim the policy decided so."""
    good = Policy(lambda: Plan(rates=(0.125, 0.5), edges=(5.0,), reason="mine"))
    planner(tmp_path, good).plan_for(0, "q")
    bad = Policy(raising(ValueError("my mistake")))
    made = planner(tmp_path, bad, on_error="last").plan_for(1, "q")
    assert "my mistake" in made.plan.reason


def test_on_error_last_opens_where_there_is_no_last(tmp_path: Path) -> None:
    made = planner(tmp_path, Policy(raising(ValueError())), on_error="last").plan_for(7, "q")
    assert is_open(made)
    assert made.faults == 1


def test_on_error_last_does_not_bring_back_a_plan_of_other_strata(tmp_path: Path) -> None:
    planner(tmp_path).plan_for(0, "q")
    made = planner(tmp_path, Policy(raising(ValueError())), on_error="last").plan_for(1, "q")
    assert len(made.plan.rates) == 2


# A state that fails --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"{}",
        b"\xff",
        b'{"spillway":9,"kind":"plan","crc32":0,"body":{}}',
        b'{"spillway":1,"kind":"plan","crc32":0,"body":' + b"[" * 100_000,
    ],
    ids=["empty", "no envelope", "not utf-8", "future", "nested"],
)
def test_a_corrupt_pinned_plan_keeps_everything_with_salt_0(tmp_path: Path, damage: bytes) -> None:
    planner(tmp_path).plan_for(0, "q")
    (PlanLog.of(tmp_path, "q").folder / "0.json").write_bytes(damage)
    made = planner(tmp_path).plan_for(0, "q")
    assert is_open(made, strata=1)
    assert made.salt == 0
    assert made.faults == 1


@pytest.mark.parametrize("folder", ["/proc/spillway", "/dev/null/spillway"])
def test_a_state_that_cannot_be_written_keeps_everything_with_salt_0(folder: str) -> None:
    made = planner(Path(folder)).plan_for(0, "q")
    assert is_open(made, strata=1)
    assert (made.salt, made.faults) == (0, 1)
    assert made.plan.reason.startswith("open: ")


def test_a_file_where_the_plan_log_should_be_keeps_everything_with_salt_0(tmp_path: Path) -> None:
    (tmp_path / "plans").write_text("a file where a folder should be")
    made = planner(tmp_path).plan_for(0, "q")
    assert is_open(made, strata=1)
    assert (made.salt, made.faults) == (0, 1)


def test_a_damaged_loop_state_is_counted_and_the_plan_is_made_from_a_clean_start(
    tmp_path: Path,
) -> None:
    (tmp_path / "state.json").write_bytes(b"damaged")
    made = planner(tmp_path).plan_for(0, "q")
    assert made.plan.rates == (0.25,)
    assert made.faults == 1


def test_a_damaged_seed_keeps_everything_with_salt_0(tmp_path: Path) -> None:
    Memory(folder=tmp_path).seed()
    (tmp_path / "seed.json").write_bytes(b"damaged")
    made = planner(tmp_path).plan_for(0, "q")
    assert is_open(made, strata=1)
    assert (made.salt, made.faults) == (0, 1)


# The size of the batch -----------------------------------------------------------------------


def checkpoint(folder: Path, *ends: object) -> Path:
    (folder / "offsets").mkdir(parents=True)
    for batch_id, end in enumerate(ends):
        text = end if isinstance(end, str) else json.dumps(end)
        (folder / "offsets" / str(batch_id)).write_text(f"v1\n{{}}\n{text}\n")
    return folder


def learnt(state: Path) -> LoopState:
    """Save a state that knows: 1,000 rows take 0.1 s, and offsets count rows."""
    loop = Loop(controller=HoldLatency(objective=Latency(average="2 s")))
    learning = LoopState()
    for batch_id in range(1, 6):
        seen = Observation(
            batch_id=batch_id, rows_in=1_000, rows_kept=1_000, duration_s=0.1, offset_span=1_000.0
        )
        learning = loop.learn(learning, seen, query_id="q", run_id="r")
    Memory(folder=state).save(learning)
    return learning


def holding(state: Path, log: Path) -> Planner:
    loop = Loop(controller=HoldLatency(objective=Latency(average="2 s")))
    return Planner(loop=loop, state=state, checkpoint=log)


def test_a_surprise_batch_is_met_in_that_very_batch(tmp_path: Path) -> None:
    log = checkpoint(tmp_path, *({"t": {"0": 1_000 * i}} for i in range(6)), {"t": {"0": 10**6}})
    learnt(tmp_path / "s")
    made = holding(tmp_path / "s", log).plan_for(6, "q")
    assert made.rows_expected == 10**6 - 5_000
    assert made.plan.rates[0] < 0.05
    assert made.probe == pytest.approx(20_000 / made.rows_expected)


def test_a_small_batch_is_probed_whole(tmp_path: Path) -> None:
    log = checkpoint(tmp_path, *(1_000 * i for i in range(7)))
    learnt(tmp_path / "s")
    made = holding(tmp_path / "s", log).plan_for(6, "q")
    assert made.rows_expected == 1_000.0
    assert made.probe == 1.0
    assert not made.plan.sheds


@pytest.mark.parametrize(
    "end",
    ["hello", "NaN", "Infinity", "-5000000", "[" * 100_000, "9" * 400, "null", "1e999"],
    ids=["text", "nan", "infinity", "backwards", "nested", "huge", "null", "overflow"],
)
def test_an_absurd_offset_log_never_raises_and_never_sheds_on_nonsense(
    tmp_path: Path, end: str
) -> None:
    log = checkpoint(tmp_path, *(1_000 * i for i in range(6)), end)
    learnt(tmp_path / "s")
    assert is_open(holding(tmp_path / "s", log).plan_for(6, "q"), strata=1)


def test_a_kafka_batch_is_sized_before_anything_was_learnt(tmp_path: Path) -> None:
    log = checkpoint(tmp_path, {"t": {"0": 10}}, {"t": {"0": 250}})
    assert holding(tmp_path / "s", log).plan_for(1, "q").rows_expected == 240.0


def test_a_source_that_does_not_count_rows_is_not_sized_before_anything_was_learnt(
    tmp_path: Path,
) -> None:
    log = checkpoint(tmp_path, {"logOffset": 3}, {"logOffset": 4})
    assert holding(tmp_path / "s", log).plan_for(1, "q").rows_expected is None


def test_a_batch_in_its_checkpoints_offset_log_is_a_micro_batch(tmp_path: Path) -> None:
    log = checkpoint(tmp_path, 5, 9)
    (log / "metadata").write_text('{"id":"q"}')
    assert check_micro_batch(log, "q", "1") == 1


def test_a_batch_that_is_not_in_its_offset_log_is_refused(tmp_path: Path) -> None:
    log = checkpoint(tmp_path, 5, 9)
    (log / "metadata").write_text('{"id":"q"}')
    with pytest.raises(RuntimeError, match="micro-batches only; batch 2 of query 'q'"):
        check_micro_batch(log, "q", "2")


@pytest.mark.parametrize("known", [True, False])
def test_a_batch_without_an_id_is_refused(tmp_path: Path, known: bool) -> None:
    with pytest.raises(RuntimeError, match="micro-batches only"):
        check_micro_batch(tmp_path if known else None, "q", None)


def test_without_the_querys_own_checkpoint_the_id_alone_must_do(tmp_path: Path) -> None:
    log = checkpoint(tmp_path, 5)
    (log / "metadata").write_text('{"id":"another"}')
    assert check_micro_batch(log, "q", "7") == 7
    assert check_micro_batch(None, "q", "7") == 7


def test_the_state_of_another_query_lends_its_costs_but_not_its_positions(tmp_path: Path) -> None:
    """The checkpoint was deleted, the state kept: batch 0 of the new query must not look like a
    continuation of the old query's overload."""
    state = learnt(tmp_path / "s")
    overloaded = Observation(batch_id=5, rows_in=10**7, rows_kept=10**4, duration_s=1.0)
    Memory(folder=tmp_path / "s").save(replace(state, seen=overloaded))
    made = holding(tmp_path / "s", tmp_path).plan_for(0, "another query")
    assert not made.plan.sheds


# in_time -------------------------------------------------------------------------------------


def test_in_time_returns_what_is_decided() -> None:
    decided = (Plan(rates=(1.0,)), 0)
    assert in_time(lambda: decided, 5.0) is decided


def test_in_time_raises_what_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        in_time(raising(ZeroDivisionError()), 5.0)


def test_in_time_gives_up_on_what_hangs(hanging: Callable[[], Any]) -> None:
    began_s = time.monotonic()
    with pytest.raises(TimeoutError, match=r"no plan within 0\.1 s"):
        in_time(hanging, TIMEOUT_S)
    assert 0.09 < time.monotonic() - began_s < 5.0
