"""A disk in memory under the state files, on which every operation can fail or be the last."""

from __future__ import annotations

import contextlib
import errno
import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from spillway.spark import control
from spillway.state import files, ledger, memory, offsets

SHAPES = ("truncated", "flipped", "empty", "future", "foreign", "gone")


class Killed(BaseException):
    """The process died here; no handler of the product may catch it."""


@dataclass
class Disk:
    """Contents by path. `kill` and `full` are probabilities of every single write."""

    dice: random.Random
    kill: float = 0.0
    full: float = 0.0
    contents: dict[str, bytes] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)  # Spark's offset log: batch -> end row
    hits: Counter[str] = field(default_factory=Counter)
    now_s: float = 0.0

    def read(self, path: Path, kind: str, of: type[Any]) -> Any:
        """As `files.read`."""
        data = self.contents.get(str(path))
        return None if data is None else files.decode(data, kind, of)

    def write(self, path: Path, kind: str, value: object) -> None:
        """As `files.write`: at once, or not at all."""
        self._before(path)
        self.contents[str(path)] = files.encode(kind, value)
        self._die("killed after a write")

    def write_new(self, path: Path, kind: str, value: object) -> bool:
        """As `files.write_new`."""
        self._before(path)
        new = str(path) not in self.contents
        if new:
            self.contents[str(path)] = files.encode(kind, value)
        self._die("killed after a write")
        return new

    def link(self, path: Path, name: Path) -> None:
        """As `files.link`."""
        self._before(name)
        self.contents[str(name)] = self.contents[str(path)]

    def append_line(self, path: Path, line: bytes) -> None:
        """As `files.append_line`; a death may leave half a line."""
        before = self.contents.get(str(path), b"")
        try:
            self._before(path)
        except BaseException:
            self.contents[str(path)] = before + b"\n" + line[: self.dice.randrange(len(line))]
            raise
        self.contents[str(path)] = before + b"\n" + line + b"\n"
        self._die("killed after a write")

    def lines(self, path: Path) -> Iterator[bytes]:
        """As `files.lines`."""
        return (line for line in self.contents[str(path)].split(b"\n") if line.strip())

    def end_offsets(self, checkpoint: Path, batch_id: int) -> list[object] | None:
        """As `offsets.end_offsets`, of a source whose offsets count rows."""
        end = self.ends.get(batch_id)
        return None if end is None else [{"row": end, "epoch_us": 0}]

    def segments(self, folder: Path) -> list[ledger.Segment]:
        """As the ledger's own list of its segments."""
        names = [Path(name) for name in self.contents if name.endswith(".jsonl")]
        return [ledger.Segment(path, *_parts(path)) for path in sorted(names)]

    def damage(self, path: str, shape: str) -> None:
        """Spoil a file."""
        self.hits[f"file {shape}"] += 1
        data = self.contents.pop(path)
        if shape != "gone":
            self.contents[path] = damaged(data, shape, self.dice)

    def sleep(self, seconds: float) -> None:
        """Let time pass, ten times as fast."""
        self.now_s += 10.0 * seconds  # nobody else is there to change anything meanwhile

    def _before(self, path: Path) -> None:
        self._die("killed before a write")
        if self.full and self.dice.random() < self.full:
            self.hits["disk full"] += 1
            raise OSError(errno.ENOSPC, "No space left on device", str(path))

    def _die(self, where: str) -> None:
        if self.kill and self.dice.random() < self.kill:
            self.hits[where] += 1
            raise Killed(where)


def damaged(data: bytes, shape: str, dice: random.Random) -> bytes:
    """Return the bytes as a crash, decay, a later release or a stranger would leave them."""
    place = dice.randrange(len(data)) if data else 0
    return {
        "truncated": data[:place],
        "flipped": data[:place]
        + bytes([data[place] ^ (1 << dice.randrange(8))])
        + data[place + 1 :]
        if data
        else data,
        "empty": b"",
        "future": data.replace(b'{"spillway":1', b'{"spillway":9'),
        "foreign": json.dumps({"!!python/object/apply:os.system": ["false"]}).encode(),
    }[shape]


@contextlib.contextmanager
def mounted() -> Iterator[Mount]:
    """Put a disk, which may be changed for another, under the shipped control path."""
    mount = Mount()
    with contextlib.ExitStack() as stack:
        for name in ("read", "write", "write_new", "link", "append_line", "lines"):
            stack.enter_context(mock.patch.object(files, name, mount.call(name)))
        stack.enter_context(mock.patch.object(offsets, "end_offsets", mount.call("end_offsets")))
        stack.enter_context(mock.patch.object(ledger, "segments_of", mount.call("segments")))
        stack.enter_context(mock.patch.object(ledger.Ledger, "fold", _never))
        stack.enter_context(mock.patch.object(control, "time", mount.clock()))
        stack.enter_context(mock.patch.object(control, "in_time", _at_once))
        stack.enter_context(mock.patch.object(memory, "secrets", mount))
        yield mount


class Mount:
    """Where the disk is mounted."""

    disk: Disk

    def randbits(self, bits: int) -> int:
        """Draw a guard's seed from the run's own dice."""
        return self.disk.dice.getrandbits(bits)

    def call(self, name: str) -> Any:
        """Return a function that does this on the disk that is mounted now."""
        return lambda *given: getattr(self.disk, name)(*given)

    def clock(self) -> SimpleNamespace:
        """Return a `time` that passes only where somebody sleeps."""
        return SimpleNamespace(
            monotonic=lambda: self.disk.now_s,
            time=lambda: self.disk.now_s,
            sleep=self.call("sleep"),
        )


def _at_once(decide: Any, timeout_s: float, *, owner: str = "") -> Any:
    return decide()


def _parts(path: Path) -> tuple[str, int]:
    tag, _, number = path.stem.rpartition("-")
    return tag, int(number)


def _never(_: ledger.Ledger) -> None:
    """Short runs fold nothing."""
