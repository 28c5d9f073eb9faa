"""Books written without Spark: as many batches as wanted, with a burst in the middle."""

from pathlib import Path

from spillway.objective import Latency
from spillway.overload.controller import HoldLatency
from spillway.shedders.uniform import Uniform
from spillway.state.description import Description, remember
from spillway.state.ledger import Entry, Ledger
from spillway.values import Limits, Observation, PinnedPlan, Plan, StratumCount, TaskReport

BEGAN_S = 1_700_000_000.0


def entry(
    batch_id: int,
    *,
    rows_in: int = 1000,
    kept: int | None = None,
    latency_s: float | None = 1.5,
    reason: str = "within limits",
    query_id: str = "q",
    run_id: str = "r",
    rate: float | None = None,
    refused: int = 0,
    windows: bool = False,
) -> Entry:
    """A batch of one second, that began one second after the one before it."""
    through = rows_in if kept is None else kept
    share = through / rows_in if rate is None and rows_in else rate or 1.0
    seen = Observation(
        batch_id=batch_id,
        rows_in=rows_in,
        rows_kept=through - refused,
        duration_s=1.0,
        latency_s_mean=latency_s,
        latency_s_max=latency_s and 1.4 * latency_s,
        backlog_rows=3.0,
        offset_span=float(rows_in),
        strata=(StratumCount(name="all", rows_in=rows_in, rows_kept=through),),
        rows_refused=refused,
        tasks=(TaskReport(instance=0, rows_in=through, windows=True),) if windows else (),
    )
    plan = PinnedPlan(batch_id=batch_id, salt=1, plan=Plan(rates=(share,), reason=reason))
    return Entry(
        query_id=query_id,
        run_id=run_id,
        seen=seen,
        plan=plan,
        identity=("id",),
        offsets="[]",
        started_at_s=BEGAN_S + batch_id,
    )


def burst(batches: int = 30) -> list[Entry]:
    """Calm, then ten times the rows of which a fifth is kept, then calm again."""
    third = batches // 3
    return [
        entry(i, rows_in=10_000, kept=2000, latency_s=1.9, reason="overload")
        if third <= i < 2 * third
        else entry(i)
        for i in range(batches)
    ]


def write(
    state: Path, entries: list[Entry], *, name: str = "rides", average: str | None = "2 s"
) -> Path:
    """Write a state folder with these batches; without an objective there is no description."""
    for each in entries:
        Ledger(state / "ledger").append(each)
    if average is not None:
        control = HoldLatency(objective=Latency(average=average))
        parts = {"control": control, "shed": Uniform(), "degrade": None, "limits": Limits()}
        remember(state, Description.of(name, **parts))  # type: ignore[arg-type]
    return state
