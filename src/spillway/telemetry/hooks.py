"""Tells functions of every event, on a thread of their own: a slow or broken one harms nobody."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spillway.telemetry.events import Event

Hook = Callable[["Event"], None]

_WAITING_MAX = 10_000

_log = logging.getLogger("spillway")


class Hooks:
    """The functions of one guard. What they cannot take in time is dropped and counted."""

    def __init__(self, *, waiting_max: int = _WAITING_MAX) -> None:
        """Start with no function, and no thread."""
        self.dropped = 0
        self.failed = 0
        self._hooks: list[Hook] = []
        self._waiting: queue.Queue[Event] = queue.Queue(maxsize=waiting_max)
        self._thread: threading.Thread | None = None

    def add(self, hook: Hook) -> Callable[[], None]:
        """Let a function hear all events from now on; return what ends that."""
        if not callable(hook):
            raise ValueError(f"hook must be a function of an event, got {hook!r}")
        self._hooks.append(hook)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True, name="spillway-hooks")
            self._thread.start()

        def remove() -> None:
            with contextlib.suppress(ValueError):
                self._hooks.remove(hook)

        return remove

    def tell(self, events: Iterable[Event]) -> None:
        """Pass events on without waiting."""
        if not self._hooks:
            return
        for event in events:
            try:
                self._waiting.put_nowait(event)
            except queue.Full:
                self.dropped += 1

    def settle(self) -> None:
        """Wait until all that was told has been heard."""
        self._waiting.join()

    def __bool__(self) -> bool:
        """Say whether anybody hears."""
        return bool(self._hooks)

    def _run(self) -> None:
        while True:
            event = self._waiting.get()
            for hook in tuple(self._hooks):
                self._call(hook, event)
            self._waiting.task_done()

    def _call(self, hook: Hook, event: Event) -> None:
        try:
            hook(event)
        except Exception:
            self.failed += 1
            if self.failed == 1:  # one is enough to know
                _log.exception("a hook failed; further failures are counted only")
