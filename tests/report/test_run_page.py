"""The report says what the books say, judges as stated, and needs nothing but itself."""

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from spillway.objective import Latency
from spillway.report import chart, curves, facts
from spillway.report.chart import Chart, Line
from spillway.report.run_page import Run, report, verdict_of
from spillway.state.books import Books, open_books
from spillway.state.ledger import Entry, Totals
from spillway.values import StratumCount
from tests.report.books import burst, entry, write

NOTHING = Totals(batches=0, rows_in=0, rows_kept=0, rows_shed=0, shed={})
NASTY = "<script>alert(1)</script>\x1b[31m"


def books_of(tmp_path: Path, entries: list[Entry], **options: str | None) -> Books:
    return open_books(write(tmp_path, entries, **options)).of_query()  # type: ignore[arg-type]


def test_the_numbers_are_those_of_the_books(tmp_path: Path) -> None:
    found = Run.of(books_of(tmp_path, burst(30))).facts
    assert (found.batches, found.rows_in, found.rows_kept) == (30, 120_000, 40_000)
    assert found.rows_shed == 80_000
    assert found.latency_s_mean == pytest.approx((20_000 * 1.5 + 20_000 * 1.9) / 40_000)
    assert found.latency_s_worst == pytest.approx(1.4 * 1.9)
    assert found.duration_s == 30.0


def test_an_objective_that_was_held_is_told_so(tmp_path: Path) -> None:
    text, how = verdict_of(Run.of(books_of(tmp_path, burst(30))))
    assert (text, how) == ("Held: Average latency ≤ 2 s in all 30 batches.", "held")


def test_another_objective_can_be_judged_by(tmp_path: Path) -> None:
    text, how = verdict_of(Run.of(books_of(tmp_path, burst(30)), Latency(average="1.6 s")))
    assert how == "missed"
    assert "held in 20 of 30 batches; the 10 that broke it had 50 % of the kept rows" in text


def test_only_first_batches_after_a_start_do_not_break_an_objective(tmp_path: Path) -> None:
    late = [entry(0, latency_s=9.0), *(entry(i) for i in range(1, 5))]
    again = [replace(entry(i, latency_s=9.0 if i == 5 else 1.0), run_id="s") for i in (5, 6)]
    text, how = verdict_of(Run.of(books_of(tmp_path, [*late, *again])))
    assert how == "held"
    assert "first after a start" in text


def test_without_objective_or_latency_nothing_is_claimed(tmp_path: Path) -> None:
    unknown = Run.of(books_of(tmp_path / "a", burst(9), average=None))
    assert verdict_of(unknown)[1] == "warn"
    unmeasured = Run.of(books_of(tmp_path / "b", [entry(0, latency_s=None)]))
    assert "No latency was measured" in verdict_of(unmeasured)[0]
    another = Run.of(books_of(tmp_path / "c", burst(9)), Latency(p99="2 s"))
    assert verdict_of(another)[1] == "warn"
    assert "not measured (the worst row took 2.66 s" in verdict_of(another)[0]


def test_what_no_shedding_can_mend_is_said(tmp_path: Path) -> None:
    fixed = "overload by the fixed cost alone"
    late = [entry(i, kept=500, latency_s=9.0, reason=fixed) for i in range(4)]
    assert "no shedding can hold it" in verdict_of(Run.of(books_of(tmp_path, late)))[0]


def test_the_count_from_kept_rows_is_horvitz_and_thompsons() -> None:
    """Kept 260 of 1000 at a rate of 1/4: 1040 ± 1.96 √(260 · 0.75 / 0.0625)."""
    found = facts.count_of([entry(0, kept=260, rate=0.25)])
    assert found is not None
    assert found.estimate == 1040.0
    assert found.margin == pytest.approx(1.959964 * np.sqrt(260 * 0.75 / 0.0625))
    assert found.inside
    assert found.off == pytest.approx(0.04)


def test_the_interval_of_the_count_covers_what_it_states() -> None:
    """2000 runs of 5 batches: 95 % ± 1.96 % (four standard errors) hold the truth."""
    random = np.random.default_rng(7)
    inside = 0
    for _ in range(2000):
        rates = random.uniform(0.05, 0.9, 5)
        kept = random.binomial(1000, rates)
        counted = facts.count_of(
            [entry(i, kept=int(kept[i]), rate=float(rates[i])) for i in range(5)]
        )
        inside += counted is not None and counted.inside
    assert abs(inside / 2000 - 0.95) < 0.0196


def test_books_that_do_not_hold_what_an_estimate_needs_make_none() -> None:
    assert facts.count_of([entry(0, kept=500, refused=10)]) is None


def test_what_was_shed_adds_up_by_reason() -> None:
    refused = entry(2, kept=900, refused=100, reason="overload")
    lines = facts.shed_by([*burst(3), refused])
    assert lines[0] == ("all", "overload", 8000 + 100)
    assert lines[1] == ("in the operator", "waited too long", 100)
    unsampled = entry(3, refused=40, windows=True)
    assert facts.shed_by([unsampled]) == [("in windows", "not in the sample", 40)]
    found = facts.facts_of([refused, unsampled], None)
    assert (found.rows_refused, found.rows_unsampled) == (100, 40)


@pytest.mark.parametrize("batches", [1, 2, 30, 5000])
def test_a_page_of_any_length_needs_nothing_but_itself(batches: int) -> None:
    entries = burst(batches) if batches > 2 else [entry(i) for i in range(batches)]
    books = Books(state=Path("rides"), entries=tuple(entries), totals=NOTHING, guard=None)
    page = report(Run.of(books), "spillway report")
    assert not re.search(r"<(script|link|img|iframe)", page)
    assert not re.search(r"(src|href|url)\s*[=(]", page)
    assert "prefers-color-scheme: dark" in page
    assert 'name="viewport"' in page
    assert len(page) < 700_000  # 5000 batches are drawn as 400 points and listed as the last 500


def test_names_and_reasons_cannot_inject(tmp_path: Path) -> None:
    nasty = replace(
        entry(0, kept=500, reason=NASTY),
        seen=replace(
            entry(0, kept=500).seen,
            strata=(StratumCount(name=NASTY, rows_in=1000, rows_kept=500),),
        ),
    )
    page = report(Run.of(books_of(tmp_path, [nasty], name=NASTY)), "spillway report")
    assert "<script" not in page
    assert "&lt;script&gt;" in page


def test_many_batches_are_drawn_as_few_points_that_lose_nothing() -> None:
    points = curves.stretches(burst(3000))
    assert len(points) <= 400
    assert sum(point.rows_in for point in points) == sum(e.seen.rows_in for e in burst(3000))
    assert all(a.end_s == b.start_s for a, b in pairwise(points))


def test_a_line_is_broken_where_it_has_no_values() -> None:
    line = Line(name="x", points=[(0.0, 1.0), (1.0, None), (2.0, 1.0), (3.0, 2.0)])
    drawn = chart.svg(Chart(title="t", lines=[line]), width=400, height=200, name="wide")
    assert drawn.count("<polyline") == 2


def test_a_chart_of_nothing_is_empty_and_not_an_error() -> None:
    for points in ([], [(0.0, None)], [(0.0, 0.0)], [(5.0, 1e-12), (5.0, 1e12)]):
        assert "<svg" in chart.figure(Chart(title="t", lines=[Line(name="x", points=points)]))
