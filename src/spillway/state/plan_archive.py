"""A zip file of plans, each under its batch id: small, read one by one, replaced at once."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

from spillway.state import files

_PLAN_BYTES_MAX = 4 << 20
_DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    OSError,
)


def read(path: Path, batch_id: int) -> bytes | None:
    """Return one plan's bytes, None if the archive lacks it; raise if it cannot be read."""
    try:
        with zipfile.ZipFile(path) as archive:
            return _member(archive, str(batch_id))
    except _DAMAGED as error:
        raise files.BadStateFile(f"{path}: it cannot be read: {error}") from error


def names(path: Path) -> list[int]:
    """Return which plans the archive holds; none if it cannot be read."""
    try:
        with zipfile.ZipFile(path) as archive:
            return [int(name) for name in archive.namelist() if name.isdigit()]
    except _DAMAGED:
        return []


def add(path: Path, plans: Mapping[int, bytes]) -> None:
    """Put plans into the archive; a damaged one is begun anew."""
    there = {batch: _readable(path, batch) for batch in names(path)}
    held = {batch: data for batch, data in there.items() if data is not None}
    files.write_bytes(path, _zipped({**held, **plans}))


def _zipped(plans: Mapping[int, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for batch_id, data in sorted(plans.items()):
            # Without a date: the same plans make the same file.
            archive.writestr(zipfile.ZipInfo(str(batch_id)), data, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _readable(path: Path, batch_id: int) -> bytes | None:
    try:
        return read(path, batch_id)
    except files.BadStateFile:
        return None


def _member(archive: zipfile.ZipFile, name: str) -> bytes | None:
    if name not in archive.NameToInfo:
        return None
    if archive.getinfo(name).file_size > _PLAN_BYTES_MAX:
        raise ValueError(f"plan {name} is larger than {_PLAN_BYTES_MAX} bytes")
    return archive.read(name)
