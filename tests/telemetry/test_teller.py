"""What is noted of a batch: rates, SIC, alarms, within bounded memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from spillway.estimate.sic import SicState, SicWindow
from spillway.objective import Latency
from spillway.state.ledger import Entry
from spillway.telemetry.teller import Teller, Watched
from spillway.values import Limits, Observation, PinnedPlan, Plan

WATCHED = Watched(guard="rides", objective=Latency(average="2 s"))


def entry(
    batch: int,
    *,
    rows: int = 1000,
    kept: int = 1000,
    latency_s: float | None = 1.0,
    at_s: float | None = None,
    run_id: str = "r",
    reason: str = "overload",
) -> Entry:
    seen = Observation(
        batch_id=batch, rows_in=rows, rows_kept=kept, duration_s=0.5, latency_s_mean=latency_s
    )
    plan = Plan(rates=(kept / rows if rows else 1.0,), reason=reason)
    return Entry(
        query_id="q",
        run_id=run_id,
        seen=seen,
        plan=PinnedPlan(batch_id=batch, salt=1, plan=plan),
        identity=(),
        offsets="[]",
        started_at_s=float(batch) if at_s is None else at_s,
    )


def test_the_rate_is_what_came_since_the_batch_before_began() -> None:
    teller = Teller(WATCHED)
    rates = [teller.noted(entry(b, at_s=2.0 * b)).note.rate for b in range(3)]
    assert rates == [None, 500.0, 500.0]


def test_normal_is_the_median_rate_of_batches_that_kept_all() -> None:
    teller = Teller(WATCHED)
    for batch in range(6):
        teller.noted(entry(batch))
    note = teller.noted(entry(6, rows=4200, kept=1302)).note
    assert (note.rate, note.normal) == (4200.0, 1000.0)
    assert note.words == "rate 4.2 × normal, keeping 31 %: every row with the same chance"
    assert teller.noted(entry(7)).note.normal == 1000.0


def test_a_new_start_of_the_query_does_not_count_the_time_it_was_down() -> None:
    teller = Teller(WATCHED)
    teller.noted(entry(0))
    assert teller.noted(entry(1, at_s=9_000.0, run_id="again")).note.rate is None


def test_sic_is_that_of_a_window_over_one_source() -> None:
    """By the definition: what the rows of the window carry, if counts alone decide."""
    rng = np.random.default_rng(4)
    teller, window, state = Teller(WATCHED), SicWindow(window_s=30.0, slots=30), SicState()
    for batch in range(100):
        rows = int(rng.integers(0, 1000))
        kept = int(rng.integers(0, rows + 1))
        note = teller.noted(entry(batch, rows=rows, kept=kept)).note
        state = window.learn(state, at_s=float(batch), rows_in=[rows], rows_kept=[kept])
        assert note.sic == pytest.approx(window.sic(state, now_s=float(batch)))


def test_a_single_late_batch_is_no_alarm_three_in_a_row_are() -> None:
    teller = Teller(WATCHED)
    late = (1.0, 9.0, 1.0, 9.0, 9.0, 9.0, 1.0)
    alarms = [teller.noted(entry(b, latency_s=each)).note.alarms for b, each in enumerate(late)]
    assert [len(found) for found in alarms] == [0, 0, 0, 0, 0, 1, 0]
    (alarm,) = alarms[5]
    assert alarm.kind == "objective"
    assert alarm.text == "9 s in the last of 3 batches in a row: average latency <= 2 s"


def test_the_first_batch_of_a_start_is_slow_and_does_not_count_as_late() -> None:
    teller = Teller(WATCHED)
    alarms = [teller.noted(entry(batch, latency_s=9.0)).note.alarms for batch in range(4)]
    assert [len(found) for found in alarms] == [0, 0, 0, 1]


def test_without_an_objective_nothing_is_late() -> None:
    teller = Teller(Watched(guard="rides"))
    notes = [teller.noted(entry(batch, latency_s=1e9)).note for batch in range(5)]
    assert not any(note.alarms for note in notes)
    assert notes[0].limit_s is None


def test_rows_at_the_floor_and_stale_plans_are_alarms() -> None:
    teller = Teller(replace(WATCHED, limits=Limits(keep_min=0.01)))
    assert [a.kind for a in teller.noted(entry(0, kept=12)).note.alarms] == ["floor"]
    stale = entry(1, kept=500, reason="no recent observation")
    assert [a.kind for a in teller.noted(stale).note.alarms] == ["stale"]


def test_a_fault_is_told_once_with_the_next_batch_and_many_are_counted() -> None:
    teller = Teller(WATCHED)
    for number in range(12):
        teller.hear(f"fault {number}")
    alarms = teller.noted(entry(0)).note.alarms
    assert [a.text for a in alarms] == [*(f"fault {n}" for n in range(7, 12)), "and 7 more faults"]
    assert teller.noted(entry(1)).note.alarms == ()
