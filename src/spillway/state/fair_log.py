"""What queries that share a cluster tell each other: one small file for each, in a common folder.

No query leads. Everyone publishes what it needs and reads what the others need; all come to the
same split. A record that is damaged or too old counts as none.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass, field
from pathlib import Path

from spillway.state import files

_KIND = "member"
_STALE_BATCHES = 3.0  # a member that is silent for so many of its batches is gone
_STALE_S_MIN = 5.0
_MEMBERS_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """What one query needs, as of its last batch.

    owner:   the run that wrote it; app: the application it runs in, with so many `cores`.
    rows_per_s, cost_s: rows that come, and seconds of one core that a kept row takes.
    batch_s: from the start of one batch to the next.
    gain:    what its own controller corrects its budget by: below 1 its latency is too long.
    sic:     rows that came and were kept, by slot of time (see `estimate.sic.SicState`).
    """

    name: str
    owner: str
    app: str
    cores: float
    at_s: float
    rows_per_s: float
    cost_s: float
    weight: float = 1.0
    gain: float = 1.0
    batch_s: float = 1.0
    sic: tuple[tuple[int, tuple[int, ...], tuple[int, ...]], ...] = ()

    def is_fresh(self, now_s: float) -> bool:
        """Say whether it still runs, as far as one can know."""
        return now_s - self.at_s <= max(_STALE_BATCHES * self.batch_s, _STALE_S_MIN)


@dataclass(frozen=True, slots=True, kw_only=True)
class FairLog:
    """The folder with the members' records."""

    folder: Path
    complaints: list[str] = field(default_factory=list, compare=False)

    def publish(self, member: Member) -> None:
        """Replace the record of a member; refuse while another run of this name is alive."""
        other = self._read(self._path(member.name))
        if other and other.owner != member.owner and other.is_fresh(member.at_s):
            raise ValueError(f"name must differ among the members, got {member.name!r} twice")
        files.write(self._path(member.name), _KIND, member)

    def fresh(self, now_s: float) -> list[Member]:
        """Return the members that are alive, by name."""
        paths = sorted(self.folder.glob("*.json"))[:_MEMBERS_MAX]
        found = [member for path in paths if (member := self._read(path))]
        return sorted((each for each in found if each.is_fresh(now_s)), key=lambda m: m.name)

    def _read(self, path: Path) -> Member | None:
        try:
            return files.read(path, _KIND, Member)
        except (files.BadStateFile, OSError) as error:
            self.complaints.append(str(error))
            return None

    def _path(self, name: str) -> Path:
        """Return a file name that is safe and differs for different names."""
        plain = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:60]
        return self.folder / f"{plain}-{zlib.crc32(name.encode()):08x}.json"
