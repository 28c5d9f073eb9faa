"""Follows the ledgers of several guards and keeps a view of each."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeVar

from spillway.state.ledger_lines import Line, Tail
from spillway.telemetry.events import events_of
from spillway.telemetry.view import View

GUARDS_MAX = 200
_LINES_AT_ONCE = 2000
_LEDGER = "ledger"

T = TypeVar("T")


class Followed:
    """One state folder: its tail, and the view that its lines make.

    A first look takes the last lines only, so that something can be shown at once; then all lines
    are read, some at a time, and what they tell replaces the first look.
    """

    def __init__(self, state: Path) -> None:
        """Follow a state folder, which need not exist yet."""
        self.state = state
        self.id = hashlib.sha256(os.fsencode(state)).hexdigest()[:12]
        self.loaded = False
        self._tail = Tail(state / _LEDGER)
        self._name = _name(state)
        self.view = View(self._name)
        self._whole = View(self._name)
        self._begun = False

    def look(self) -> None:
        """Take the first look."""
        for number, line in enumerate(self._tail.latest()):
            self.view.take(events_of(line), seq=-number)

    def read(self, seq: int) -> int:
        """Read some lines; return the number of the last batch."""
        self._begin()
        lines = list(islice(self._tail.new(), _LINES_AT_ONCE))
        for line in lines:
            seq = self._take(line, seq)
        if not self.loaded and len(lines) < _LINES_AT_ONCE:
            self.loaded, self.view = True, self._whole
        return seq

    def _begin(self) -> None:
        if not self._begun:
            folded, self._begun = self._tail.folded(), True
            counted = self._whole.counted
            counted.batches, counted.rows_in = folded.batches, folded.rows_in
            counted.rows_kept = folded.rows_kept
            for stratum, reason, rows in folded.shed:
                counted.shed_rows(stratum, reason.partition(":")[0], rows)

    def _take(self, line: Line, seq: int) -> int:
        self._whole.take(events_of(line), seq=seq + 1)
        return seq + 1


class Watch:
    """All guards whose state lies in some folders; safe to use from several threads.

    A folder is a guard's state, or lies above some: `/checkpoints` finds
    `/checkpoints/rides/spillway`.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        """Watch folders; nothing is read yet."""
        self.folders = [Path(folder) for folder in folders]
        self.seq = 0
        self.lock = threading.Lock()
        self.followed: dict[str, Followed] = {}

    def look(self) -> None:
        """Find the guards, and take a first look at those that are new."""
        for state in states(self.folders):
            new = Followed(state)
            if new.id in self.followed or len(self.followed) >= GUARDS_MAX:
                continue
            _tried(new.look)
            with self.lock:
                self.followed[new.id] = new

    def read(self) -> bool:
        """Read what is new; say whether more waits."""
        for each in list(self.followed.values()):
            with self.lock:
                self.seq = _tried(partial(each.read, self.seq)) or self.seq
        return not self.loaded

    @property
    def loaded(self) -> bool:
        """Whether all that was there has been read."""
        return all(each.loaded for each in self.followed.values())

    def names(self) -> dict[str, str]:
        """Return the guards' names by id; those that are not unique have the id in them."""
        given = {each.id: each.view.name for each in self.followed.values()}
        all_names = list(given.values())
        return {
            id_: name if all_names.count(name) == 1 else f"{name} ({id_})"
            for id_, name in given.items()
        }


def states(folders: Sequence[Path]) -> list[Path]:
    """Return the state folders in or under some folders, each once."""
    found: dict[Path, None] = {}
    for folder in folders:
        inside = [
            ledger.parent
            for pattern in (_LEDGER, f"*/{_LEDGER}", f"*/*/{_LEDGER}")
            for ledger in sorted(folder.glob(pattern))
            if ledger.is_dir()
        ]
        found |= dict.fromkeys(inside or [folder])
    return list(found)


def _name(state: Path) -> str:
    """Name a guard by its folder, until the books say its own name."""
    return state.parent.name if state.name == "spillway" and state.parent.name else state.name


def _tried(act: Callable[[], T]) -> T | None:
    """Do it; a file that vanishes or cannot be read is tried again at the next look."""
    try:
        return act()
    except OSError:
        return None
