"""`spillway dashboard` and `spillway metrics` refuse what makes no sense."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from spillway.cli import app


@pytest.mark.parametrize("command", ["dashboard", "metrics"])
@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--host", "0.0.0.0", "--no-token"], "token must not be empty"),
        (["--token", "short"], "token must be empty or 16"),
        (["--no-token", "--token", "a" * 20], "contradict"),
        (["--port", "70000"], "port must be in"),
        (["--host", "192.0.2.1", "--token", "a" * 20, "--port", "0"], "must be free"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_what_makes_no_sense_ends_with_2_and_says_why(
    command: str, options: list[str], told: str, tmp_path: Path
) -> None:
    found = CliRunner().invoke(app, [command, str(tmp_path), *options], env={"COLUMNS": "300"})
    assert found.exit_code == 2
    assert told in " ".join(found.output.split())


@pytest.mark.parametrize("command", ["dashboard", "metrics"])
def test_help_says_what_it_does(command: str) -> None:
    found = CliRunner().invoke(app, [command, "--help"])
    assert found.exit_code == 0
    assert "STATE_DIR" in found.output
