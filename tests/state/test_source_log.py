"""What Spark's sources note in the checkpoint is read as Spark writes it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spillway.state.source_log import source_files


def write(checkpoint: Path, name: str, *entries: tuple[str, int]) -> None:
    folder = checkpoint / "sources" / "0"
    folder.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps({"path": p, "timestamp": 1, "batchId": b}) for p, b in entries)
    (folder / name).write_text("\n".join(["v1", *lines]))


def test_files_are_listed_with_the_offset_under_which_they_came(tmp_path: Path) -> None:
    write(tmp_path, "0", ("file:///in/a%20b", 0))
    write(tmp_path, "1", ("file:///in/c", 1), ("file:///in/d", 1))
    assert source_files(tmp_path, 0) == {
        "file:///in/a%20b": 0,
        "file:///in/c": 1,
        "file:///in/d": 1,
    }


def test_a_compacted_log_holds_what_came_before_it(tmp_path: Path) -> None:
    """The logs before it may be gone or still there, the plain one of the same offset too."""
    write(tmp_path, "1", ("old", 1))
    write(tmp_path, "2", ("c", 2))
    write(tmp_path, "2.compact", ("a", 0), ("b", 1), ("c", 2))
    write(tmp_path, "3", ("d", 3))
    (tmp_path / "sources" / "0" / ".3.crc").write_bytes(b"\0")
    assert source_files(tmp_path, 0) == {"a": 0, "b": 1, "c": 2, "d": 3}


def test_a_log_that_is_missing_or_damaged_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="holds no log"):
        source_files(tmp_path, 0)
    write(tmp_path, "0", ("a", 0))
    with (tmp_path / "sources" / "0" / "0").open("a") as file:
        file.write('\n{"path": "b"')
    with pytest.raises(ValueError, match="is damaged"):
        source_files(tmp_path, 0)
