"""State written by every earlier release loads: the files here are theirs, to the byte."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from spillway.state.ledger import Ledger
from spillway.state.memory import Memory
from spillway.state.plan_log import PlanLog

RELEASES = sorted(path for path in (Path(__file__).parent / "golden").iterdir() if path.is_dir())


@pytest.mark.parametrize("release", RELEASES, ids=lambda path: path.name)
def test_the_state_of_an_earlier_release_loads_whole(release: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(release, tmp_path / "state")
    state, complaints = Memory(folder=folder).load()
    assert complaints == []
    assert (state.query_id, state.run_id, state.batch_id) == ("q", "r", 5)
    assert len(state.cost.samples) == 5
    assert Memory(folder=folder).seed() == 77
    log, books = PlanLog.of(folder, "q"), Ledger(folder / "ledger")
    assert log.batch_ids() == list(range(6))
    entries = books.entries("q")
    assert [entry.batch_id for entry in entries] == list(range(6))
    assert [log.read(entry.batch_id) for entry in entries] == [entry.plan for entry in entries]
    assert books.totals().rows_in == 15_000
    assert books.totals().rows_shed > 0
    assert books.damaged_lines() == 0


def test_there_is_a_golden_state_of_release_0_1() -> None:
    assert "0.1.0" in {path.name for path in RELEASES}
