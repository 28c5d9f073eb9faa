"""The guards' numbers for Prometheus: few metrics, clear labels, and a bound on the series.

A scrape tells how each guard was after its last batch, and what all its batches add up to. Strata
beyond the first hundred of a guard are one series, `other`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from spillway.telemetry.view import OTHER, View
from spillway.telemetry.watch import Watch

CONTENT_TYPE = CONTENT_TYPE_LATEST
STRATA_MAX = 100

Samples = Iterable[tuple[tuple[str, ...], float | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """One metric: its name, what it says, its labels beside the guard, and where it comes from."""

    name: str
    text: str
    values: Callable[[View], Samples]
    labels: tuple[str, ...] = ()
    counts: bool = False

    def family(self, guards: list[tuple[str, View]]) -> Metric:
        """Return the metric with its samples; what is not known has none."""
        kind = CounterMetricFamily if self.counts else GaugeMetricFamily
        family = kind(f"spillway_{self.name}", self.text, labels=("guard", *self.labels))
        for guard, view in guards:
            for labels, value in self.values(view):
                if value is not None:
                    family.add_metric((guard, *labels), float(value))
        return family


class Exporter(Collector):
    """Collects the metrics of all guards that are watched."""

    def __init__(self, watch: Watch) -> None:
        """Collect from a watch; who asks holds its lock."""
        self._watch = watch

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        names, followed = self._watch.names(), list(self._watch.followed.values())
        guards = [(names[each.id], each.view) for each in followed if each.loaded]
        for exported in EXPORTED:
            yield exported.family(guards)

    def describe(self) -> list[Metric]:
        """Describe nothing: names are known only when guards are."""
        return []


def text(watch: Watch) -> bytes:
    """Return what a scrape gets."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Exporter(watch))
    return generate_latest(registry)


def _one(value: float | None) -> Samples:
    return [((), value)]


def _latencies(view: View) -> Samples:
    seen = view.seen
    if seen is None:
        return []
    return [
        (("mean",), seen.latency_s_mean),
        (("p99",), seen.latency_s_p99),
        (("max",), seen.latency_s_max),
    ]


def _objective(view: View) -> Samples:
    seen = view.seen
    return [((seen.objective,), seen.limit_s)] if seen else []


def _held(view: View) -> Samples:
    """1 if the latency that the objective bounds was within it, 0 if not."""
    seen = view.seen
    if seen is None or seen.limit_s is None:
        return []
    found = {"average": seen.latency_s_mean, "p99": seen.latency_s_p99, "each": seen.latency_s_max}
    latency_s = found.get(seen.objective)
    return _one(None if latency_s is None else float(latency_s <= seen.limit_s))


def _keep(view: View) -> Samples:
    """Return the share that was kept of each stratum of the last batch, at most so many."""
    strata = view.seen.strata if view.seen else ()
    first, rest = strata[:STRATA_MAX], strata[STRATA_MAX:]
    found = [((each.name,), _share(each.rows_in, each.rows_kept)) for each in first]
    if rest:
        came, kept = sum(each.rows_in for each in rest), sum(each.rows_kept for each in rest)
        found.append(((OTHER,), _share(came, kept)))
    return found


def _subtasks(view: View) -> Samples:
    work = view.seen.work if view.seen else None
    if work is None or not work.rows:
        return []
    return [((run.name,), run.rows / work.rows) for run in work.subtasks[:STRATA_MAX]]


def _share(rows_in: int, rows_kept: int) -> float | None:
    return rows_kept / rows_in if rows_in else None


EXPORTED = (
    Exported(
        name="batches",
        text="Batches in the books.",
        values=lambda view: _one(view.counted.batches),
        counts=True,
    ),
    Exported(
        name="rows_in",
        text="Rows that came in.",
        values=lambda view: _one(view.counted.rows_in),
        counts=True,
    ),
    Exported(
        name="rows_kept",
        text="Rows that were kept.",
        values=lambda view: _one(view.counted.rows_kept),
        counts=True,
    ),
    Exported(
        name="rows_shed",
        text="Rows that were given up, by stratum and cause.",
        labels=("stratum", "cause"),
        values=lambda view: view.counted.shed.items(),
        counts=True,
    ),
    Exported(
        name="alarms",
        text="Alarms, by kind: objective, fault, stale or floor.",
        labels=("kind",),
        values=lambda view: (((kind,), count) for kind, count in view.counted.alarms.items()),
        counts=True,
    ),
    Exported(
        name="latency_seconds",
        text="Latency of the kept rows of the last batch, from arrival to the batch's end.",
        labels=("statistic",),
        values=_latencies,
    ),
    Exported(
        name="objective_seconds",
        text="The bound on the latency, and of which: average, p99 or each.",
        labels=("of",),
        values=_objective,
    ),
    Exported(
        name="objective_held",
        text="1 if the last batch was within the objective, 0 if not.",
        values=_held,
    ),
    Exported(
        name="input_rows_per_second",
        text="Rate at which the rows of the last batch came.",
        values=lambda view: _one(view.seen.rate if view.seen else None),
    ),
    Exported(
        name="keep_ratio",
        text="Share of the rows of the last batch that was kept, by stratum.",
        labels=("stratum",),
        values=_keep,
    ),
    Exported(
        name="subtask_ratio",
        text="Share of the rows of the last batch on which an optional or mandatory subtask ran.",
        labels=("subtask",),
        values=_subtasks,
    ),
    Exported(
        name="accuracy_ratio",
        text="Expected accuracy of the results of the last batch, where subtasks are left out.",
        values=lambda view: _one(view.plan.mix.accuracy if view.plan and view.plan.mix else None),
    ),
    Exported(
        name="backlog_rows",
        text="Rows that the source had after the last batch and that were not read yet.",
        values=lambda view: _one(view.seen.backlog_rows if view.seen else None),
    ),
    Exported(
        name="budget_seconds",
        text="Time that the last batch was allowed to spend on its rows.",
        values=lambda view: _one(view.budget.work_s_max if view.budget else None),
    ),
    Exported(
        name="needed_seconds",
        text="Time that all rows of the last batch would have needed, as foreseen.",
        values=lambda view: _one(view.budget.work_s_full if view.budget else None),
    ),
    Exported(
        name="spent_seconds",
        text="Time that the last batch spent on its rows.",
        values=lambda view: _one(view.seen.spent_s if view.seen else None),
    ),
    Exported(
        name="batch_duration_seconds",
        text="Duration of the last batch.",
        values=lambda view: _one(view.seen.duration_s if view.seen else None),
    ),
    Exported(
        name="sic_ratio",
        text="Share of the input that is in the results of the last window (SIC).",
        values=lambda view: _one(view.seen.sic if view.seen else None),
    ),
    Exported(
        name="cost_error_ratio",
        text="How far the last batch's duration lay from what the cost model foresaw.",
        values=lambda view: _one(view.seen.cost.error if view.seen and view.seen.cost else None),
    ),
    Exported(
        name="last_batch_timestamp_seconds",
        text="When the last batch ended.",
        values=lambda view: _one(view.seen.at_s if view.seen else None),
    ),
)
