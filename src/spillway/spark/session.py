"""A local Spark session with the settings that Spillway's demo, tests and benchmarks rely on."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from spillway.java import ensure_java


def local_session(
    app: str = "spillway",
    *,
    cores: int | str = 2,
    config: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> SparkSession:
    """A quiet Spark session on this machine, on any Java >= 17 that is found.

    `cores` is a number or "*" for all of them; `config` overrides any setting made here; `log`
    is a file for what Spark itself prints, which otherwise goes to the terminal.
    """
    parallelism = _parallelism(cores)
    _prepare_environment()
    builder = SparkSession.builder.appName(app).master(f"local[{cores}]")
    for key, value in {**_settings(parallelism), **(config or {})}.items():
        builder = builder.config(key, value)
    with _printing_to(log):
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


@contextmanager
def _printing_to(log: Path | None) -> Iterator[None]:
    """Lets processes that start meanwhile print into a file: Spark's JVM and its workers."""
    if log is None:
        yield
        return
    streams = {descriptor: os.dup(descriptor) for descriptor in (1, 2)}
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        for descriptor in streams:
            os.dup2(file, descriptor)
        yield
    finally:
        os.close(file)
        for descriptor, saved in streams.items():
            os.dup2(saved, descriptor)
            os.close(saved)


def _parallelism(cores: int | str) -> int:
    """The number of cores that `cores` stands for."""
    if cores == "*":
        return os.cpu_count() or 1
    if not str(cores).isdecimal() or int(cores) < 1:
        raise ValueError(f'cores must be a number >= 1 or "*", got {cores!r}')
    return int(cores)


def _prepare_environment() -> None:
    """Sets what Spark reads from the environment before its JVM starts."""
    ensure_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable  # or the workers run another Python
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # or Spark listens on every interface


def _settings(parallelism: int) -> dict[str, str]:
    """Settings for one machine, each with its reason."""
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(parallelism),  # 200 tiny tasks would drown a batch
        # stop() in the middle of foreachBatch recurses deeply in the JVM.
        "spark.driver.extraJavaOptions": "-Xss8m",
        # A Python task on loopback TCP waits for a delayed acknowledgement.
        "spark.python.unix.domain.socket.enabled": "true",
    }
