"""A guard shows itself in a notebook: from its books alone, escaped, and never with an error."""

import sys
from pathlib import Path

import pytest

import spillway as sw
from tests.report.books import burst, write

NASTY = "<img src=x onerror=alert(1)>"


def guard_of(state: Path, name: str = "rides") -> sw.Guard:
    return sw.Guard(name, objective=sw.Latency(average="2 s"), state=state)


def test_the_plain_form_is_one_line_and_reads_nothing(tmp_path: Path) -> None:
    shown = repr(guard_of(tmp_path / "none"))
    assert shown == (
        f"Guard('rides', objective='average latency <= 2 s', shed=Uniform(), "
        f"state={str(tmp_path / 'none')!r})"
    )


def test_before_the_first_batch_it_says_so(tmp_path: Path) -> None:
    assert "none yet" in guard_of(tmp_path / "none")._repr_html_()


def test_it_shows_objective_sparklines_and_reason(tmp_path: Path) -> None:
    shown = guard_of(write(tmp_path, burst(30)))._repr_html_()
    assert "average latency &lt;= 2 s, held in 30 of 30 batches" in shown
    assert shown.count("<polyline") == 4
    assert "29: within limits" in shown
    assert "80,000 of the last 120,000 rows (66.7 %)" in shown


def test_names_cannot_inject(tmp_path: Path) -> None:
    policy = sw.Semantic(utility=NASTY)
    guard = sw.Guard(NASTY, objective=sw.Latency(average="2 s"), shed=policy, state=tmp_path)
    assert "<img" not in guard._repr_html_()


def test_damaged_books_are_a_note_and_no_error(tmp_path: Path) -> None:
    state = write(tmp_path, burst(9))
    (path,) = (state / "ledger").glob("*.jsonl")
    path.unlink()
    path.mkdir()
    assert "the books cannot be read" in guard_of(state)._repr_html_()


def test_nobody_asks_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guard = guard_of(write(tmp_path, burst(9)))
    for name in [name for name in sys.modules if name.split(".")[0] == "pyspark"]:
        monkeypatch.setitem(sys.modules, name, None)  # importing it would raise
    assert "held in 9 of 9" in guard._repr_html_()
