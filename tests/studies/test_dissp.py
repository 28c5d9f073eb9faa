"""The study of DISSP: its jobs, its claims, and what any few runs must show."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest

from spillway.studies import dissp, dissp_claims
from spillway.studies.dissp import CYCLE_S, NAMES, STUDY, Bursts, Setting, Sweep, setting
from spillway.studies.dissp_claims import DEFAULT, NONE, PAPER, RANDOM
from spillway.studies.study import Point, Results


def job(name: str) -> Sweep:
    found = STUDY.figure(name)
    assert isinstance(found, Sweep)
    return found


def computed(name: str, labels: list[str], runs: int) -> Results:
    return {
        point.label: {
            key: np.array(values)
            for key, values in job(name).compute(point, range(runs), 0).items()
        }
        for point in job(name).points()
        if point.label in labels
    }


def test_a_setting_offers_the_work_it_says_with_the_ratios_it_says() -> None:
    queries = Setting(factor=3.0, queries=12).draw(1)
    rates = [each.sources[0].steps[0][1] for each in queries]
    costs = [each.cost_s for each in queries]
    assert np.dot(rates, costs) == pytest.approx(3.0)
    assert max(rates) / min(rates) == pytest.approx(100.0)
    assert max(costs) / min(costs) == pytest.approx(50.0)


def test_a_burst_moves_from_query_to_query_with_a_calm_between() -> None:
    queries = Setting(factor=3.0, queries=8).bursting(2)
    costs_s = np.array([each.cost_s for each in queries])

    def rates(at_s: float) -> np.ndarray:
        steps = [each.sources[0].steps for each in queries]
        return np.array([[rate for start, rate in each if start <= at_s][-1] for each in steps])

    calm = rates(CYCLE_S - 0.1)
    assert calm @ costs_s == pytest.approx(0.8)
    for turn in range(12):
        burst = rates(turn * CYCLE_S + 0.1)
        assert burst @ costs_s == pytest.approx(3.0)
        assert np.flatnonzero(burst > 1.001 * calm).tolist() == [turn % 8]
        assert rates((turn + 1) * CYCLE_S - 0.1).tolist() == calm.tolist()


def test_every_point_is_a_setting() -> None:
    for figure in STUDY.figures:
        quick = [point.label for point in figure.quick_points()]
        assert set(quick) <= {point.label for point in figure.points()}
        for point in figure.points():
            setting(point.params)


def test_any_slice_of_the_runs_gives_the_same_numbers() -> None:
    point = Point("few", {"queries": 2})
    few = replace(job("queries"), names=(RANDOM, DEFAULT))
    whole = few.compute(point, range(3), 7)
    parts = [few.compute(point, range(*part), 7) for part in ((0, 1), (1, 3))]
    assert whole == {key: parts[0][key] + parts[1][key] for key in whole}
    assert few.compute(point, range(1), 8) != few.compute(point, range(1), 7)


def test_jobs_can_be_sent_to_other_processes() -> None:
    assert pickle.loads(pickle.dumps(STUDY.figures)) == STUDY.figures


@pytest.mark.parametrize("name", ["overload", "rates", "costs", "weights"])
def test_a_quick_look_draws_every_rival_and_judges_every_claim(name: str) -> None:
    figure = job(name)
    labels = [point.label for point in figure.quick_points()]
    results = computed(name, labels, runs=1)
    for panel in figure.draw(results).panels:
        assert [series.name for series in panel.series] == list(figure.names)
        assert all(len(series.x) == len(labels) for series in panel.series)
    claims = figure.claims(results)
    assert len({claim.statement for claim in claims}) == len(claims) >= 2
    assert all(claim.figure == name for claim in claims)


def test_fair_shedding_is_close_where_random_is_not_and_none_is_late() -> None:
    results = computed("overload", ["2"], runs=3)["2"]
    assert (results[f"{DEFAULT}/deviation"] <= 0.03).all()
    assert (results[f"{DEFAULT}/jain"] >= 0.995).all()
    assert (results[f"{RANDOM}/deviation"] >= 5 * results[f"{DEFAULT}/deviation"]).all()
    assert (results[f"{NONE}/latency_s"] > 10).all()


def test_a_moving_burst_is_shared_by_all() -> None:
    figure = STUDY.figure("bursts")
    assert isinstance(figure, Bursts)
    (point,) = figure.points()
    found = {key: np.array(values) for key, values in figure.compute(point, range(1), 0).items()}
    assert found[f"{DEFAULT}/deviation"][0] < 0.5 * found[f"{RANDOM}/deviation"][0]
    picture = figure.draw({point.label: found})
    assert [panel.series[0].name for panel in picture.panels] == [RANDOM, DEFAULT]
    assert len(picture.panels[0].series[0].x) == 100
    assert len(figure.claims({point.label: found})) >= 3


def _results(**changed: float) -> Results:
    base = {"deviation": 0.01, "jain": 0.999, "minimum": 0.45, "mean": 0.5}
    base |= {"latency_s": 0.4, "useful_s": 60.0}
    found = {f"{name}/{key}": np.array([value]) for name in NAMES for key, value in base.items()}
    found[f"{RANDOM}/deviation"] = np.array([0.3])
    found[f"{NONE}/latency_s"] = np.array([30.0])
    found |= {key.replace("__", "/"): np.array([value]) for key, value in changed.items()}
    return {"2": found}


def test_verdicts_follow_the_numbers() -> None:
    good = dissp_claims.overload_claims(_results())
    assert all(claim.held for claim in good)
    for name, value, words in (
        (f"{DEFAULT}__deviation", 0.031, "numerically close"),
        (f"{DEFAULT}__jain", 0.994, "numerically close"),
        (f"{DEFAULT}__latency_s", 0.8, "queueing delays"),
        (f"{DEFAULT}__useful_s", 59.0, "useful work"),
        (f"{DEFAULT}__minimum", 0.2, "mean SIC"),
        (f"{RANDOM}__deviation", 0.04, "random shedding"),
        (f"{NONE}__latency_s", 1.0, "without shedding"),
    ):
        claims = dissp_claims.overload_claims(_results(**{name: value}))
        assert [claim.statement for claim in claims if not claim.held], name
        assert all(words in claim.statement for claim in claims if not claim.held), name


def test_a_claim_that_fails_by_the_paper_s_cost_model_says_why() -> None:
    (first, _) = dissp_claims.weight_claims(_results(**{f"{PAPER}__deviation": 0.05}))
    assert first.verdict == "does not hold"
    assert "average row" in first.why


def test_the_study_is_named_after_the_paper() -> None:
    assert dissp.STUDY.name == "dissp"
    assert [figure.id for figure in STUDY.figures] == [
        "overload",
        "queries",
        "rates",
        "costs",
        "weights",
        "bursts",
    ]
