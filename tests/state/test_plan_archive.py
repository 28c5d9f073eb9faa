"""Old plans lie folded: small, checked, as they were, and forgotten when their time is over."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from spillway.concept_values import KeepTable
from spillway.state import files, plan_archive
from spillway.state.plan_log import PlanLog, brief
from spillway.values import CostTable, Limits, PinnedPlan, Plan


def pinned(batch_id: int, rate: float = 0.5, table: bytes = b"") -> PinnedPlan:
    keep = KeepTable(levels=(0.25, 1.0), cells=table) if table else None
    plan = Plan(rates=(rate,), reason="overload", keep=keep)
    return PinnedPlan(batch_id=batch_id, salt=batch_id * 7 - 3, plan=plan)


def written(log: PlanLog, plans: list[PinnedPlan]) -> None:
    """Write plans without waiting for the disk, as only a test may."""
    log.folder.mkdir(parents=True, exist_ok=True)
    for plan in plans:
        path = log.folder / f"{plan.batch_id}.json"
        path.write_bytes(files.encode("plan", plan))


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*"))


def test_a_folded_plan_is_read_back_to_the_last_bit(tmp_path: Path) -> None:
    log = PlanLog(folder=tmp_path)
    written(log, [pinned(batch_id) for batch_id in range(2_100)])
    log.prune(2_099)
    assert sorted(path.name for path in tmp_path.glob("*.zip")) == ["00000000.zip"]
    assert len(list(tmp_path.glob("*.json"))) == 1_100
    assert log.batch_ids() == list(range(2_100))
    assert [log.read(batch_id) for batch_id in (0, 999, 1000)] == [
        pinned(0),
        pinned(999),
        pinned(1000),
    ]
    assert log.pin(pinned(5, rate=0.9)) == pinned(5)


def test_ten_thousand_batches_are_retained_and_no_more_in_a_bounded_space(tmp_path: Path) -> None:
    """A table of 3 kB that nothing compresses in every plan, twenty thousand batches."""
    log, rng = PlanLog(folder=tmp_path), np.random.default_rng(1)
    sizes = []
    for thousand in range(20):
        first = thousand * 1000
        plans = [pinned(first + i, table=rng.bytes(3_000)) for i in range(0, 1000, 10)]
        written(log, plans)
        log.prune(first + 999)
        sizes.append(size(tmp_path))
        assert log.read(plans[-1].batch_id) == plans[-1]
    kept = log.batch_ids()
    assert kept[-1] - 10_000 - 1000 <= kept[0] <= kept[-1] - 9_900
    assert log.read(kept[0]) is not None
    assert log.read(kept[0] - 10) is None
    assert max(sizes) < 1.1 * sizes[11]


def test_uniform_plans_of_ten_thousand_batches_take_little(tmp_path: Path) -> None:
    log = PlanLog(folder=tmp_path)
    written(log, [pinned(batch_id, rate=1 / (batch_id + 2)) for batch_id in range(11_000)])
    log.prune(10_999)
    assert len(log.batch_ids()) >= 10_000
    folded = sum(path.stat().st_size for path in tmp_path.glob("*.zip"))
    assert folded < 4 << 20


def test_what_an_open_gate_did_not_look_up_is_left_out() -> None:
    costs = CostTable(heavy=b"h", counts=b"c", cells=b"x", multipliers=(1,), places=1, mean_ns=1.0)
    table = KeepTable(levels=(1.0,), cells=b"x")
    opened = PinnedPlan(batch_id=1, salt=2, plan=Plan(rates=(1.0,), costs=costs, keep=table))
    assert brief(opened).plan == Plan(rates=(1.0,))
    shed = PinnedPlan(batch_id=1, salt=2, plan=Plan(rates=(0.5,), costs=costs, keep=table))
    assert brief(shed) == shed
    assert brief(shed, keyed=False).plan == Plan(rates=(0.5,), keep=table)


def test_a_crash_between_folding_and_cleaning_does_no_harm(tmp_path: Path) -> None:
    log = PlanLog(folder=tmp_path)
    plans = [pinned(batch_id) for batch_id in range(1000)]
    written(log, plans)
    log.prune(2_500)
    written(log, plans[:300])  # as if some had not been removed
    log.prune(2_600)
    assert [log.read(plan.batch_id) for plan in plans] == plans
    assert list(tmp_path.glob("*.json")) == []


def test_a_damaged_archive_is_noticed_and_begun_anew(tmp_path: Path) -> None:
    log = PlanLog(folder=tmp_path)
    written(log, [pinned(batch_id) for batch_id in range(1000)])
    log.prune(2_500)
    path = tmp_path / "00000000.zip"
    data = bytearray(path.read_bytes())
    for damaged in (bytes(data[:500]), b"", bytes(data[:200]) + b"!" + bytes(data[201:])):
        path.write_bytes(damaged)
        found = []
        for batch_id in range(5):
            try:
                found.append(log.read(batch_id))
            except files.BadStateFile:
                continue
        assert all(plan == pinned(plan.batch_id) for plan in found if plan)
    path.write_bytes(b"nonsense")
    with pytest.raises(files.BadStateFile, match=r"00000000\.zip: it cannot be read"):
        log.read(5)
    assert log.batch_ids() == []
    plan_archive.add(path, {5: files.encode("plan", pinned(5))})
    assert log.read(5) == pinned(5)


def test_the_retention_is_a_limit_with_a_least_value() -> None:
    assert Limits().replay_batches == 10_000
    with pytest.raises(ValueError, match="replay_batches must be >= 1000, got 999"):
        Limits(replay_batches=999)
