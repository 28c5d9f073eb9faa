"""The gate log: how the gates of a guard tell rows apart, so that they can be inverted later.

A description is a small file under the digest of its content; the ledger names the digest.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from spillway.state import files

_KIND = "gate"
_DIGITS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRecord:
    """All that a gate's decisions depend on beside the plan; the fields are those of the gate.

    `by` are the columns of a concept-driven gate's groups. `protect` is the predicate as text;
    `protect_unknown` says that it was a Column object, which has none.
    """

    identity: tuple[str, ...]
    strata: tuple[str, ...]
    score: str | None = None
    key: str | None = None
    by: tuple[str, ...] = ()
    protect: str | None = None
    protect_unknown: bool = False


def remember(state: Path, gate: GateRecord) -> str:
    """Write a description down unless it is there already, and return its digest."""
    digest = sha256(files.encode(_KIND, gate)).hexdigest()[:_DIGITS]
    path = _path(state, digest)
    if not path.exists():
        files.write_new(path, _KIND, gate)
    return digest


def recall(state: Path, digest: str) -> GateRecord | None:
    """Return the description of that digest, None if there is none; raise if it is damaged."""
    if len(digest) != _DIGITS or not digest.isalnum():
        return None
    return files.read(_path(state, digest), _KIND, GateRecord)


def _path(state: Path, digest: str) -> Path:
    return state / "gates" / f"{digest}.json"
