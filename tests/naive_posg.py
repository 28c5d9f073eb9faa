"""POSG by the paper's section III in plain Python: slow, obvious, dictionaries only."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from spillway.placement.proactive import Published, Reply, Request

PRIME = 2**31 - 1
Pair = tuple[dict[tuple[int, int], int], dict[tuple[int, int], int]]


def cells(key: int, multipliers: Sequence[int], columns: int) -> list[tuple[int, int]]:
    """The cell of a key in every row of a sketch."""
    products = [int(multiplier) * key for multiplier in multipliers]
    return [(i, ((p + (p >> 32)) & PRIME) % columns) for i, p in enumerate(products)]


def snapshot(pair: Pair) -> dict[tuple[int, int], float]:
    frequency, work_ns = pair
    return {cell: work_ns[cell] / count for cell, count in frequency.items()}


@dataclass
class NaiveInstance:
    """An operator instance (listing III.1, figure 2)."""

    instance: int
    multipliers: Sequence[int]
    columns: int
    window: int
    tolerance: float
    clamped: bool = False
    pair: Pair = field(default_factory=lambda: ({}, {}))
    before: dict[tuple[int, int], float] | None = None  # the snapshot; None in START
    rows: int = 0
    worked_ns: int = 0

    def executed(self, key: int, cost_ns: int) -> Published | None:
        self.rows += 1
        self.worked_ns += cost_ns
        sent = self._end_of_window() if self.rows % self.window == 0 else None
        for cell in cells(key, self.multipliers, self.columns):
            self.pair[0][cell] = self.pair[0].get(cell, 0) + 1
            self.pair[1][cell] = self.pair[1].get(cell, 0) + cost_ns
        return sent

    def _end_of_window(self) -> Published | None:
        now = snapshot(self.pair)
        if self.before is None or self._moved(now) > self.tolerance:
            self.before = now
            return None
        sent = Published(instance=self.instance, model=self.pair)  # type: ignore[arg-type]
        self.pair, self.before = ({}, {}), None
        return sent

    def _moved(self, now: dict[tuple[int, int], float]) -> float:
        assert self.before is not None
        moved = sum(abs(self.before.get(cell, 0.0) - now[cell]) for cell in sorted(now))
        total = sum(self.before.values())
        return moved / total if total > 0 else float("inf")

    def reply(self, request: Request, done_ns: int) -> Reply:
        truth_ns = done_ns if self.clamped else self.worked_ns
        delta_ns = truth_ns - request.estimate_ns
        return Reply(instance=self.instance, epoch=request.epoch, delta_ns=delta_ns)


@dataclass
class NaiveScheduler:
    """The scheduler (listing III.2, figure 3)."""

    k: int
    multipliers: Sequence[int]
    columns: int
    clamped: bool = False
    state: str = "ROUND_ROBIN"
    epoch: int = 0
    turn: int = 0
    asked: int = 0
    totals_ns: list[float] = field(default_factory=list)
    pairs: dict[int, Pair] = field(default_factory=dict)
    deltas: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.totals_ns = [0.0] * self.k

    def place(self, key: int, now_ns: int) -> tuple[int, Request | None]:
        if self.state == "ROUND_ROBIN":
            self.turn += 1
            return (self.turn - 1) % self.k, None
        if self.state == "SEND_ALL":
            instance = self.asked
        else:
            instance = min(range(self.k), key=lambda i: (self._total(i, now_ns), i))
        self.totals_ns[instance] = self._total(instance, now_ns) + self._cost(instance, key)
        if self.state != "SEND_ALL":
            return instance, None
        self.asked += 1
        if self.asked == self.k:
            self.state = "WAIT_ALL"
        estimate_ns = self.totals_ns[instance]
        return instance, Request(instance=instance, epoch=self.epoch, estimate_ns=estimate_ns)

    def published(self, news: Published) -> None:
        self.pairs[news.instance] = news.model  # type: ignore[assignment]
        if self.state != "ROUND_ROBIN" or len(self.pairs) == self.k:
            self.state, self.epoch, self.asked, self.deltas = "SEND_ALL", self.epoch + 1, 0, {}

    def replied(self, reply: Reply) -> bool:
        if reply.epoch != self.epoch:
            return False
        self.deltas[reply.instance] = reply.delta_ns
        if len(self.deltas) == self.k:
            self.totals_ns = [c + self.deltas[i] for i, c in enumerate(self.totals_ns)]
            self.state = "RUN"
        return True

    def _total(self, instance: int, now_ns: int) -> float:
        return (
            max(self.totals_ns[instance], float(now_ns))
            if self.clamped
            else self.totals_ns[instance]
        )

    def _cost(self, instance: int, key: int) -> float:
        frequency, work_ns = self.pairs[instance]
        found = [(frequency.get(c, 0), c) for c in cells(key, self.multipliers, self.columns)]
        count, cell = min(found)
        return work_ns[cell] / count if count else 0.0


@dataclass
class Trace:
    """What happened to every row."""

    placed: list[int] = field(default_factory=list)
    done_ns: list[int] = field(default_factory=list)
    sketches: int = 0
    requests: int = 0
    replies: int = 0
    stale_replies: int = 0


def drive(
    rows: Iterable[tuple[int, int, int]],
    scheduler: Any,
    instances: Sequence[Any],
    delay_ns: int = 0,
) -> Trace:
    """Run (key, cost, arrival) rows through queues with a heap of events, in order of time."""
    trace, rows = Trace(), list(rows)
    free = [0] * len(instances)
    asked: dict[int, Request] = {}
    events = [(arrival, 1, 0, row) for row, (_, _, arrival) in enumerate(rows)]
    heapq.heapify(events)
    while events:
        now, kind, instance, row = heapq.heappop(events)
        key, cost, _ = rows[row]
        if kind == 1:
            instance, request = scheduler.place(key, now)
            if request is not None:
                asked[row] = request
                trace.requests += 1
            free[instance] = max(free[instance], now) + cost
            trace.placed.append(instance)
            trace.done_ns.append(free[instance])
            heapq.heappush(events, (free[instance] + delay_ns, 0, instance, row))
            continue
        news = instances[instance].executed(key, cost)
        if row in asked:
            trace.replies += 1
            reply = instances[instance].reply(asked[row], trace.done_ns[row])
            trace.stale_replies += 0 if scheduler.replied(reply) else 1
        if news is not None:
            trace.sketches += 1
            scheduler.published(news)
    return trace


def best_makespan(costs: Sequence[int], k: int) -> int:
    """OPT by trying every assignment."""
    ways = itertools.product(range(k), repeat=len(costs))
    return min(
        max(sum(c for c, i in zip(costs, way, strict=True) if i == j) for j in range(k))
        for way in ways
    )
