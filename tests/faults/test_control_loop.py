"""The shipped control path survives kills and damage at any write; a broken one is caught."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from faults.control_loop import BrokenPromise, run_all
from spillway.spark.recorder import Recorder
from spillway.state.memory import Memory
from spillway.state.plan_log import PlanLog

SEEDS = range(7_000_000, 7_000_400)


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, logger="spillway")  # and back again afterwards


def test_400_runs_keep_every_promise_and_see_every_kind_of_fault() -> None:
    tally = run_all(SEEDS)
    assert tally.runs == 400
    assert 0 < tally.rows_shed < tally.rows
    kinds = {
        *("killed before a write", "killed after a write", "killed before the sink"),
        *("killed between sink and commit", "killed between commit and record"),
        *("disk full", "task failed", "clock jumped"),
        *("event dropped", "event doubled", "event late"),
        *("file truncated", "file flipped", "file empty", "file future", "file foreign"),
        "file gone",
    }
    assert {kind for kind, count in tally.hits.items() if count} == kinds


def test_a_run_is_its_seed() -> None:
    assert run_all(range(50)) == run_all(range(50))
    assert run_all(range(50)) != run_all(range(50, 100))


def _forgetful_pin(self: PlanLog, plan: Any) -> Any:
    return plan  # decided, used, never written


def _other_salt(read: Callable[..., Any]) -> Callable[..., Any]:
    def read_other(self: PlanLog, batch_id: int) -> Any:
        pinned = read(self, batch_id)
        return pinned and replace(pinned, salt=pinned.salt ^ 1)

    return read_other


def _miscounting(record: Callable[..., None]) -> Callable[..., None]:
    def record_one_less(self: Recorder, seen: Any, **given: Any) -> None:
        (count,) = seen.strata
        less = max(seen.rows_kept - 1, 0)
        strata = (replace(count, rows_kept=less),)
        record(self, replace(seen, rows_kept=less, strata=strata), **given)

    return record_one_less


def _raising_load(self: Memory) -> Any:
    raise ValueError("a damaged file reached the query")


@pytest.mark.parametrize(
    ("owner", "name", "broken", "error", "message"),
    [
        (PlanLog, "pin", lambda _: _forgetful_pin, BrokenPromise, "must not flip"),
        (PlanLog, "read", _other_salt, BrokenPromise, "must not flip|no wrong plan"),
        (Recorder, "record", _miscounting, BrokenPromise, "books must be exact"),
        (Memory, "load", lambda _: _raising_load, ValueError, "reached the query"),
    ],
    ids=["a pin that is not written", "another salt", "a miscount", "a crash loop"],
)
def test_a_control_path_that_breaks_a_promise_is_caught(
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    name: str,
    broken: Callable[[Any], Any],
    error: type[Exception],
    message: str,
) -> None:
    monkeypatch.setattr(owner, name, broken(getattr(owner, name)))
    with pytest.raises(error, match=message):
        run_all(SEEDS)


def test_a_broken_promise_names_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Recorder, "record", _miscounting(Recorder.record))
    with pytest.raises(BrokenPromise, match=r"seed 70000\d\d, life \d+: books must be exact"):
        run_all(SEEDS)
