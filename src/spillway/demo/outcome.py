"""What the demo's runs add up to. Pure: points in, numbers out."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from spillway.demo.run import Point, Run
from spillway.demo.scenario import Scenario
from spillway.estimate.totals import Estimate

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One run in numbers, over all rows that it processed."""

    latency_s_mean: float
    latency_s_p99: float
    latency_s_max: float
    backlog_rows_max: int
    rows_in: int
    rows_kept: int
    held: bool
    worst_s: float

    @property
    def rows_shed(self) -> int:
        """Rows given up."""
        return self.rows_in - self.rows_kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An estimate of the guarded run beside the truth."""

    name: str
    estimate: Estimate
    truth: float

    @property
    def inside(self) -> bool:
        """Whether the interval holds the truth."""
        return self.estimate.low <= self.truth <= self.estimate.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether the guarded run kept each of its promises."""

    held: bool
    quiet_before: bool
    quiet_after: bool
    answers: tuple[Answer, ...]

    @property
    def inside(self) -> bool:
        """Whether every interval holds its truth."""
        return bool(self.answers) and all(answer.inside for answer in self.answers)

    @property
    def ok(self) -> bool:
        """All of them."""
        return self.held and self.quiet_before and self.quiet_after and self.inside


def summarise(run: Run, scenario: Scenario) -> Summary:
    """Add a run up; the objective counts from the second batch of the burst on."""
    judged = judged_points(run, scenario)
    worst_s = max((batch_latency_s(point, scenario) for point in judged), default=float("nan"))
    latencies, weights = _distribution(run.points)
    return Summary(
        latency_s_mean=float(np.average(latencies, weights=weights)),
        latency_s_p99=_quantile(latencies, weights, 0.99),
        latency_s_max=float(latencies.max()),
        backlog_rows_max=max(point.backlog_rows for point in run.points),
        rows_in=sum(point.rows_in for point in run.points),
        rows_kept=sum(point.rows_kept for point in run.points),
        held=bool(judged) and worst_s <= scenario.objective.limit_s,
        worst_s=worst_s,
    )


def judge(run: Run, scenario: Scenario) -> Verdict:
    """Compare the guarded run with what it promised."""
    truth = scenario.content.truth(scenario.schedule.rows_total)
    exact = {"count": float(truth.count), "sum": truth.value_sum, "mean": truth.value_mean}
    before = [p for p in run.points if p.start_s <= scenario.calm_s]
    after = [p for p in run.points if _oldest_s(p) > scenario.burst_end_s]
    return Verdict(
        held=summarise(run, scenario).held,
        quiet_before=all(p.rows_in == p.rows_kept for p in before),
        quiet_after=bool(after) and all(p.rows_in == p.rows_kept for p in after),
        answers=tuple(
            Answer(name=name, estimate=estimate, truth=exact[name])
            for name, estimate in run.answers.items()
        ),
    )


def content(
    summaries: dict[str, Summary], verdict: Verdict, scenario: Scenario
) -> dict[str, object]:
    """Return everything for machines."""
    return {
        "objective": str(scenario.objective),
        "held": verdict.held,
        "quiet_before": verdict.quiet_before,
        "quiet_after": verdict.quiet_after,
        "runs": {name: asdict(summary) for name, summary in summaries.items()},
        "answers": [{**asdict(answer), "inside": answer.inside} for answer in verdict.answers],
    }


def judged_points(run: Run, scenario: Scenario) -> list[Point]:
    """Return the batches from the second of the burst to the end of the run."""
    burst = [point for point in run.points if point.start_s > scenario.calm_s]
    return [point for point in burst[1:] if point.rows_kept]


def batch_latency_s(point: Point, scenario: Scenario) -> float:
    """Return the latency of a batch that the objective speaks of."""
    if scenario.objective.kind == "average":
        return point.latency_s_mean or 0.0
    return point.latencies_s[0 if scenario.objective.kind == "each" else 1]


def _oldest_s(point: Point) -> float:
    return point.end_s - point.latencies_s[0] if point.latencies_s else point.start_s


def _distribution(points: tuple[Point, ...]) -> tuple[Floats, Floats]:
    """Spread each batch's rows evenly over the quantiles of its latency."""
    known = [point for point in points if point.latencies_s]
    latencies = [latency for point in known for latency in point.latencies_s]
    weights = [point.rows_kept for point in known for _ in point.latencies_s]
    return np.array(latencies), np.array(weights, dtype=float)


def _quantile(values: Floats, weights: Floats, q: float) -> float:
    order = np.argsort(values)
    reached = np.cumsum(weights[order]) / weights.sum()
    return float(values[order][np.searchsorted(reached, q)])
