"""The look that all pages share: light and dark, on paper and on a phone, nothing from outside."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape as escape

Table = list[list[str]]

STYLE = """
:root { color-scheme: light dark; --ink: #1f2937; --paper: #ffffff; --faint: #d1d5db;
        --soft: #4b5563; --held: #0f766e; --better: #1d4ed8; --missed: #b91c1c; --card: #f3f4f6;
        --held-card: #ccfbf1; --missed-card: #fee2e2; --warn: #92400e; --warn-card: #fef3c7;
        --series-0: #0072b2; --series-1: #d55e00; --series-2: #009e73; --series-3: #c065a0;
        --series-4: #b07d00; --series-5: #4a90c2 }
@media (prefers-color-scheme: dark) {
:root { --ink: #e5e7eb; --paper: #111827; --faint: #374151; --soft: #9ca3af; --held: #5eead4;
        --better: #93c5fd; --missed: #fca5a5; --card: #1f2937; --held-card: #134e4a;
        --missed-card: #7f1d1d; --warn: #fcd34d; --warn-card: #422006; --series-0: #56b4e9;
        --series-1: #f08a3c; --series-2: #2cc79b; --series-3: #e39bc8; --series-4: #e6b530;
        --series-5: #a5c8e8 } }
* { box-sizing: border-box }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
       max-width: 60rem; margin: 2rem auto; padding: 0 1rem; overflow-wrap: break-word }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .2rem }
h2 { font-size: 1.15rem; margin-top: 3rem; border-top: 1px solid var(--faint); padding-top: 1rem }
p.lead { color: var(--soft); margin-top: 0 }
.verdict-line { font-size: 1.1rem; font-weight: 600; padding: .6rem .9rem; border-radius: .4rem }
.verdict-line.held { background: var(--held-card) }
.verdict-line.missed { background: var(--missed-card) }
.verdict-line.warn { background: var(--warn-card) }
.counts { display: grid; gap: .8rem; padding: 0; list-style: none;
          grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)) }
.counts li { background: var(--card); border-radius: .5rem; padding: .5rem 1rem }
.counts b { display: block; font-size: 1.5rem; line-height: 1.3 }
.counts small { color: var(--soft) }
.held { color: var(--held) } .better { color: var(--better) } .missed { color: var(--missed) }
.warn { color: var(--warn) }
.scroll { overflow-x: auto; -webkit-overflow-scrolling: touch }
table { border-collapse: collapse; width: 100%; font-size: .93rem }
th, td { text-align: left; vertical-align: top; padding: .4rem .6rem;
         border-bottom: 1px solid var(--faint) }
table.numbers th, table.numbers td { text-align: right; font-variant-numeric: tabular-nums;
         white-space: nowrap }
table.numbers .text { text-align: left; white-space: normal; min-width: 11rem }
th { color: var(--soft); font-weight: 600 } td.verdict { font-weight: 600; white-space: nowrap }
.id { color: var(--soft); font-weight: 400; padding-right: .3em }
.contents { list-style: none; padding: 0 }
a { color: inherit } .fault { color: var(--soft); font-size: .9rem }
ul.notes { background: var(--warn-card); border-radius: .4rem; padding: .6rem .9rem .6rem 2rem }
figure { margin: 1.6rem 0 } figcaption { font-weight: 600; font-size: .95rem }
figcaption .key { font-weight: 400; color: var(--soft); margin-left: .9rem; white-space: nowrap }
figcaption i { display: inline-block; width: .8em; height: .8em; border-radius: .15em;
               margin-right: .35em }
svg { width: 100%; height: auto; display: block } svg.narrow { display: none }
@media (max-width: 40rem) { body { margin: 1rem auto } svg.narrow { display: block }
  svg.wide { display: none } h1 { font-size: 1.4rem } }
details summary { cursor: pointer; font-weight: 600 }
footer { color: var(--soft); font-size: .85rem; margin: 3rem 0 2rem }
@media print { h2 { break-after: avoid } figure, tr { break-inside: avoid } }
"""


def document(title: str, *parts: str) -> str:
    """Return a whole page; `parts` are HTML already, the title is text."""
    body = "\n".join(part for part in parts if part)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title><style>{STYLE}</style></head><body>
{body}
</body></html>
"""


def table(lines: Table, *, text: Sequence[int] = (0,)) -> str:
    """Return a table of numbers under its headings; the columns in `text` hold words.

    >>> table([["key", "rows"], ["<a>", "1"]])[-72:]
    '<tr><td class="text">&lt;a&gt;</td><td>1</td></tr></tbody></table></div>'
    """
    head, *rows = lines
    body = "".join(_line(row, "td", text) for row in rows)
    return (
        f'<div class="scroll"><table class="numbers"><thead>{_line(head, "th", text)}</thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def section(title: str, *parts: str) -> str:
    """Return a part of a page under a heading; nothing if there is nothing in it."""
    body = "".join(parts)
    return f"<section><h2>{escape(title)}</h2>{body}</section>" if body else ""


def verdict(text: str, how: str) -> str:
    """Return the sentence that says it all; `how` is held, missed or warn."""
    return f'<p class="verdict-line {how}">{escape(text)}</p>'


def tiles(figures: Iterable[tuple[str, str, str]]) -> str:
    """Return the few numbers that matter: value, name, and what to know about it."""
    items = "".join(
        f"<li><b>{escape(value)}</b>{escape(name)}<br><small>{escape(more)}</small></li>"
        for value, name, more in figures
    )
    return f'<ul class="counts">{items}</ul>'


def notes(texts: Iterable[str]) -> str:
    """Return what must be known before the numbers are believed."""
    items = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return f'<ul class="notes">{items}</ul>' if items else ""


def footer(text: str) -> str:
    """Return the end of a page."""
    return f"<footer>{escape(text)}</footer>"


def _line(cells: Sequence[str], tag: str, text: Sequence[int]) -> str:
    kinds = (f'{tag} class="text"' if place in text else tag for place in range(len(cells)))
    filled = (f"<{kind}>{escape(cell)}</{tag}>" for kind, cell in zip(kinds, cells, strict=True))
    return f"<tr>{''.join(filled)}</tr>"
