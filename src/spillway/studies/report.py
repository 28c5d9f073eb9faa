"""A study's report: one page that needs nothing but itself, and the claims as JSON and Markdown."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path

from spillway.report.page import document, footer
from spillway.studies import draw
from spillway.studies.run import Order
from spillway.studies.study import VERDICTS, Claim, Figure, Results, Verdict

_HEAD = ("statement", "paper", "ours", "verdict", "why")
_CLASS = {"holds": "held", "holds better": "better", "does not hold": "missed"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What an order found: its pictures and claims, figure by figure."""

    order: Order
    figures: tuple[Figure, ...]
    claims: tuple[Claim, ...]

    @property
    def missed(self) -> list[Claim]:
        """The claims that do not hold here."""
        return [claim for claim in self.claims if not claim.held]

    @property
    def counts(self) -> dict[Verdict, int]:
        """How many claims there are of each verdict."""
        return {verdict: _count(self.claims, verdict) for verdict in VERDICTS}

    def of(self, figure: str) -> list[Claim]:
        """The claims about one figure."""
        return [claim for claim in self.claims if claim.figure == figure]


def findings(order: Order, results: Mapping[str, Results]) -> Findings:
    """Let every figure draw itself and judge its claims; a claim must speak of its own figure."""
    figures, claims = [], []
    for job in order.jobs:
        figures.append(job.draw(results[job.id]))
        claims += job.claims(results[job.id])
    known = [figure.id for figure in figures]
    for claim in claims:
        if claim.figure not in known:
            raise ValueError(f"a claim must speak of one of {known}, got {claim.figure!r}")
    return Findings(order=order, figures=tuple(figures), claims=tuple(claims))


def write(found: Findings, folder: Path) -> Path:
    """Write page, pictures and claims into a folder; return the page."""
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    for figure in found.figures:
        draw.save(figure, folder / "figures")
    _write(folder / "claims.json", as_json(found))
    _write(folder / "claims.md", as_markdown(found))
    return _write(folder / "report.html", page(found))


def as_json(found: Findings) -> str:
    """The claims for machines."""
    study = found.order.study
    content = {
        "study": study.name,
        "title": study.title,
        "version": study.version,
        "seed": found.order.seed,
        "quick": found.order.quick,
        "figures": [figure.id for figure in found.figures],
        "counts": found.counts,
        "claims": [asdict(claim) for claim in found.claims],
    }
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def as_markdown(found: Findings) -> str:
    """The claims as a table for documents."""
    rows = [("figure", *_HEAD), ("---",) * 6]
    rows += [(claim.figure, *_cells(claim)) for claim in found.claims]
    lines = ["| " + " | ".join(map(_markdown_cell, row)) + " |" for row in rows]
    return f"{sentence(found)}\n\n" + "\n".join(lines) + "\n"


def sentence(found: Findings) -> str:
    """Say how the claims fared, in one line."""
    counts = found.counts
    return (
        f"{len(found.claims)} claims: {counts['holds']} hold, {counts['holds better']} hold "
        f"better than in the paper, {counts['does not hold']} do not hold."
    )


def page(found: Findings) -> str:
    """Return the whole page."""
    study = found.order.study
    sections = "".join(_section(found, figure) for figure in found.figures)
    return document(
        study.title,
        f"<h1>{escape(study.title)}</h1>",
        f"<p>{escape(sentence(found))}</p>",
        _counts(found),
        _missed(found),
        _contents(found.figures),
        sections,
        footer(
            f"Made by `{command(found.order)}` (study version {study.version}). Lines are means, "
            "bands reach from the lowest to the highest value, or as the figure says."
        ),
    )


def command(order: Order) -> str:
    """The command that makes this report again."""
    parts = ["spillway study", order.words, *order.figures, f"--seed {order.seed}"]
    return " ".join(parts + (["--quick"] if order.quick else []))


def _counts(found: Findings) -> str:
    items = "".join(
        f'<li class="{_CLASS[verdict]}"><b>{count}</b>{escape(verdict)}</li>'
        for verdict, count in found.counts.items()
    )
    return f'<ul class="counts">{items}</ul>'


def _missed(found: Findings) -> str:
    """What does not hold comes first: nobody should have to look for it."""
    items = "".join(
        f'<li><a href="#{escape(claim.figure)}">{escape(claim.figure)}</a>: '
        f"{escape(claim.statement)}</li>"
        for claim in found.missed
    )
    return f'<p class="missed">Does not hold here:</p><ul>{items}</ul>' if items else ""


def _contents(figures: Sequence[Figure]) -> str:
    items = "".join(
        f'<li>{_id(figure)} <a href="#{escape(figure.id)}">{escape(figure.title)}</a></li>'
        for figure in figures
    )
    return f'<nav><ul class="contents">{items}</ul></nav>'


def _section(found: Findings, figure: Figure) -> str:
    return (
        f'<section><h2 id="{escape(figure.id)}">{_id(figure)} {escape(figure.title)}</h2>'
        f'<figure role="img" aria-label="{escape(figure.title)}">{draw.inline_svg(figure)}</figure>'
        f"{_table(found.of(figure.id))}</section>\n"
    )


def _id(figure: Figure) -> str:
    """The paper's own number of the figure, where it has one."""
    return f'<span class="id">{escape(figure.id)}</span>'


def _table(claims: list[Claim]) -> str:
    if not claims:
        return '<p class="fault">The paper claims nothing about this figure.</p>'
    top = "".join(f"<th>{name}</th>" for name in _HEAD)
    body = "".join(f"<tr>{_row(claim)}</tr>" for claim in claims)
    return f'<div class="scroll"><table><tr>{top}</tr>{body}</table></div>'


def _row(claim: Claim) -> str:
    statement, paper, ours, verdict, why = map(escape, _cells(claim))
    mark = f'<td class="verdict {_CLASS[claim.verdict]}">{verdict}</td>'
    return f"<td>{statement}</td><td>{paper}</td><td>{ours}</td>{mark}<td>{why}</td>"


def _cells(claim: Claim) -> tuple[str, str, str, str, str]:
    return claim.statement, claim.paper, claim.ours, claim.verdict, claim.why


def _markdown_cell(text: str) -> str:
    """A text on one line that closes no cell and is no HTML."""
    for mark in ("\\", "|", "*", "_", "`", "[", "]"):
        text = text.replace(mark, f"\\{mark}")
    return " ".join(escape(text, quote=False).split())


def _count(claims: Sequence[Claim], verdict: Verdict) -> int:
    return sum(claim.verdict == verdict for claim in claims)


def _write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path
