"""What is noted of a batch for those who watch; no decision depends on it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """Something that a person should look at, on one line.

    objective: the objective was missed in several batches one after the other.
    fault:     the control path failed: the gate opened, or the books have a gap.
    stale:     the plan was decided without a recent observation.
    floor:     rows are kept at the least rate that the limits allow, and it does not suffice.
    """

    kind: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CostHealth:
    """How far what rows cost can be trusted.

    `error` is how far the time that the batch took for its rows lay from what the model foresaw for
    as many, as a share of it; `keys` are counted exactly, out of `rows` that the model knows.
    """

    error: float | None = None
    keys: int = 0
    rows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What else is told of a batch.

    guard:     name of the guard; `objective` is which latency it bounds, at most `limit_s`.
    rate:      rows that came in a second; `normal` that of batches of which all was kept.
    spent_s:   time that the batch took for its rows, to lay beside the budget's.
    sic:       share of the input that is in the results of the last `window_s` seconds.
    words:     the decision and its reason, as a sentence.
    faults:    how often the control path failed since the start.
    """

    guard: str = ""
    objective: str = ""
    limit_s: float | None = None
    rate: float | None = None
    normal: float | None = None
    spent_s: float | None = None
    sic: float | None = None
    window_s: float | None = None
    cost: CostHealth | None = None
    words: str = ""
    faults: int = 0
    alarms: tuple[Alarm, ...] = ()
