"""The study of POSG: its jobs, its claims, and the results that any few runs must show."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from spillway.studies import posg_claims
from spillway.studies.posg import (
    CHANGE_ROW,
    NAMES,
    STUDY,
    Setting,
    Sweep,
    TimeSeries,
    completion_ms,
    setting,
    speed_up,
)
from spillway.studies.posg_claims import CLAMPED, DEFAULT, FULL, PAPER, ROUND_ROBIN
from spillway.studies.study import Point, Results

RUNS = 8


def job(name: str) -> Sweep:
    found = STUDY.figure(name)
    assert isinstance(found, Sweep)
    return found


def computed(name: str, labels: list[str], runs: int = RUNS) -> Results:
    points = [point for point in job(name).points() if point.label in labels]
    return {
        point.label: {
            key: np.array(values)
            for key, values in job(name).compute(point, range(runs), 0).items()
        }
        for point in points
    }


def test_the_study_has_figures_4_to_10_with_a_hundred_runs_a_point() -> None:
    assert [figure.id for figure in STUDY.figures] == [str(number) for number in range(4, 11)]
    assert all(figure.runs == 100 for figure in STUDY.figures[:-1])


def test_the_defaults_are_the_papers() -> None:
    stream = Setting().stream(0)
    assert stream.rows == 32_768
    assert stream.costs_ns.min() == 1_000_000
    assert stream.costs_ns.max() == 64_000_000
    gap_ns = stream.arrivals_ns[-1] / (stream.rows - 1)
    assert gap_ns == pytest.approx(stream.cost_ns_mean / 5, rel=1e-6)


def test_every_point_is_a_setting() -> None:
    for figure in STUDY.figures:
        quick = [point.label for point in figure.quick_points()]
        assert set(quick) <= {point.label for point in figure.points()}
        for point in figure.points():
            setting(point.params)


def test_any_slice_of_the_runs_gives_the_same_numbers() -> None:
    point = Point("short", {"rows": 2_000})
    whole = job("5").compute(point, range(4), 7)
    parts = [job("5").compute(point, range(*part), 7) for part in ((0, 1), (1, 4))]
    assert whole == {key: parts[0][key] + parts[1][key] for key in whole}
    assert job("5").compute(point, range(1), 8) != job("5").compute(point, range(1), 7)


def test_jobs_can_be_sent_to_other_processes() -> None:
    assert pickle.loads(pickle.dumps(STUDY.figures)) == STUDY.figures


@pytest.mark.parametrize("name", ["4", "5", "6", "7", "8", "9"])
def test_a_quick_look_draws_every_policy_and_judges_every_claim(name: str) -> None:
    figure = job(name)
    labels = [point.label for point in figure.quick_points()]
    results = computed(name, labels, runs=1)
    picture = figure.draw(results)
    drawn = [series.name for series in picture.panels[0].series]
    assert drawn == [n for n in NAMES if not (figure.as_speed_up and n == ROUND_ROBIN)]
    assert all(len(series.x) == len(labels) for series in picture.panels[0].series)
    claims = figure.claims(results)
    assert len({claim.statement for claim in claims}) == len(claims) >= 4
    assert all(claim.figure == name for claim in claims)


def test_the_default_beats_round_robin_by_more_than_a_quarter_in_every_run() -> None:
    """The paper has a quarter as the mean over its runs."""
    results = computed("4", ["Zipf-1.0"])
    assert (speed_up(results, "Zipf-1.0", DEFAULT) > 1.25).all()
    exact = completion_ms(results, "Zipf-1.0", FULL)
    assert (completion_ms(results, "Zipf-1.0", DEFAULT) < 1.5 * exact).all()


def test_idle_time_must_be_counted_once_there_is_room() -> None:
    results = computed("5", ["109 %"])
    as_written, clamped, shipped = (
        float(speed_up(results, "109 %", name).mean()) for name in (PAPER, CLAMPED, DEFAULT)
    )
    assert as_written < 1 < clamped < shipped


def test_one_instance_leaves_nothing_to_place() -> None:
    results = computed("8", ["1"], runs=2)
    for name in NAMES:
        assert (speed_up(results, "1", name) == 1).all()


def test_the_change_of_speeds_is_got_over() -> None:
    figure = STUDY.figure("10")
    assert isinstance(figure, TimeSeries)
    (point,) = figure.points()
    found = {key: np.array(values) for key, values in figure.compute(point, range(1), 0).items()}
    assert all(found[f"{name}/mean_ms"].size == 75 for name in NAMES)
    started, relearnt = found[f"{PAPER}/first_run"][0], found[f"{PAPER}/relearnt"][0]
    assert 2 * 1024 * 5 < started < CHANGE_ROW < relearnt < 100_000
    assert found[f"{DEFAULT}/first_run"][0] < 200
    rest = slice(50, None)
    assert found[f"{PAPER}/mean_ms"][rest].mean() < found[f"{ROUND_ROBIN}/mean_ms"][rest].mean()
    assert found[f"{DEFAULT}/mean_ms"][rest].mean() < found[f"{PAPER}/mean_ms"][rest].mean()
    figure.draw({"stream": found})
    assert len(figure.claims({"stream": found})) == 8


def test_verdicts_follow_the_numbers() -> None:
    assert [posg_claims._verdict(x, 1.26) for x in (1.2, 1.22, 1.30, 1.32)] == [
        "does not hold",
        "holds",
        "holds",
        "holds better",
    ]
    assert [posg_claims._sooner(x, 1000) for x in (900, 1000, 1051)] == [
        "holds better",
        "holds",
        "does not hold",
    ]


def test_a_claim_that_fails_by_the_papers_rules_says_why() -> None:
    label = "102 %"
    times = dict.fromkeys(NAMES, np.array([100.0])) | {PAPER: np.array([125.0])}
    results = {
        q: {f"{name}/completion_ms": values for name, values in times.items()}
        for q in ("95 %", "100 %", label, "115 %")
    }
    first = posg_claims.claims_5(results)[0]
    assert (first.ours, first.verdict) == ("0.80", "does not hold")
    assert "with idle time counted it is 1.00" in first.why
