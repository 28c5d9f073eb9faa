"""Two drivers on one state folder: the second is refused before data is read, and told why."""

from __future__ import annotations

import subprocess
import sys

import pytest

import spillway as sw
from spillway.state import lease
from tests.conftest import Driven

HOLD = """
import sys, time
from pathlib import Path
from spillway.state import lease
print(lease.claim(Path(sys.argv[1])), flush=True)
time.sleep(60)
"""


def test_a_guard_on_a_state_folder_that_another_driver_uses_is_refused(
    driven: Driven, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "_PATIENCE_S", 0.0)
    command = [sys.executable, "-c", HOLD, str(driven.state)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "\n"
        for way in ({}, {"batch_id": 0}):
            guard = sw.Guard("rides", control=sw.FixedRate(0.5), state=driven.state)
            df = driven.spark.range(3) if way else driven.stream()
            with pytest.raises(lease.StateInUse, match=f"process {other.pid} on "):
                guard.protect(df, **way)  # type: ignore[arg-type]
        assert not (driven.state / "plans").exists()
        other.kill()
        other.wait()
        guard = sw.Guard("rides", control=sw.FixedRate(0.5), state=driven.state)
        guard.protect(driven.stream())  # the kill left nothing behind
    lease.release(driven.state)
