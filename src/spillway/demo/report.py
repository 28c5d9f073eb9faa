"""The demo's report: one HTML page that needs nothing but itself."""

from __future__ import annotations

from html import escape

from spillway.demo.outcome import Answer, Summary, Verdict
from spillway.demo.scenario import Scenario
from spillway.report.page import Table, document, footer, section, table
from spillway.report.page import verdict as told


def summary_table(summaries: dict[str, Summary]) -> Table:
    """Lay the runs side by side."""
    columns = [_summary_column(summary) for summary in summaries.values()]
    head = ["", *summaries]
    return [head, *([name, *(column[name] for column in columns)] for name in columns[0])]


def _summary_column(summary: Summary) -> dict[str, str]:
    return {
        "latency, mean": f"{summary.latency_s_mean:.2f} s",
        "latency, 99th percentile": f"{summary.latency_s_p99:.2f} s",
        "latency, worst row": f"{summary.latency_s_max:.2f} s",
        "worst batch from the burst's second on": f"{summary.worst_s:.2f} s",
        "largest backlog": f"{summary.backlog_rows_max:,} rows",
        "rows in": f"{summary.rows_in:,}",
        "rows kept": f"{summary.rows_kept:,}",
        "rows shed": f"{summary.rows_shed:,}",
        "objective held": "yes" if summary.held else "no",
    }


def estimate_table(verdict: Verdict) -> Table:
    """Lay each estimate beside the truth."""
    head = ["", "truth", "estimate", "95 % interval", "off by", "inside"]
    return [head, *(_estimate_row(answer) for answer in verdict.answers)]


def _estimate_row(answer: Answer) -> list[str]:
    estimate, truth = answer.estimate, answer.truth
    digits = 0 if truth >= 1e4 else 2
    return [
        answer.name,
        f"{truth:,.{digits}f}",
        f"{estimate.value:,.{digits}f}",
        f"{estimate.low:,.{digits}f} to {estimate.high:,.{digits}f}",
        f"{100 * (estimate.value - truth) / truth:+.2f} %",
        "yes" if answer.inside else "no",
    ]


def page(
    scenario: Scenario,
    verdict: Verdict,
    tables: dict[str, Table],
    picture: str,
) -> str:
    """Return the whole page."""
    sections = (section(title, table(lines)) for title, lines in tables.items())
    return document(
        "Spillway demo",
        "<h1>A burst, with and without a guard</h1>",
        f'<p class="lead">{escape(story(scenario))}</p>',
        told(sentence(verdict, scenario), "held" if verdict.held else "missed"),
        f'<figure role="img" aria-label="both runs over time">{picture}</figure>',
        *sections,
        footer(
            "Made by spillway demo. Latency runs from a row's arrival to the end of the batch that "
            "processed it."
        ),
    )


def story(scenario: Scenario) -> str:
    """Say what is played."""
    return (
        f"{scenario.calm_rate:,} rows arrive per second; for {scenario.burst_s:g} seconds it is "
        f"{scenario.burst_rate:,}. The operator waits for a slow service and can do "
        f"{scenario.capacity_rate:,.0f} rows per second at best. "
        f"Objective: {scenario.objective}."
    )


def sentence(verdict: Verdict, scenario: Scenario) -> str:
    """Say how the guarded run did."""
    broken = [
        text
        for kept, text in (
            (verdict.held, "it broke the objective"),
            (verdict.quiet_before, "it shed rows before the burst"),
            (verdict.quiet_after, "it shed rows after the burst"),
            (verdict.inside, "a truth lies outside its interval"),
        )
        if not kept
    ]
    if broken:
        return f"The guarded query did not keep its promises: {', '.join(broken)}."
    return (
        f"The guarded query held {scenario.objective}, shed nothing before and after the burst, "
        "and every truth lies inside its interval."
    )
