"""The answers side by side: as lines of a table, as JSON, as a page with pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from spillway.report import chart, numbers, page
from spillway.report.chart import Chart, Line
from spillway.what_if.ask import AS_IT_RAN, Question
from spillway.what_if.outcome import Outcome

HEAD = ("guard", "shed", "share", "latency", "worst", "late", "batches")
_DRAWN_MAX = 6


def lines(outcomes: Sequence[Outcome]) -> list[list[str]]:
    """Return one line of text for each outcome, as `HEAD` names them.

    `latency` is the mean over all kept rows, `worst` that of a batch, `late` the share of batches
    that broke the objective.
    """
    return [
        [
            outcome.name,
            numbers.count(outcome.rows_shed),
            numbers.percent(outcome.share_shed),
            numbers.seconds(outcome.latency_s_mean),
            numbers.seconds(outcome.latency_s_worst),
            "–" if outcome.late is None else numbers.percent(outcome.late, 0),
            f"{outcome.batches:.0f}",
        ]
        for outcome in outcomes
    ]


def agreement(outcomes: Sequence[Outcome]) -> tuple[float, float | None] | None:
    """Return how far the simulation of what ran is off: shed rows and mean latency, relative.

    None if nothing was recorded, or its guard is not known.
    """
    by_name = {outcome.name: outcome for outcome in outcomes}
    truth, own = by_name.get("recorded"), by_name.get(AS_IT_RAN)
    if truth is None or own is None:
        return None
    shed = (own.rows_shed - truth.rows_shed) / max(truth.rows_shed, 0.01 * truth.rows_in, 1.0)
    if not truth.latency_s_mean or not own.latency_s_mean:
        return shed, None
    return shed, own.latency_s_mean / truth.latency_s_mean - 1.0


def sentence(outcomes: Sequence[Outcome]) -> str:
    """Say how well the simulation of what ran agrees with the books."""
    found = agreement(outcomes)
    if found is None:
        return ""
    shed, latency = found
    told = f"Simulating what really ran, the rows shed are {100 * shed:+.1f} % off the books"
    return told + ("." if latency is None else f", the mean latency {100 * latency:+.1f} %.")


def as_json(question: Question, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return everything but the single batches for machines."""
    found = agreement(outcomes)
    return {
        "title": question.title,
        "cost": asdict(question.conditions.cost),
        "agreement": None if found is None else {"rows_shed": found[0], "latency": found[1]},
        "notes": list(question.notes),
        "outcomes": [_content(outcome) for outcome in outcomes],
    }


def whole(question: Question, outcomes: Sequence[Outcome]) -> str:
    """Return the page."""
    drawn = list(outcomes)[:_DRAWN_MAX]
    return page.document(
        f"What if: {question.title}",
        f"<h1>What if: {page.escape(question.title)}</h1>",
        f'<p class="lead">{page.escape(_lead(question))}</p>',
        page.verdict(sentence(outcomes), "held") if sentence(outcomes) else "",
        page.notes(question.notes),
        page.table([list(HEAD), *lines(outcomes)]),
        chart.figure(_latency(drawn)),
        chart.figure(_kept(drawn)),
        page.footer(
            "Made by spillway simulate: the shipped loop on virtual time, with the arrivals and "
            "the times of batches from the books. Simulated numbers are means over seeds. Latency "
            "is the mean over kept rows, worst that of a batch, late the share of batches that "
            "broke the objective."
        ),
    )


def _lead(question: Question) -> str:
    cost = question.conditions.cost
    gate = f", {1e6 * cost.gate_s:.3g} µs for each that comes" if cost.gate_s else ""
    return (
        f"{numbers.count(question.conditions.arrivals.rows_total)} rows in "
        f"{numbers.elapsed(question.conditions.arrivals.duration_s)}. A batch takes "
        f"{numbers.seconds(cost.fixed_s)} and {1e6 * cost.row_s:.3g} µs for each row kept{gate}."
    )


def _latency(outcomes: Sequence[Outcome]) -> Chart:
    series = [
        Line(
            name=outcome.name,
            points=[(point.end_s, point.latency_s) for point in outcome.points],
            colour=place,
            dashed=outcome.name != "recorded",
        )
        for place, outcome in enumerate(outcomes)
    ]
    limits = {(o.objective.limit_s, str(o.objective)) for o in outcomes if o.objective}
    limit = next(((text, at) for at, text in limits), None) if len(limits) == 1 else None
    title = "Mean latency of each batch"
    return Chart(title=title, lines=series, limit=limit, label=numbers.axis_seconds)


def _kept(outcomes: Sequence[Outcome]) -> Chart:
    series = [
        Line(
            name=outcome.name,
            points=[
                (point.end_s, point.rows_kept / point.rows_in if point.rows_in else None)
                for point in outcome.points
            ],
            colour=place,
            dashed=outcome.name != "recorded",
        )
        for place, outcome in enumerate(outcomes)
    ]
    return Chart(title="Share of rows kept", lines=series, top_min=1.0, label=numbers.percent)


def _content(outcome: Outcome) -> dict[str, Any]:
    told = {name: value for name, value in asdict(outcome).items() if name != "points"}
    return {
        **told,
        "objective": str(outcome.objective) if outcome.objective else None,
        "share_shed": outcome.share_shed,
        "held": outcome.held,
    }
