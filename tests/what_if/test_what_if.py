"""What would have happened: conditions are read from books, guards are tried in them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from spillway.cli import app
from spillway.loop import Loop
from spillway.objective import Latency
from spillway.overload.controller import HoldLatency
from spillway.sim.batches import Engine, Trace, Workload, simulate
from spillway.state.description import Description
from spillway.state.ledger import Entry
from spillway.values import ALL_TASKS, Limits, Observation, TaskReport
from spillway.what_if import cost as costs
from spillway.what_if.ask import AS_IT_RAN, Wishes, of_books, of_rate
from spillway.what_if.outcome import answer
from spillway.what_if.policy import Ask, as_it_ran
from spillway.what_if.recording import TooShort, conditions_of
from spillway.workload.rate import parse_rate
from tests.report.books import entry, write

TWO_S = Latency(average="2 s")
BURST = "steps:0=1000,20=20000,40=1000"


def batch(rows_in: int, kept: int, duration_s: float, **more: Any) -> Observation:
    return Observation(
        batch_id=rows_in, rows_in=rows_in, rows_kept=kept, duration_s=duration_s, **more
    )


def traced(objective: Latency = TWO_S, *, engine: Engine | None = None, seed: int = 3) -> Trace:
    """A run whose conditions are known, because they were made."""
    work = Workload(arrivals=parse_rate(BURST, 60), cost_s=3e-4, gate_s=4e-6)
    loop = Loop(controller=HoldLatency(objective=objective))
    return simulate(loop, work, engine=engine or Engine(fixed_s=0.3, gap_s=0.01), seed=seed)


def booked(trace: Trace) -> list[Entry]:
    return [
        Entry(
            query_id="q",
            run_id=str(each.run),
            seen=each.seen,
            plan=each.pinned,
            identity=("id",),
            offsets="[]",
            started_at_s=1e9 + each.start_s,
        )
        for each in trace.batches
    ]


def test_the_times_of_a_batch_are_found_again() -> None:
    conditions = conditions_of(booked(traced()))
    found = conditions.cost
    assert found.fixed_s == pytest.approx(0.3, rel=0.02)
    assert found.row_s == pytest.approx(3e-4, rel=0.02)
    assert found.gate_s == pytest.approx(4e-6, rel=0.1)
    assert conditions.engine.gap_s == pytest.approx(0.01, rel=0.1)
    assert conditions.arrivals.rows_total == traced().rows_in


def test_arrivals_are_found_again_within_a_batch() -> None:
    found, truth = conditions_of(booked(traced())).arrivals, parse_rate(BURST, 60)
    for at_s in (10.0, 20.0, 25.0, 40.0, 50.0):
        assert found.rows_by(at_s) == pytest.approx(truth.rows_by(at_s), rel=0.1, abs=1500)


def test_what_ran_is_foreseen_from_its_books() -> None:
    entries = booked(traced(engine=Engine(fixed_s=0.3, noise=0.1, cold=3.0)))
    conditions = conditions_of(entries)
    outcome = answer(conditions, Ask(name="x", objective=TWO_S))
    shed = sum(each.rows_shed for each in entries)
    assert outcome.rows_shed == pytest.approx(shed, rel=0.05)


def test_another_objective_is_foreseen_without_having_been_seen() -> None:
    conditions = conditions_of(booked(traced(TWO_S)))
    four = Latency(average="4 s")
    outcome, truth = answer(conditions, Ask(name="x", objective=four)), traced(four)
    assert outcome.rows_shed == pytest.approx(truth.rows_in - truth.rows_kept, rel=0.05)


def test_a_slow_hour_is_slow_again() -> None:
    slow = Engine(fixed_s=0.3, pace=((30.0, 2.0),))
    conditions = conditions_of(booked(traced(engine=slow)))
    assert conditions.engine.pace_at(50.0) / conditions.engine.pace_at(10.0) == pytest.approx(
        2.0, rel=0.15
    )


def test_an_operators_own_clock_tells_its_time_from_the_rest() -> None:
    """Batches that are all alike: without the reports nobody could tell the two apart."""
    report = TaskReport(instance=ALL_TASKS, rows_in=1000, busy_ns=1_200_000_000)
    spans = replace(report, begun_at_ns=10**18, ended_at_ns=10**18 + 600_000_000)
    told = costs.fit([batch(1000, 1000, 0.8, tasks=(spans,))] * 5)
    assert (told.fixed_s, told.row_s, told.cores) == (
        pytest.approx(0.2, abs=1e-6),
        pytest.approx(6e-4),
        2,
    )
    untold = costs.fit([batch(1000, 1000, 0.8)] * 5)
    assert untold.assumed
    assert untold.fixed_s == pytest.approx(0.4)


def test_no_time_is_negative_whatever_the_batches_say() -> None:
    random = np.random.default_rng(5)
    for _ in range(50):
        rows = random.integers(1, 10_000, 12)
        seen = [batch(int(n), int(n * random.random()), float(random.exponential())) for n in rows]
        found = costs.fit(seen)
        assert min(found.fixed_s, found.row_s, found.gate_s) >= 0
        assert np.isfinite(costs.paces(found, seen)).all()


def test_a_trigger_and_a_cap_are_seen_in_the_books() -> None:
    engine = Engine(fixed_s=0.1, trigger_s=5.0, rows_max=30_000)
    conditions = conditions_of(booked(traced(engine=engine)))
    assert conditions.engine.trigger_s == pytest.approx(5.0, rel=0.02)


def test_too_few_batches_are_refused() -> None:
    with pytest.raises(TooShort, match="at least 4 batches with rows beside the first, got 2"):
        conditions_of([entry(i) for i in range(3)])


def test_twice_the_capacity_sheds_less_and_none_sheds_nothing() -> None:
    wishes = Wishes(objectives=[TWO_S], policies=["uniform", "none"], capacities=[1.0, 2.0])
    question = of_rate(BURST, "60 s", fixed="300 ms", row="300 us", wishes=wishes)
    by_name = {ask.name: answer(question.conditions, ask) for ask in question.asks}
    assert list(by_name) == [
        "average 2 s, uniform",
        "average 2 s, uniform, 2 × capacity",
        "nothing shed",
        "nothing shed, 2 × capacity",
    ]
    shed = [outcome.rows_shed for outcome in by_name.values()]
    assert shed[0] > shed[1] > shed[2] == shed[3] == 0
    slow, fast = (by_name[name].latency_s_mean for name in list(by_name)[2:])
    assert slow is not None
    assert fast is not None
    assert slow > fast > 2.0


def test_more_rows_than_can_be_held_are_simulated_as_rows_that_stand_for_several() -> None:
    wishes = Wishes(objectives=[TWO_S])
    few = of_rate(BURST, "60 s", fixed="300 ms", row="300 us", wishes=wishes)
    many = "steps:0=10000,20=200000,40=10000"
    more = of_rate(many, "60 s", fixed="300 ms", row="30 us", wishes=wishes)
    shares = [answer(q.conditions, q.asks[0]).share_shed for q in (few, more)]
    assert shares[0] == pytest.approx(shares[1], rel=0.02)


def test_policies_that_the_books_cannot_tell_are_said() -> None:
    from spillway.shedders.load_aware import LoadAware

    control = HoldLatency(objective=TWO_S)
    guard = Description.of(
        "x", control=control, shed=LoadAware(key="k"), degrade=None, limits=Limits()
    )
    ask, notes = as_it_ran(guard, "x")
    assert ask.policy == "uniform"
    assert any("LoadAware" in note for note in notes)


@pytest.mark.parametrize(
    ("wishes", "told"),
    [
        (Wishes(objectives=[TWO_S], policies=["best"]), "policy must be one of uniform"),
        (Wishes(objectives=[TWO_S], policies=["fixed:x"]), "policy must be fixed:RATE"),
        (Wishes(objectives=[TWO_S], capacities=[0.0]), "capacity must be finite and > 0, got 0.0"),
        (Wishes(), "needs an objective"),
        (Wishes(objectives=[TWO_S], capacities=[float(i) for i in range(1, 30)]), "at most 24"),
    ],
)
def test_nonsense_is_refused_by_name(wishes: Wishes, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        of_rate("100", "10 s", fixed="1 s", row="1 ms", wishes=wishes)


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, list(map(str, arguments)))


def test_the_command_lays_answers_side_by_side(tmp_path: Path) -> None:
    state = write(tmp_path / "state", booked(traced()))
    found = run("simulate", state, "--average", "4 s", "--policy", "none", "--policy", "uniform",
                "--json", "--html", tmp_path / "page.html", "--seeds", 1)  # fmt: skip
    assert found.exit_code == 0, found.output
    told = json.loads(found.stdout)
    assert [each["name"] for each in told["outcomes"]] == [
        "recorded",
        AS_IT_RAN,
        "nothing shed",
        "average 4 s, uniform",
    ]
    assert abs(told["agreement"]["rows_shed"]) < 0.05
    page = (tmp_path / "page.html").read_text()
    assert "average 4 s, uniform" in page
    assert "<script" not in page


def test_the_command_takes_a_rate(tmp_path: Path) -> None:
    counts = tmp_path / "counts.csv"
    counts.write_text("rows\n" + "500\n" * 20)
    found = run("simulate", "--rate", f"file:{counts}", "--duration", "20 s", "--average", "2 s")
    assert found.exit_code == 0, found.output
    assert "average 2 s" in found.output


@pytest.mark.parametrize(
    "arguments", [[], ["--rate", "100"], ["--rate", "x:y", "--average", "1 s"]]
)
def test_the_command_ends_with_2_at_nonsense(arguments: list[str]) -> None:
    assert run("simulate", *arguments).exit_code == 2


def test_the_command_ends_with_3_at_too_few_batches(tmp_path: Path) -> None:
    found = run("simulate", write(tmp_path, [entry(0), entry(1)]))
    assert found.exit_code == 3
    assert "must hold at least 4 batches" in found.output


def test_books_without_a_description_need_an_objective(tmp_path: Path) -> None:
    state = write(tmp_path, booked(traced()), average=None)
    assert run("simulate", state).exit_code == 2
    assert run("simulate", state, "--average", "2 s", "--seeds", 1).exit_code == 0


def test_a_question_of_books_names_what_really_happened(tmp_path: Path) -> None:
    from spillway.state.books import open_books

    entries = booked(traced())
    question = of_books(open_books(write(tmp_path, entries)).of_query(), Wishes())
    assert question.truth is not None
    assert question.truth.rows_shed == sum(each.rows_shed for each in entries)
    assert [ask.name for ask in question.asks] == [AS_IT_RAN]
