"""The demo's verdict follows from its points, and its report is one self-contained page."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spillway.demo import plots, report
from spillway.demo.outcome import judge, judged_points, summarise
from spillway.demo.run import Point, Run, play
from spillway.demo.scenario import Scenario
from spillway.estimate.totals import Estimate
from spillway.guard import Guard
from spillway.objective import Latency
from tests.conftest import wait_until

SCENARIO = Scenario(objective=Latency(average="2 s"), calm_s=4.0, burst_s=4.0, after_s=4.0, seed=3)


def point(batch_id: int, start_s: float, latency_s: float = 1.0, share: float = 1.0) -> Point:
    return Point(
        batch_id=batch_id,
        start_s=start_s,
        end_s=start_s + 0.5,
        rows_in=1000,
        rows_kept=int(1000 * share),
        backlog_rows=10,
        latencies_s=(latency_s * 1.2, latency_s, latency_s * 0.8),
        latency_s_mean=latency_s,
    )


def truth() -> dict[str, float]:
    exact = SCENARIO.content.truth(SCENARIO.schedule.rows_total)
    return {"count": float(exact.count), "sum": exact.value_sum, "mean": exact.value_mean}


def guarded(*points: Point, off: float = 1.0) -> Run:
    answers = {
        name: Estimate(value=value * off, low=value * off * 0.99, high=value * off * 1.01)
        for name, value in truth().items()
    }
    return Run(points=points, answers=answers)


GOOD = (
    point(0, 1.0),
    point(1, 3.5),
    point(2, 4.5, 2.5, 0.5),  # the first batch of the burst may be late
    point(3, 6.0, 1.9, 0.3),
    point(4, 8.5, 1.9, 0.6),  # still holds rows of the burst
    point(5, 11.0, 1.0),
)


def test_a_run_that_keeps_every_promise_passes() -> None:
    verdict = judge(guarded(*GOOD), SCENARIO)
    assert verdict.ok
    assert [p.batch_id for p in judged_points(guarded(*GOOD), SCENARIO)] == [3, 4, 5]


@pytest.mark.parametrize(
    ("index", "bad", "word"),
    [
        (3, point(3, 6.0, 2.1, 0.3), "broke the objective"),
        (1, point(1, 3.5, share=0.9), "before the burst"),
        (5, point(5, 11.0, share=0.9), "after the burst"),
    ],
)
def test_each_broken_promise_is_named(index: int, bad: Point, word: str) -> None:
    points = list(GOOD)
    points[index] = bad
    verdict = judge(guarded(*points), SCENARIO)
    assert not verdict.ok
    assert word in report.sentence(verdict, SCENARIO)


def test_a_truth_outside_its_interval_is_named() -> None:
    verdict = judge(guarded(*GOOD, off=1.05), SCENARIO)
    assert not verdict.ok
    assert "outside its interval" in report.sentence(verdict, SCENARIO)
    assert not judge(Run(points=GOOD, answers={}), SCENARIO).ok  # no answer is no proof


def test_the_summary_weighs_rows_not_batches() -> None:
    run = guarded(replace(GOOD[0], rows_kept=3000, rows_in=3000), replace(GOOD[3], rows_kept=1000))
    summary = summarise(run, SCENARIO)
    assert summary.latency_s_mean == pytest.approx((3 * 1.0 + 1.9) / 4)
    assert summary.latency_s_max == pytest.approx(1.9 * 1.2)
    assert (summary.rows_in, summary.rows_kept, summary.rows_shed) == (4000, 4000, 0)


def test_the_page_needs_nothing_but_itself() -> None:
    runs = {"unprotected": guarded(*GOOD), "guarded": guarded(*GOOD)}
    verdict = judge(runs["guarded"], SCENARIO)
    tables = {
        "Both runs": report.summary_table({n: summarise(r, SCENARIO) for n, r in runs.items()}),
        "Answers": report.estimate_table(verdict),
    }
    page = report.page(SCENARIO, verdict, tables, plots.svg(plots.draw(runs, SCENARIO)))
    assert page.count("<svg") == 1
    assert "objective held" in page
    assert not re.search(r"<(script|link|img|iframe)", page)
    assert not re.search(r"(src|href)=\"(?!#)", page)


def test_a_burst_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="burst_rate must be > calm_rate > 0, got 5 and 10"):
        Scenario(objective=Latency(each="1 s"), calm_rate=10, burst_rate=5)
    with pytest.raises(ValueError, match="burst_s must be > 0, got 0"):
        Scenario(objective=Latency(each="1 s"), burst_s=0)


def test_the_demo_plays_every_row_and_books_it(spark: SparkSession, tmp_path: Path) -> None:
    """A tiny scenario on real Spark, on the real clock: no timing is asserted, only sums."""
    scenario = replace(SCENARIO, calm_s=1.0, burst_s=1.0, after_s=1.0, burst_rate=20_000)
    guard = Guard("demo", objective=scenario.objective, state=tmp_path / "demo" / "spillway")
    run = play(spark, scenario, tmp_path / "demo", guard=guard)
    rows_total = scenario.schedule.rows_total
    assert sum(p.rows_in for p in run.points) == rows_total == 23_000
    wait_until(lambda: guard.ledger().totals().rows_in == rows_total, "the books")
    assert guard.ledger().totals().rows_kept == sum(p.rows_kept for p in run.points)
    assert set(run.answers) == {"count", "sum", "mean"}
    shed = guard.ledger().totals().rows_shed
    assert (run.answers["count"].value == rows_total) == (shed == 0)
