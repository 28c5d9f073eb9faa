"""Reads the list that Spark's file source keeps: which files came under which log offset."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

_COMPACT = ".compact"


def source_files(checkpoint: Path, index: int) -> dict[str, int]:
    """Return the files that a file source has read, as URLs, and the log offset of each.

    Raises OSError where there is no such log and ValueError where it is damaged.
    """
    folder = checkpoint / "sources" / str(index)
    logs = {int(path.name.removesuffix(_COMPACT)): path for path in _logs(folder)}
    if not logs:
        raise FileNotFoundError(f"{folder} holds no log of a file source")
    compacted = [offset for offset, path in logs.items() if path.name.endswith(_COMPACT)]
    first = max(compacted, default=-1)  # holds all that came before it, too
    return {
        url: at for offset in sorted(logs) if offset >= first for url, at in _read(logs[offset])
    }


def _logs(folder: Path) -> list[Path]:
    """Return the logs; where an offset has a plain and a compact one, the compact one last."""
    found = [path for path in folder.glob("*") if path.name.removesuffix(_COMPACT).isdigit()]
    return sorted(found, key=lambda path: path.name.endswith(_COMPACT))


def _read(path: Path) -> Iterator[tuple[str, int]]:
    for line in path.read_text().splitlines()[1:]:
        try:
            entry = json.loads(line)
            yield str(entry["path"]), int(entry["batchId"])
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} is damaged: {line[:80]!r}") from error
