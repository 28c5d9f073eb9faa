"""Hooks hear every event, and cannot harm the guard."""

from __future__ import annotations

import threading
from dataclasses import FrozenInstanceError

import pytest

from spillway.telemetry.events import (
    Alarmed,
    Budgeted,
    Event,
    Observed,
    Planned,
    Reasoned,
    events_of,
)
from spillway.telemetry.hooks import Hooks
from tests.telemetry.making import Story

ENTRIES = Story(late=1.3).entries(40, 20)


def test_a_batch_is_told_as_observation_budget_plan_reason_and_alarms() -> None:
    events = events_of(ENTRIES[15])
    kinds = [type(event) for event in events]
    assert kinds == [Observed, Budgeted, Planned, Reasoned, Alarmed]
    assert {(event.guard, event.batch_id) for event in events} == {("rides", 55)}
    reasoned = next(event for event in events if isinstance(event, Reasoned))
    assert reasoned.words.endswith("keeping 31 %: costliest keys first")


def test_events_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        events_of(ENTRIES[0])[0].batch_id = 7  # type: ignore[misc]


def test_every_hook_hears_every_event_in_order_until_it_is_removed() -> None:
    hooks, first, second = Hooks(), list[Event](), list[Event]()
    hooks.add(first.append)
    remove = hooks.add(second.append)
    hooks.tell(events_of(ENTRIES[0]))
    hooks.settle()
    remove()
    remove()  # again does no harm
    hooks.tell(events_of(ENTRIES[1]))
    hooks.settle()
    assert second == list(events_of(ENTRIES[0]))
    assert first == [*events_of(ENTRIES[0]), *events_of(ENTRIES[1])]


def test_a_hook_that_raises_is_counted_and_the_others_hear(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hooks, heard = Hooks(), list[Event]()

    def broken(_: Event) -> None:
        raise RuntimeError("no disk")

    hooks.add(broken)
    hooks.add(heard.append)
    hooks.tell(events_of(ENTRIES[0]))
    hooks.settle()
    assert hooks.failed == len(heard) == len(events_of(ENTRIES[0]))
    assert len(caplog.records) == 1  # one line, however many failures


def test_a_hook_that_hangs_holds_nobody_up_and_what_it_misses_is_counted() -> None:
    hooks, go_on = Hooks(waiting_max=4), threading.Event()
    hooks.add(lambda _: go_on.wait(30) and None)
    for entry in ENTRIES:
        hooks.tell(events_of(entry))  # returns at once, or the test times out
    told = sum(len(events_of(entry)) for entry in ENTRIES)
    assert told - 5 <= hooks.dropped <= told - 4
    go_on.set()
    hooks.settle()


def test_without_hooks_nothing_is_queued_and_no_thread_runs() -> None:
    hooks = Hooks()
    hooks.tell(events_of(ENTRIES[0]))
    hooks.settle()
    assert not hooks


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(ValueError, match="hook must be a function"):
        Hooks().add("print")  # type: ignore[arg-type]
