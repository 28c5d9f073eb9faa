"""Classic Spark and Spark Connect take the same decisions and keep the same books."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

JOB = Path(__file__).with_name("parity_job.py")


def run(mode: str, folder: Path) -> Any:
    done = subprocess.run(
        [sys.executable, str(JOB), mode, str(folder)],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("REPORT ")]
    assert lines, done.stdout[-2000:] + done.stderr[-2000:]
    return json.loads(lines[0].removeprefix("REPORT "))


def test_the_main_path_is_the_same_on_classic_and_connect(tmp_path: Path) -> None:
    pytest.importorskip("grpc", reason="Spark Connect's packages are not installed")
    classic, connect = (run(mode, tmp_path / mode) for mode in ("classic", "connect"))
    assert connect == classic
    for way in ("stream", "batch"):
        kept, books = classic[way]["kept"], classic[way]["books"]
        assert sum(rows_in for _, rows_in, _, _ in books) == 3000
        assert sum(rows_kept for _, _, rows_kept, _ in books) == len(kept)
        assert 0 < len(kept) < 3000
    assert classic["stream"]["kept"] == classic["batch"]["kept"]
