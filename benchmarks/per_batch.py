"""Fixed cost per micro-batch of both ways of delivery, on batches of 100 rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

import spillway as sw
from benchmarks.measure import Bound, Figure, differences, interleaved
from benchmarks.stage import Stage, guarded, to_noop, wait_for_batch
from spillway.spark.control import Planner

ROWS_PER_BATCH = 100
SKIPPED = 20  # the first batches of a query compile code and start workers
IN_PLAN = Bound(bound=60, goal=30)
IN_FOREACH_BATCH = Bound(bound=15)

Parts = dict[str, list[float]]
Start = Callable[[Stage, DataFrame, ExitStack, Parts], StreamingQuery]


def run(stage: Stage) -> list[Figure]:
    """Compare queries with and without a guard, block by block of small batches."""
    batches = stage.size(30, 12)
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in _STARTS}

    def block(name: str) -> float:
        taken[name].append(_block(stage, _STARTS[name], batches))
        return taken[name][-1]["batch"]

    ways = {name: (lambda name=name: block(name)) for name in _STARTS}
    interleaved(ways, repetitions=stage.size(5, 2), tick=stage.tick)
    blocks = {name: parts[1:] for name, parts in taken.items()}  # the first is the warm-up
    return [
        *_figures("in the plan", blocks["plan"], blocks["no guard"], IN_PLAN),
        *_figures(
            "in foreachBatch",
            blocks["foreachBatch"],
            blocks["plain foreachBatch"],
            IN_FOREACH_BATCH,
        ),
        *_figures("in foreachBatch, shedding", blocks["shedding"], blocks["plain foreachBatch"]),
        *_figures("in foreachBatch, Semantic", blocks["semantic"], blocks["plain foreachBatch"]),
        *_parts(blocks),
    ]


def _figures(
    what: str,
    guard: list[dict[str, float]],
    rival: list[dict[str, float]],
    bound: Bound | None = None,
) -> list[Figure]:
    return [
        _figure(f"{what}: planning and running", guard, rival, "batch", bound),
        _figure(f"{what}: whole trigger with its logs", guard, rival, "trigger", None),
    ]


def _figure(
    what: str,
    guard: list[dict[str, float]],
    rival: list[dict[str, float]],
    part: str,
    bound: Bound | None,
) -> Figure:
    values = differences([block[part] for block in guard], [block[part] for block in rival])
    return Figure(
        benchmark="per_batch",
        what=what,
        rival="the same query without a guard",
        unit="ms",
        values=values,
        bound=bound,
    )


def _parts(blocks: dict[str, list[dict[str, float]]]) -> list[Figure]:
    """Say where the time goes inside `foreachBatch`."""
    nothing = [dict.fromkeys(("plan_for", "attach"), 0.0)] * len(blocks["foreachBatch"])
    lines = [
        ("of which deciding and pinning the plan", "plan_for", nothing),
        ("of which building the gate (py4j, analysis)", "attach", nothing),
        (
            "of which a longer action (optimiser, code, observe)",
            "act",
            blocks["plain foreachBatch"],
        ),
    ]
    return [
        _figure(f"{way}: {what}", blocks[name], rival, part, None)
        for way, name in (("foreachBatch", "foreachBatch"), ("Semantic", "semantic"))
        for what, part, rival in lines
    ]


def _block(stage: Stage, start: Start, batches: int) -> dict[str, float]:
    """Run one query for some batches; return medians in milliseconds."""
    stream = (
        stage.spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", ROWS_PER_BATCH)
        .option("numPartitions", 2)
        .load()
    )
    parts: Parts = {}
    with ExitStack() as cleanup:
        query = start(stage, stream, cleanup, parts)
        try:
            wait_for_batch(query, SKIPPED + batches)
            progress = [p for p in query.recentProgress if p["batchId"] >= SKIPPED]
        finally:
            query.stop()
    return {
        "batch": median(_planned_and_run(p["durationMs"]) for p in progress),
        "trigger": median(p["durationMs"]["triggerExecution"] for p in progress),
        **{name: median(times[SKIPPED:]) for name, times in parts.items()},
    }


def _planned_and_run(duration_ms: dict[str, Any]) -> float:
    """Leave out Spark's own logs: they sync to disk, and the guard has no part in them."""
    return float(duration_ms["queryPlanning"] + duration_ms["addBatch"])


def _start(stage: Stage, writer: Any, name: str) -> StreamingQuery:
    query: StreamingQuery = writer.option("checkpointLocation", str(stage.folder / name)).start()
    return query


def _start_plain(
    stage: Stage, stream: DataFrame, cleanup: ExitStack, parts: Parts
) -> StreamingQuery:
    return _start(stage, stream.writeStream.format("noop"), stage.new_folder().name)


def _start_plan(
    stage: Stage, stream: DataFrame, cleanup: ExitStack, parts: Parts
) -> StreamingQuery:
    checkpoint = stage.new_folder()
    guard = cleanup.enter_context(guarded(stage, checkpoint, control=sw.FixedRate(1.0)))
    kept = guard.protect(stream, identity=["value"])
    return _start(stage, kept.writeStream.format("noop"), checkpoint.name)


def _start_plain_foreach(
    stage: Stage, stream: DataFrame, cleanup: ExitStack, parts: Parts
) -> StreamingQuery:
    act = _timed(to_noop, parts.setdefault("act", []))
    return _start(
        stage, stream.writeStream.foreachBatch(lambda df, _: act(df)), stage.new_folder().name
    )


def _start_foreach(shed: sw.Uniform | sw.Semantic, rate: float = 1.0) -> Start:
    def start(stage: Stage, stream: DataFrame, cleanup: ExitStack, parts: Parts) -> StreamingQuery:
        checkpoint = stage.new_folder()
        guard = cleanup.enter_context(
            guarded(stage, checkpoint, control=sw.FixedRate(rate), shed=shed)
        )
        planning = cleanup.enter_context(_planning_timed(parts.setdefault("plan_for", [])))
        attached, protect = parts.setdefault("attach", []), _timed(guard.protect, protecting := [])
        act = _timed(to_noop, parts.setdefault("act", []))

        def each(df: DataFrame, batch_id: int) -> None:
            kept = protect(df, batch_id=batch_id, identity=["value"])
            attached.append(protecting[-1] - planning[-1])
            act(kept)

        return _start(stage, stream.writeStream.foreachBatch(each), checkpoint.name)

    return start


def _timed(act: Callable[..., Any], times_ms: list[float]) -> Callable[..., Any]:
    def timed(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        try:
            return act(*args, **kwargs)
        finally:
            times_ms.append((time.perf_counter() - start) * 1e3)

    return timed


@contextmanager
def _planning_timed(times_ms: list[float]) -> Iterator[list[float]]:
    """Time the planner inside the guard as long as the context lasts."""
    original = Planner.plan_for
    Planner.plan_for = _timed(original, times_ms)  # type: ignore[method-assign]
    try:
        yield times_ms
    finally:
        Planner.plan_for = original  # type: ignore[method-assign]


_STARTS: dict[str, Start] = {
    "no guard": _start_plain,
    "plan": _start_plan,
    "plain foreachBatch": _start_plain_foreach,
    "foreachBatch": _start_foreach(sw.Uniform()),
    "shedding": _start_foreach(sw.Uniform(), rate=0.5),
    "semantic": _start_foreach(sw.Semantic(utility="value")),
}
