"""Says in a sentence what was decided for a batch, and why. Pure: numbers in, words out."""

from __future__ import annotations

from spillway.state.ledger import Entry

_BY_STRATA = {
    ("below", "boundary", "above"): "the least useful first",
    ("whole", "thinned"): "frequent groups thinned",
}
_ALIKE = "every row with the same chance"
_SAID = {"within limits": "within the objective", "fair share": "its fair share"}
_CAUSES = ("overload", "fixed rate", "within limits")  # what the share says already


def reason(entry: Entry, *, rate: float | None = None, normal: float | None = None) -> str:
    """Say how the rate compares with the normal one, what is kept, and by which rule.

    >>> from spillway.values import Observation, PinnedPlan, Plan
    >>> plan = Plan(rates=(0.01, 0.2, 1.0), reason="overload: costliest keys first")
    >>> entry = Entry(query_id="q", run_id="r", identity=(), offsets="[]", started_at_s=0.0,
    ...               seen=Observation(batch_id=7, rows_in=1000, rows_kept=310, duration_s=1.0),
    ...               plan=PinnedPlan(batch_id=7, salt=1, plan=plan))
    >>> reason(entry, rate=4200.0, normal=1000.0)
    'rate 4.2 × normal, keeping 31 %: costliest keys first'
    """
    kept = f"{_pace(rate, normal)}{_kept(entry)}"
    why = "; ".join(part for part in (_rule(entry), _refused(entry)) if part)
    return f"{kept}: {why}" if why else kept


def percent(share: float) -> str:
    """Write a share in as few digits as tell it from nothing and from all.

    >>> percent(0.314), percent(0.0042), percent(0.9996), percent(1.0)
    ('31 %', '0.42 %', '99.96 %', '100 %')
    """
    value = 100.0 * share
    digits = 2 if 0.0 < value < 1.0 or 99.0 < value < 100.0 else 0
    return f"{value:.{digits}f} %"


def _pace(rate: float | None, normal: float | None) -> str:
    if not rate or not normal:
        return ""
    times = rate / normal
    return f"rate {times:.{1 if times < 99.95 else 0}f} × normal, "


def _kept(entry: Entry) -> str:
    seen = entry.seen
    if not seen.rows_in:
        return "no rows came"
    return "keeping all rows" if not entry.rows_shed else f"keeping {percent(seen.share)}"


def _rule(entry: Entry) -> str:
    """Return what the plan says beyond the share; if rows went and it says nothing, by strata."""
    cause, _, rule = entry.reason.partition(": ")
    if cause in ("open", "last") or entry.plan is None:
        return entry.reason
    told = [] if cause in _CAUSES and (rule or entry.rows_shed) else [_SAID.get(cause, cause)]
    if not rule and entry.seen.rows_kept + entry.seen.rows_refused < entry.seen.rows_in:
        names = tuple(stratum.name for stratum in entry.seen.strata)
        rule = _BY_STRATA.get(names[: len(entry.plan.plan.rates)], _ALIKE)
    return ", ".join([*told, *([rule] if rule else [])])


def _refused(entry: Entry) -> str:
    refused = entry.seen.rows_refused
    if not refused:
        return ""
    if entry.seen.windowed:
        return f"{refused:,} rows of windows were not in their samples"
    return f"the operator refused {refused:,} rows that waited too long"
