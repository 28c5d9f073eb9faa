"""Security: what a stranger puts into a state folder is refused, or read as data only."""

from __future__ import annotations

import ast
import os
import pickle
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import spillway as sw
from spillway.spark.control import printable
from spillway.state import files
from spillway.state.fair_log import FairLog
from spillway.state.ledger import Ledger
from spillway.state.memory import Memory
from spillway.state.plan_log import PlanLog
from spillway.values import LoopState

SOURCE = Path(sw.__file__).parent


class Evil:
    """Would run a command if it were unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch /tmp/spillway-was-here",)


@pytest.mark.parametrize(
    "data",
    [
        pickle.dumps(Evil()),
        b"!!python/object/apply:os.system ['touch /tmp/spillway-was-here']",
        b"&a [*a]",
        b'{"spillway":1,"kind":"loop state","crc32":0,"body":{"__reduce__":"os.system"}}',
    ],
    ids=["pickle", "YAML tag", "YAML alias", "object in JSON"],
)
def test_state_that_holds_code_is_refused_and_not_run(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "state.json").write_bytes(data)
    state, complaints = Memory(folder=tmp_path).load()
    assert state == LoopState()
    assert len(complaints) == 1
    assert not Path("/tmp/spillway-was-here").exists()


def imported(path: Path) -> set[str]:
    """Return the modules that a file imports and the built-ins that it calls by name."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            found.add(f"{node.func.id}()")
    return found


def test_nothing_in_the_package_reads_formats_that_can_hold_code() -> None:
    """What travels to executors is pickled by Spark itself; what is read from disk never is."""
    unsafe = {"pickle", "marshal", "shelve", "yaml", "dill", "cloudpickle", "eval()", "exec()"}
    used = {path.name: imported(path) & unsafe for path in SOURCE.rglob("*.py")}
    assert {name: names for name, names in used.items() if names} == {}


@pytest.mark.parametrize("where", ["link", "pipe", "folder"])
def test_state_that_is_no_plain_file_is_neither_followed_nor_waited_for(
    tmp_path: Path, where: str
) -> None:
    secret = tmp_path / "secret"
    files.write(secret, "loop state", LoopState(batch_id=99))
    folder = tmp_path / "state"
    folder.mkdir()
    path = folder / "state.json"
    {
        "link": lambda: path.symlink_to(secret),
        "pipe": lambda: os.mkfifo(path),
        "folder": path.mkdir,
    }[where]()
    state, complaints = Memory(folder=folder).load()
    assert state == LoopState()
    assert len(complaints) == 1


def test_a_segment_of_the_ledger_that_leads_elsewhere_is_not_written_to(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious\n")
    (tmp_path / "00000000.jsonl").symlink_to(victim)
    with pytest.raises(OSError, match="symbolic link"):
        files.append_line(tmp_path / "00000000.jsonl", b"line")
    assert victim.read_text() == "precious\n"


HOSTILE = ["../../etc/passwd", "..", "a/../../b", "\0", "x" * 5000, "a\nb", "/etc/passwd", "%2e%2e"]


@pytest.mark.parametrize("name", HOSTILE)
def test_no_id_or_name_leads_out_of_the_state_folder(tmp_path: Path, name: str) -> None:
    log = PlanLog.of(tmp_path, name)
    assert log.folder.parent == tmp_path / "plans"
    assert "\0" not in str(log.folder)
    member = FairLog(folder=tmp_path)._path(name)
    assert member.parent == tmp_path
    assert member.name not in (".", "..")


@pytest.mark.parametrize("path", ["a\0b", "", " ", "s3://bucket/state", "hdfs:///state"])
def test_a_state_path_that_is_none_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="state must be"):
        sw.Guard("rides", control=sw.FixedRate(0.5), state=path)


@pytest.mark.parametrize("name", ["", "a\nb", "\x1b[31mred", "a\0b"])
def test_a_guard_s_name_cannot_forge_log_lines(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="name must be printable"):
        sw.Guard(name, control=sw.FixedRate(0.5), state=tmp_path)


def test_text_of_errors_cannot_forge_lines_or_terminal_escapes_and_is_bounded() -> None:
    text = printable("\x1b]0;owned\x07\r\nERROR forged \u2028 \u202e" * 100)
    assert text.isascii()
    assert text.isprintable()
    assert "\n" not in text
    assert len(text) < 4000


def test_a_damaged_file_is_not_quoted_in_complaints(tmp_path: Path) -> None:
    """It might be any file, with any secret in it."""
    (tmp_path / "state.json").write_text("password=hunter2")
    _, complaints = Memory(folder=tmp_path).load()
    assert len(complaints) == 1
    assert "hunter2" not in complaints[0]


FULL = """
import resource, sys
from pathlib import Path
from spillway.state.ledger import Ledger
from spillway.state.memory import Memory
from spillway.values import LoopState
memory = Memory(folder=Path(sys.argv[1]))
memory.save(LoopState(batch_id=1))
resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))
try:
    memory.save(LoopState(batch_id=2))
except OSError as error:
    print(type(error).__name__, error.errno)
"""


def test_a_write_that_the_system_cuts_off_leaves_the_last_good_state(tmp_path: Path) -> None:
    """RLIMIT_FSIZE: the kernel lets 64 bytes through and refuses the rest."""
    assert resource.RLIMIT_FSIZE is not None
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("OSError")
    state, complaints = Memory(folder=tmp_path).load()
    assert (state.batch_id, complaints) == (1, [])
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


def test_garbage_in_the_ledger_is_bounded_in_memory_and_skipped(tmp_path: Path) -> None:
    """A line without an end is read in pieces."""
    (tmp_path / "00000000.jsonl").write_bytes(b"x" * (9 << 20))
    pieces = [len(piece) for piece in files.lines(tmp_path / "00000000.jsonl")]
    assert max(pieces) <= 4 << 20
    assert Ledger(tmp_path).entries() == []
    assert Ledger(tmp_path).damaged_lines() == len(pieces)
