"""`spillway report` and `spillway ledger`: what they print, and how they end."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from spillway.cli import app
from tests.report.books import burst, entry, write


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return write(tmp_path / "spillway", burst(30))


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)))


def shown(*arguments: object) -> Any:
    found = run(*arguments)
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)


def test_the_report_is_written_and_told(state: Path, tmp_path: Path) -> None:
    found = run("report", state, "--out", tmp_path / "page.html")
    assert found.exit_code == 0
    assert "Held: Average latency ≤ 2 s in all 30 batches." in found.output
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")


def test_the_report_as_json(state: Path, tmp_path: Path) -> None:
    found = shown("report", state, "--out", tmp_path / "page.html", "--json")
    assert (found["rows_in"], found["rows_kept"], found["rows_shed"]) == (120_000, 40_000, 80_000)
    assert (found["verdict"], found["batches_judged"], found["batches_late"]) == ("held", 30, 0)


def test_check_ends_with_1_where_the_objective_was_not_held(state: Path, tmp_path: Path) -> None:
    page = ("--out", tmp_path / "page.html")
    assert run("report", state, *page, "--check").exit_code == 0
    assert run("report", state, *page, "--check", "--average", "1 s").exit_code == 1
    assert run("report", state, *page, "--average", "1 s").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--average", "soon"], "a duration must be a number with a unit"),
        (["--average", "1 s", "--p99", "1 s"], "exactly one of average, p99 and each"),
        (["--out", "/no/such/folder/page.html"], "there is no folder"),
    ],
)
def test_nonsense_ends_with_2(state: Path, arguments: list[str], told: str) -> None:
    found = run("report", state, *arguments)
    assert found.exit_code == 2
    assert told in " ".join(found.output.replace("│", " ").split())


@pytest.mark.parametrize("command", ["report", "ledger", "simulate"])
def test_no_books_end_with_3_and_no_folder_with_2(command: str, tmp_path: Path) -> None:
    assert run(command, tmp_path / "none").exit_code == 2
    empty = run(command, tmp_path)
    assert empty.exit_code == 3
    assert "has no ledger" in empty.output


def test_the_ledger_lists_and_sums(state: Path) -> None:
    found = run("ledger", state)
    assert found.exit_code == 0
    assert "30 batches: 120,000 rows came, 40,000 kept (33.3 %), 80,000 shed" in found.output
    assert "overload" in found.output


def test_the_ledger_as_json_adds_up(state: Path) -> None:
    found = shown("ledger", state, "--batches", "9-11,20", "--json")
    assert [line["batch"] for line in found["batches"]] == [9, 10, 11, 20]
    assert all(x["rows_in"] == x["rows_kept"] + x["rows_shed"] for x in found["batches"])
    assert found["sums"]["rows_shed"] == sum(x["rows_shed"] for x in found["batches"]) == 16_000
    assert found["sums"]["shed"] == [{"reason": "overload", "stratum": "all", "rows": 16_000}]


def test_the_ledger_as_csv_has_all_batches(state: Path) -> None:
    found = run("ledger", state, "--format", "csv")
    lines = list(csv.DictReader(io.StringIO(found.stdout)))
    assert len(lines) == 30
    assert sum(int(line["rows_in"]) for line in lines) == 120_000
    assert lines[0]["began"] == "2023-11-14T22:13:20.000Z"


@pytest.mark.parametrize(
    ("since", "batches"), [("4 s", 5), ("2023-11-14T22:13:40", 10), ("1 day", 30)]
)
def test_since_is_a_time_or_a_duration_before_the_last_batch(
    state: Path, since: str, batches: int
) -> None:
    assert shown("ledger", state, "--since", since, "--json")["sums"]["batches"] == batches


def test_a_wrong_range_ends_with_2(state: Path) -> None:
    assert run("ledger", state, "--batches", "nine").exit_code == 2
    assert run("ledger", state, "--since", "yesterday").exit_code == 2


def test_check_finds_missing_batches_and_damaged_lines(state: Path, tmp_path: Path) -> None:
    assert run("ledger", state, "--check").exit_code == 0
    gap = write(tmp_path / "gap", [entry(0), entry(3)])
    found = run("ledger", gap, "--check")
    assert found.exit_code == 1
    assert "batches not in the books: 1, 2" in found.output


def test_escapes_of_a_terminal_are_not_printed(tmp_path: Path) -> None:
    nasty = write(tmp_path, [entry(0, kept=5, reason="\x1b[31mred [bold]")], name="a\x1b[2J")
    for arguments in (("ledger", nasty), ("ledger", nasty, "--json")):
        found = run(*arguments).output
        assert "\x1b[31m" not in found
        assert "\x1b[2J" not in found
    assert "\\x1b[31mred [bold]" in run("ledger", nasty).output
