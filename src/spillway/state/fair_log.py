"""What queries that share a cluster tell each other: one small file for each, in a common folder.

No query leads. Everyone publishes what it needs and reads what the others need; all come to the
same split. A record that is damaged or too old counts as none; its member writes it anew.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass, replace
from pathlib import Path

from spillway.state import files

_KIND = "member"
_STALE_BATCHES = 3.0  # a member that is silent for so many of its batches is gone
_STALE_S_MIN = 5.0
_PERIOD_S_MIN = 0.05  # of rows that have just come nobody knows the rate
_MEMBERS_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """What one query needs, as of its last batch, or as announced for the one ahead.

    owner:    the query that wrote it; app: the application it runs in, with so many `cores`.
    at_s:     the last sign of life; `began_at_s` when its last finished batch began, `batch_id`.
    rows_per_s, cost_s: rows that come, and seconds of one core that a kept row takes.
    batch_s:  within this time the rows of a batch have to be done.
    spread:   time that work takes over seconds of work: 1 for one task, 1/k for k equal ones.
    gain:     by what it would correct the capacity, by its latency; None without an objective.
    sic:      rows that came and were kept, by slot of time, over `window_s` (see `estimate.sic`).
    """

    name: str
    owner: str
    app: str
    cores: float
    at_s: float
    rows_per_s: float
    cost_s: float
    weight: float = 1.0
    gain: float | None = None
    batch_s: float = 1.0
    spread: float = 0.0
    began_at_s: float = 0.0
    batch_id: int = -1
    window_s: float = 30.0
    sic: tuple[tuple[int, tuple[int, ...], tuple[int, ...]], ...] = ()

    @property
    def rows(self) -> float:
        """Rows of a batch."""
        return self.rows_per_s * self.batch_s

    @property
    def demand(self) -> float:
        """Seconds of work in a second, if every row is kept."""
        return max(self.rows_per_s * self.cost_s, 0.0)

    @property
    def most(self) -> float:
        """The largest share that its own tasks can do in time, were they alone."""
        takes_s = self.rows * self.cost_s * self.spread
        return min(self.batch_s / takes_s, 1.0) if takes_s > 0 else 1.0

    def is_fresh(self, now_s: float) -> bool:
        """Say whether it still runs, as far as one can know."""
        return now_s - self.at_s <= max(_STALE_BATCHES * self.batch_s, _STALE_S_MIN)

    def announced(self, rows: float, *, now_s: float, due_s: float) -> Member:
        """Return it with the rows of the batch ahead, which came since the last one began.

        A longer batch than is due must be made up for: its rows have to be done in less time than
        they took to come.
        """
        period_s = max(min(now_s - self.began_at_s, due_s), _PERIOD_S_MIN)
        return replace(self, rows_per_s=rows / period_s, batch_s=period_s, at_s=now_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class FairLog:
    """The folder with the members' records."""

    folder: Path

    def publish(self, member: Member) -> None:
        """Replace the record of a member; refuse while another query of this name is alive."""
        other = self.read(member.name)
        if other and other.owner != member.owner and other.is_fresh(member.at_s):
            raise ValueError(f"name must differ among the members, got {member.name!r} twice")
        files.write(self._path(member.name), _KIND, member)

    def read(self, name: str) -> Member | None:
        """Return the record of a member, however old; None if there is no readable one."""
        return self._read(self._path(name))

    def fresh(self, now_s: float) -> list[Member]:
        """Return the members that are alive, by name."""
        paths = sorted(self.folder.glob("*.json"))[:_MEMBERS_MAX]
        found = [member for path in paths if (member := self._read(path))]
        return sorted((each for each in found if each.is_fresh(now_s)), key=lambda m: m.name)

    def _read(self, path: Path) -> Member | None:
        try:
            return files.read(path, _KIND, Member)
        except (files.BadStateFile, OSError):
            return None

    def _path(self, name: str) -> Path:
        """Return a file name that is safe and differs for different names."""
        plain = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:60]
        return self.folder / f"{plain}-{zlib.crc32(name.encode()):08x}.json"
