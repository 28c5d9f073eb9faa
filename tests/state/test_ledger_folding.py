"""Old lines of the ledger become sums: the books stay small and add up all the same."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from spillway.state import files, ledger
from spillway.state.ledger import Entry, Ledger, Totals
from spillway.state.ledger_sums import OTHER, Folded, Sums
from spillway.values import Observation, PinnedPlan, Plan, StratumCount


@pytest.fixture(autouse=True)
def short_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten batches to a segment, or the tests would take long."""
    monkeypatch.setattr(ledger, "_SEGMENT_BATCHES", 10)


def entry(batch_id: int, query_id: str = "q", reason: str = "overload") -> Entry:
    rows_in, rows_kept = 100 + batch_id, 40 + batch_id % 7
    count = StratumCount(name="all", rows_in=rows_in, rows_kept=rows_kept)
    return Entry(
        query_id=query_id,
        run_id="r",
        seen=Observation(
            batch_id=batch_id, rows_in=rows_in, rows_kept=rows_kept, duration_s=1.0, strata=(count,)
        ),
        plan=PinnedPlan(batch_id=batch_id, salt=5, plan=Plan(rates=(0.4,), reason=reason)),
        identity=("id",),
        offsets="[]",
        started_at_s=1.7e9,
    )


def filled(folder: Path, batches: int, retain: int = 30) -> Ledger:
    books = Ledger(folder, retain=retain)
    for batch_id in range(batches):
        books.append(entry(batch_id))
    return books


def expected(batches: int) -> Totals:
    seen = [entry(batch_id).seen for batch_id in range(batches)]
    rows_in, rows_kept = (sum(getattr(s, n) for s in seen) for n in ("rows_in", "rows_kept"))
    return Totals(
        batches=batches,
        rows_in=rows_in,
        rows_kept=rows_kept,
        rows_shed=rows_in - rows_kept,
        shed={("all", "overload"): rows_in - rows_kept},
    )


def lines(folder: Path) -> int:
    return sum(1 for path in folder.glob("*.jsonl") for _ in files.lines(path))


def test_totals_are_exact_however_much_was_folded(tmp_path: Path) -> None:
    books = filled(tmp_path, 205)
    assert books.totals() == Ledger(tmp_path).totals() == expected(205)
    assert books.totals("q") == expected(205)
    assert books.totals("another").batches == 0


def test_at_least_the_retained_batches_stay_line_by_line(tmp_path: Path) -> None:
    books = filled(tmp_path, 205, retain=30)
    kept = [each.batch_id for each in books.entries()]
    assert kept == list(range(books.retained_from("q"), 205))
    assert books.retained_from("another") == 0
    assert 30 <= len(kept) <= 50


def test_the_folder_stops_growing(tmp_path: Path) -> None:
    books, sizes = Ledger(tmp_path, retain=30), []
    for batch_id in range(400):
        books.append(entry(batch_id))
        sizes.append(sum(path.stat().st_size for path in tmp_path.iterdir()))
    assert max(sizes[200:]) <= 1.05 * max(sizes[100:200])
    assert lines(tmp_path) <= 30 + 4 * 10


def test_a_batch_written_twice_counts_once_after_folding_too(tmp_path: Path) -> None:
    books = Ledger(tmp_path, retain=30)
    for batch_id in range(120):
        for _ in range(1 + batch_id % 2):
            books.append(entry(batch_id))
    assert books.totals() == expected(120)


def test_a_batch_that_is_folded_already_is_refused_by_name(tmp_path: Path) -> None:
    books = filled(tmp_path, 205)
    for again in (books, Ledger(tmp_path, retain=30)):
        with pytest.raises(ValueError, match=r"batch id must be >= 170, .* got 3 of query q"):
            again.append(entry(3))
    assert books.totals() == expected(205)


def test_another_query_begins_at_batch_0_and_both_add_up(tmp_path: Path) -> None:
    books = filled(tmp_path, 105)
    for batch_id in range(55):
        books.append(entry(batch_id, "other"))
    assert books.totals("q") == expected(105)
    assert books.totals("other") == expected(55)
    assert books.totals().rows_in == expected(105).rows_in + expected(55).rows_in


def copied(source: Path, target: Path) -> Path:
    target.mkdir()
    for path in source.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    return target


def interrupted_folds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield the folder as it is at every write and every removal of a fold."""
    write, unlink = files.write, Path.unlink
    moments: list[Path] = []

    def note() -> None:
        moments.append(copied(tmp_path / "books", tmp_path / f"moment-{len(moments)}"))

    def noted_write(path: Path, kind: str, value: object) -> None:
        write(path, kind, value)
        note()

    def noted_unlink(path: Path, missing_ok: bool = False) -> None:
        unlink(path, missing_ok)
        if path.suffix == ".jsonl":
            note()

    books = filled(tmp_path / "books", 70)
    monkeypatch.setattr(files, "write", noted_write)
    monkeypatch.setattr(Path, "unlink", noted_unlink)
    books.append(entry(70))
    monkeypatch.setattr(files, "write", write)
    monkeypatch.setattr(Path, "unlink", unlink)
    yield from moments


def test_a_crash_at_any_write_of_a_fold_changes_no_total(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = list(interrupted_folds(tmp_path, monkeypatch))
    assert len(moments) >= 3
    for moment in moments:
        books = Ledger(moment, retain=30)
        assert books.totals() == expected(71)
        for batch_id in range(71, 105):  # it goes on from there
            books.append(entry(batch_id))
        assert books.totals() == expected(105)


@pytest.mark.parametrize("damage", [b"", b"{", b"\x80\x04K\x01.", None])
def test_damaged_sums_fall_back_to_the_ones_before_and_the_totals_stay_exact(
    tmp_path: Path, damage: bytes | None
) -> None:
    books = filled(tmp_path, 205)
    path = tmp_path / "sums.json"
    path.write_bytes(path.read_bytes()[:-9] if damage is None else damage)
    assert books.totals() == expected(205)
    for batch_id in range(205, 260):
        books.append(entry(batch_id))
    assert Ledger(tmp_path).totals() == expected(260)


def test_if_all_sums_are_damaged_reading_says_so_and_booking_goes_on(tmp_path: Path) -> None:
    filled(tmp_path, 205)
    for name in ("sums.json", "sums.previous.json"):
        (tmp_path / name).write_bytes(b"rubbish")
    books = Ledger(tmp_path, retain=30)
    books.append(entry(205))
    with pytest.raises(files.BadStateFile, match=r"sums\.previous\.json"):
        books.totals()


def test_segments_of_release_0_1_are_read_and_folded(tmp_path: Path) -> None:
    """They had no tag of their query in the name."""
    filled(tmp_path, 25, retain=1000)
    for path in list(tmp_path.glob("*.jsonl")):
        path.rename(tmp_path / path.name.partition("-")[2])
    books = Ledger(tmp_path, retain=10)
    assert books.totals() == expected(25)
    for batch_id in range(25, 90):
        books.append(entry(batch_id))
    assert books.totals() == expected(90)
    assert lines(tmp_path) <= 10 + 3 * 10


def test_damaged_lines_stay_counted_when_they_are_folded(tmp_path: Path) -> None:
    books = filled(tmp_path, 5)
    (path,) = tmp_path.glob("*.jsonl")
    files.append_line(path, b'{"no":"entry"}')
    for batch_id in range(5, 105):
        books.append(entry(batch_id))
    assert books.damaged_lines() == 1


def test_reasons_without_end_are_bounded_and_lose_no_row() -> None:
    """Reasons hold the text of errors, which may differ every time."""
    dice, total = random.Random(3), Sums()
    rows = [dice.randrange(1, 9) for _ in range(1000)]
    for number, shed in enumerate(rows):
        total = total.plus(Sums(rows_in=shed, shed=(("all", f"open: error {number}", shed),)))
    assert len(total.shed) <= 201
    assert sum(count for *_, count in total.shed) == sum(rows) == total.rows_in
    assert OTHER in {(stratum, reason) for stratum, reason, _ in total.shed}


def test_queries_without_end_are_bounded_and_lose_no_row() -> None:
    folded = Folded()
    for number in range(500):
        folded = folded.plus(f"query {number}", Sums(batches=1, rows_in=3))
        folded = folded.ending(f"tag {number}", 1, 0)
    assert len(folded.by_query) <= 100
    assert len(folded.until) <= 100
    assert folded.of(None).rows_in == 1500
    assert folded.of("query 499").rows_in == 3


@pytest.mark.parametrize("retain", [0, -1])
def test_a_ledger_that_retains_nothing_is_refused(tmp_path: Path, retain: int) -> None:
    with pytest.raises(ValueError, match=f"retain must be >= 1 batch, got {retain}"):
        Ledger(tmp_path, retain=retain)
