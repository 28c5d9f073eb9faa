"""Small checked files: versioned, checksummed, written atomically. JSON, never pickle."""

from __future__ import annotations

import os
import tempfile
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

FORMAT = 1
_LIMIT_BYTES = 4 << 20

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
        with path.open("rb") as file:
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
    with _written_beside(path, encode(kind, value)) as temporary:
        os.replace(temporary, path)


def write_new(path: Path, kind: str, value: object) -> bool:
    """Create a file at once unless it exists; say whether this call created it."""
    with _written_beside(path, encode(kind, value)) as temporary:
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        return True


def link(path: Path, name: Path) -> None:
    """Give a file a second name at once, in place of whatever had that name."""
    beside = name.with_name(f".{name.name}.{os.getpid()}.{threading.get_ident()}")
    beside.unlink(missing_ok=True)
    os.link(path, beside)
    os.replace(beside, name)
    beside.unlink(missing_ok=True)  # left behind if both names were already one file


@contextmanager
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
