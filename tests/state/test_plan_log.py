"""The plan log: the first pin counts, damage is noticed, and nothing leaves the folder."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from spillway.concept_values import KeepTable
from spillway.state import files
from spillway.state.plan_log import PlanLog
from spillway.values import SCORE_MAX, SCORE_MIN, PinnedPlan, Plan

PLAN = Plan(rates=(0.1, 0.5, 1.0), edges=(SCORE_MIN, SCORE_MAX), unrated=1 / 3, reason="overload")


def pinned(batch_id: int, salt: int = -(2**63)) -> PinnedPlan:
    return PinnedPlan(batch_id=batch_id, salt=salt, plan=PLAN, probe=0.5, rows_expected=12.5)


def test_a_pinned_plan_is_read_back_to_the_last_bit(tmp_path: Path) -> None:
    log = PlanLog.of(tmp_path, "q")
    assert log.read(3) is None
    assert log.pin(pinned(3)) == pinned(3)
    assert PlanLog.of(tmp_path, "q").read(3) == pinned(3)


def test_a_plan_by_groups_is_read_back_to_the_last_bit(tmp_path: Path) -> None:
    table = KeepTable(levels=(0.1, 1 / 3, 1.0), cells=bytes(range(256)))
    plan = PinnedPlan(batch_id=3, salt=7, plan=Plan(rates=(1.0, 0.2), edges=(1.0,), keep=table))
    PlanLog.of(tmp_path, "q").pin(plan)
    assert PlanLog.of(tmp_path, "q").read(3) == plan


def test_the_first_pin_counts_and_every_later_one_gets_it(tmp_path: Path) -> None:
    log = PlanLog.of(tmp_path, "q")
    log.pin(pinned(3, salt=1))
    assert log.pin(pinned(3, salt=2)).salt == 1
    assert log.read(3) == pinned(3, salt=1)


def test_many_threads_that_pin_at_once_all_get_the_same_plan(tmp_path: Path) -> None:
    log, start, got = PlanLog.of(tmp_path, "q"), threading.Barrier(16), []

    def pin(salt: int) -> None:
        start.wait()
        got.append(log.pin(pinned(0, salt)).salt)

    threads = [threading.Thread(target=pin, args=(salt,)) for salt in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 16
    assert len(set(got)) == 1


def test_truncation_and_bit_flips_never_yield_another_plan(tmp_path: Path) -> None:
    log = PlanLog.of(tmp_path, "q")
    log.pin(pinned(3))
    path = log.folder / "3.json"
    data = path.read_bytes()
    damaged = [data[:length] for length in range(len(data))]
    damaged += [data[:i] + bytes([data[i] ^ 4]) + data[i + 1 :] for i in range(len(data))]
    refused = 0
    for content in damaged:
        path.write_bytes(content)
        try:
            assert log.read(3) == pinned(3)
        except files.BadStateFile:
            refused += 1
    assert refused >= len(damaged) - 1


def test_pruning_keeps_the_history_and_no_more(tmp_path: Path) -> None:
    log = PlanLog(folder=tmp_path / "plans", history=10)
    for batch_id in range(50):
        log.pin(pinned(batch_id))
        log.prune(batch_id)
        assert len(log.batch_ids()) <= 11
    assert log.batch_ids() == list(range(39, 50))


def test_pruning_leaves_foreign_files_alone(tmp_path: Path) -> None:
    log = PlanLog(folder=tmp_path, history=1)
    (tmp_path / "notes.json").write_text("mine")
    (tmp_path / "1.txt").write_text("mine")
    log.prune(1_000)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1.txt", "notes.json"]


def test_pruning_a_log_that_does_not_exist_is_no_error(tmp_path: Path) -> None:
    log = PlanLog.of(tmp_path, "q")
    log.prune(1_000)
    assert log.batch_ids() == []


def test_batch_ids_ascend_as_numbers(tmp_path: Path) -> None:
    log = PlanLog.of(tmp_path, "q")
    for batch_id in (10, 9, 100, 1):
        log.pin(pinned(batch_id))
    assert log.batch_ids() == [1, 9, 10, 100]


@pytest.mark.parametrize(
    "query_id",
    ["../x", "../../../etc", "a/b", "/etc/passwd", "..", ".", "", "nul\0l", "a\nb", "ä", "x" * 200],
)
def test_a_hostile_query_id_stays_inside_the_folder(tmp_path: Path, query_id: str) -> None:
    state = tmp_path / "state"
    log = PlanLog.of(state, query_id)
    log.pin(pinned(0))
    assert log.read(0) == pinned(0)
    assert log.folder.resolve().parent == (state / "plans").resolve()
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


def test_two_queries_have_two_logs(tmp_path: Path) -> None:
    PlanLog.of(tmp_path, "a").pin(pinned(0))
    assert PlanLog.of(tmp_path, "b").read(0) is None


def test_a_log_that_cannot_be_written_raises_an_oserror() -> None:
    with pytest.raises(OSError, match=r"\[Errno"):
        PlanLog.of(Path("/proc/spillway"), "q").pin(pinned(0))
