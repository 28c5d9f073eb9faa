"""The recorder: every batch once in the books, whatever happens to the events. Never raises."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spillway.cost.average import AverageCost
from spillway.loop import Loop
from spillway.note_values import Note
from spillway.objective import Latency
from spillway.overload.controller import FixedRate, HoldLatency
from spillway.shedders.semantic import Semantic
from spillway.spark.recorder import Recorder
from spillway.state.ledger import Entry, Ledger
from spillway.state.memory import Memory
from spillway.state.plan_log import PlanLog
from spillway.telemetry.events import Event, events_of
from spillway.telemetry.hooks import Hooks
from spillway.telemetry.teller import Watched
from spillway.values import (
    CostState,
    Forecast,
    LoopState,
    Observation,
    PinnedPlan,
    Plan,
    StratumCount,
)

LOOP = Loop(controller=HoldLatency(objective=Latency(average="2 s")))


def seen(batch_id: int, rows_kept: int = 60) -> Observation:
    return Observation(
        batch_id=batch_id,
        rows_in=100,
        rows_kept=rows_kept,
        duration_s=0.5,
        latency_s_mean=1.0,
        offset_span=100.0,
        quantiles=(1.0, 2.0, 3.0),
        strata=(StratumCount(name="all", rows_in=100, rows_kept=rows_kept),),
    )


def pin(state: Path, *batch_ids: int, query_id: str = "q", faults: int = 0) -> None:
    log = PlanLog.of(state, query_id)
    for batch_id in batch_ids:
        plan = Plan(rates=(0.6,), reason="overload")
        log.pin(PinnedPlan(batch_id=batch_id, salt=batch_id, plan=plan, faults=faults))


def recorder(state: Path, loop: Loop = LOOP) -> Recorder:
    return Recorder(loop=loop, state=state, identity=("topic", "partition", "offset"))


def record(to: Recorder, observed: Observation, query_id: str = "q", run_id: str = "r") -> None:
    to.record(observed, query_id=query_id, run_id=run_id, offsets="[[1,2]]", started_at_s=5.0)


def _books(state: Path) -> list[Entry]:
    """The books without their notes, which tell of batches in the order in which they came."""
    return [replace(entry, note=Note()) for entry in Ledger(state / "ledger").entries()]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    pin(tmp_path, *range(10))
    return tmp_path


def test_a_batch_is_written_down_with_plan_offsets_and_identity(state: Path) -> None:
    books = recorder(state)
    record(books, seen(0))
    (entry,) = Ledger(state / "ledger").entries()
    assert entry.plan == PlanLog.of(state, "q").read(0)
    assert (entry.offsets, entry.started_at_s) == ("[[1,2]]", 5.0)
    assert entry.identity == ("topic", "partition", "offset")
    assert entry.reason == "overload"
    assert entry.rows_shed == 40
    assert books.faults == 0


def test_quantiles_stay_out_of_the_ledger_and_in_the_state(state: Path) -> None:
    books = recorder(state)
    record(books, seen(0))
    assert Ledger(state / "ledger").entries()[0].seen.quantiles == ()
    assert books.state.seen is not None
    assert books.state.seen.quantiles == (1.0, 2.0, 3.0)


def lines(state: Path) -> list[bytes]:
    """What stands in the ledger's files."""
    files = sorted((state / "ledger").glob("*.jsonl"))
    return [line for file in files for line in file.read_bytes().splitlines() if line]


def test_a_doubled_event_changes_nothing(state: Path) -> None:
    books = recorder(state)
    record(books, seen(0))
    record(books, seen(1))
    before, text = books.state, lines(state)
    record(books, seen(1, rows_kept=99))
    assert books.state is before
    assert lines(state) == text
    assert len(text) == 2


def test_a_late_event_is_written_down_but_teaches_nothing(state: Path) -> None:
    books = recorder(state)
    for batch_id in (0, 1, 3):
        record(books, seen(batch_id))
    before = books.state
    record(books, seen(2))
    assert books.state is before
    assert [entry.batch_id for entry in Ledger(state / "ledger").entries()] == [0, 1, 2, 3]


def test_events_out_of_order_make_the_same_books(state: Path, tmp_path_factory: Any) -> None:
    other = tmp_path_factory.mktemp("other")
    pin(other, *range(10))
    in_order, shuffled = recorder(state), recorder(other)
    for batch_id in range(6):
        record(in_order, seen(batch_id))
    for batch_id in (3, 0, 5, 1, 4, 2):
        record(shuffled, seen(batch_id))
    assert _books(state) == _books(other)
    assert shuffled.state.batch_id == 5


def test_a_dropped_event_leaves_a_gap_and_the_loop_goes_on(state: Path) -> None:
    books = recorder(state)
    for batch_id in (0, 1, 4):
        record(books, seen(batch_id))
    assert [entry.batch_id for entry in Ledger(state / "ledger").entries()] == [0, 1, 4]
    assert books.state.batch_id == 4
    assert books.faults == 0


def test_a_batch_run_again_after_a_restart_counts_once(state: Path) -> None:
    record(recorder(state), seen(0), run_id="first")
    record(recorder(state), seen(0), run_id="second")
    totals = Ledger(state / "ledger").totals()
    assert (totals.batches, totals.rows_in) == (1, 100)


def test_a_restart_goes_on_from_the_saved_state(state: Path) -> None:
    first = recorder(state)
    for batch_id in range(3):
        record(first, seen(batch_id))
    assert recorder(state).state == first.state


def test_a_batch_without_a_plan_is_a_fault(tmp_path: Path) -> None:
    books = recorder(tmp_path)
    record(books, seen(0))
    assert books.faults == 1
    assert Ledger(tmp_path / "ledger").entries()[0].reason == "open: no pinned plan"


def test_a_batch_without_rows_needs_no_plan(tmp_path: Path) -> None:
    """Of two sources one is silent: Spark leaves its gate out of the batch."""
    books = recorder(tmp_path)
    silent = replace(
        seen(0), rows_in=0, rows_kept=0, strata=(StratumCount(name="all", rows_in=0, rows_kept=0),)
    )
    record(books, silent)
    assert books.faults == 0
    assert Ledger(tmp_path / "ledger").entries()[0].reason == "no plan needed"


def test_the_faults_of_the_plan_are_added_up(tmp_path: Path) -> None:
    pin(tmp_path, 0, faults=3)
    pin(tmp_path, 1, faults=0)
    books = recorder(tmp_path)
    record(books, seen(0))
    record(books, seen(1))
    assert books.faults == 3


def test_a_damaged_plan_is_complained_about_and_the_batch_still_written(state: Path) -> None:
    (PlanLog.of(state, "q").folder / "0.json").write_bytes(b"damaged")
    books = recorder(state)
    record(books, seen(0))
    assert books.faults >= 1
    assert Ledger(state / "ledger").totals().rows_in == 100


def test_a_damaged_state_is_counted_and_the_start_is_clean(state: Path) -> None:
    (state / "state.json").write_bytes(b"damaged")
    books = recorder(state)
    assert books.state == LoopState()
    assert books.faults == 1


def unwritable_ledger(state: Path) -> None:
    (state / "ledger").write_text("a file where a folder should be")


def full_ledger(state: Path) -> None:
    (state / "ledger").mkdir()
    (state / "ledger" / "00000000.jsonl").symlink_to("/dev/full")


@pytest.mark.parametrize("breaks", [unwritable_ledger, full_ledger])
def test_a_ledger_that_cannot_be_written_is_counted_and_the_loop_still_learns(
    state: Path, breaks: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    breaks(state)
    books = recorder(state)
    with caplog.at_level(logging.WARNING, logger="spillway"):
        record(books, seen(0))
    assert books.faults == 1
    assert "ledger not written" in caplog.text
    assert books.state.batch_id == 0
    assert Memory(folder=state).load()[0] == books.state


def test_a_state_that_cannot_be_written_is_counted_and_the_ledger_still_kept(state: Path) -> None:
    (state / "state.json").mkdir()
    (state / "state.json" / "in the way").touch()
    (state / "state.previous.json").mkdir()
    (state / "state.previous.json" / "in the way").touch()
    books = recorder(state)
    faults = books.faults
    record(books, seen(0))
    assert books.faults == faults + 1
    assert books.state.batch_id == 0
    assert Ledger(state / "ledger").totals().rows_in == 100


def test_a_folder_that_nobody_can_make_raises_nothing() -> None:
    books = recorder(Path("/proc/spillway"))
    record(books, seen(0))
    assert books.faults >= 2
    assert books.state.batch_id == 0


def test_strata_that_do_not_add_up_are_counted_and_raise_nothing(state: Path) -> None:
    """ "Never raises": inside `foreachBatch` nobody stands behind the recorder."""
    books = recorder(state)
    record(books, replace(seen(0), rows_in=101))
    assert books.faults >= 1
    assert Ledger(state / "ledger").entries() == []


class Stumbling(FixedRate):
    """A user's controller that cannot learn."""

    def learn(self, state: Any, seen: Observation) -> Any:
        raise ZeroDivisionError("my mistake")


def test_a_policy_that_cannot_learn_is_counted_and_the_batch_is_in_the_books(state: Path) -> None:
    books = recorder(state, Loop(controller=Stumbling(0.5)))
    record(books, seen(0))
    assert books.faults >= 1
    assert Ledger(state / "ledger").totals().rows_in == 100


def test_threads_that_bring_the_same_event_write_it_once(state: Path) -> None:
    books, start = recorder(state), threading.Barrier(8)

    def bring() -> None:
        start.wait()
        for batch_id in range(10):
            record(books, seen(batch_id))

    threads = [threading.Thread(target=bring) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(lines(state)) == 10
    assert Ledger(state / "ledger").damaged_lines() == 0


def test_old_plans_are_pruned_on_the_way(tmp_path: Path) -> None:
    pin(tmp_path, *range(0, 120, 10), 11_200)
    books = recorder(tmp_path)
    record(books, seen(11_200))
    assert PlanLog.of(tmp_path, "q").batch_ids() == [11_200]


def test_another_query_starts_its_own_books(state: Path) -> None:
    pin(state, 0, query_id="other")
    books = recorder(state)
    for batch_id in range(3):
        record(books, seen(batch_id))
    record(books, seen(0), query_id="other", run_id="r2")
    assert books.state.query_id == "other"
    assert books.state.batch_id == 0
    assert Ledger(state / "ledger").totals("q").batches == 3
    assert Ledger(state / "ledger").totals("other").batches == 1


def test_a_plan_that_the_gate_could_not_follow_is_not_booked_as_followed(state: Path) -> None:
    """Pinned by a policy with one stratum, replayed under one with three: the gate was open."""
    books = recorder(state, replace(LOOP, shedder=Semantic(utility="importance")))
    record(books, seen(0, rows_kept=100))
    (entry,) = Ledger(state / "ledger").entries()
    assert entry.plan is None
    assert entry.reason == "open: no pinned plan"
    assert books.faults == 1


def test_the_books_note_guard_objective_budget_and_words(state: Path) -> None:
    objective = Latency(average="2 s")
    watched, hooks, heard = Watched(guard="rides", objective=objective), Hooks(), list[Event]()
    hooks.add(heard.append)
    books = Recorder(loop=LOOP, state=state, identity=(), watched=watched, hooks=hooks)
    record(books, seen(0))
    hooks.settle()
    (entry,) = Ledger(state / "ledger").entries()
    assert (entry.note.guard, entry.note.objective, entry.note.limit_s) == ("rides", "average", 2.0)
    assert entry.note.words == "keeping 60 %: every row with the same chance"
    assert heard == list(events_of(entry))


def test_a_hook_that_comes_while_the_stream_runs_hears_what_follows(state: Path) -> None:
    hooks, heard = Hooks(), list[Event]()
    books = Recorder(loop=LOOP, state=state, identity=(), hooks=hooks)
    record(books, seen(0))
    hooks.add(heard.append)
    record(books, seen(1))
    hooks.settle()
    assert heard == list(events_of(Ledger(state / "ledger").entries()[1]))


def test_a_fault_is_an_alarm_of_the_next_batch(state: Path) -> None:
    books = recorder(state)
    books.complain("the disk\nis full")
    record(books, seen(0))
    (entry,) = Ledger(state / "ledger").entries()
    assert [(alarm.kind, alarm.text) for alarm in entry.note.alarms] == [
        ("fault", "the disk\\nis full")
    ]
    assert entry.note.faults == 1


def test_a_batch_is_booked_even_if_nothing_can_be_noted_of_it(state: Path) -> None:
    class Broken(AverageCost):
        def forecast(self, state: CostState, rows: float) -> Forecast | None:
            raise RuntimeError("no idea")

    books = recorder(state, replace(LOOP, cost=Broken()))
    record(books, seen(0))
    (entry,) = Ledger(state / "ledger").entries()
    assert (entry.rows_shed, entry.note) == (40, Note())
    assert books.faults == 1


def test_what_a_batch_spent_on_its_rows_is_its_time_less_what_a_batch_takes_anyway(
    state: Path,
) -> None:
    books = recorder(state)
    for batch_id in range(6):
        record(books, replace(seen(batch_id), duration_s=0.5))
    note = Ledger(state / "ledger").entries()[-1].note
    forecast = LOOP.cost.forecast(books.state.cost, 60.0)
    assert forecast is not None
    assert note.spent_s == pytest.approx(0.5 - forecast.fixed_s, abs=1e-6)
    assert note.cost is not None
    assert note.cost.error == pytest.approx(0.0, abs=1e-6)
