"""The gate log: what decided about rows is written once and read back as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from spillway.state import files, gate_log
from spillway.state.gate_log import GateRecord

GATE = GateRecord(
    identity=("topic", "offset"), strata=("below", "above"), score="fare * 2", protect="vip"
)


def test_a_gate_is_read_back_and_written_once(tmp_path: Path) -> None:
    digest = gate_log.remember(tmp_path, GATE)
    (path,) = (tmp_path / "gates").iterdir()
    written = path.stat().st_mtime_ns
    assert gate_log.remember(tmp_path, GATE) == digest
    assert path.stat().st_mtime_ns == written
    assert gate_log.recall(tmp_path, digest) == GATE


def test_another_gate_has_another_digest(tmp_path: Path) -> None:
    other = GateRecord(identity=GATE.identity, strata=GATE.strata, score="fare")
    assert gate_log.remember(tmp_path, GATE) != gate_log.remember(tmp_path, other)


@pytest.mark.parametrize("digest", ["", "../../../../etc", "a" * 15, "0" * 16, "/" * 16])
def test_a_digest_that_names_none_finds_none(tmp_path: Path, digest: str) -> None:
    gate_log.remember(tmp_path, GATE)
    assert gate_log.recall(tmp_path, digest) is None


def test_a_damaged_description_is_not_used(tmp_path: Path) -> None:
    digest = gate_log.remember(tmp_path, GATE)
    path = tmp_path / "gates" / f"{digest}.json"
    path.write_bytes(path.read_bytes().replace(b"fare * 2", b"fare * 3"))
    with pytest.raises(files.BadStateFile, match="checksum"):
        gate_log.recall(tmp_path, digest)
