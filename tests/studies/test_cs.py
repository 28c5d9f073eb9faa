"""The study of CS: what is measured is what happened, and every claim can fail."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession

from spillway.degrade.accuracy import Footrule
from spillway.studies import cs, cs_claims, cs_on_spark, cs_run, cs_search
from spillway.studies.cs_claims import CS_A, EMPTY, FOUR, FRONTIER, LS_R, NAMES, label
from spillway.studies.draw import picture_of
from spillway.studies.run import ON_SPARK, STUDIES, WITH_DATA
from spillway.studies.study import Point, Results
from spillway.workload.search_files import Source
from spillway.workload.search_window import empty

SMALL = Source(tweets=1_500, seed=3)
LOADS = (0.5, 2.0, 5.0)


# Without Spark ---------------------------------------------------------------------------------


def test_the_study_stands_on_the_command_line_with_and_without_spark() -> None:
    assert STUDIES["cs"] == "spillway.studies.cs"
    assert ON_SPARK["cs"] == "spillway.studies.cs_on_spark"
    assert "cs" in WITH_DATA
    for module in (cs, cs_on_spark):
        real = module.with_data("/somewhere")
        assert [job.id for job in real.figures] == [job.id for job in module.STUDY.figures]
        made = {str(p.params["tweets"]) for job in module.STUDY.figures for p in job.points()}
        assert made == {"made"}
        assert {p.params["tweets"] for job in real.figures for p in job.points()} == {"real"}


@pytest.mark.parametrize("off", [("followers",), ("word_normalisation", "word_position"), ()])
def test_a_mask_on_the_found_is_worth_what_a_search_without_the_subtasks_is(
    off: tuple[str, ...],
) -> None:
    judge = cs._judge(SMALL, 300, 0)
    sample = cs_search.sample_of(cs_search.search_subtasks(cs.QUERY), SMALL.load()[300:])
    ran = sample.run(frozenset(off)).result
    masked = judge.accuracy([off] * len(judge.window))
    assert masked == pytest.approx(Footrule().accuracy(judge.ideal, ran), abs=1e-12)


def test_the_profile_is_not_judged_by_its_own_tweets() -> None:
    judge = cs._judge(SMALL, 300, 0)
    assert judge.profiled is cs._profiled(SMALL, 300, 0)
    own = {tweet.text for tweet in SMALL.load()[:300]}
    judged = {tweet.text for tweet in SMALL.load()[300:]}
    assert not own & judged


@pytest.mark.parametrize("job", cs.STUDY.figures, ids=lambda job: job.id)
def test_every_figure_without_spark_computes_draws_and_claims(
    job: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cs, "source_of", lambda data, seed: SMALL)
    results: dict[str, dict[str, np.ndarray]] = {}
    for point in job.quick_points()[-2:]:
        few = Point(point.label, {**point.params, "rows": 300})
        found = job.compute(few, range(2 if job.quick_runs > 1 else 1), 1)
        results[point.label] = {key: np.array(values) for key, values in found.items()}
    assert picture_of(job.draw(results)).axes
    assert {claim.figure for claim in job.claims(results)} == {job.id}


# What a run on Spark says ----------------------------------------------------------------------


def wanted(handler: str = FRONTIER, load: float = 0.5, seconds: float = 4.0) -> cs_run.Play:
    return cs_run.Play(handler=handler, load=load, seconds=seconds, source=SMALL)


def batches(
    play: cs_run.Play, late_s: float, keep: int = 1
) -> Iterator[tuple[cs_run.Results, int]]:
    """Batches of one second, each in hand so long after it; one of so many results is kept."""
    schedule = play.schedule
    numbers = np.arange(schedule.rows_total)
    arrived_s = schedule.arrival_s(numbers)
    window = cs_search.ideal(SMALL, cs_run.QUERY, numbers, arrived_s, empty(rows_max=10**6))
    for second in range(1, int(play.span_s) + 1):
        inside = (window.arrived_s > second - 1) & (window.arrived_s <= second)
        inside &= window.ids % keep == 0
        yield (
            cs_run.Results(
                batch_id=second,
                at_s=100.0 + second + late_s,
                ids=window.ids[inside],
                metrics=window.metrics[inside],
                measured=np.full(int(inside.sum()), 0b111111111),
                accuracy=np.full(int(inside.sum()), 0.75),
            ),
            int(np.searchsorted(arrived_s, second, side="right")),
        )


def numbers(play: cs_run.Play, late_s: float, keep: int = 1) -> dict[str, list[float]]:
    made = list(batches(play, late_s, keep))
    ends = {one.batch_id: end for one, end in made}
    results = [one for one, _ in made]
    return cs_run.Played(play=play, results=results, ends=ends, epoch_s=100.0).numbers()


def test_what_comes_in_time_and_complete_is_not_displaced() -> None:
    """A row waits half a second for its batch to begin and 0.5 s for its end."""
    found = numbers(wanted(), late_s=0.5)
    assert found["displaced"] == [0.0] * 4
    assert found["there"] == [1.0] * 4
    assert found["right"] == [1.0]
    assert found["told"] == [0.75]
    assert found["on/followers"] == [1.0]
    assert found["latency_s"][0] == pytest.approx(1.0, abs=0.01)
    assert found["duration_s"][0] == pytest.approx(4.5)
    assert found["queue_rows"][0] == pytest.approx(4_000 / 4.5, rel=0.02)  # waits of 1 s in 4.5 s


def test_what_comes_after_the_limit_is_missing_when_it_is_looked_for() -> None:
    late = numbers(wanted(), late_s=cs_claims.LIMIT_S + 1.5)
    assert max(late["there"]) < 0.8
    assert min(late["displaced"]) > 0.1
    assert late["right"] == [1.0], "in the end all of it is there"


def test_a_ranking_of_nothing_is_half_right_and_not_perfect() -> None:
    whole = cs_search.window_of(cs._judge(SMALL, 300, 0).window.shown.tolist())
    assert cs_run.accuracy(whole, whole) == 1.0
    none = whole.only(np.zeros(len(whole), dtype=np.bool_))
    assert cs_run.accuracy(whole, none) == pytest.approx(0.5, abs=0.02)


def test_what_was_shed_is_missing_in_the_end_too() -> None:
    half = numbers(wanted(), late_s=0.5, keep=2)
    assert half["valid"][0] == pytest.approx(half["ideal"][0] / 2, rel=0.1)
    assert half["right"][0] < 1.0


def test_the_prelude_is_calm_and_does_not_count() -> None:
    play = wanted(load=2.0)
    schedule = play.schedule
    assert schedule.rate_at(1.0) == pytest.approx(cs_run.CALM * cs_run.RATE)
    assert schedule.rate_at(cs_run.PRELUDE_S + 1.0) == pytest.approx(2.0 * cs_run.RATE)
    assert numbers(play, late_s=0.5)["rows"][0] == pytest.approx(2.0 * cs_run.RATE * 4, abs=1)


def test_the_effort_makes_one_core_busy_at_the_rate_of_load_1() -> None:
    profiled, effort = cs_run.measured(SMALL)
    busy = cs_run.RATE * effort * sum(profiled.profile.duration_s.values())
    assert busy == pytest.approx(1.0, rel=0.5 / effort + 0.05)


# Claims ----------------------------------------------------------------------------------------


def good() -> dict[str, dict[str, np.ndarray]]:
    """Results with which every claim on the rates holds."""
    results = {}
    for load in LOADS:
        for name in NAMES:
            over = max(load - 1.0, 0.0)
            degrades = name in (*FOUR, FRONTIER)
            kept = 1.0 if degrades or name == EMPTY else 1.0 / (1.0 + over)
            results[label(name, load)] = {
                "latency_s": np.array([2.0 * load if name == EMPTY else 1.7]),
                "queue_rows": np.array([100.0]),
                "duration_s": np.array([9.0 * load if name == EMPTY else 9.0]),
                "rows": np.array([1000.0 * load]),
                "kept": np.array([1000.0 * load * kept]),
                "shed_early": np.array([0.0]),
                "there": np.array([kept]),
                "displaced": np.array([0.0 if load < 1 else 0.2 if name != FRONTIER else 0.15]),
                "right": np.array([0.9]),
                "told": np.array([0.9]),
                "decided_s": np.array([0.002 if degrades else 0.001]),
                **{f"on/{each}": np.array([0.5]) for each in cs_run._OPTIONAL},
            }
    return results


def missed(results: Results) -> list[str]:
    return [claim.statement for claim in cs_claims.claims_rates(results) if not claim.held]


def with_turns(behind: float) -> dict[str, dict[str, np.ndarray]]:
    """Eight turns at the highest load that scatter by 6 %; the frontier's are so much worse."""
    results, scatter = good(), np.random.default_rng(1)
    for name in (*FOUR, FRONTIER):
        for turn in range(cs_claims.TURNS_BEYOND):
            own = behind if name == FRONTIER else 0.0
            found = {"displaced": 0.15 * (1.0 + own), "kept": 3500.0 * (1.0 - own)}
            results[label(name, 5.0, turn)] = results[label(name, 5.0)] | {
                key: np.array([value * scatter.normal(1.0, 0.06)]) for key, value in found.items()
            }
    return results


def test_scatter_is_called_chance_and_a_lag_beyond_it_is_not() -> None:
    assert missed(with_turns(behind=0.0)) == []
    words = ("displaces no more than the best", "the fewest rows go")
    lags = missed(with_turns(behind=0.1))
    assert [any(word in each for each in lags) for word in words] == [True, True]


def test_few_turns_call_nothing_chance() -> None:
    assert cs_claims.chance(good(), 5.0, "displaced") == 0.0


def test_every_claim_on_the_rates_holds_if_all_is_well_and_the_picture_can_be_drawn() -> None:
    assert missed(good()) == []
    assert len(picture_of(cs_on_spark.Rates().draw(good())).axes) == 9


@pytest.mark.parametrize(
    ("name", "load", "key", "value", "words"),
    [
        (FRONTIER, 5.0, "latency_s", 2.2, "holds the limit"),
        (EMPTY, 5.0, "latency_s", 1.0, "without a handler"),
        (FRONTIER, 2.0, "shed_early", 1.0, "no row goes while"),
        (FRONTIER, 5.0, "kept", 4_800.0, "the fewest rows go"),
        (CS_A, 2.0, "displaced", 0.1, "no more than the best of the four"),
        (LS_R, 5.0, "displaced", 0.1, "less than both shedders"),
        (FRONTIER, 5.0, "there", 0.1, "more valid results"),
        (EMPTY, 5.0, "duration_s", 1.0, "rows searched in a second"),
        (FRONTIER, 2.0, "right", 0.8, "rows say what they are worth"),
        (CS_A, 5.0, "decided_s", 0.1, "deciding takes"),
        (LS_R, 5.0, "decided_s", 0.01, "deciding takes"),
    ],
)
def test_every_claim_on_the_rates_can_fail(
    name: str, load: float, key: str, value: float, words: str
) -> None:
    results = good()
    results[label(name, load)][key] = np.array([value])
    assert any(words in statement for statement in missed(results))


# On Spark --------------------------------------------------------------------------------------


def test_a_replay_on_spark_counts_every_row_and_its_results(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The empty handler does everything for every tweet, so the ranking is the ideal one."""
    profiled, _ = cs_run.measured(SMALL)
    monkeypatch.setattr(cs_run, "measured", lambda source: (profiled, 1))
    monkeypatch.setattr(cs_run, "PRELUDE_S", 1.0)
    monkeypatch.setattr(cs_run, "RATE", 400)
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "1000")
    played = cs_run.replay(spark, wanted(EMPTY, load=0.5, seconds=1.0), tmp_path / "run")
    found = played.numbers()
    assert found["rows"][0] == pytest.approx(200, abs=1)
    assert found["kept"] == found["rows"]
    assert found["valid"] == found["ideal"]
    assert found["right"] == [1.0]
    assert found["latency_s"][0] > 0
    assert found["duration_s"][0] >= 1.0
