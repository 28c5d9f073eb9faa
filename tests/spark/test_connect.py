"""Classic Spark and Spark Connect take the same decisions and keep the same books."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.conftest import QUICK_START
from tests.spark import parity_job


def connecting(folder: Path) -> subprocess.Popen[str]:
    """Start the job on a Connect server of its own."""
    return subprocess.Popen(
        [sys.executable, parity_job.__file__, str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "JDK_JAVA_OPTIONS": QUICK_START},
    )


def report(job: subprocess.Popen[str]) -> Any:
    """Wait for the job and return what it reports."""
    try:
        printed, _ = job.communicate(timeout=200)
    except subprocess.TimeoutExpired:
        job.kill()
        raise
    lines = [line for line in printed.splitlines() if line.startswith("REPORT ")]
    assert lines, printed[-4000:]
    return json.loads(lines[0].removeprefix("REPORT "))


def test_the_main_path_is_the_same_on_classic_and_connect(
    spark: SparkSession, tmp_path: Path
) -> None:
    pytest.importorskip("grpc", reason="Spark Connect's packages are not installed")
    with connecting(tmp_path / "connect") as job:
        both = parity_job.both_ways(spark, tmp_path / "classic")  # while the server starts
        found = {**both, "medians": parity_job.medians(spark, tmp_path / "classic" / "medians")}
        classic, connect = json.loads(json.dumps(found)), report(job)
    assert connect == classic
    for way in ("stream", "batch"):
        kept, books = classic[way]["kept"], classic[way]["books"]
        assert sum(rows_in for _, rows_in, _, _ in books) == 3000
        assert sum(rows_kept for _, _, rows_kept, _ in books) == len(kept)
        assert 0 < len(kept) < 3000
    assert classic["stream"]["kept"] == classic["batch"]["kept"]
    assert [(key, *counts) for key, _, _, _, *counts in classic["medians"]] == [
        (key, 300, 16) for key in range(3)
    ]
