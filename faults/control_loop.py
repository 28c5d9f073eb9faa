"""The control path in memory: the shipped planner, recorder and state files, killed at any write.

A run is a seed. It draws a stream, policies and how often everything goes wrong; a life after the
other works batches off, as Spark would, until all are committed; then the books are compared with
what the sink has.
"""

from __future__ import annotations

import json
import logging
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from faults.disk import SHAPES, Disk, Killed, Mount, mounted
from faults.policies import Broken, Wobble
from spillway.cost.average import AverageCost
from spillway.cost.by_key import CostByKey
from spillway.kernels.uniform import uniforms
from spillway.loop import Loop
from spillway.objective import Latency
from spillway.overload.controller import HoldLatency
from spillway.spark.control import Planner
from spillway.spark.recorder import Recorder
from spillway.state.ledger import Ledger
from spillway.values import Observation, PinnedPlan, StratumCount

_STATE = Path("/nowhere/state")
_CHECKPOINT = Path("/nowhere")
_QUERY = "q"
_LIVES_MAX = 40  # then it is left in peace, so that every run ends
_HOUR_S = 3600.0

Ints = NDArray[np.int64]


class BrokenPromise(AssertionError):
    """The message has the seed."""


@dataclass
class Tally:
    """What happened in runs, added up."""

    runs: int = 0
    batches: int = 0
    rows: int = 0
    rows_shed: int = 0
    gaps: int = 0
    opened: int = 0
    hits: Counter[str] = field(default_factory=Counter)

    def add(self, other: Tally) -> None:
        """Take another one in."""
        for name in ("runs", "batches", "rows", "rows_shed", "gaps", "opened"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.hits += other.hits

    @property
    def faults(self) -> int:
        """How many faults were injected."""
        return sum(self.hits.values())

    @classmethod
    def read(cls, path: Path) -> Tally:
        """Return what was written; nothing at first."""
        stored = json.loads(path.read_text()) if path.exists() else {"hits": {}}
        return cls(**{**stored, "hits": Counter(stored["hits"])})

    def write(self, path: Path) -> None:
        """Write it down, so that a long run can go on later."""
        path.write_text(json.dumps(vars(self)))


def quiet() -> None:
    """Let the guard's complaints, of which there are very many, pass unheard."""
    logging.getLogger("spillway").setLevel(logging.CRITICAL)


def run_all(seeds: range) -> Tally:
    """Run every seed; raise at the first broken promise, with its seed."""
    total = Tally()
    with mounted() as mount:
        for seed in seeds:
            total.add(_Run(seed, mount).run())
    return total


@dataclass(frozen=True, slots=True)
class _Weather:
    """How often things go wrong in a run: probabilities for every batch, or every write."""

    kill: float
    full: float
    task: float
    damage: float
    dropped: float
    doubled: float
    late: float
    jump: float
    policy: float

    @classmethod
    def drawn(cls, dice: random.Random) -> _Weather:
        """Draw one; in most runs some things never happen and others often."""
        odds = (0.06, 0.15, 0.3, 0.3, 0.3, 0.3, 0.3, 0.2, 0.3)
        return cls(*(most * dice.random() if dice.random() < 0.6 else 0.0 for most in odds))


class _Run:
    """One stream, from its first batch to its last, over as many lives as it takes."""

    def __init__(self, seed: int, mount: Mount) -> None:
        self.seed, self.dice = seed, random.Random(seed)
        self.weather = _Weather.drawn(self.dice)
        self.disk = Disk(self.dice, kill=self.weather.kill, full=self.weather.full)
        mount.disk = self.disk
        self.loop = self._drawn_loop()
        self.sizes = self._drawn_sizes()
        self.tally = Tally(runs=1, hits=self.disk.hits)
        self.committed, self.lives = -1, 0
        self.pins: dict[int, PinnedPlan] = {}  # the first plan of a batch that shed
        self.sink: dict[int, Ints] = {}
        self.excused: set[int] = set()  # batches that may miss in the books
        self.late: list[tuple[int, Observation]] = []

    def run(self) -> Tally:
        """Live until all batches are committed, then check the books."""
        while self.committed < len(self.sizes) - 1:
            self.lives += 1
            if self.lives > _LIVES_MAX:
                self.disk.kill = 0.0
            try:
                self._live()
            except Killed:
                self._strike(self.weather.damage)
        self.disk.kill = self.disk.full = 0.0
        self._check_books()
        return self.tally

    def _drawn_loop(self) -> Loop:
        dice = self.dice
        held = HoldLatency(objective=Latency(average="1 s"))
        return Loop(
            controller=dice.choice([held, Wobble(dice)]),
            cost=dice.choice([AverageCost(), CostByKey()]),
            shedder=Broken(dice, self.weather.policy),
        )

    def _drawn_sizes(self) -> list[int]:
        """Return rows by batch: calm, with bursts, now and then nothing."""
        dice, usual = self.dice, self.dice.randrange(1, 120)
        sizes = [usual * dice.choice((1, 1, 1, 2, 10)) for _ in range(dice.randrange(3, 9))]
        return [0 if dice.random() < 0.05 else rows for rows in sizes]

    def _live(self) -> None:
        planner = Planner(loop=self.loop, state=_STATE, checkpoint=_CHECKPOINT)
        recorder = Recorder(loop=self.loop, state=_STATE, identity=("id",))
        self.late.clear()
        run_id = str(self.lives)
        while self.committed < len(self.sizes) - 1:
            self._batch(self.committed + 1, planner, recorder, run_id)

    def _batch(self, batch_id: int, planner: Planner, recorder: Recorder, run_id: str) -> None:
        """Do what Spark does: log the offsets, run, write, commit, report."""
        self.disk.ends[batch_id] = sum(self.sizes[: batch_id + 1])
        kept = self._kept(planner, batch_id)
        while self.dice.random() < self.weather.task:
            self.disk.hits["task failed"] += 1
            kept = self._kept(planner, batch_id)
        self.disk._die("killed before the sink")
        self.sink[batch_id] = kept
        self.disk._die("killed between sink and commit")
        self.committed = batch_id
        self.excused.add(batch_id)
        self.disk._die("killed between commit and record")
        self._report(batch_id, len(kept), recorder, run_id)
        self._strike(self.weather.damage)

    def _kept(self, planner: Planner, batch_id: int) -> Ints:
        """Return the rows that the gate keeps; what was decided once must stay decided."""
        pinned = planner.plan_for(batch_id, _QUERY)
        rate = pinned.plan.rates[0]
        self._hold(pinned.batch_id == batch_id, "a plan must be its batch's", pinned)
        self._hold(self.loop.limits.keep_min <= rate <= 1.0, "rates must be in bounds", rate)
        rows = np.arange(self.disk.ends.get(batch_id - 1, 0), self.disk.ends[batch_id])
        if not pinned.plan.sheds:
            self.tally.opened += pinned.faults > 0
            return rows
        first = self.pins.setdefault(batch_id, pinned)
        self._hold(pinned == first, "a decision must not flip", (first, pinned))
        return rows[uniforms(pinned.salt, rows) < rate]

    def _report(self, batch_id: int, rows_kept: int, recorder: Recorder, run_id: str) -> None:
        """Bring the news of a batch: at once, twice, late or never."""
        seen = self._seen(batch_id, rows_kept)
        if self.dice.random() < self.weather.dropped:
            self.disk.hits["event dropped"] += 1
            return
        if self.dice.random() < self.weather.late:
            self.disk.hits["event late"] += 1
            self.late.append((batch_id + self.dice.randrange(1, 4), seen))
        else:
            self._record(seen, recorder, run_id)
        for due, old in [each for each in self.late if each[0] <= batch_id]:
            self.late.remove((due, old))
            self._record(old, recorder, run_id)

    def _record(self, seen: Observation, recorder: Recorder, run_id: str) -> None:
        again = self.dice.random() < self.weather.doubled
        self.disk.hits["event doubled"] += again
        full = self.disk.hits["disk full"]
        for _ in range(1 + again):
            recorder.record(seen, query_id=_QUERY, run_id=run_id, offsets="[]", started_at_s=0.0)
        if self.disk.hits["disk full"] == full:
            self.excused.discard(seen.batch_id)

    def _seen(self, batch_id: int, rows_kept: int) -> Observation:
        rows, duration_s = self.sizes[batch_id], 0.1 + 0.002 * rows_kept
        jump_s = 0.0
        if self.dice.random() < self.weather.jump:
            self.disk.hits["clock jumped"] += 1
            jump_s = self.dice.choice((-_HOUR_S, _HOUR_S))
        return Observation(
            batch_id=batch_id,
            rows_in=rows,
            rows_kept=rows_kept,
            duration_s=max(duration_s + jump_s, 0.0),
            latency_s_mean=max(1.5 * duration_s + jump_s, 0.0),
            offset_span=float(rows),
            strata=(StratumCount(name="all", rows_in=rows, rows_kept=rows_kept),),
        )

    def _strike(self, chance: float) -> None:
        """Spoil a file, perhaps. A plan that is deleted by hand is nobody's to notice."""
        if self.dice.random() >= chance or not self.disk.contents:
            return
        path = self.dice.choice(sorted(self.disk.contents))
        shapes = [each for each in SHAPES if each != "gone" or "/plans/" not in path]
        self.disk.damage(path, self.dice.choice(shapes))
        if path.endswith(".jsonl"):
            self.excused.update(range(self.committed + 1))

    def _check_books(self) -> None:
        """Compare what is written with what happened, batch by batch."""
        booked = {entry.batch_id: entry for entry in Ledger(_STATE / "ledger").entries(_QUERY)}
        for batch_id, rows in enumerate(self.sizes):
            kept = len(self.sink[batch_id])
            entry = booked.get(batch_id)
            self._hold(entry is not None or batch_id in self.excused, "must be booked", batch_id)
            if entry is not None:
                counts = (entry.seen.rows_in, entry.seen.rows_kept, entry.rows_shed)
                self._hold(counts == (rows, kept, rows - kept), "books must be exact", entry)
            if entry is not None and entry.plan is not None and entry.plan.plan.sheds:
                self._hold(entry.plan == self.pins[batch_id], "no wrong plan", entry.plan)
            self.tally.gaps += entry is None
            self.tally.rows_shed += rows - kept
        rows_in_sink = np.concatenate(list(self.sink.values()))
        self._hold(len(np.unique(rows_in_sink)) == len(rows_in_sink), "no row twice", 0)
        self.tally.batches, self.tally.rows = len(self.sizes), sum(self.sizes)

    def _hold(self, holds: bool, rule: str, got: object) -> None:
        if not holds:
            raise BrokenPromise(f"seed {self.seed}, life {self.lives}: {rule}, got {got}")
