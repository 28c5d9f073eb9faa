"""LAS without arrays or compilation: lists, dictionaries and the words of the paper."""

from __future__ import annotations

from dataclasses import dataclass, field

from spillway.sim.workloads import Stream
from tests.naive_sketch import NaiveOperator, NaiveSketch


@dataclass
class NaiveShedder:
    """Ĉ as a moment in time, and CHECK over all admitted rows, the latest of them, or each."""

    limit_ns: float
    condition: str = "average"
    condition_rows: int = 4
    busy_until: float = 0.0
    waits: list[float] = field(default_factory=list)

    def admit(self, cost_ns: float, now_ns: int) -> bool:
        wait = max(self.busy_until - now_ns, 0.0)
        if self.breaks(wait):
            return False
        self.waits.append(wait)
        self.busy_until = max(self.busy_until, float(now_ns)) + cost_ns
        return True

    def breaks(self, wait: float) -> bool:
        if self.condition == "each":
            return wait > self.limit_ns
        waits = [*self.waits, wait]
        if self.condition == "window":
            waits = waits[-self.condition_rows :]
        return sum(waits) > self.limit_ns * len(waits) and wait > 0.5 * self.limit_ns


def queue(stream: Stream, kept: list[bool]) -> list[int]:
    """Return how long every row waits in front of one operator; -1 for rows that are not kept."""
    free, waits = 0, []
    for arrived, cost, stays in zip(stream.arrivals_ns, stream.costs_ns, kept, strict=True):
        start = max(free, int(arrived))
        waits.append(start - int(arrived) if stays else -1)
        free = start + int(cost) if stays else free
    return waits


def paper_las(
    stream: Stream, *, limit_ns: int, factor: float, operator: NaiveOperator
) -> list[bool]:
    """Run the paper's LAS: NOP until the first sketch, then SEND, one question, RUN."""
    shedder, state, used = NaiveShedder(limit_ns), "NOP", operator.empty()
    free, fix, unseen = 0, 0.0, float(limit_ns)
    pending: list[tuple[int, int, int, float | None]] = []
    kept: list[bool] = []
    for row in zip(stream.keys, stream.costs_ns, stream.arrivals_ns, strict=True):
        key, cost, now = (int(each) for each in row)
        while pending and pending[0][0] <= now:
            done, row_key, row_cost, asked = pending.pop(0)
            published = operator.executed(row_key, row_cost)
            if published is not None:
                used, state, unseen = published, "SEND", mean_of(published)
            if asked is not None:
                shedder.busy_until += (done - asked) - fix
                fix = done - asked
        stays = state == "NOP" or shedder.admit(factor * used.estimate(key, unseen), now)
        kept.append(stays)
        if stays:
            free = max(free, now) + cost
            asks = state == "SEND"
            pending.append((free, key, cost, shedder.busy_until - fix if asks else None))
            state = "RUN" if asks else state
    return kept


def mean_of(sketch: NaiveSketch) -> float:
    count = sum(n for (row, _), n in sketch.count.items() if row == 0)
    return sum(w for (row, _), w in sketch.work.items() if row == 0) / count
