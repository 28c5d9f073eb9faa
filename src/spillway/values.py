"""The frozen values that cross the rooms. No Spark, no clock, no I/O."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field

from spillway.concept_values import ConceptState, GroupsSeen, KeepTable
from spillway.work_values import WorkDone, WorkMix, WorkState

# The ends of the score's axis. Finite, because JSON has no infinity.
SCORE_MIN, SCORE_MAX = -sys.float_info.max, sys.float_info.max
ALL_TASKS = -1  # instance of a report that adds all tasks of a batch up


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchAhead:
    """The batch that is about to run, as far as it is known.

    `rows` is its size (exact where the source's offsets count rows, else a prediction, else None).
    """

    batch_id: int
    rows: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StratumCount:
    """How many rows of one stratum came in and were kept in a batch."""

    name: str
    rows_in: int
    rows_kept: int

    @property
    def rows_shed(self) -> int:
        """Rows of the stratum that the gate gave up."""
        return self.rows_in - self.rows_kept


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReport:
    """What one task of a Python operator did; it counts once, if the task succeeded.

    `busy_ns` is the operator's own time over the rows that it took, within the times of day
    `begun_at_ns` and `ended_at_ns` (0 if unknown); latencies run from a row's arrival to the start
    of its processing, 0 where no arrival column was named. `costs` is a `HeavySketch` of what its
    rows took by key, as bytes; empty without a key. `work` is what subtasks did, if it ran some.
    `windows` says that the rows are those of windows that ended, and those refused not sampled.
    """

    instance: int
    rows_in: int
    rows_refused: int = 0
    busy_ns: int = 0
    latency_ns_sum: int = 0
    latency_ns_max: int = 0
    begun_at_ns: int = 0
    ended_at_ns: int = 0
    costs: bytes = b""
    work: WorkDone | None = None
    windows: bool = False

    @property
    def rows_taken(self) -> int:
        """Rows that the operator worked on."""
        return self.rows_in - self.rows_refused


def total_report(tasks: tuple[TaskReport, ...]) -> TaskReport:
    """Add the tasks of an operator up; what rows cost by key, and by subtask, is left out."""
    return TaskReport(
        instance=ALL_TASKS,
        rows_in=sum(task.rows_in for task in tasks),
        rows_refused=sum(task.rows_refused for task in tasks),
        busy_ns=sum(task.busy_ns for task in tasks),
        latency_ns_sum=sum(task.latency_ns_sum for task in tasks),
        latency_ns_max=max((task.latency_ns_max for task in tasks), default=0),
        begun_at_ns=min((task.begun_at_ns for task in tasks if task.rows_in), default=0),
        ended_at_ns=max((task.ended_at_ns for task in tasks if task.rows_in), default=0),
        windows=any(task.windows for task in tasks),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What a finished batch showed.

    Latencies run from a row's arrival to the end of its batch, over the kept rows; None where no
    arrival column was named and they could not be estimated. `quantiles` are those of the score.
    `rows_refused` passed the gate and were refused by the operator: they are not kept. `rows_aside`
    were shed and written to an overflow output. `tasks` are
    the operator's own reports. `cost_ns_mean` is the mean estimated cost of the rows that came in,
    `cost_ns_kept` of those that were kept; `sample` has (item of the key, worth) of some that came;
    `groups` is what a concept-driven gate counted; `work` what a pipeline of subtasks did, and
    `done` the share of the kept rows' complete work that this was.
    """

    batch_id: int
    rows_in: int
    rows_kept: int
    duration_s: float
    latency_s_mean: float | None = None
    latency_s_p99: float | None = None
    latency_s_max: float | None = None
    backlog_rows: float | None = None
    offset_span: float | None = None
    quantiles: tuple[float, ...] = ()
    strata: tuple[StratumCount, ...] = ()
    rows_refused: int = 0
    rows_aside: int = 0
    tasks: tuple[TaskReport, ...] = ()
    cost_ns_mean: float | None = None
    cost_ns_kept: float | None = None
    sample: tuple[tuple[float, float], ...] = ()
    groups: GroupsSeen | None = None
    work: WorkDone | None = None
    done: float = 1.0

    @property
    def windowed(self) -> bool:
        """Whether the refused rows are those that windows did not need."""
        return any(task.windows for task in self.tasks)

    @property
    def work_s(self) -> float:
        """How long the operator worked on the kept rows, over all its tasks."""
        return sum(task.busy_ns for task in self.tasks) / 1e9

    @property
    def work_span_s(self) -> float:
        """How long it took from the first task's begin to the last one's end.

        It is at least what the busiest task did, and no longer than the batch. The books hold all
        tasks as one, whose work is the sum over those that ran side by side: there the clock alone
        tells, and the sum only where it does not.
        """
        total = total_report(self.tasks)
        span_ns = total.ended_at_ns - total.begun_at_ns
        alone = [task for task in self.tasks if task.instance != ALL_TASKS or span_ns <= 0]
        busiest_ns = max((task.busy_ns for task in alone), default=0)
        return min(max(span_ns, busiest_ns) / 1e9, self.duration_s)

    @property
    def share(self) -> float:
        """Share of the rows that was kept; 1 for an empty batch."""
        return self.rows_kept / self.rows_in if self.rows_in else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What the batch ahead would take if every row were kept: `fixed_s + work_s`.

    `surge` is its size over that of a batch at the last rate: below 1 the rows have become fewer,
    so those in hand came early and have waited longer.
    """

    fixed_s: float
    work_s: float
    surge: float = 1.0

    @property
    def duration_s(self) -> float:
        """Predicted duration of the whole batch."""
        return self.fixed_s + self.work_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What the coming batch may spend on its rows, beside what all of them would need.

    `slack` is the share of `work_s_max` that may come on top before rows go, for work that is
    mandatory. `keep_min` is the least rate at which rows are kept. `sample` has (cost in ns, worth)
    of rows like those to come, at the costs by which the gate will tell them apart; may be empty.
    `concept` is what a concept-driven shedder has learnt.

    >>> Budget(work_s_max=0.5, work_s_full=2.0, reason="overload").share
    0.25
    """

    work_s_max: float
    work_s_full: float
    reason: str
    slack: float = 0.0
    keep_min: float = 0.0
    sample: tuple[tuple[float, float], ...] = ()
    concept: ConceptState | None = None

    def __post_init__(self) -> None:
        """Reject budgets that are no amounts of time."""
        for name in ("work_s_max", "work_s_full", "slack"):
            if not getattr(self, name) >= 0:  # also rejects NaN
                raise ValueError(f"{name} must be >= 0, got {getattr(self, name)}")

    @property
    def share(self) -> float:
        """Share of the batch's work that may be done, in [0, 1]."""
        if self.work_s_max >= self.work_s_full:
            return 1.0
        return self.work_s_max / self.work_s_full


@dataclass(frozen=True, slots=True, kw_only=True)
class CostTable:
    """What keys cost, packed so that Spark looks it up natively; see `cost.table`.

    `heavy`, `counts` and `cells` are compressed int64 arrays: items with costs and their counts by
    bucket and place, and the sketch row by row. `instances` holds one more set of cells for each
    instance of an operator whose instances differ much, `paces` how much longer than all together
    each takes where they differ a little, `delays_ns` how much later than the first each begins;
    empty if they do not.
    """

    heavy: bytes
    counts: bytes
    cells: bytes
    multipliers: tuple[int, ...]
    places: int
    mean_ns: float
    instances: tuple[bytes, ...] = ()
    paces: tuple[float, ...] = ()
    delays_ns: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How the gate cuts a batch: strata along the score, and the keep rate of each.

    Stratum i holds the rows with `edges[i-1] <= score < edges[i]`; `rates` has one entry more
    than `edges`. Rows without a usable score (NULL, NaN, infinite) are kept at the rate `unrated`.
    `costs` says what rows cost by their key, where a guarded operator has told. With `keep` the
    rate of a row is that of its group, and the last of `rates` the mean of those below 1. `mix`
    says which subtasks run; without it all do. `budget` is what the plan was cut from, in brief.
    """

    rates: tuple[float, ...]
    edges: tuple[float, ...] = ()
    unrated: float = 1.0
    reason: str = ""
    costs: CostTable | None = None
    keep: KeepTable | None = None
    mix: WorkMix | None = None
    budget: Budget | None = None

    @property
    def sheds(self) -> bool:
        """Whether any row may be given up."""
        return any(rate != 1.0 for rate in (*self.rates, self.unrated))


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedPlan:
    """A plan bound to its batch: written before its first use and read again by every replay.

    `version` is the last batch whose observation it was decided from; -1 if there was none.
    """

    batch_id: int
    version: int = -1
    salt: int
    plan: Plan
    probe: float = 1.0
    rows_expected: float | None = None
    faults: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The bounds that hold for every policy, including those that users write.

    `keep_min`: floor of every keep rate, so that no stratum goes dark and totals stay unbiased.
    `rise_max`: the kept share grows at most by this factor from batch to batch.
    `stale_batches`: so many batches may pass without an observation before the plan decays to open.
    `timeout_s`: a policy that takes longer is given up and the gate opens.
    `replay_batches`: plans of so many batches are retained, so that what they shed can be found.
    """

    keep_min: float = 0.001
    rise_max: float = 10.0
    stale_batches: int = 3
    timeout_s: float = 1.0
    replay_batches: int = 10_000

    def __post_init__(self) -> None:
        """Reject limits that bound nothing."""
        if not 0 < self.keep_min <= 1:
            raise ValueError(f"keep_min must be in (0, 1], got {self.keep_min}")
        if not self.rise_max > 1:
            raise ValueError(f"rise_max must be > 1, got {self.rise_max}")
        if not self.stale_batches >= 1:
            raise ValueError(f"stale_batches must be >= 1, got {self.stale_batches}")
        if not 0 < self.timeout_s < math.inf:
            raise ValueError(f"timeout_s must be finite and > 0, got {self.timeout_s}")
        if not self.replay_batches >= 1000:  # Spark itself may run its last batches again
            raise ValueError(f"replay_batches must be >= 1000, got {self.replay_batches}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CostState:
    """What a cost model remembers.

    `samples` are the latest (rows kept, seconds taken) pairs, oldest first; `work` the latest
    batches of a guarded operator: (seconds of work, its span from first begin to last end, duration
    of the batch). `costs` are what its keys cost, as a serialised `HeavySketch`; `instances` one
    `CostSketch` for each of its instances; `paced` what these did lately, see `cost.pace`; `starts`
    how much later than the first each begins, in ns; `table` all of it as a gate looks it up;
    `row_ns` the mean cost of the rows that came in last.
    """

    samples: tuple[tuple[float, float], ...] = ()
    work: tuple[tuple[float, float, float], ...] = ()
    costs: bytes = b""
    instances: tuple[bytes, ...] = ()
    paced: tuple[tuple[float, float, float, float, float], ...] = ()
    starts: tuple[float, ...] = ()
    table: CostTable | None = None
    row_ns: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerState:
    """What a controller carries from batch to batch: its feedback correction.

    `share` is what a fair share leaves of the query's rows; 1 where it shares with nobody.
    """

    gain: float = 1.0
    share: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopState:
    """All that the loop remembers: bounded, serialisable, replaced after every batch.

    `query_id` and `run_id` say which stream and which start of it the last observation came from;
    `before_s` is the duration of the batch before the last, while which the last one's rows came;
    `spans` are the latest (offset span, rows in) pairs, from which batch sizes are read; `concept`
    is what a concept-driven shedder has learnt, `work` what is known of the subtasks.
    """

    query_id: str = ""
    run_id: str = ""
    batch_id: int = -1
    cost: CostState = field(default_factory=CostState)
    controller: ControllerState = field(default_factory=ControllerState)
    seen: Observation | None = None
    before_s: float | None = None
    spans: tuple[tuple[float, float], ...] = ()
    concept: ConceptState = field(default_factory=ConceptState)
    work: WorkState = field(default_factory=WorkState)
