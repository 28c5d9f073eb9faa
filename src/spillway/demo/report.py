"""The demo's report: one HTML page that needs nothing but itself."""

from __future__ import annotations

from html import escape

from spillway.demo.outcome import Answer, Summary, Verdict
from spillway.demo.scenario import Scenario

Table = list[list[str]]

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #111827; background: #fff;
       max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.7rem; margin-bottom: .2rem } h2 { font-size: 1.15rem; margin-top: 2rem }
p.verdict { font-size: 1.1rem; font-weight: 600; padding: .6rem .9rem; border-radius: .4rem }
p.held { background: #ccfbf1; color: #134e4a } p.missed { background: #ffedd5; color: #7c2d12 }
.scroll { overflow-x: auto }
table { border-collapse: collapse; width: 100% }
th, td { text-align: right; padding: .35rem .6rem; border-bottom: 1px solid #e5e7eb }
th:first-child, td:first-child { text-align: left } th { color: #4b5563; font-weight: 600 }
svg { width: 100%; height: auto } footer { color: #6b7280; font-size: .85rem; margin: 2rem 0 }
"""


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
    held = "held" if verdict.held else "missed"
    sections = "".join(f"<h2>{escape(title)}</h2>{_html(table)}" for title, table in tables.items())
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Spillway demo</title><style>{_STYLE}</style></head><body>
<h1>A burst, with and without a guard</h1>
<p>{escape(story(scenario))}</p>
<p class="verdict {held}">{escape(sentence(verdict, scenario))}</p>
{picture}
{sections}
<footer>Made by <code>spillway demo</code>. Latency runs from a row's arrival to the end of the
batch that processed it.</footer></body></html>
"""


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


def _html(table: Table) -> str:
    head, *rows = table
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f'<div class="scroll"><table><tr>{top}</tr>{body}</table></div>'
