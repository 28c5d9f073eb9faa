"""One driver at a time: the second is refused, and no kill leaves the lock behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from spillway.state import files, lease

HOLD = """
import sys, time
from pathlib import Path
from spillway.state import lease
print(repr(lease.claim(Path(sys.argv[1]), patience_s=float(sys.argv[2]))), flush=True)
time.sleep(60)
"""


@contextmanager
def another_driver(folder: Path, patience_s: float = 0.0) -> Iterator[subprocess.Popen[str]]:
    """Run a process that claims the folder and says what came of it."""
    command = [sys.executable, "-c", HOLD, str(folder), str(patience_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, stderr=subprocess.PIPE) as it:
        try:
            yield it
        finally:
            it.kill()


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "state"
    lease.release(tmp_path / "state")


def test_the_second_driver_is_refused_and_told_by_whom(folder: Path) -> None:
    with another_driver(folder) as first:
        assert first_line(first) == "''"
        with pytest.raises(lease.StateInUse, match=f"process {first.pid} on "):
            lease.claim(folder, patience_s=0.0)


def test_a_killed_driver_leaves_no_lock_behind(folder: Path) -> None:
    with another_driver(folder) as first:
        assert first_line(first) == "''"
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
        assert lease.claim(folder, patience_s=0.0) == ""


def test_a_driver_that_is_about_to_be_gone_is_waited_for(folder: Path) -> None:
    with another_driver(folder) as first:
        assert first_line(first) == "''"
        with another_driver(folder, patience_s=30.0) as second:
            first.kill()
            assert first_line(second) == "''"


def test_guards_of_one_process_share_the_folder(folder: Path) -> None:
    """A query that is started again in the same driver is the same driver."""
    assert lease.claim(folder, patience_s=0.0) == lease.claim(folder, patience_s=0.0) == ""
    with another_driver(folder) as second:
        assert first_line(second) == ""
        assert second.stderr is not None
        assert "StateInUse" in second.stderr.read()


def test_another_name_of_the_same_folder_is_the_same_folder(folder: Path, tmp_path: Path) -> None:
    folder.mkdir()
    (tmp_path / "link").symlink_to(folder)
    assert lease.claim(folder, patience_s=0.0) == ""
    assert lease.claim(tmp_path / "link", patience_s=0.0) == ""


def test_a_folder_that_cannot_be_locked_is_complained_of_and_not_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    assert "not locked" in lease.claim(tmp_path / "file")
    assert "not locked" in lease.claim(Path("/proc/spillway"))


def test_a_lock_file_that_leads_elsewhere_is_not_followed(folder: Path, tmp_path: Path) -> None:
    folder.mkdir()
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (folder / lease.NAME).symlink_to(victim)
    assert "not locked" in lease.claim(folder, patience_s=0.0)
    assert victim.read_text() == "precious"


def test_what_the_holder_wrote_cannot_forge_lines(folder: Path) -> None:
    with another_driver(folder) as first:
        assert first_line(first) == "''"
        (folder / lease.NAME).write_bytes(b"\x1b[31mfine\nERROR forged \xff")
        with pytest.raises(lease.StateInUse) as refused:
            lease.claim(folder, patience_s=0.0)
    assert str(refused.value).isprintable()


def test_what_killed_writers_left_is_swept_at_the_claim(folder: Path) -> None:
    plans = folder / "plans" / "q"
    plans.mkdir(parents=True)
    swept = [".7.json.ab12", ".state.json.77.140", ".00000003.zip.x_1"]
    kept = ["7.json", ".0.crc", ".hidden", ".7.json", "00000003.zip"]
    for name in (*swept, *kept):
        (plans / name).write_text("half")
        an_hour_ago = time.time() - 3600
        os.utime(plans / name, (an_hour_ago, an_hour_ago))
    (plans / ".8.json.cd34").write_text("being written")
    lease.claim(folder, patience_s=0.0)
    assert {path.name for path in plans.iterdir()} == {*kept, ".8.json.cd34"}


def test_a_kill_at_any_moment_of_a_write_leaves_what_the_sweep_knows(tmp_path: Path) -> None:
    """The names of the temporary files are those that are swept."""
    beside = files._written_beside(tmp_path / "state.json", b"data")
    beside.__enter__()
    assert len(list(tmp_path.iterdir())) == 1
    assert files.sweep(tmp_path, older_s=-1.0) == 1
    assert list(tmp_path.iterdir()) == []
