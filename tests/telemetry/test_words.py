"""Decisions in words: what came, what is kept, and by which rule."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spillway.state.ledger import Entry
from spillway.telemetry.words import percent, reason
from spillway.values import Observation, PinnedPlan, Plan, StratumCount, TaskReport


def entry(
    kept: int,
    why: str,
    *strata: str,
    rates: tuple[float, ...] = (0.3,),
    refused: int = 0,
    windows: bool = False,
) -> Entry:
    counts = tuple(
        StratumCount(name=name, rows_in=1000 if i == 0 else 0, rows_kept=kept if i == 0 else 0)
        for i, name in enumerate(strata)
    )
    seen = Observation(
        batch_id=3, rows_in=1000, rows_kept=kept - refused, duration_s=1.0, strata=counts,
        rows_refused=refused, tasks=(TaskReport(instance=0, rows_in=1000, windows=windows),),
    )  # fmt: skip
    plan = PinnedPlan(batch_id=3, salt=1, plan=Plan(rates=rates, reason=why))
    return Entry(
        query_id="q", run_id="r", seen=seen, plan=plan, identity=(), offsets="[]", started_at_s=0.0
    )


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (entry(310, "overload: costliest keys first"), "keeping 31 %: costliest keys first"),
        (entry(310, "overload", "all"), "keeping 31 %: every row with the same chance"),
        (
            entry(310, "overload", "below", "boundary", "above", rates=(0.0, 0.5, 1.0)),
            "keeping 31 %: the least useful first",
        ),
        (entry(1000, "within limits", "all"), "keeping all rows: within the objective"),
        (
            entry(600, "fair share", "all"),
            "keeping 60 %: its fair share, every row with the same chance",
        ),
        (
            entry(310, "overload by the fixed cost alone", "all"),
            "keeping 31 %: overload by the fixed cost alone, every row with the same chance",
        ),
        (
            entry(1000, "overload: without mood on 75 %, all on 25 % of the rows; accuracy 0.980"),
            "keeping all rows: without mood on 75 %, all on 25 % of the rows; accuracy 0.980",
        ),
        (entry(1000, "open: policy failed: x"), "keeping all rows: open: policy failed: x"),
        (
            entry(1000, "within limits", "all", refused=1200 - 1000),
            "keeping 80 %: the operator refused 200 rows that waited too long",
        ),
        (
            entry(1000, "no gate", refused=200, windows=True),
            "keeping 80 %: no gate; 200 rows of windows were not in their samples",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else value.reason,
)
def test_a_decision_is_told_in_one_sentence(told: Entry, words: str) -> None:
    assert reason(told) == words


def test_the_rate_is_told_as_a_multiple_of_the_normal_one() -> None:
    told = reason(entry(310, "overload: costliest keys first"), rate=4200.0, normal=1000.0)
    assert told == "rate 4.2 × normal, keeping 31 %: costliest keys first"
    assert reason(entry(10, "overload"), rate=123_000.0, normal=1000.0).startswith("rate 123 ×")


def test_an_empty_batch_says_so() -> None:
    empty = replace(entry(0, "within limits").seen, rows_in=0, rows_kept=0)
    told = reason(replace(entry(0, "within limits"), seen=empty))
    assert told == "no rows came: within the objective"


def test_without_a_plan_the_gate_was_open_and_that_is_told() -> None:
    told = replace(entry(1000, "", "all"), plan=None)
    assert reason(told) == "keeping all rows: open: no pinned plan"


@pytest.mark.parametrize(
    ("share", "text"), [(0.0, "0 %"), (0.0004, "0.04 %"), (0.5, "50 %"), (0.9999, "99.99 %")]
)
def test_a_share_is_never_rounded_to_nothing_or_to_all(share: float, text: str) -> None:
    assert percent(share) == text
