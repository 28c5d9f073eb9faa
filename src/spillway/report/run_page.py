"""The report of any run, from its books: was the objective held, what was given up, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from spillway.objective import Latency
from spillway.report import chart, curves, numbers, page
from spillway.report.chart import Chart, Line
from spillway.report.curves import Stretch
from spillway.report.facts import Count, Facts, facts_of, shed_by, strata_of
from spillway.state.books import Books
from spillway.state.ledger import Entry

_FIXED = "by the fixed cost alone"  # the controller's own words
_BATCHES_MAX = 500
_REASONS_MAX = 30
_STRATA_MAX = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run to be reported: its books, the objective it is judged by, its numbers."""

    books: Books
    objective: Latency | None
    facts: Facts

    @classmethod
    def of(cls, books: Books, objective: Latency | None = None) -> Run:
        """Add the books of one query up; by default they are judged by their guard's objective."""
        bound = objective or books.objective
        return cls(books=books, objective=bound, facts=facts_of(books.entries, bound))

    @property
    def entries(self) -> Sequence[Entry]:
        """The batches."""
        return self.books.entries


def verdict_of(run: Run) -> tuple[str, str]:
    """Return whether the objective was held, in a sentence, and as held, missed or warn."""
    held = run.facts.held
    if run.objective is None or held is None:
        return "No objective is known for this run: only what happened is told.", "warn"
    if not held.judged:
        return f"{_unmeasured(run)}: nobody knows whether {run.objective} held.", "warn"
    judged, late = len(held.judged), len(held.late)
    bound = _said(run.objective)
    if not late:
        return f"Held: {bound} in all {judged:,} batches.", "held"
    share = 1 - late / judged
    text = (
        f"{bound} held in {judged - late:,} of {judged:,} batches; the {late:,} that broke it had "
        f"{numbers.percent(held.rows_late / _kept(run))} of the kept rows."
    )
    if held.while_starting == late:
        return f"{text} They were the first after a start.", "held"
    return f"{text}{_advice(run)}", "missed" if share < 0.95 else "warn"


def _unmeasured(run: Run) -> str:
    """Say which latency is not known: a 99th percentile is measured only where it is held."""
    if run.facts.latency_s_worst is None:
        return "No latency was measured"
    worst = f"the worst row took {numbers.seconds(run.facts.latency_s_worst)}"
    return f"This latency was not measured ({worst}, the objective was another one)"


def _said(objective: Latency) -> str:
    kind = {"average": "Average latency", "p99": "99th percentile of latency", "each": "Latency"}
    return f"{kind[objective.kind]} ≤ {objective.limit_s:g} s"


def _advice(run: Run) -> str:
    """Say what no shedding can mend."""
    fixed = sum(_FIXED in entry.reason for entry in run.entries)
    if 4 * fixed < len(run.entries):
        return ""
    return (
        " In many batches the fixed time of a batch alone was too long for it: no shedding can "
        "hold it there. Fewer partitions, a lighter sink or a longer objective can."
    )


def report(run: Run, command: str) -> str:
    """Return the whole page."""
    text, how = verdict_of(run)
    return page.document(
        f"{run.books.name}: Spillway report",
        f"<h1>{page.escape(run.books.name)}</h1>",
        f'<p class="lead">{page.escape(_lead(run))}</p>',
        page.verdict(text, how),
        page.notes(_notes(run)),
        page.tiles(_tiles(run.facts)),
        *map(chart.figure, charts(run)),
        page.section("What was shed, and why", *_shed(run)),
        page.section("What it does to the answers", _answers(run.facts)),
        page.section("Batches", _batches(run)),
        page.footer(
            f"Made by {command}. Latency runs from a row's arrival to the end of the batch that "
            "processed it. Times are UTC."
        ),
    )


def charts(run: Run) -> list[Chart]:
    """Return the pictures: latency, rates, share kept, duration of batches, backlog."""
    points = curves.stretches(run.entries)
    began_s = run.facts.began_at_s
    drawn = [
        _latency(run, points, began_s),
        _rates(points),
        _share(points),
        _durations(points, began_s),
        _backlog(points),
    ]
    end_s = run.facts.duration_s
    return [replace(each, until_s=end_s) for each in drawn if each is not None]


def _latency(run: Run, points: list[Stretch], began_s: float) -> Chart | None:
    measured = [(curves.ends_s(each, began_s), each) for each in points]
    lines = [
        Line(name="mean", points=[(at, each.latency_s_mean) for at, each in measured], colour=0),
        Line(
            name="worst row",
            points=[(at, each.worst(lambda e: e.seen.latency_s_max)) for at, each in measured],
            colour=4,
            dashed=True,
        ),
    ]
    p99 = [(at, each.worst(lambda e: e.seen.latency_s_p99)) for at, each in measured]
    if any(value is not None for _, value in p99):
        lines.insert(1, Line(name="99th percentile", points=p99, colour=3))
    if all(value is None for line in lines for _, value in line.points):
        return None
    limit = (_said(run.objective), run.objective.limit_s) if run.objective else None
    title = "Latency of kept rows, by the end of their batch"
    return Chart(title=title, lines=lines, limit=limit, label=numbers.axis_seconds)


def _rates(points: list[Stretch]) -> Chart:
    came = [(each.end_s, each.rows_in / each.span_s) for each in points[1:]]
    kept = [(each.end_s, each.rows_kept / each.span_s) for each in points[1:]]
    return Chart(
        title="Rows per second",
        lines=[
            Line(name="came", points=came, colour=1, filled=True),
            Line(name="kept", points=kept, colour=2, filled=True),
        ],
    )


def _share(points: list[Stretch]) -> Chart:
    shares = [(p.end_s, p.rows_kept / p.rows_in if p.rows_in else None) for p in points]
    lines = [Line(name="kept", points=shares, colour=2, filled=True)]
    return Chart(title="Share of rows kept", lines=lines, top_min=1.0, label=numbers.percent)


def _durations(points: list[Stretch], began_s: float) -> Chart:
    took = [
        (curves.ends_s(each, began_s), each.worst(lambda e: e.seen.duration_s)) for each in points
    ]
    lines = [Line(name="duration", points=took, colour=5)]
    return Chart(title="Duration of batches", lines=lines, label=numbers.axis_seconds)


def _backlog(points: list[Stretch]) -> Chart | None:
    waiting = [(each.end_s, each.worst(lambda e: e.seen.backlog_rows)) for each in points]
    if not any(value for _, value in waiting):
        return None
    lines = [Line(name="backlog", points=waiting, colour=3, filled=True)]
    return Chart(title="Rows that waited when a batch began", lines=lines)


def _lead(run: Run) -> str:
    facts, guard = run.facts, run.books.guard
    told = f"{numbers.moment(facts.began_at_s)}, {numbers.elapsed(facts.duration_s)}"
    starts = f", {facts.starts} starts" if facts.starts > 1 else ""
    how = f" Objective: {_said(run.objective).lower()}." if run.objective else ""
    policy = f" Sheds by {guard.shed}." if guard else ""
    before = f" Before rows it gives up work: {guard.degrade}." if guard and guard.degrade else ""
    return f"{told}{starts}, {facts.batches:,} batches.{how}{policy}{before}"


def _notes(run: Run) -> list[str]:
    faults = run.facts.faults
    told = f"the control path failed {faults} times and the gate opened or went back"
    return [*run.books.notes, *([told] if faults else [])]


def _tiles(facts: Facts) -> list[tuple[str, str, str]]:
    shed = facts.rows_shed / facts.rows_in if facts.rows_in else 0.0
    tiles = [
        (numbers.count(facts.rows_in), "rows came", _per_second(facts.rows_in, facts)),
        (numbers.count(facts.rows_kept), "kept", _per_second(facts.rows_kept, facts)),
        (numbers.count(facts.rows_shed), "shed", numbers.percent(shed)),
        (numbers.seconds(facts.latency_s_mean), "mean latency", "over all kept rows"),
        (numbers.seconds(facts.latency_s_worst), "worst latency", "of any kept row"),
    ]
    if facts.count:
        off = f"{100 * facts.count.off:+.2f} %"
        tiles.append((off, "error of the count", "estimated from kept rows alone"))
    return tiles


def _per_second(rows: int, facts: Facts) -> str:
    return f"{numbers.short(rows / max(facts.duration_s, 1e-3))} a second"


def _shed(run: Run) -> list[str]:
    lines = shed_by(run.entries)
    if not lines:
        return ["<p>Nothing: every row was kept.</p>"]
    shed = sum(rows for *_, rows in lines)
    reasons = [
        [reason, stratum, numbers.count(rows), numbers.percent(rows / shed)]
        for stratum, reason, rows in lines[:_REASONS_MAX]
    ]
    strata = [
        [
            name,
            numbers.count(came),
            numbers.count(kept),
            numbers.count(came - kept),
            _of(kept, came),
        ]
        for name, came, kept in strata_of(run.entries)[:_STRATA_MAX]
    ]
    tables = [page.table([["why", "stratum", "rows", "of all shed"], *reasons], text=(0, 1))]
    if len(strata) > 1:
        tables.append("<h3>By stratum</h3>")
        tables.append(page.table([["stratum", "came", "kept", "shed", "share kept"], *strata]))
    return [*tables, _aside(run.facts)]


def _aside(facts: Facts) -> str:
    told = []
    if facts.rows_aside:
        told.append(f"{numbers.count(facts.rows_aside)} shed rows were written to the overflow.")
    if facts.rows_refused:
        told.append(f"{numbers.count(facts.rows_refused)} were refused in the operator.")
    if facts.rows_unsampled:
        told.append(f"{numbers.count(facts.rows_unsampled)} were in windows, not in their samples.")
    return f"<p>{' '.join(told)}</p>" if told else ""


def _answers(facts: Facts) -> str:
    if facts.rows_shed == 0:
        return "<p>Nothing: no row is missing, and all weights are 1.</p>"
    if facts.count is None:
        return (
            "<p>Weights differ by group, or rows were given up behind the gate: see the intervals "
            "of your own estimates.</p>"
        )
    return f"<p>{page.escape(_sentence(facts.count))}</p>{page.table(_count_table(facts.count))}"


def _sentence(count: Count) -> str:
    where = "inside" if count.inside else "outside (as in one of twenty runs)"
    return (
        "Every kept row stands for 1 / keep rate rows. The number of rows that came is known "
        "exactly, so it shows how far such estimates are off: "
        f"the truth lies {where} the 95 % interval."
    )


def _count_table(count: Count) -> page.Table:
    interval = f"{numbers.count(count.estimate - count.margin)} to " + numbers.count(
        count.estimate + count.margin
    )
    off = f"{100 * count.off:+.2f} %"
    return [
        ["", "truth", "estimate", "95 % interval", "off by"],
        ["rows", numbers.count(count.truth), numbers.count(count.estimate), interval, off],
    ]


def _batches(run: Run) -> str:
    shown = list(run.entries)[-_BATCHES_MAX:]
    left = len(run.entries) - len(shown)
    more = (
        f"<p>The last {len(shown)} of {len(run.entries):,}; all: <code>spillway ledger</code>.</p>"
    )
    head = ["batch", "began", "came", "kept", "share", "took", "latency", "why"]
    lines = [_batch(entry) for entry in shown]
    return (
        f"<details{'' if len(shown) > 60 else ' open'}><summary>{len(shown)} batches</summary>"
        f"{more if left else ''}{page.table([head, *lines], text=(7,))}</details>"
    )


def _batch(entry: Entry) -> list[str]:
    seen = entry.seen
    return [
        str(seen.batch_id),
        numbers.moment(entry.started_at_s)[11:],
        numbers.count(seen.rows_in),
        numbers.count(seen.rows_kept),
        _of(seen.rows_kept, seen.rows_in),
        numbers.seconds(seen.duration_s),
        numbers.seconds(seen.latency_s_mean),
        entry.reason,
    ]


def _of(part: int, whole: int) -> str:
    return numbers.percent(part / whole) if whole else "–"


def _kept(run: Run) -> int:
    return max(run.facts.rows_kept, 1)
