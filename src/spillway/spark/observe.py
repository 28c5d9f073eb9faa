"""Turns what Spark reports of a batch into an observation. Pure: dictionaries in, values out."""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from spillway.concept_values import GroupsSeen
from spillway.spark.metrics import ASIDE, TASKS, WINDOW_ROWS, WINDOW_USED, count_names
from spillway.spark.task_report import decode
from spillway.state.offsets import total_span
from spillway.values import Observation, StratumCount, TaskReport
from spillway.work_values import WorkDone, total_work

Metrics = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """When a batch began and how long it took, and where it stood in its source."""

    batch_id: int
    started_at_s: float
    duration_s: float
    offset_span: float | None = None
    backlog_rows: float | None = None


def observation(metrics: Metrics, timing: Timing, strata: tuple[str, ...]) -> Observation:
    """Combine the gate's counters and the tasks' reports with the batch's timing.

    An open gate counted only once. Without a gate the rows are those that the operator saw.
    """
    counts, tasks = _counts(metrics, strata), task_reports(metrics)
    refused, work = sum(task.rows_refused for task in tasks), _work(metrics, tasks)
    came = counts or _without_gate(tasks, work)
    ended_at_s = timing.started_at_s + timing.duration_s
    return Observation(
        batch_id=timing.batch_id,
        rows_in=sum(count.rows_in for count in came),
        rows_kept=sum(count.rows_kept for count in came) - refused,
        duration_s=timing.duration_s,
        latency_s_mean=_since(metrics.get("arrived_mean"), ended_at_s),
        latency_s_p99=_since(metrics.get("arrived_first"), ended_at_s),
        latency_s_max=_since(metrics.get("arrived_min"), ended_at_s),
        backlog_rows=timing.backlog_rows,
        offset_span=timing.offset_span,
        quantiles=tuple(float(q) for q in metrics.get("quantiles") or ()),
        cost_ns_mean=metrics.get("cost_mean"),
        cost_ns_kept=metrics.get("cost_kept", metrics.get("cost_mean")),
        sample=tuple((item, worth) for item, worth in metrics.get("sample") or ()),
        strata=counts,
        rows_refused=refused,
        rows_aside=metrics.get(ASIDE, 0),
        tasks=tasks,
        groups=_groups(metrics),
        work=work,
    )


def task_reports(metrics: Metrics) -> tuple[TaskReport, ...]:
    """Read the reports of an operator's tasks; none where no operator was observed.

    The windows that Spark computed alone count as one task, which took no time of Python's.
    """
    reports = tuple(decode(value) for value in metrics.get(TASKS) or ())
    if WINDOW_ROWS not in metrics:
        return reports
    rows, used = metrics[WINDOW_ROWS] or 0, metrics[WINDOW_USED] or 0
    alone = TaskReport(instance=0, rows_in=rows, rows_refused=rows - used, windows=True)
    return *reports, alone


def _groups(metrics: Metrics) -> GroupsSeen | None:
    """Read what a concept-driven gate counted; a sketch is bytes, or base64 in Spark's progress."""
    counted = metrics.get("frequencies")
    if counted is None:
        return None
    try:
        found = base64.b64decode(counted) if isinstance(counted, str) else bytes(counted)
    except (binascii.Error, ValueError):
        return None
    sample = tuple((item, value, at_s) for item, value, at_s in metrics.get("groups") or ())
    return GroupsSeen(frequencies=found, sample=sample)


def _counts(metrics: Metrics, strata: tuple[str, ...]) -> tuple[StratumCount, ...]:
    """Read the gate's counts, by their names or by those of release 0.1, which were numbers."""
    named = zip(
        strata, count_names("rows_in", strata), count_names("rows_kept", strata), strict=True
    )
    known = [
        (name, came, kept) if came in metrics else (name, f"in_{i}", f"kept_{i}")
        for i, (name, came, kept) in enumerate(named)
    ]
    if not known or known[0][1] not in metrics:
        return ()
    return tuple(
        StratumCount(name=name, rows_in=metrics[came], rows_kept=metrics.get(kept, metrics[came]))
        for name, came, kept in known
    )


def _without_gate(tasks: tuple[TaskReport, ...], work: WorkDone | None) -> tuple[StratumCount, ...]:
    rows = [task.rows_in for task in tasks] or ([work.rows] if work else [])
    return tuple(StratumCount(name="", rows_in=count, rows_kept=count) for count in rows)


def _work(metrics: Metrics, tasks: tuple[TaskReport, ...]) -> WorkDone | None:
    """Read what subtasks did: the reports of their tasks, or what Spark counted natively."""
    if parts := tuple(task.work for task in tasks if task.work):
        return total_work(parts)
    if metrics.get("work_rows") is None:
        return None
    rows, more = metrics["work_rows"], metrics["work_more"]
    return WorkDone(rows_less=rows - more, rows_more=more, done=metrics.get("work_done"))


def progress_timing(progress: Mapping[str, Any]) -> Timing:
    """Read a batch's timing from Spark's progress report (its JSON as a dictionary)."""
    sources = progress["sources"]
    return Timing(
        batch_id=progress["batchId"],
        started_at_s=datetime.fromisoformat(progress["timestamp"]).timestamp(),
        duration_s=progress["batchDuration"] / 1e3,
        offset_span=total_span(_offsets(sources, "startOffset", "endOffset")),
        backlog_rows=total_span(_offsets(sources, "endOffset", "latestOffset")),
    )


def progress_offsets(progress: Mapping[str, Any]) -> str:
    """Return the start and end offsets of every source as JSON text."""
    return json.dumps(_offsets(progress["sources"], "startOffset", "endOffset"))


def _offsets(sources: list[Mapping[str, Any]], start: str, end: str) -> list[tuple[object, object]]:
    return [(_offset(source, start), _offset(source, end)) for source in sources]


def _offset(source: Mapping[str, Any], which: str) -> object:
    """Read an offset: Spark reports it parsed or as JSON text."""
    offset = source.get(which)
    if not isinstance(offset, str):
        return offset
    try:
        parsed: object = json.loads(offset)
    except ValueError:
        return offset
    return parsed


def _since(arrived_s: float | None, ended_at_s: float) -> float | None:
    """Return the latency; a row from the future (a clock that jumped) has waited 0 s."""
    if arrived_s is None or not math.isfinite(arrived_s):
        return None
    return max(ended_at_s - float(arrived_s), 0.0)
