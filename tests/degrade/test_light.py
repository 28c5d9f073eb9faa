"""The room loads fast: executors and the driver import it, so nothing heavy comes with it."""

import subprocess
import sys

ROOM = ("accuracy", "classifiers", "execution_plan", "frontier", "online", "profile", "subtask")
HEAVY = ("numba", "pyspark", "pandas", "pyarrow", "scipy")


def test_it_needs_numpy_and_nothing_heavier() -> None:
    imports = ", ".join(f"spillway.degrade.{name}" for name in ROOM)
    code = f"import sys, {imports}; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
