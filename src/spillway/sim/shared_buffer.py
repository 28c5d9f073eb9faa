"""DISSP's abstract shedder model on virtual time: input buffer, overload detector, tuple shedder.

Batches of many queries wait in one buffer, first in, first out, for one operator runner. Every δ
seconds (and a little late, as a thread is) the detector looks at the buffer; if more waits than can
be done until the next look, the shedder locks it and chooses. While it is locked the runner starts
nothing, and what arrives is held in a second buffer that is joined when the lock ends.

Detector and shedder are the shipped ones (`overload.detector`, `shedders.fair`); only the clock,
the sources and the runner are made here. Whole ns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from spillway.estimate.sic import results_sic, row_sic
from spillway.overload.detector import History, Interval, RowDetector, WorkDetector
from spillway.shedders.fair import Backlog
from spillway.sim.many_queries import SECOND, Arrivals, Query, arrivals
from spillway.sim.shared_run import Fate, Run

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_ROUNDING = 1e-9  # a share of 3/7 of 7 rows is 3 rows


class Chooser(Protocol):
    """Says what share of each waiting batch stays."""

    def keep(self, waiting: Backlog, capacity: float, turn: int = 0) -> Floats: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node: how much may stay (detector), which (chooser; None sheds nothing), and delays.

    `window_s` is the source time window. A look comes up to `late_s` after its time; choosing takes
    `lock_s` and `lock_s_batch` for every batch that waits.
    """

    chooser: Chooser | None
    detector: RowDetector | WorkDetector = field(default_factory=WorkDetector)
    window_s: float = 10.0
    late_s: float = 0.01
    lock_s: float = 1e-4
    lock_s_batch: float = 5e-7

    def __post_init__(self) -> None:
        """Reject windows without length and times that run backwards."""
        if not 0 < self.window_s < float("inf"):
            raise ValueError(f"window_s must be finite and > 0, got {self.window_s}")
        for name in ("late_s", "lock_s", "lock_s_batch"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name} must be finite and >= 0, got {getattr(self, name)}")


def simulate(
    queries: Sequence[Query], node: Node, *, seconds: float, noise: float = 0.1, seed: int = 0
) -> Run:
    """Run queries on a node for so many seconds. The same seed gives the same run.

    >>> from spillway.shedders.fair import Fair
    >>> from spillway.sim.many_queries import Source
    >>> twice = [Query(sources=(Source(steps=((0, 1000),)),), cost_s=0.002)]
    >>> run = simulate(twice, Node(chooser=Fair()), seconds=30.0)
    >>> run.check()
    >>> round(float(run.sic()[1].mean()), 1)
    0.5
    """
    if not seconds >= node.window_s:
        raise ValueError(f"seconds must be >= window_s, {node.window_s}, got {seconds}")
    came = arrivals(queries, seconds=seconds, noise=noise, seed=seed)
    running = _Running(tuple(queries), came, node, seed)
    running.run(round(seconds * SECOND))
    return Run(
        queries=tuple(queries),
        came=came,
        window_s=node.window_s,
        seconds=seconds,
        rows=running.rows,
        costs_ns=running.costs_ns,
        fates=running.fates,
        done_ns=running.done_ns,
        shed_ns=running.shed_ns,
        locks_ns=np.array(running.locks_ns, dtype=np.int64).reshape(-1, 2),
        waiting=np.array(running.waiting, dtype=np.int64),
    )


class _Running:
    """A run in progress."""

    def __init__(self, queries: tuple[Query, ...], came: Arrivals, node: Node, seed: int) -> None:
        size = came.at_ns.size
        self.came, self.node = came, node
        self.rows, self.costs_ns = came.rows.copy(), came.costs_ns.copy()  # of what is not shed
        self.fates = np.full(size, Fate.WAITING, dtype=np.int64)
        self.done_ns, self.shed_ns = np.full((2, size), -1, dtype=np.int64)
        self.locks_ns: list[tuple[int, int]] = []
        self.waiting: list[int] = []
        self._rng = np.random.default_rng((6, seed))
        self._dies_ns = np.array([query.dies_s for query in queries]) * SECOND
        self._weights = np.array([query.weight for query in queries])
        self._books = _Books(came, self.rows, round(node.window_s * SECOND))
        self._buffer = np.zeros(0, dtype=np.int64)
        self._received = 0
        self._free_ns = 0

    def run(self, ends_ns: int) -> None:
        """Look again and again until the end."""
        history: History = ()
        looked_ns, unlocked_ns, locked_ns, turn = 0, 0, 0, 1
        while (look_ns := self._due_ns(turn, unlocked_ns)) < ends_ns:
            done = self._work(look_ns)
            self._bury(look_ns)
            interval = self._interval(done, look_ns - looked_ns, locked_ns)
            history = self.node.detector.learn(history, interval)
            unlocked_ns = self._shed(history, look_ns, turn)
            self.waiting.append(int(self.rows[self._buffer].sum()))
            looked_ns, locked_ns, turn = look_ns, unlocked_ns - look_ns, turn + 1
        self._work(ends_ns)

    def _due_ns(self, turn: int, unlocked_ns: int) -> int:
        due_s = turn * self.node.detector.interval_s + self._rng.random() * self.node.late_s
        return max(round(due_s * SECOND), unlocked_ns)

    def _receive(self, until_ns: int) -> Ints:
        """Take what has arrived by now; nothing is taken twice."""
        before = self._received
        self._received = int(np.searchsorted(self.came.at_ns, until_ns, side="right"))
        self._books.receive(before, self._received)
        return np.arange(before, self._received)

    def _work(self, until_ns: int) -> Ints:
        """Let the runner take batches, in order, until a moment; return those it has taken.

        A batch begins when it is there and the one before it is done: the recursion
        end = max(end before, arrival) + cost, as a running maximum.
        """
        self._buffer = np.concatenate((self._buffer, self._receive(until_ns)))
        costs_ns = self.costs_ns[self._buffer]
        before_ns = np.cumsum(costs_ns) - costs_ns
        ready_ns = np.maximum(self.came.at_ns[self._buffer], self._free_ns)
        begun_ns = before_ns + np.maximum.accumulate(ready_ns - before_ns)
        count = int(np.searchsorted(begun_ns, until_ns))
        taken, self._buffer = self._buffer[:count], self._buffer[count:]
        self.done_ns[taken] = begun_ns[:count] + costs_ns[:count]
        self.fates[taken] = Fate.DONE
        self._books.work(taken, until_ns)
        if count:
            self._free_ns = int(self.done_ns[taken[-1]])
        return taken

    def _bury(self, now_ns: int) -> None:
        """Take what waits for dead queries out of the buffer."""
        dead = self._dies_ns[self.came.queries[self._buffer]] <= now_ns
        self.fates[self._buffer[dead]] = Fate.ABANDONED
        self._buffer = self._buffer[~dead]

    def _interval(self, done: Ints, elapsed_ns: int, locked_ns: int) -> Interval:
        queries, count = self.came.queries[done], self._weights.size
        rows = np.bincount(queries, self.rows[done], minlength=count)
        return Interval(
            elapsed_s=elapsed_ns / SECOND,
            rows=rows.astype(np.int64),
            busy_s=np.bincount(queries, self.costs_ns[done], minlength=count) / SECOND,
            locked_s=locked_ns / SECOND,
        )

    def _shed(self, history: History, now_ns: int, turn: int) -> int:
        """Cut the buffer down to what can be done; return when it is open again."""
        chooser, detector, buffer = self.node.chooser, self.node.detector, self._buffer
        sizes = detector.sizes(history, self.came.queries[buffer], self.rows[buffer])
        capacity = detector.capacity(history)
        if chooser is None or sizes.sum() <= capacity:
            return now_ns
        share = chooser.keep(self._backlog(sizes, now_ns), capacity, turn)
        self._buffer = self._cut(buffer, share, now_ns)
        lock_s = self.node.lock_s + self.node.lock_s_batch * buffer.size
        unlocked_ns = now_ns + round(lock_s * SECOND)
        held = self._receive(unlocked_ns)  # the second buffer
        self._buffer = np.concatenate((self._buffer, held))
        self._free_ns = max(self._free_ns, unlocked_ns)
        self.locks_ns.append((now_ns, unlocked_ns))
        return unlocked_ns

    def _cut(self, batches: Ints, share: Floats, now_ns: int) -> Ints:
        """Shed all but so much of each batch, in whole rows; return what is left of them."""
        rows = self.rows[batches]
        left = np.floor(share * rows + _ROUNDING).astype(np.int64)
        self.costs_ns[batches] = np.rint(self.costs_ns[batches] * (left / rows)).astype(np.int64)
        self.rows[batches] = left
        self.shed_ns[batches[left < rows]] = now_ns
        self.fates[batches[left == 0]] = Fate.SHED
        return batches[left > 0]

    def _backlog(self, sizes: Floats, now_ns: int) -> Backlog:
        projected, row = self._books.sic(now_ns, self._weights.size)
        came, buffer = self.came, self._buffer
        recent = came.at_ns[buffer] > now_ns - self._books.window_ns
        return Backlog(
            queries=came.queries[buffer],
            sizes=sizes,
            sic=self.rows[buffer] * row[came.sources[buffer]] * recent,
            projected=projected,
            weights=self._weights,
        )


class _Books:
    """Rows of the source time window up to now, by source: how many came, how many were taken."""

    def __init__(self, came: Arrivals, rows: Ints, window_ns: int) -> None:
        self.window_ns = window_ns
        self._arrivals, self._left = came, rows
        self._first = 0  # the oldest batch of the window
        self._taken = np.zeros(came.at_ns.size, dtype=np.bool_)
        self._came, self._did = np.zeros((2, came.query_of_source.size))

    def receive(self, first: int, last: int) -> None:
        """Count batches that arrived."""
        self._came += self._sums(np.arange(first, last), self._arrivals.rows)

    def work(self, batches: Ints, now_ns: int) -> None:
        """Count batches that the runner took, as far as they are still in the window."""
        self._forget(now_ns)
        recent = batches[batches >= self._first]
        self._taken[recent] = True
        self._did += self._sums(recent, self._left)

    def sic(self, now_ns: int, count: int) -> tuple[Floats, Floats]:
        """Return the SIC of every query if nothing more were done, and of a row by source."""
        self._forget(now_ns)
        owner = self._arrivals.query_of_source
        projected = results_sic(self._came, self._did, owner, count=count)
        return projected, row_sic(self._came, owner)

    def _forget(self, now_ns: int) -> None:
        after = int(np.searchsorted(self._arrivals.at_ns, now_ns - self.window_ns, side="right"))
        old = np.arange(self._first, max(after, self._first))
        self._came -= self._sums(old, self._arrivals.rows)
        self._did -= self._sums(old[self._taken[old]], self._left)
        self._first += old.size

    def _sums(self, batches: Ints, rows: Ints) -> Floats:
        sums = np.bincount(
            self._arrivals.sources[batches], rows[batches], minlength=self._came.size
        )
        return sums.astype(np.float64)
