"""Named points in driver and workers at which a script makes the process die, or fail.

The script comes in the environment. What is done is written down before it is done, so that a kill
counts too.
"""

from __future__ import annotations

import errno
import json
import os
import random
import signal
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NoReturn

SCRIPT = "SPILLWAY_FAULTS"
DRIVER_POINTS = (
    "before the pin",
    "after the pin",
    "before the sink",
    "half a sink file",
    "between sink and commit",
    "between commit and record",
    "half a ledger line",
    "between ledger and state",
    "before the state is replaced",
    "after the state",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What goes wrong in one life of the driver.

    `point` is where the driver dies, when it comes there for the `nth` time; with `alone` its JVM
    is left to find out by itself. `chances` are probabilities by kind of fault.
    """

    folder: str
    seed: int
    life: int
    point: str = ""
    nth: int = 1
    alone: bool = False
    chances: dict[str, float] = field(default_factory=dict)

    def to_environment(self) -> dict[str, str]:
        """Return the variable that carries it."""
        return {SCRIPT: json.dumps(asdict(self))}

    def happens(self, kind: str, *which: object) -> bool:
        """Draw whether a fault happens here; the same seed, life and place draw the same."""
        dice = random.Random(repr((self.seed, self.life, kind, which)))
        return dice.random() < self.chances.get(kind, 0.0)


def script() -> Script | None:
    """Return the script of this process; None in peace."""
    text = os.environ.get(SCRIPT)
    return Script(**json.loads(text)) if text else None


def note(kind: str, where: str) -> None:
    """Write a fault down."""
    current = script()
    if current is None:
        return
    line = json.dumps({"life": current.life, "kind": kind, "where": where}).encode() + b"\n"
    append(Path(current.folder) / "injected.log", line)


def append(path: Path, line: bytes) -> None:
    """Add a line at once: several processes write to the same file."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(handle, line)
    os.close(handle)


class Driver:
    """What is known in the driver process: how often it came where, and the JVM beside it."""

    counts: dict[str, int] = {}  # noqa: RUF012  one driver, one count
    jvm: int = 0
    here = False


def reached(point: str) -> None:
    """Come to a point of the driver; perhaps that was it."""
    current = script()
    if current is None or not Driver.here:
        return
    Driver.counts[point] = Driver.counts.get(point, 0) + 1
    if current.point == point and Driver.counts[point] >= current.nth:
        note("driver killed", point)
        die(jvm_too=not current.alone)


def die(*, jvm_too: bool) -> NoReturn:
    """Let this process end as if its machine had."""
    if jvm_too and Driver.jvm:
        os.kill(Driver.jvm, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
    raise SystemExit("not reached")


def about_to_die_at(point: str) -> bool:
    """Say whether the next `reached` of this point is the last one."""
    current = script()
    if current is None or not Driver.here or current.point != point:
        return False
    return Driver.counts.get(point, 0) + 1 >= current.nth


def worker_strikes(kind: str, *which: object) -> bool:
    """Kill this Python worker, perhaps; say whether a task should fail instead."""
    current = script()
    if current is None or Driver.here:
        return False
    if current.happens(f"{kind}: worker killed", *which):
        note("worker killed", kind)
        os.kill(os.getpid(), signal.SIGKILL)
    failing = current.happens(f"{kind}: task failed", *which)
    if failing:
        note("task failed", kind)
    return failing


def arm() -> None:
    """Put the points into the state files of this process; a second time changes nothing."""
    from spillway.spark import recorder
    from spillway.state import files, memory, plan_log

    if getattr(files, "_armed", False):
        return
    files._armed = True  # type: ignore[attr-defined]
    pin, save, append_line = plan_log.PlanLog.pin, memory.Memory.save, files.append_line
    beside, record = files._written_beside, recorder.Recorder.record

    def record_and_die(self: Any, *given: Any, **named: Any) -> None:
        reached("between commit and record")
        record(self, *given, **named)

    def pin_and_die(self: Any, plan: Any) -> Any:
        reached("before the pin")
        pinned = pin(self, plan)
        reached("after the pin")
        worker_strikes("after the pin", plan.batch_id, _attempt())
        return pinned

    def append_half(path: Path, line: bytes) -> None:
        _fill("ledger", len(line))
        if about_to_die_at("half a ledger line"):
            append(path, b"\n" + line[: len(line) // 2])
        reached("half a ledger line")
        append_line(path, line)
        reached("between ledger and state")

    def save_and_die(self: Any, state: Any) -> None:
        save(self, state)
        reached("after the state")

    def written_beside(path: Path, data: bytes) -> Any:
        _fill(path.name, len(data))
        if path.name == "state.json":
            reached("before the state is replaced")
        return beside(path, data)

    plan_log.PlanLog.pin = pin_and_die  # type: ignore[method-assign]
    memory.Memory.save = save_and_die  # type: ignore[method-assign]
    files.append_line = append_half
    files._written_beside = written_beside
    recorder.Recorder.record = record_and_die  # type: ignore[method-assign]


def _fill(name: str, size: int) -> None:
    """Let the disk be full for this write, perhaps."""
    current = script()
    Driver.counts["writes"] = Driver.counts.get("writes", 0) + 1
    if current and current.happens("disk full", name, size, os.getpid(), Driver.counts["writes"]):
        note("state fault", "disk full")
        raise OSError(errno.ENOSPC, "No space left on device", name)


def _attempt() -> int:
    from pyspark import TaskContext

    task = TaskContext.get()
    return task.attemptNumber() if task else 0
