"""Finds and ends the processes that a driver has started, by its session."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path


def children_of_session(session: int) -> list[int]:
    """Return the processes of a session (the driver, its JVM, its Python workers)."""
    return [pid for pid, stat in _processes() if int(stat[3]) == session and stat[0] != "Z"]


def named(session: int, text: str) -> list[int]:
    """Return the processes of a session whose command line has this text."""
    return [pid for pid in children_of_session(session) if text in _command(pid)]


def end_session(session: int, *, patience_s: float) -> None:
    """Wait for what is left of a session to end by itself, then end it."""
    deadline = time.monotonic() + patience_s
    while children_of_session(session):
        if time.monotonic() > deadline:
            kill(children_of_session(session))
        time.sleep(0.05)


def kill(processes: Iterable[int]) -> None:
    """Kill processes; one that has just ended by itself is no trouble."""
    for pid in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def rss_bytes(pid: int) -> int:
    """Return the resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _processes() -> list[tuple[int, list[str]]]:
    """Return process ids with state, parent, group and session, as `/proc` has them."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (path / "stat").read_text().rpartition(")")[2].split()
            found.append((int(path.name), fields))
    return found


def _command(pid: int) -> str:
    try:
        return (
            Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        )
    except OSError:
        return ""
