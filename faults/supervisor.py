"""Starts the driver program, kills it, starts it again until it is done: one campaign a seed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from faults import points
from faults.job import CLOCK, ROWS_PER_S
from faults.processes import children_of_session, end_session, kill
from spillway.state import offsets

ROOT = Path(__file__).parents[1]
ROWS_A_LIFE = 1500
_LIFE_S_MAX = 900.0  # a busy machine may need most of it
_STRIKE_S_MAX = 3.0
CHANCES = {
    "in mid-task: worker killed": 0.05,
    "at the end of a task: worker killed": 0.05,
    "before the pin: worker killed": 0.04,
    "after the pin: worker killed": 0.04,
    "at the end of a task: task failed": 0.2,
    "before the pin: task failed": 0.02,
    "in the source: task failed": 0.1,
    "sink": 0.05,
    "state": 0.5,
    "news": 0.3,
    "disk full": 0.02,
}


class Stuck(RuntimeError):
    """A driver neither got done nor was killed; see its log."""


@dataclass(kw_only=True)
class Campaign:
    """A stream that must get done, through so many kills of its driver."""

    folder: Path
    seed: int
    way: str
    kills: int
    master: str = "local[2,9]"
    chances: dict[str, float] = field(default_factory=lambda: dict(CHANCES))
    rows: int = ROWS_A_LIFE
    meddle: Callable[[Campaign, random.Random], None] | None = None
    environment: dict[str, str] = field(default_factory=dict)
    killed: int = 0
    life: int = 0
    done: bool = False

    def run(self, tick: Callable[[str], None]) -> None:
        """Live and die until the quota is full, then finish in peace from kills.

        What was lived before in the same folder counts.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self._remember()
        while not self.done:
            deadly = self.killed < self.kills
            tick(f"{self.name}: life {self.life}, {self.killed} of {self.kills} kills")
            self._more_rows()
            ended = self._live(deadly=deadly)
            self.life, self.killed = self.life + 1, self.killed + (deadly and not ended)
            self.done = ended and not deadly
            self._note_down()

    def _remember(self) -> None:
        if self._diary.exists():
            self.life, self.killed, self.done = json.loads(self._diary.read_text())

    def _note_down(self) -> None:
        self._diary.write_text(json.dumps([self.life, self.killed, self.done]))

    @property
    def _diary(self) -> Path:
        return self.folder / "lives.json"

    @property
    def name(self) -> str:
        """How the table calls it."""
        cluster = self.master.startswith("spark:")
        where = "a standalone cluster" if cluster else self.master
        return f"{self.way} on {where}, seed {self.seed}"

    def _more_rows(self) -> None:
        """Let the virtual clock run, so that there is something to do in this life."""
        checkpoint = self.folder / "checkpoint"
        last = offsets.last_committed(checkpoint)
        end = (offsets.end_offsets(checkpoint, last) or [{}])[0]
        done = end.get("row", 0) if isinstance(end, dict) else 0
        clock = self.folder / CLOCK
        clock.with_suffix(".new").write_text(str((done + self.rows) / ROWS_PER_S))
        os.replace(clock.with_suffix(".new"), clock)

    def _live(self, *, deadly: bool) -> bool:
        """Run the driver once; say whether it got done."""
        dice = random.Random(repr((self.seed, self.life)))
        script = self._script(dice, deadly=deadly)
        with (self.folder / "driver.log").open("ab") as log:
            driver = subprocess.Popen(
                [sys.executable, "-m", "faults.job", str(self.folder), self.way, self.master],
                cwd=ROOT,
                env={**os.environ, **self._environment(), **script.to_environment()},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            return self._wait(driver, dice, deadly and not script.point)
        finally:
            end_session(driver.pid, patience_s=20.0 if script.alone else 0.0)

    def _script(self, dice: random.Random, *, deadly: bool) -> points.Script:
        """Draw where this life ends: at a named point, or at any moment."""
        named = deadly and dice.random() < 0.75
        listed = [p for p in points.DRIVER_POINTS if self.way == "batch" or "the pin" not in p]
        return points.Script(
            folder=str(self.folder),
            seed=self.seed,
            life=self.life,
            point=dice.choice(listed) if named else "",
            nth=dice.randrange(2, 9),
            alone=dice.random() < 0.3,
            chances=self.chances,
        )

    def _environment(self) -> dict[str, str]:
        path = [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
        return {"PYTHONPATH": os.pathsep.join(filter(None, path)), **self.environment}

    def _wait(self, driver: subprocess.Popen[bytes], dice: random.Random, at_random: bool) -> bool:
        """Wait for the end; at random moments strike, once the first batch has begun."""
        deadline, began_at_s = time.monotonic() + _LIFE_S_MAX, time.time()
        strike_at_s: float | None = None
        while driver.poll() is None:
            if time.monotonic() > deadline:
                raise Stuck(f"{self.name}, life {self.life}: see {self.folder / 'driver.log'}")
            awake = self._awake(began_at_s)
            if at_random and awake and strike_at_s is None:
                strike_at_s = time.monotonic() + dice.uniform(0.0, _STRIKE_S_MAX)
            if strike_at_s is not None and time.monotonic() > strike_at_s:
                self._strike(driver.pid)
                driver.wait()
            if self.meddle is not None and awake:
                self.meddle(self, dice)
            time.sleep(0.02)
        if driver.returncode not in (0, -signal.SIGKILL):
            raise Stuck(f"{self.name}, life {self.life}: it ended with {driver.returncode}")
        return driver.returncode == 0

    def _awake(self, since_s: float) -> bool:
        """Say whether the driver of this life has begun with a batch."""
        log = self.folder / "attempts.log"
        return log.exists() and log.stat().st_mtime > since_s

    def _strike(self, pid: int) -> None:
        """Kill driver and JVM at once, wherever they are."""
        note = b'{"life": %d, "kind": "driver killed", "where": "at any moment"}\n' % self.life
        points.append(self.folder / "injected.log", note)
        kill(children_of_session(pid))
