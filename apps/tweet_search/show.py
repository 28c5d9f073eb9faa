"""What people look at: the live ranking, what is on and off, and how the batches go."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from rich.console import Group, RenderableType
from rich.layout import Layout
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from apps.tweet_search.board import Found, Line, Report
from apps.tweet_search.run import Settings
from spillway.workload.search_work import METRICS, NUMBERS, words_of

_BARS = "▁▂▃▄▅▆▇█"
_SIDE_WIDTH, _HEAD_HEIGHT = 36, 4
_HELD = 1.05  # the mean latency may be so much above its limit, as measurements go


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Draws reports for one search: `top` tweets at most."""

    settings: Settings
    top: int = 10

    def screen(self, report: Report) -> Layout:
        """Return the whole picture of one second."""
        layout = Layout()
        layout.split_column(
            Layout(self.head(report), size=_HEAD_HEIGHT, name="head"),
            Layout(name="body"),
        )
        layout["body"].split_row(
            Layout(self.table(report), name="ranking"),
            Layout(self.side(report), size=_SIDE_WIDTH, name="side"),
        )
        return layout

    def head(self, report: Report) -> Panel:
        """Say what is searched for, and how the latest batch went."""
        title = (
            f"“{self.settings.query}”   {len(report.ranking):,} found after {report.second:.0f} s"
        )
        words = status(report, self.settings) if report.lines else "waiting for the first batch"
        return Panel(Text(words), title=Text(title), title_align="left")

    def table(self, report: Report) -> Table:
        """Return the first tweets, with the metrics that they are ranked by."""
        table = Table(expand=True, box=None, pad_edge=False, header_style="bold")
        for name in ("rank", "score", "followers", "retweets"):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("tweet", ratio=1, no_wrap=True, overflow="ellipsis")
        for place in range(min(self.top, len(report.ranking))):
            table.add_row(*self._row(report, place))
        return table

    def side(self, report: Report) -> RenderableType:
        """Return the optional subtasks with the share of tweets that they ran for, and curves."""
        latest = next((found for found in reversed(report.found) if found.rows), None)
        table = Table(box=None, pad_edge=False, show_header=False)
        for name, share in (latest.on if latest else {}).items():
            table.add_row(
                f"{NUMBERS[name]:>2}", lamp(share), name.replace("_", " "), percent(share)
            )
        return Panel(Group(table, Text(), *curves(report)), title="optional subtasks")

    def _row(self, report: Report, place: int) -> list[RenderableType]:
        ranking = report.ranking
        author, text = ranking.shown[place]
        metrics = dict(zip(METRICS, ranking.metrics[place].tolist(), strict=True))
        counts = [count(metrics[name]) for name in ("followers", "retweets")]
        tweet = marked(f"@{author} {text}", words_of(self.settings.query))
        return [f"{ranking.ranks[place]:g}", f"{ranking.scores[place]:.3f}", *counts, tweet]


def count(value: float) -> str:
    """Return a count; a dash if it was not measured.

    >>> count(12_345.0), count(float("nan"))
    ('12,345', '-')
    """
    return f"{value:,.0f}" if value == value else "-"


def lamp(share: float) -> Text:
    """Return a sign for a subtask that is on, off or both, which is told apart without colour.

    >>> [str(lamp(share)) for share in (1.0, 0.4, 0.0)]
    ['●', '◐', '○']
    """
    if share >= 1.0:
        return Text("●", style="green")
    return Text("◐", style="yellow") if share > 0 else Text("○", style="red")


def percent(share: float) -> str:
    """Return a share for a narrow column.

    >>> percent(1.0), percent(0.0), percent(0.004)
    ('on', 'off', '<1 %')
    """
    if share in (0.0, 1.0):
        return "on" if share else "off"
    return "<1 %" if share < 0.01 else f"{min(share, 0.99):.0%}".replace("%", " %")


def marked(text: str, words: Sequence[str]) -> Text:
    """Return a text on one line, without control characters, with the searched words marked."""
    clean = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    marked = Text(clean)
    any_word = "|".join(map(re.escape, words))
    marked.highlight_regex(rf"(?i)\b(?:{any_word})\b", style="bold cyan")
    return marked


def curve(values: Sequence[float], top: float) -> str:
    """Return the latest numbers as bars; `top` and above is a full one.

    >>> curve([0.0, 1.0, 2.0, 9.0], top=2.0)
    '▁▅██'
    """
    last = len(_BARS) - 1
    heights = (min(max(value / top, 0.0), 1.0) if top > 0 else 0.0 for value in values)
    return "".join(_BARS[int(height * last + 0.5)] for height in heights)


def curves(report: Report) -> list[Text]:
    """Return rate, latency and accuracy over the latest batches."""
    width = _SIDE_WIDTH - 4
    lines, found = report.lines[-width:], report.found[-width:]
    rates = [line.rows_in / line.duration_s for line in lines if line.duration_s > 0]
    waits = [line.latency_s or 0.0 for line in lines]
    accuracies = [each.accuracy for each in found if each.accuracy is not None]
    made = [
        Text(f"tweets/s, up to {max(rates, default=0):,.0f}", style="dim"),
        Text(curve(rates, max(rates, default=0.0))),
        Text(f"latency, up to {max(waits, default=0):.1f} s", style="dim"),
        Text(curve(waits, max(waits, default=0.0))),
    ]
    if accuracies:
        made += [Text("accuracy, 0 to 100 %", style="dim"), Text(curve(accuracies, 1.0))]
    return made


def status(report: Report, settings: Settings) -> str:
    """Say in two lines how the latest batch went and what was given up so far."""
    line = report.lines[-1]
    waited = "-" if line.latency_s is None else f"{line.latency_s:.2f} s"
    gone = sum(each.rows_in - each.rows_kept for each in report.lines)
    came = sum(each.rows_in for each in report.lines)
    return (
        f"batch {line.batch_id}: {line.rows_in:,} tweets in {line.duration_s:.2f} s, "
        f"latency {waited} ({settings.latency})\n"
        f"{_accuracy_words(report.found)}   {gone:,} of {came:,} tweets given up ({settings.shed})"
    )


def line(report: Report, settings: Settings) -> str:
    """Say one second in one line, for where there is no terminal."""
    first = next(iter(report.ranking.shown), None)
    best = "nothing yet" if first is None else f"first @{first[0]}"
    words = status(report, settings).replace("\n", "   ") if report.lines else "no batch yet"
    return f"{report.second:4.0f} s   {len(report.ranking):,} found, {best}   {words}"


def summary(report: Report, settings: Settings, accuracy: float) -> tuple[str, bool]:
    """Say what came, was searched and found, and whether the objective held in the later half.

    `accuracy` is that of the last ranking, measured.

    The first batches start Spark's workers; what they show is not the guard's doing.
    """
    came = sum(each.rows_in for each in report.lines)
    kept = sum(each.rows_kept for each in report.lines)
    latency_s = _mean_latency_s(report.lines[len(report.lines) // 2 :])
    held = latency_s <= settings.latency.limit_s * _HELD
    words = (
        f"{came:,} tweets came, {kept:,} were searched, {came - kept:,} given up; "
        f"{sum(each.rows for each in report.found):,} found. {_accuracy_words(report.found)} "
        f"Compared with all work on all tweets the ranking was right to {accuracy:.1%}. "
        f"Over the later half of the batches the mean latency was {latency_s:.2f} s; "
        f"the objective ({settings.latency}) {'held' if held else 'did not hold'}."
    )
    return words, held


def top_lines(report: Report, settings: Settings, top: int) -> list[Text]:
    """Return the first tweets at the end, a line each."""
    ranking, words = report.ranking, words_of(settings.query)
    made = []
    for place, (author, text) in enumerate(islice(ranking.shown, top)):
        at = Text(f"{ranking.ranks[place]:>6g}  {ranking.scores[place]:.3f}  ")
        made.append(at.append_text(marked(f"@{author} {text}", words)))
    return made


def _accuracy_words(found: Sequence[Found]) -> str:
    told = [(each.rows, each.accuracy) for each in found if each.accuracy is not None and each.rows]
    if not told:
        return "All subtasks ran for every tweet that was kept."
    latest = told[-1][1]
    mean = sum(rows * accuracy for rows, accuracy in told) / sum(rows for rows, _ in told)
    return f"Expected accuracy {latest:.1%}, on average {mean:.1%}."


def _mean_latency_s(lines: Sequence[Line]) -> float:
    told = [(each.rows_kept, each.latency_s) for each in lines if each.latency_s is not None]
    kept = sum(rows for rows, _ in told)
    return sum(rows * latency_s for rows, latency_s in told) / kept if kept else float("nan")
