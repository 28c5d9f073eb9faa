"""The study of fair shedding on Spark: its streams, its numbers, its claims, and one short run."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from spillway.studies import dissp_on_spark as study
from spillway.studies import dissp_queries
from spillway.studies.dissp_claims import NONE, RANDOM
from spillway.studies.dissp_on_spark_claims import ALONE, FAIR, label, overload, parts, ratios
from spillway.studies.dissp_queries import OBJECTIVE_S, WINDOW_S, Batches, Load
from spillway.studies.draw import picture_of
from spillway.studies.study import Point, Results
from tests.conftest import rows_batches, wait_until


@pytest.mark.parametrize("queries", [2, 8, 12])
def test_the_load_has_the_ratios_and_the_work_it_says(queries: int) -> None:
    load = Load.draw(queries, 1.7, seed=1)
    assert float(load.rates @ load.costs_us) / 1e6 == pytest.approx(1.7)
    assert load.rates.max() / load.rates.min() == pytest.approx(100.0)
    assert load.costs_us.max() / load.costs_us.min() == pytest.approx(50.0)
    heaviest = float((load.rates * load.costs_us).max()) / 1e6
    assert heaviest <= max(0.45, 1.5 / queries) * 1.7


def batches(share: float, *, latency_s: float = 5.0) -> Batches:
    """A batch of 100 rows every 5 s, of which a share is kept; the lead has shares of its own."""
    began_s = np.arange(-20.0, 75.0, 5.0) + 1.0
    kept = np.where(began_s > 0, 100.0 * share, 0.0)
    return Batches(
        began_s=began_s,
        rows_in=np.full(began_s.size, 100.0),
        rows_kept=kept,
        latency_s=np.where(kept > 0, latency_s, np.nan),
    )


def test_numbers_are_those_of_the_window_and_the_lead_does_not_count() -> None:
    load = Load(rates=np.array([20.0, 20.0]), costs_us=np.array([1_000.0, 3_000.0]))
    found = study.numbers([batches(0.5), batches(0.3, latency_s=8.0)], load, 60.0)
    assert found["time_s"][0] == WINDOW_S
    assert found["least"] == pytest.approx([0.3] * len(found["time_s"]))
    assert found["deviation"] == pytest.approx([0.1] * len(found["time_s"]))
    assert found["sic"] == pytest.approx([0.5, 0.3])
    assert found["latency_s"] == pytest.approx([5.0, 8.0])
    assert found["needed_s"] == [pytest.approx(20 * 0.004 * 60.0)]
    assert found["useful_s"] == [pytest.approx(14 * (50 * 0.001 + 30 * 0.003) * 60 / 71)]
    assert found["in_time_s"] == found["useful_s"]


def test_work_is_counted_in_whole_batches_and_apart_what_came_too_late() -> None:
    """A batch of 40 rows ran from -2 to 2, one of 60 rows to 5; what began then is not done yet."""
    found = Batches(
        began_s=np.array([-2.0, 2.0, 5.0]),
        rows_in=np.array([40.0, 60.0, 99.0]),
        rows_kept=np.array([40.0, 60.0, 99.0]),
        latency_s=np.array([5.0, 15.0, 5.0]),
    )
    assert found.rows_done(5.0) == pytest.approx(20 + 60)
    assert found.rows_done(6.0) == pytest.approx((20 + 60) * 6 / 5)
    assert found.rows_done(5.0, within_s=OBJECTIVE_S) == pytest.approx(20)
    before = Batches(**{name: getattr(found, name)[:1] for name in found.__slots__})
    assert before.rows_done(5.0) == 0.0


def results(*runs: dict[str, dict[str, float]]) -> Results:
    """What must be: fair close, random apart, none late; a run for each of the changes."""
    spread = {
        FAIR: {"deviation": 0.01, "jain": 0.999, "least": 0.48, "latency_s": 8.0, "useful_s": 50.0},
        RANDOM: {"deviation": 0.2, "jain": 0.8, "least": 0.1, "latency_s": 8.0, "useful_s": 50.0},
        ALONE: {"deviation": 0.3, "jain": 0.7, "least": 0.1, "latency_s": 9.0, "useful_s": 40.0},
        NONE: {"deviation": 0.0, "jain": 1.0, "least": 1.0, "latency_s": 60.0, "useful_s": 60.0},
    }
    others = {"average": 0.5, "greatest": 0.6, "time_s": 1.0, "needed_s": 100.0, "in_time_s": 40.0}
    return {
        label(name, 8, number): {
            key: np.full(8, value)
            for key, value in {**numbers, **others, **changes.get(name, {})}.items()
        }
        for number, changes in enumerate(runs or ({},), start=1)
        for name, numbers in spread.items()
    }


def missed(*runs: dict[str, dict[str, float]]) -> list[str]:
    claims = study.STUDY.figures[0].claims(results(*runs))
    return [claim.statement for claim in claims if not claim.held]


def test_claims_hold_for_what_must_be_and_not_for_what_must_not() -> None:
    assert missed() == []
    assert overload(results(), FAIR, 8) == pytest.approx(2.0)
    assert "SIC are numerically close" in missed({FAIR: {"deviation": 0.031}})[0]
    assert "SIC are numerically close" in missed({FAIR: {"jain": 0.99}})[0]
    assert "random shedding deviates" in missed({RANDOM: {"deviation": 0.049}})[0]
    assert "less than 50%" in missed({FAIR: {"least": 0.2}})[0]
    assert "holds its objective" in missed({FAIR: {"latency_s": 1.01 * OBJECTIVE_S}})[0]
    assert "useful work" in missed({FAIR: {"useful_s": 48.0}})[0]
    assert "within 10 s" in missed({FAIR: {"in_time_s": 39.0}})[0]
    assert "no shedding" in missed({NONE: {"latency_s": 15.0}})[0]
    assert "each sheds for itself" in missed({ALONE: {"deviation": 0.04}})[0]


def test_several_runs_are_judged_by_their_middle_and_work_by_all_pairs_together() -> None:
    """One run in which chance was against it breaks no claim; two of three do."""
    bad = {FAIR: {"deviation": 0.05, "useful_s": 46.0}}
    good = {FAIR: {"useful_s": 55.0}}
    assert missed(bad, good, {}) == []
    assert ratios(results(bad, good, {}), 8, "useful_s")[0] == pytest.approx(151 / 150)
    assert len(missed(bad, bad, {})) == 3  # close, five times as far apart, work
    assert "holds its objective" in missed({FAIR: {"latency_s": 15.0}}, {})[0]
    assert "less than 50%" in missed({FAIR: {"least": 0.1}}, {}, {})[0]  # never is never


def test_less_work_is_explained_by_what_random_waits_if_that_is_more() -> None:
    less = {FAIR: {"useful_s": 45.0}}
    waits = {**less, RANDOM: {"latency_s": 11.0}}
    for changes, why in ((less, "few batches"), (waits, "its slowest query waits 11.0 s")):
        (told,) = [c.why for c in study.STUDY.figures[0].claims(results(changes)) if not c.held]
        assert why in told


def test_where_nothing_was_done_nothing_holds() -> None:
    nothing = {"useful_s": 0.0, "in_time_s": 0.0, "latency_s": np.nan}
    found = missed({FAIR: nothing, RANDOM: nothing})
    for words in ("numerically close", "holds its objective", "useful work", "within 10 s"):
        assert any(words in statement for statement in found)


def test_every_pair_is_told_and_drawn_with_its_order() -> None:
    found = results({FAIR: {"useful_s": 45.0}}, {FAIR: {"useful_s": 60.0, "deviation": 0.02}})
    told = " ".join(claim.ours for claim in study.STUDY.figures[0].claims(found))
    assert "1.050 of random's (pair by pair 0.90, 1.20; median 1.05)" in told
    assert "deviation 0.0150 (0.0100 to 0.0200 in 2 runs)" in told
    (line,) = study.STUDY.figures[0].draw(found).panels[-1].series
    assert line.x == ("1: fair first", "2: random first")
    assert line.mean == pytest.approx((0.9, 1.2))


def test_the_picture_shows_spread_time_and_the_objective() -> None:
    figure = study.STUDY.figures[0].draw(results())
    assert [series.name for series in figure.panels[0].series] == [RANDOM, FAIR]
    assert figure.panels[2].series[0].low == (0.1,) * 8
    texts = {text.get_text() for axes in picture_of(figure).axes for text in axes.texts}
    assert "objective" in texts


def test_every_point_can_be_computed_and_the_study_is_not_too_long() -> None:
    """20 minutes, with ten seconds for every start and a minute until Spark is warm."""
    points = study.STUDY.figures[0].points()
    assert all(parts(point.label)[0] in study.SPLITS for point in points)
    assert sum(_seconds(point) + 10.0 for point in points) + 60.0 <= 1_200.0


def test_fair_and_random_are_first_equally_often_and_neither_runs_earlier() -> None:
    pairs = [parts(p.label) for p in study._pairs(study.PAIRS, lead_s=1.0, seconds=1.0)]
    turns = [[i for i, (name, _, _) in enumerate(pairs) if name == each] for each in (FAIR, RANDOM)]
    assert sum(turns[0]) == sum(turns[1])
    assert len(set(pairs)) == 2 * study.PAIRS


def _seconds(point: Point) -> float:
    return float(point.params["lead_s"]) + float(point.params["seconds"])


def test_the_books_of_a_query_tell_what_came_and_what_was_kept(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Without shedding all is kept, and every row has a latency."""
    load, begin_s = Load.draw(2, 0.2, seed=1), time.time()
    guard = dissp_queries._guard(0, "none", tmp_path)
    query = dissp_queries._start(spark, guard, load, 0, tmp_path)
    try:
        wait_until(lambda: rows_batches(guard.ledger()) > 0, "a batch with rows")
    finally:
        query.stop()
    found = dissp_queries._batches(guard, begin_s)
    assert (found.rows_kept == found.rows_in).all()
    assert found.rows_in.sum() > 0
    assert found.sic(0.0, time.time() - begin_s) == 1.0
    assert 0 < found.mean_latency_s() < time.time() - begin_s
