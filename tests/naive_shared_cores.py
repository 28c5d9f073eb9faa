"""Queries in micro-batches on shared cores, step by step: who plans, and what a node does of it.

A batch takes some time of a core for the engine and then its kept rows' costs; batches that run at
once share the cores equally, each at most one of them. Plans and reports are the shipped ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import spillway as sw
from spillway.spark.membership import Membership, Reporter, Split
from spillway.state.fair_log import FairLog
from spillway.values import CostState, LoopState, Observation, TaskReport

STEP_S = 0.1
START_S = 1_000_000.0
CORES, TRIGGER_S = 2.0, 4.0
ENGINE_S, ENGINE_SPREAD = 0.6, 0.5  # of a batch: mean, and how far its logarithm scatters


@dataclass
class Query:
    """Rows that come at a rate, what each takes, and what became of the batches."""

    name: str
    rate: float
    cost_s: float
    began_s: float = -TRIGGER_S  # of the batch that runs or ran last
    batch_id: int = -1
    rows: int = 0
    kept: int = 0
    waited_s: float = 0.0
    left_s: float = 0.0
    done: list[tuple[float, int, int, float]] = field(default_factory=list)

    def sic(self, from_s: float, to_s: float) -> float:
        """Share of the rows that was kept of batches that began within."""
        inside = [(came, kept) for began, came, kept, _ in self.done if from_s < began <= to_s]
        return sum(kept for _, kept in inside) / max(sum(came for came, _ in inside), 1)

    def latency_s(self, from_s: float) -> float:
        """Mean latency of the kept rows of batches that began after that."""
        late = [(kept, latency) for began, _, kept, latency in self.done if began > from_s]
        return sum(k * latency for k, latency in late) / max(sum(k for k, _ in late), 1)

    def in_time_s(self, from_s: float, limit_s: float) -> float:
        """Work of the batches that began after that and held the limit."""
        rows = sum(kept for b, _, kept, late in self.done if b > from_s and late <= limit_s)
        return rows * self.cost_s


def run(
    queries: Sequence[Query],
    folder: Path,
    *,
    seconds: float,
    objective: sw.Latency,
    split: Split,
) -> float:
    """Let the queries run; return the share of the time in which a core was busy."""
    rng, log, busy_s = np.random.default_rng(5), FairLog(folder=folder), 0.0
    members = [Membership(name=q.name, log=log, objective=objective, split=split) for q in queries]
    reporters = [Reporter(member, app="app", cores=CORES) for member in members]
    for now_s in map(float, np.arange(0.0, seconds, STEP_S)):
        for query, member in zip(queries, members, strict=True):
            if query.left_s <= 0 and now_s - query.began_s >= TRIGGER_S:
                _begin(query, member, now_s, rng)
        running = [index for index, query in enumerate(queries) if query.left_s > 0]
        for index in running:
            step_s = STEP_S * min(1.0, CORES / len(running))
            busy_s += step_s
            queries[index].left_s -= step_s
            if queries[index].left_s <= 0:
                _end(queries[index], reporters[index], now_s + STEP_S)
    return busy_s / (CORES * seconds)


def _begin(query: Query, member: Membership, now_s: float, rng: np.random.Generator) -> None:
    since_s = max(query.began_s, 0.0)
    rows = int(query.rate * now_s) - int(query.rate * since_s)
    if not rows:
        return
    share = member.share(START_S + now_s, rows=rows, query_id=query.name, after=query.batch_id)
    query.rows, query.kept = rows, int(rng.binomial(rows, min(max(share, 0.001), 1.0)))
    query.waited_s, query.began_s = (now_s - since_s) / 2, now_s
    scatter = rng.normal(-(ENGINE_SPREAD**2) / 2, ENGINE_SPREAD)
    query.left_s = ENGINE_S * float(np.exp(scatter)) + query.kept * query.cost_s


def _end(query: Query, reporter: Reporter, now_s: float) -> None:
    query.batch_id += 1
    duration_s = now_s - query.began_s
    latency_s = query.waited_s + duration_s
    query.done.append((query.began_s, query.rows, query.kept, latency_s))
    busy_ns = int(query.kept * query.cost_s * 1e9)
    seen = Observation(
        batch_id=query.batch_id,
        rows_in=query.rows,
        rows_kept=query.kept,
        duration_s=duration_s,
        latency_s_mean=latency_s if query.kept else None,
        tasks=(TaskReport(instance=0, rows_in=query.kept, busy_ns=busy_ns),),
    )
    state = LoopState(query_id=query.name, cost=CostState(row_ns=query.cost_s * 1e9))
    reporter.tell(seen, state, run_id="run", started_at_s=START_S + query.began_s)
