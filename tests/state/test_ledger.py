"""The ledger: every batch once, exactly, and damage skipped and counted."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.state import files
from spillway.state.ledger import Entry, Ledger
from spillway.values import Observation, PinnedPlan, Plan, StratumCount


def seen(batch_id: int, *strata: tuple[int, int]) -> Observation:
    counts = tuple(
        StratumCount(name=f"s{i}", rows_in=rows_in, rows_kept=rows_kept)
        for i, (rows_in, rows_kept) in enumerate(strata or [(100, 40)])
    )
    return Observation(
        batch_id=batch_id,
        rows_in=sum(count.rows_in for count in counts),
        rows_kept=sum(count.rows_kept for count in counts),
        duration_s=1.25,
        strata=counts,
    )


def entry(batch_id: int, *strata: tuple[int, int], query_id: str = "q", reason: str = "") -> Entry:
    plan = Plan(rates=(0.4,), reason=reason or "overload")
    return Entry(
        query_id=query_id,
        run_id="r",
        seen=seen(batch_id, *strata),
        plan=PinnedPlan(batch_id=batch_id, salt=5, plan=plan),
        identity=("topic", "partition", "offset"),
        offsets='[[{"t":{"0":1}},{"t":{"0":101}}]]',
        started_at_s=1.7e9,
    )


def filled(folder: Path, batches: int = 5) -> Ledger:
    ledger = Ledger(folder)
    for batch_id in range(batches):
        ledger.append(entry(batch_id))
    return ledger


def segment(ledger: Ledger) -> Path:
    (path,) = ledger.folder.glob("*.jsonl")
    return path


def test_entries_come_back_as_they_were_written_and_in_order(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    for batch_id in (2, 0, 1):
        ledger.append(entry(batch_id))
    assert Ledger(tmp_path / "ledger").entries() == [entry(0), entry(1), entry(2)]


def test_an_empty_or_missing_ledger_adds_up_to_nothing(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "nothing")
    assert ledger.entries() == []
    assert ledger.damaged_lines() == 0
    assert (ledger.totals().batches, ledger.totals().rows_in) == (0, 0)


def test_the_same_batch_twice_counts_once_and_the_last_word_counts(tmp_path: Path) -> None:
    ledger = filled(tmp_path)
    ledger.append(entry(3))
    ledger.append(entry(4, (100, 100)))
    totals = ledger.totals()
    assert (totals.batches, totals.rows_in, totals.rows_kept) == (5, 500, 4 * 40 + 100)


def test_the_same_batch_id_of_another_query_is_another_batch(tmp_path: Path) -> None:
    ledger = filled(tmp_path)
    ledger.append(entry(0, (7, 7), query_id="other"))
    assert ledger.totals().batches == 6
    assert ledger.totals("q").rows_in == 500
    assert ledger.totals("other").rows_in == 7


def test_a_truncated_last_line_is_skipped_and_counted_at_every_length(tmp_path: Path) -> None:
    ledger = filled(tmp_path, batches=2)
    whole = segment(ledger).read_bytes()
    last = whole.rstrip(b"\n").rindex(b"\n") + 1
    for length in range(last + 1, len(whole) - 1):
        segment(ledger).write_bytes(whole[:length])
        assert ledger.entries() == [entry(0)]
        assert ledger.damaged_lines() == 1


def test_an_entry_after_an_unfinished_line_is_not_lost(tmp_path: Path) -> None:
    ledger = filled(tmp_path, batches=2)
    path = segment(ledger)
    path.write_bytes(path.read_bytes()[:-30])
    ledger.append(entry(2))
    assert ledger.entries() == [entry(0), entry(2)]
    assert ledger.damaged_lines() == 1


def test_flipped_bits_all_along_a_line_are_noticed_or_harmless(tmp_path: Path) -> None:
    """The flipped line is skipped and counted, or (the version) says the same; the rest stands."""
    ledger = filled(tmp_path, batches=3)
    path = segment(ledger)
    data = path.read_bytes()
    lines = data.split(b"\n")
    start = data.index(lines[3])
    harmless = 0
    for bit in range(0, len(lines[3]) * 8, 5):
        flipped = bytearray(data)
        flipped[start + bit // 8] ^= 1 << (bit % 8)
        path.write_bytes(flipped)
        if ledger.entries() == [entry(0), entry(1), entry(2)]:
            harmless += 1
            continue
        assert ledger.entries() == [entry(0), entry(2)]
        assert ledger.damaged_lines() >= 1
    assert harmless <= 8


@pytest.mark.parametrize(
    "garbage", [b"\n\n\n", b"hello\n", b"{}\n", b"\xff\xfe\n", b"\x80\x04K\x07.\n", b"null\n"]
)
def test_garbage_between_lines_hurts_nobody(tmp_path: Path, garbage: bytes) -> None:
    ledger = filled(tmp_path, batches=2)
    with segment(ledger).open("ab") as file:
        file.write(garbage)
    ledger.append(entry(2))
    assert len(ledger.entries()) == 3
    assert ledger.damaged_lines() == (1 if garbage.strip() else 0)


def test_an_entry_of_a_future_format_is_skipped_and_counted(tmp_path: Path) -> None:
    ledger = filled(tmp_path, batches=1)
    line = files.encode("ledger entry", entry(1)).replace(b'"spillway":1', b'"spillway":2')
    with segment(ledger).open("ab") as file:
        file.write(line + b"\n")
    assert ledger.entries() == [entry(0)]
    assert ledger.damaged_lines() == 1


def test_an_entry_whose_strata_do_not_add_up_is_refused_with_the_numbers() -> None:
    with pytest.raises(ValueError, match=r"batch 7 must add up to \(101, 40\).*got \(100, 40\)"):
        replace(entry(7), seen=replace(seen(7), rows_in=101))


def test_a_line_whose_strata_do_not_add_up_counts_as_damaged(tmp_path: Path) -> None:
    """Even with a right checksum: rows in = kept + shed holds for whatever the ledger returns."""
    ledger = filled(tmp_path, batches=1)
    wrong = {
        "query_id": "q",
        "run_id": "r",
        "seen": replace(seen(1), rows_in=999),
        "plan": None,
        "identity": (),
        "offsets": "",
        "started_at_s": 0.0,
    }
    with segment(ledger).open("ab") as file:
        file.write(files.encode("ledger entry", wrong) + b"\n")
    assert ledger.entries() == [entry(0)]
    assert ledger.damaged_lines() == 1


batch = st.lists(
    st.integers(0, 1000).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))),
    min_size=1,
    max_size=4,
)


@given(batches=st.lists(batch, max_size=6), reasons=st.data())
@settings(max_examples=40)
def test_totals_add_up_per_stratum_and_reason(
    batches: list[list[tuple[int, int]]], reasons: st.DataObject, tmp_path_factory: object
) -> None:
    folder = tmp_path_factory.mktemp("ledger")  # type: ignore[attr-defined]
    ledger, expected = Ledger(folder), {}
    for batch_id, strata in enumerate(batches):
        reason = reasons.draw(st.sampled_from(["overload", "fixed rate"]))
        ledger.append(entry(batch_id, *strata, reason=reason))
        for i, (rows_in, rows_kept) in enumerate(strata):
            key = (f"s{i}", reason)
            expected[key] = expected.get(key, 0) + rows_in - rows_kept
    totals = ledger.totals()
    assert totals.rows_in == totals.rows_kept + totals.rows_shed
    assert totals.rows_in == sum(rows_in for strata in batches for rows_in, _ in strata)
    assert totals.shed == {key: rows for key, rows in expected.items() if rows}
    assert sum(totals.shed.values()) == totals.rows_shed


def test_segments_split_the_books_and_order_holds_across_them(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    batch_ids = [0, 999, 1000, 1001, 25_000]
    for batch_id in reversed(batch_ids):
        ledger.append(entry(batch_id))
    assert [each.batch_id for each in ledger.entries()] == batch_ids
    assert len(list(tmp_path.glob("*.jsonl"))) == 3


def test_text_with_line_feeds_and_quotes_stays_one_line(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    odd = replace(entry(0), identity=('a"b', "line\nfeed", "car\rriage", "\u2028", "\x85"))
    ledger.append(odd)
    assert ledger.entries() == [odd]
    assert ledger.damaged_lines() == 0


def test_a_ledger_that_cannot_be_written_raises_an_oserror(tmp_path: Path) -> None:
    (tmp_path / "ledger").write_text("a file where a folder should be")
    for folder in (tmp_path / "ledger", Path("/proc/spillway/ledger")):
        with pytest.raises(OSError, match=r"\[Errno"):
            Ledger(folder).append(entry(0))


def test_a_full_disk_raises_an_oserror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        Ledger(tmp_path).append(entry(0))


def test_an_entry_without_a_plan_says_so() -> None:
    assert replace(entry(0), plan=None).reason == "open: no pinned plan"
