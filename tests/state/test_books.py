"""Books that cannot be read say why; books that can say what is wrong with them."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from spillway.note_values import Note
from spillway.objective import Latency
from spillway.overload.controller import FixedRate, HoldLatency
from spillway.overload.fair import FairBudget
from spillway.state import files
from spillway.state.books import NoBooks, open_books
from spillway.state.description import held
from spillway.state.ledger import Ledger
from tests.report.books import burst, entry, write


def refused(state: Path) -> str:
    with pytest.raises(NoBooks) as error:
        open_books(state)
    return str(error.value)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert f"got '{tmp_path / 'none'}'" in refused(tmp_path / "none")


def test_a_folder_without_a_ledger_is_named_and_one_near_it_found(tmp_path: Path) -> None:
    assert "has no ledger" in refused(tmp_path)
    write(tmp_path / "spillway", [entry(0)])
    assert open_books(tmp_path).name == "rides"  # the checkpoint around it


def test_an_empty_ledger_is_not_damage(tmp_path: Path) -> None:
    (tmp_path / "ledger").mkdir()
    assert "no batch of its query has finished yet" in refused(tmp_path)


def test_lines_of_a_later_version_are_told_apart_from_damage(tmp_path: Path) -> None:
    write(tmp_path, [entry(0)])
    (path,) = (tmp_path / "ledger").glob("*.jsonl")
    later = path.read_bytes().replace(b'{"spillway":1', b'{"spillway":9')
    path.write_bytes(later)
    assert "format 9 is later than 1" in refused(tmp_path)


def test_damaged_lines_are_left_out_and_counted(tmp_path: Path) -> None:
    write(tmp_path, burst(9))
    (path,) = (tmp_path / "ledger").glob("*.jsonl")
    lines = path.read_bytes().splitlines()
    lines[1] = lines[1][:40]
    path.write_bytes(b"\n".join(lines))
    books = open_books(tmp_path)
    assert len(books.entries) == 8
    assert books.damaged_lines == 1
    assert any(re.search(r"1 damaged lines are left out: .*\(1×\)", note) for note in books.notes)


def test_books_of_an_earlier_version_have_no_objective_and_say_so(tmp_path: Path) -> None:
    books = open_books(write(tmp_path, [entry(0)], average=None))
    assert books.objective is None
    assert books.name == tmp_path.name
    assert "an earlier version wrote these books, without the objective" in books.notes


def test_a_damaged_description_is_a_note(tmp_path: Path) -> None:
    write(tmp_path, [entry(0)])
    (tmp_path / "guard.json").write_bytes(files.encode("guard", {"name": 3}))
    assert any("description cannot be read" in note for note in open_books(tmp_path).notes)


def test_of_several_queries_the_latest_is_told(tmp_path: Path) -> None:
    write(tmp_path, [entry(7, query_id="old"), entry(9, query_id="new"), entry(8, query_id="old")])
    books = open_books(tmp_path)
    assert books.queries == ["old", "new"]
    assert [each.batch_id for each in books.of_query().entries] == [9]
    assert [each.batch_id for each in books.of_query("ol").entries] == [7, 8]
    assert any("1 other queries" in note for note in books.of_query().notes)
    with pytest.raises(NoBooks, match="query must be one of old, new, got 'x'"):
        books.of_query("x")


def test_the_latest_batches_are_those_of_the_query_booked_last(tmp_path: Path) -> None:
    ledger = Ledger(write(tmp_path, [entry(i) for i in range(995, 1010)]) / "ledger")
    assert [each.batch_id for each in ledger.latest(3)] == [1007, 1008, 1009]
    assert len(ledger.latest(100)) == 15
    assert Ledger(tmp_path / "none").latest(3) == []


def test_the_objective_is_what_the_last_batches_say_and_a_change_is_told(tmp_path: Path) -> None:
    """The guard's description says 2 s: books of an earlier version have nothing else."""
    told = [
        replace(entry(i), note=Note(objective="average", limit_s=limit_s))
        for i, limit_s in enumerate((2.0, 2.0, 5.0))
    ]
    assert str(open_books(write(tmp_path / "a", [entry(0)])).objective) == "average latency <= 2 s"
    books = open_books(write(tmp_path / "b", told)).of_query()
    assert str(books.objective) == "average latency <= 5 s"
    assert any("it was average latency <= 2 s; judged by the last" in note for note in books.notes)
    assert not open_books(write(tmp_path / "c", told[:2])).of_query().notes


def test_a_description_and_the_notes_have_the_objective_of_the_controller() -> None:
    inner = HoldLatency(objective=Latency(p99="3 s"))
    assert held(FairBudget(own=inner)) == held(inner) == inner.objective
    assert held(FixedRate(0.5)) is None
