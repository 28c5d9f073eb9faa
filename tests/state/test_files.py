"""Checked files: what is damaged is noticed, what is replaced is replaced at once."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
import zlib
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from spillway.state import files
from spillway.state.files import BadStateFile


@dataclass(frozen=True)
class Note:
    """A small value to write down."""

    number: int
    share: float
    words: tuple[str, ...] = ()


NOTE = Note(number=7, share=0.1, words=("ä", 'quo"te', "line\nfeed"))
DATA = files.encode("note", NOTE)


def test_a_value_survives_the_round_trip(tmp_path: Path) -> None:
    files.write(tmp_path / "deep" / "er" / "note.json", "note", NOTE)
    assert files.read(tmp_path / "deep" / "er" / "note.json", "note", Note) == NOTE


def test_a_missing_file_is_none_not_an_error(tmp_path: Path) -> None:
    assert files.read(tmp_path / "nothing.json", "note", Note) is None


def test_truncation_at_every_length_is_noticed() -> None:
    for length in range(len(DATA)):
        with pytest.raises(BadStateFile):
            files.decode(DATA[:length], "note", Note)


def test_every_flipped_bit_is_noticed_or_harmless() -> None:
    """A flip is refused, or (in the version number) leaves the value what it was."""
    noticed = 0
    for position in range(len(DATA) * 8):
        flipped = bytearray(DATA)
        flipped[position // 8] ^= 1 << (position % 8)
        try:
            assert files.decode(bytes(flipped), "note", Note) == NOTE, position
        except BadStateFile:
            noticed += 1
    assert noticed >= len(DATA) * 8 - 8


def test_a_future_format_is_refused_and_named() -> None:
    future = msgspec.json.encode({"spillway": 2, "kind": "note", "crc32": 0, "body": {}})
    with pytest.raises(BadStateFile, match="format 2 is later than 1"):
        files.decode(future, "note", Note)


def test_another_kind_is_refused_and_named() -> None:
    with pytest.raises(BadStateFile, match="holds a note, not a plan"):
        files.decode(DATA, "plan", Note)


def test_a_body_of_another_shape_is_refused_even_with_a_good_checksum() -> None:
    with pytest.raises(BadStateFile, match="cannot be read"):
        files.decode(files.encode("note", {"number": "seven"}), "note", Note)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"null",
        b"[]",
        b"{}",
        b"7",
        b"\x00" * 100,
        b"\xff\xfe\xfa",
        DATA + DATA,
        DATA + b"x",
        DATA.replace(b"line", b"\xff\xff\xff\xff"),
        pickle.dumps(NOTE),
        pickle.dumps({"spillway": 1}, protocol=0),
        b"!!python/object/apply:os.system ['true']",
        b"[" * 100_000,
        b'{"spillway":1,"kind":"note","crc32":0,"body":' + b"[" * 100_000,
        b'{"spillway":1,"kind":"note","crc32":NaN,"body":{}}',
    ],
    ids=range(17),
)
def test_what_is_no_state_file_is_refused(data: bytes) -> None:
    with pytest.raises(BadStateFile):
        files.decode(data, "note", Note)


def test_a_deeply_nested_body_with_a_good_checksum_is_refused() -> None:
    """A hostile file can carry the right checksum; it must not overflow the stack."""
    body = b"[" * 50_000 + b"]" * 50_000
    data = b'{"spillway":1,"kind":"note","crc32":%d,"body":%s}' % (zlib.crc32(body), body)
    with pytest.raises(BadStateFile):
        files.decode(data, "note", Note)


def test_invalid_utf8_in_a_body_with_a_good_checksum_is_refused() -> None:
    body = b'{"number":7,"share":0.1,"words":["\xff\xfe"]}'
    data = b'{"spillway":1,"kind":"note","crc32":%d,"body":%s}' % (zlib.crc32(body), body)
    with pytest.raises(BadStateFile):
        files.decode(data, "note", Note)


def test_a_huge_file_is_refused_without_being_read_whole(tmp_path: Path) -> None:
    huge = tmp_path / "huge.json"
    with huge.open("wb") as file:
        file.truncate(1 << 40)  # sparse: a terabyte that takes no room
    with pytest.raises(BadStateFile, match="larger than"):
        files.read(huge, "note", Note)


def test_the_error_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_bytes(b"{}")
    with pytest.raises(BadStateFile, match=r"bad\.json"):
        files.read(tmp_path / "bad.json", "note", Note)


def test_a_reader_sees_the_old_content_or_the_new_and_nothing_between(tmp_path: Path) -> None:
    path = tmp_path / "note.json"
    files.write(path, "note", Note(0, 0.0))
    done, seen = threading.Event(), []

    def read() -> None:
        while not done.is_set():
            seen.append(files.read(path, "note", Note))

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(1, 300):
        files.write(path, "note", Note(number, 0.0, ("x" * (number % 50),) * 50))
    done.set()
    reader.join()
    assert None not in seen
    numbers = [note.number for note in seen if note]
    assert numbers == sorted(numbers)
    assert len(numbers) > 10


def test_nothing_is_left_beside_a_written_file(tmp_path: Path) -> None:
    for number in range(5):
        files.write(tmp_path / "note.json", "note", Note(number, 0.0))
        files.write_new(tmp_path / "new.json", "note", Note(number, 0.0))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new.json", "note.json"]


def test_nothing_is_left_beside_a_file_that_could_not_be_replaced(tmp_path: Path) -> None:
    """The target is a folder, so the last step fails; a retry per batch must not fill the disk."""
    (tmp_path / "note.json").mkdir()
    with pytest.raises(OSError, match=r"note\.json"):
        files.write(tmp_path / "note.json", "note", NOTE)
    assert [path.name for path in tmp_path.iterdir()] == ["note.json"]


def test_nothing_is_left_beside_a_file_when_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        files.write(tmp_path / "note.json", "note", NOTE)
    assert list(tmp_path.iterdir()) == []


def test_of_many_threads_one_creates_the_file(tmp_path: Path) -> None:
    path, start, won = tmp_path / "seed.json", threading.Barrier(16), []

    def create(number: int) -> None:
        start.wait()
        if files.write_new(path, "note", Note(number, 0.0)):
            won.append(number)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert files.read(path, "note", Note) == Note(won[0], 0.0)
    assert [entry.name for entry in tmp_path.iterdir()] == ["seed.json"]


CREATE_MANY = """
import sys
from pathlib import Path
from spillway.state import files
sys.stdin.readline()
for name in range(50):
    if files.write_new(Path(sys.argv[1]) / f"{name}.json", "number", int(sys.argv[2])):
        print(name)
"""


def test_of_many_processes_one_creates_each_file(tmp_path: Path) -> None:
    creators = [
        subprocess.Popen(
            [sys.executable, "-c", CREATE_MANY, str(tmp_path), str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(3)
    ]
    for creator in creators:
        assert creator.stdin is not None
        creator.stdin.write("go\n")
        creator.stdin.flush()
    won = [creator.communicate(timeout=60)[0].split() for creator in creators]
    assert sorted(int(name) for names in won for name in names) == list(range(50))
    for number, names in enumerate(won):
        for name in names:
            assert files.read(tmp_path / f"{name}.json", "number", int) == number


@pytest.mark.parametrize("where", ["/proc/spillway/note.json", "/dev/null/note.json"])
def test_where_nothing_can_be_written_an_oserror_says_so(where: str) -> None:
    """Holds for root too: these are no folders that anybody can make."""
    with pytest.raises(OSError, match=r"\[Errno"):
        files.write(Path(where), "note", NOTE)
    with pytest.raises(OSError, match=r"\[Errno"):
        files.write_new(Path(where), "note", NOTE)


def test_a_symlink_that_leads_elsewhere_is_replaced_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("precious")
    folder = tmp_path / "state"
    folder.mkdir()
    (folder / "note.json").symlink_to(outside)
    files.write(folder / "note.json", "note", NOTE)
    assert outside.read_text() == "precious"
    assert files.read(folder / "note.json", "note", Note) == NOTE
