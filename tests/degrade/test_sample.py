"""A sample of rows: what subtasks make of it, what each takes, and what is left without some."""

from __future__ import annotations

from typing import Any

import pytest

from spillway.degrade.accuracy import RankedRows, RelativeError
from spillway.degrade.profile import Profiler
from spillway.degrade.sample import Complete, Sample
from spillway.degrade.subtask import Subtask, Subtasks

Row = dict[str, Any]


def work(now: list[int]) -> Subtasks:
    """Subtasks that move the clock: by 1, 2 and 4 ns for every row that reaches them."""

    def does(ns: int, made: Any) -> Any:
        def run(row: Row) -> Row | None:
            now[0] += ns
            result: Row | None = made(row)
            return result

        return run

    return Subtasks(
        [
            Subtask("even", does=does(1, lambda row: {} if row["n"] % 2 == 0 else None)),
            Subtask("half", does=does(2, lambda row: {"half": row["n"] / 2}), optional=True),
            Subtask("sum", does=does(4, lambda row: {"sum": row["n"] + row.get("half", 0.0)})),
        ]
    )


def sample(now: list[int], **more: Any) -> Sample[dict[str, float]]:
    return Sample(
        subtasks=work(now),
        rows=[{"n": n} for n in range(6)],
        result=lambda rows: {str(row["n"]): row["sum"] for row in rows},
        clock_ns=lambda: now[0],
        **more,
    )


def test_rows_that_a_subtask_drops_reach_none_behind_it() -> None:
    run = sample([0]).run(frozenset())
    assert run.result == {"0": 0.0, "2": 3.0, "4": 6.0}
    assert run.rows == 6
    assert run.busy_s == pytest.approx({"even": 6e-9, "half": 6e-9, "sum": 12e-9})


def test_what_is_off_takes_no_time_and_leaves_no_column() -> None:
    run = sample([0]).run(frozenset({"half"}))
    assert run.result == {"0": 0.0, "2": 2.0, "4": 4.0}
    assert set(run.busy_s) == {"even", "sum"}


def test_the_rows_of_a_sample_are_not_changed_by_a_run() -> None:
    same = sample([0])
    assert same.run(frozenset()) == same.run(frozenset())
    assert list(same.rows) == [{"n": n} for n in range(6)]


def test_making_the_result_counts_to_the_subtask_that_is_named() -> None:
    now = [0]

    def result(rows: list[Row]) -> dict[str, float]:
        now[0] += 100
        return {}

    timed = Sample(
        subtasks=work(now), rows=[{"n": 2}], result=result, adds="sum", clock_ns=lambda: now[0]
    )
    assert timed.run(frozenset()).busy_s["sum"] == pytest.approx(104e-9)
    with pytest.raises(ValueError, match=r"adds must be one of .*, got 'rank'"):
        sample(now, adds="rank")


def test_a_profiler_measures_it() -> None:
    now = [0]
    profile = Profiler().profile(work(now), sample(now).run, RelativeError())
    assert profile.duration_s == pytest.approx({"even": 1e-9, "half": 1e-9, "sum": 2e-9})
    assert profile.lost == pytest.approx({"half": 2 / 9})  # a third off, on two numbers of three


def test_all_of_it_at_once_is_what_a_plain_operator_does() -> None:
    whole = Complete(work([0]), ("n", "sum"))
    assert whole({"n": 4}) == {"n": 4, "sum": 6.0}
    assert whole({"n": 3}) is None


def test_rows_that_are_ranked_are_judged_by_their_order_and_lost_ones_are_last() -> None:
    judge = RankedRows(item="id", score=lambda row: row["n"])
    ideal = [{"id": k, "n": 10 - k} for k in range(4)]
    assert judge.accuracy(ideal, ideal) == 1.0
    assert judge.accuracy(ideal, [{**row, "n": -row["n"]} for row in ideal]) == 0.0
    assert judge.accuracy(ideal, [*ideal[:3], {}]) == 1.0
    assert judge.accuracy(ideal, [{}, *ideal[1:]]) == 1.0 - 6 / 8  # the first became the last
