"""One driver at a time: a lock on the state folder that dies with the process that holds it.

The lock is the kernel's (`flock`), so no kill leaves it behind. Whoever holds it has written its
process and host into the file, which is only told to those who are refused.
"""

from __future__ import annotations

import errno
import os
import socket
import threading
import time
from pathlib import Path

from spillway.state import files

NAME = "driver.lock"
_PATIENCE_S, _POLL_S = 10.0, 0.1  # a driver that was just killed may take a moment to be gone
_HOLDER_BYTES_MAX = 200
_TAKEN = (errno.EWOULDBLOCK, errno.EACCES)

_held: dict[tuple[int, str], int] = {}  # (process, folder) -> open file; a fork holds nothing
_guard = threading.Lock()


class StateInUse(RuntimeError):
    """Another driver works on this state folder."""


def claim(folder: Path, *, patience_s: float | None = None) -> str:
    """Hold a state folder for this process until it ends; raise `StateInUse` if another does.

    Where nothing can be locked (a folder that cannot be written, a file system without locks) the
    query must run all the same: the answer then is a complaint, and "" where the folder is held.
    What killed writers left in it is removed.
    """
    with _guard:
        key = (os.getpid(), os.path.realpath(folder))
        if key in _held:
            return ""
        try:
            patience = _PATIENCE_S if patience_s is None else patience_s
            _held[key] = _locked(folder / NAME, patience)
        except OSError as error:
            return f"state folder not locked: {error}"
    for each in (folder, *folder.glob("*"), *folder.glob("plans/*")):
        files.sweep(each)
    return ""


def release(folder: Path) -> None:
    """Give a folder up before the process ends; nothing happens if it is not held."""
    with _guard:
        handle = _held.pop((os.getpid(), os.path.realpath(folder)), None)
        if handle is not None:
            os.close(handle)


def _locked(path: Path, patience_s: float) -> int:
    """Return the open, locked file; `StateInUse` if another process has it, and keeps it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        _wait(handle, path, time.monotonic() + patience_s)
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
    except BaseException:
        os.close(handle)
        raise
    return handle


def _wait(handle: int, path: Path, deadline_s: float) -> None:
    while not _try_lock(handle):
        if time.monotonic() > deadline_s:
            holder = os.pread(handle, _HOLDER_BYTES_MAX, 0).decode(errors="replace")
            raise StateInUse(
                f"state must be used by one driver at a time, got {str(path.parent)!r}, which "
                f"{holder!a} uses"
            )
        time.sleep(_POLL_S)


def _try_lock(handle: int) -> bool:
    try:
        import fcntl  # POSIX only
    except ImportError:
        raise OSError(errno.ENOTSUP, "this system has no flock") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _TAKEN:
            return False
        raise
    return True
