"""Past batches: their ranges, plans and gates, from the books or from what else is there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spillway.state import gate_log
from spillway.state.gate_log import GateRecord
from spillway.state.ledger import Entry, Ledger
from spillway.state.past import NotRetained, Past, batch_ids
from spillway.state.plan_log import PlanLog
from spillway.values import Observation, PinnedPlan, Plan, StratumCount

GATE = GateRecord(identity=("id",), strata=("all",))
OTHER = GateRecord(identity=("id", "city"), strata=("all",))


def pinned(batch_id: int, rate: float = 0.25) -> PinnedPlan:
    return PinnedPlan(batch_id=batch_id, salt=batch_id + 7, plan=Plan(rates=(rate,)))


class Books:
    """A state folder and a checkpoint as a run of some batches of 100 rows leaves them."""

    def __init__(self, folder: Path) -> None:
        self.checkpoint, self.state = folder, folder / "spillway"
        for name in ("offsets", "commits"):
            (folder / name).mkdir(parents=True)
        (folder / "metadata").write_text(json.dumps({"id": "q"}))

    @property
    def past(self) -> Past:
        return Past(state=self.state, checkpoint=self.checkpoint)

    def ran(self, batch_id: int, plan: PinnedPlan | None = None, *, booked: bool = True) -> None:
        """Let a batch run; `booked` says whether the ledger knows."""
        plan = plan or pinned(batch_id)
        PlanLog.of(self.state, "q").pin(plan)
        offset = json.dumps({"row": 100 * (batch_id + 1), "epoch_us": 5})
        (self.checkpoint / "offsets" / str(batch_id)).write_text(f"v1\n{{}}\n{offset}\n")
        (self.checkpoint / "commits" / str(batch_id)).write_text("v1\n{}\n")
        if booked:
            Ledger(self.state / "ledger").append(entry(self.state, batch_id, plan))


def entry(
    state: Path, batch_id: int, plan: PinnedPlan | None, gate: GateRecord | None = GATE
) -> Entry:
    kept = 25 if plan else 100
    start = {"row": 100 * batch_id, "epoch_us": 5} if batch_id else None
    end = {"row": 100 * (batch_id + 1), "epoch_us": 5}
    return Entry(
        query_id="q",
        run_id="r",
        seen=Observation(
            batch_id=batch_id,
            rows_in=100,
            rows_kept=kept,
            duration_s=1.0,
            strata=(StratumCount(name="all", rows_in=100, rows_kept=kept),),
        ),
        plan=plan,
        identity=("id",),
        offsets=json.dumps([[start, end]]),
        started_at_s=0.0,
        gate=gate_log.remember(state, gate) if gate else "",
    )


@pytest.fixture
def books(tmp_path: Path) -> Books:
    return Books(tmp_path)


def test_the_books_tell_range_plan_gate_and_count(books: Books) -> None:
    for batch_id in range(3):
        books.ran(batch_id)
    first, last = books.past.batches([2, 0, 2])
    assert (first.batch_id, last.batch_id) == (0, 2)
    assert (first.start, first.end) == (None, {"row": 100, "epoch_us": 5})
    assert last.start == {"row": 200, "epoch_us": 5}
    assert (last.plan, last.gate, last.rows_shed) == (pinned(2), GATE, 75)


def test_a_batch_that_the_books_miss_is_put_together_from_its_neighbours(books: Books) -> None:
    """Its plan is pinned; its range lies between theirs though Spark's log is cleaned."""
    for batch_id in range(4):
        books.ran(batch_id, booked=batch_id != 2)
    for log in (books.checkpoint / "offsets").iterdir():
        log.unlink()
    (found,) = books.past.batches([2])
    assert (found.start, found.end) == ({"row": 200, "epoch_us": 5}, {"row": 300, "epoch_us": 5})
    assert (found.plan, found.gate, found.rows_shed) == (pinned(2), GATE, None)


def test_two_batches_in_a_row_that_the_books_miss_need_sparks_own_log(books: Books) -> None:
    for batch_id in range(5):
        books.ran(batch_id, booked=batch_id not in (2, 3))
    assert [each.end["row"] for each in books.past.batches([2, 3])] == [300, 400]  # type: ignore[index]
    for log in (books.checkpoint / "offsets").iterdir():
        log.unlink()
    with pytest.raises(NotRetained, match="the offsets of batch 2 are not retained"):
        books.past.batches([2, 3])


def test_a_gate_that_changed_about_an_unbooked_batch_is_not_guessed(books: Books) -> None:
    for batch_id in range(3):
        books.ran(batch_id, booked=batch_id == 0)
    Ledger(books.state / "ledger").append(entry(books.state, 2, pinned(2), OTHER))
    with pytest.raises(NotRetained, match="batch 1 is not in the books, and the gate changed"):
        books.past.batches([1])


def test_an_open_gate_left_nothing_to_find(books: Books) -> None:
    """By its plan, and by the books where the gate opened though a plan was pinned."""
    books.ran(0, pinned(0, rate=1.0))
    books.ran(1, booked=False)
    Ledger(books.state / "ledger").append(entry(books.state, 1, None))
    opened, failed = books.past.batches([0, 1])
    assert opened.plan is None
    assert (failed.plan, failed.rows_shed) == (None, 0)


def test_unknown_and_uncommitted_batches_are_refused(books: Books) -> None:
    books.ran(0)
    books.ran(1, booked=False)
    (books.checkpoint / "commits" / "1").unlink()
    with pytest.raises(ValueError, match=r"in the books, got 1, 9: they hold batches 0 to 0"):
        books.past.batches([0, 1, 9])


def test_a_damaged_plan_is_not_used(books: Books) -> None:
    for batch_id in range(3):
        books.ran(batch_id, booked=batch_id != 1)
    (PlanLog.of(books.state, "q").folder / "1.json").write_text("{}")
    with pytest.raises(NotRetained, match="the plan of batch 1 is damaged"):
        books.past.batches([1])


def test_state_of_an_older_version_is_understood_where_the_gate_was_uniform(books: Books) -> None:
    books.ran(0, booked=False)
    Ledger(books.state / "ledger").append(entry(books.state, 0, pinned(0), None))
    (found,) = books.past.batches([0])
    assert found.gate == GATE


def test_of_several_sources_one_must_be_named(books: Books) -> None:
    books.ran(0, booked=False)
    line = entry(books.state, 0, pinned(0))
    both = json.dumps([[None, {"logOffset": 3}], [None, {"row": 100, "epoch_us": 5}]])
    changed = {name: getattr(line, name) for name in line.__dataclass_fields__} | {"offsets": both}
    Ledger(books.state / "ledger").append(Entry(**changed))
    with pytest.raises(ValueError, match="source must be named: the query reads 2 sources"):
        books.past.batches([0])
    named = Past(state=books.state, checkpoint=books.checkpoint, source=1)
    assert named.batches([0])[0].end == {"row": 100, "epoch_us": 5}


def test_without_a_checkpoint_the_only_query_in_the_books_is_meant(books: Books) -> None:
    books.ran(0)
    past = Past(state=books.state, checkpoint=None)
    assert past.batches([0])[0].plan == pinned(0)
    with pytest.raises(ValueError, match=r"checkpoint must be named: .* of 0 queries"):
        Past(state=books.checkpoint / "none", checkpoint=None).batches([0])


@pytest.mark.parametrize("text", ["", "a", "1-", "-3", "5-3", "1;2", "1.5", "٣-٤-٥"])
def test_what_names_no_batches_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="batches must be like 120-180"):
        batch_ids(text)
