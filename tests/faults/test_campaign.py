"""The short version of `make faults`: a real driver is killed once, its tasks and sinks often."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from faults import books, points
from faults.supervisor import CHANCES, Campaign
from spillway.state.ledger import Ledger


class OneKill(Campaign):
    """Kills where the harm would be greatest: the output is there, the commit is not."""

    def _script(self, dice: object, *, deadly: bool) -> points.Script:
        return points.Script(
            folder=str(self.folder),
            seed=self.seed,
            life=self.life,
            point="between sink and commit" if deadly else "",
            nth=2,
            chances=self.chances,
        )


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stream that has been through it: two batches, a kill, and other partitions after it."""
    folder = tmp_path_factory.mktemp("campaign")
    chances = {**CHANCES, "state": 0.8, "at the end of a task: task failed": 0.3}
    OneKill(folder=folder, seed=2318, way="stream", kills=1, chances=chances, rows=300).run(print)
    return folder


def test_no_row_is_lost_no_decision_flips_and_no_wrong_plan_is_used(broken: Path) -> None:
    found, injected = books.check(broken), books.injected(broken)
    assert found.details == []
    assert found.rows == found.rows_kept + found.rows_shed >= 300
    assert 0 < found.rows_kept < found.rows
    assert found.replayed >= 1
    assert injected["driver killed: between sink and commit"] == 1
    assert sum(injected.values()) >= 5


def test_every_kind_of_wrong_is_found(broken: Path) -> None:
    """The checks can fail: tampered sinks, attempts and books show."""
    booked = Ledger(broken / "checkpoint" / "spillway" / "ledger").entries()
    batch = next(entry.batch_id for entry in booked if entry.seen.rows_kept > 2 < entry.rows_shed)
    path = broken / "sink" / f"{batch}.json"
    good = path.read_text()
    kept = json.loads(good)
    for tampered, kind in (
        (kept[1:], "wrong_plans"),
        (kept[1:], "books_wrong"),
        ([*kept, kept[-1]], "rows_unaccounted"),
        ([*kept[:-1], [10**9, 1.0]], "rows_unaccounted"),
    ):
        path.write_text(json.dumps(tampered))
        assert getattr(books.check(broken), kind) >= 1, kind
    path.write_text(good)
    other = {"batch": batch, "ids": [id_ for id_, _ in kept[1:]], "life": 0}
    log = broken / "attempts.log"
    logged = log.read_bytes()
    points.append(log, json.dumps(other).encode() + b"\n")
    assert books.check(broken).decisions_flipped == 1
    log.write_bytes(logged)
    assert books.check(broken).clean
