"""The loop's memory on disk: the latest state, the one before it, and the guard's seed."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path

from spillway.state import files
from spillway.values import LoopState

_KIND = "loop state"
_SEED_KIND = "seed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Reads and replaces the loop's state in a folder."""

    folder: Path

    def load(self) -> tuple[LoopState, list[str]]:
        """Return the last good state (or a new one) and what was wrong with the later ones."""
        complaints = []
        for path in (self._latest, self._previous):
            try:
                state = files.read(path, _KIND, LoopState)
            except (files.BadStateFile, OSError) as error:
                complaints.append(str(error))
                continue
            if state is not None:
                return state, complaints
        return LoopState(), complaints

    def save(self, state: LoopState) -> None:
        """Replace the state and keep the one before it, if that is a good one.

        There is a latest state at every moment: a reader in between sees the old one.
        """
        if self._is_good(self._latest):
            files.link(self._latest, self._previous)
        files.write(self._latest, _KIND, state)

    def seed(self) -> int:
        """Return the guard's seed, drawn once and for all when it is first asked for."""
        path = self.folder / "seed.json"
        seed = files.read(path, _SEED_KIND, int)
        if seed is None:
            files.write_new(path, _SEED_KIND, secrets.randbits(62))
            seed = files.read(path, _SEED_KIND, int)
        if seed is None:
            raise files.BadStateFile(f"{path}: vanished")
        return seed

    def _is_good(self, path: Path) -> bool:
        try:
            return files.read(path, _KIND, LoopState) is not None
        except (files.BadStateFile, OSError):
            return False

    @property
    def _latest(self) -> Path:
        return self.folder / "state.json"

    @property
    def _previous(self) -> Path:
        return self.folder / "state.previous.json"
