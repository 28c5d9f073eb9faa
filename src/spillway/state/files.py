"""Small checked files: versioned, checksummed, written atomically. JSON, never pickle."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import tempfile
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

FORMAT = 1
_LIMIT_BYTES = 4 << 20
_LEFTOVER = re.compile(r"\.[^.].*\.(json|zip)\.\w+(\.\w+)?")
_NO_LINKS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)  # POSIX only

T = TypeVar("T")


class BadStateFile(Exception):
    """A state file is damaged, of a later version, or of another kind."""


class _Envelope(msgspec.Struct, frozen=True):
    spillway: int
    kind: str
    crc32: int
    body: msgspec.Raw


def encode(kind: str, value: object) -> bytes:
    """Wrap a value with format version, kind and checksum."""
    body = msgspec.json.encode(value)
    envelope = _Envelope(FORMAT, kind, zlib.crc32(body), msgspec.Raw(body))
    return msgspec.json.encode(envelope)


def decode(data: bytes, kind: str, of: type[T]) -> T:
    """Unwrap a value, or raise `BadStateFile` that says what is wrong with it."""
    try:
        envelope = msgspec.json.decode(data, type=_Envelope)
        if envelope.spillway > FORMAT:
            raise BadStateFile(f"format {envelope.spillway} is later than {FORMAT}")
        if envelope.kind != kind:
            raise BadStateFile(f"it holds a {envelope.kind}, not a {kind}")
        if zlib.crc32(envelope.body) != envelope.crc32:
            raise BadStateFile("the checksum does not match")
        return msgspec.json.decode(envelope.body, type=of)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadStateFile(f"it cannot be read: {error}") from error


def read(path: Path, kind: str, of: type[T]) -> T | None:
    """Read a checked file; None if there is none, `BadStateFile` if it is damaged."""
    try:
        with os.fdopen(_opened(path, os.O_RDONLY), "rb") as file:
            data = file.read(_LIMIT_BYTES + 1)
    except FileNotFoundError:
        return None
    if len(data) > _LIMIT_BYTES:
        raise BadStateFile(f"{path}: larger than {_LIMIT_BYTES} bytes")
    try:
        return decode(data, kind, of)
    except BadStateFile as error:
        raise BadStateFile(f"{path}: {error}") from error


def write(path: Path, kind: str, value: object) -> None:
    """Replace a file at once: a reader sees the old content or the new, nothing between."""
    write_bytes(path, encode(kind, value))


def write_bytes(path: Path, data: bytes) -> None:
    """Replace a file of any content at once."""
    with _written_beside(path, data) as temporary:
        os.replace(temporary, path)


def write_new(path: Path, kind: str, value: object) -> bool:
    """Create a file at once unless it exists; say whether this call created it."""
    with _written_beside(path, encode(kind, value)) as temporary:
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        return True


def append_line(path: Path, line: bytes) -> None:
    """Add a line to a file and see it safe on disk.

    The leading line feed shuts off a line that a crash left unfinished.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    with os.fdopen(_opened(path, flags), "ab") as file:
        file.write(b"\n" + line + b"\n")
        file.flush()
        os.fsync(file.fileno())


def lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file that are not empty, one at a time; none is longer than a file."""
    with os.fdopen(_opened(path, os.O_RDONLY), "rb") as file:
        while line := file.readline(_LIMIT_BYTES):
            if line := line.strip():
                yield line


def lines_from(path: Path, start: int) -> Iterator[tuple[bytes, int]]:
    """Yield the finished lines from a place in a file on, each with the place behind it."""
    with os.fdopen(_opened(path, os.O_RDONLY), "rb") as file:
        file.seek(start)
        while (line := file.readline(_LIMIT_BYTES)).endswith(b"\n") or len(line) == _LIMIT_BYTES:
            start += len(line)
            if line := line.strip():
                yield line, start


def _opened(path: Path, flags: int) -> int:
    """Open a plain file and nothing else: a link may lead anywhere, a pipe would never answer."""
    handle = os.open(path, flags | _NO_LINKS, 0o644)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "not a plain file", str(path))
    return handle


def sweep(folder: Path, *, older_s: float = 60.0) -> int:
    """Remove what writers that were killed left beside their files; say how many there were.

    Only files with the names that `write` and `link` use, and none that may still be written.
    """
    swept = 0
    for path in folder.glob(".*"):
        with contextlib.suppress(OSError):
            ours = _LEFTOVER.fullmatch(path.name) and path.is_file()
            if ours and time.time() - path.lstat().st_mtime > older_s:
                path.unlink()
                swept += 1
    return swept


def link(path: Path, name: Path) -> None:
    """Give a file a second name at once, in place of whatever had that name."""
    beside = name.with_name(f".{name.name}.{os.getpid()}.{threading.get_ident()}")
    beside.unlink(missing_ok=True)
    os.link(path, beside)
    os.replace(beside, name)
    beside.unlink(missing_ok=True)  # left behind if both names were already one file


@contextlib.contextmanager
def _written_beside(path: Path, data: bytes) -> Iterator[str]:
    """Yield a complete temporary file in the same folder; it is gone afterwards, come what may."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        yield temporary
    finally:
        Path(temporary).unlink(missing_ok=True)
