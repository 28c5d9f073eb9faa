"""The table of the harness: on the terminal and inside docs/faults.md."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from faults.books import Findings
from faults.control_loop import Tally

PAGE = Path(__file__).parents[1] / "docs" / "faults.md"
_MARK = re.compile(r"(<!-- harness -->\n).*?(<!-- /harness -->)", re.DOTALL)


@dataclass
class Outcome:
    """Everything that was done and found in one command."""

    seed: int
    found: Findings = field(default_factory=Findings)
    injected: Counter[str] = field(default_factory=Counter)
    simulated: Tally = field(default_factory=Tally)
    campaigns: list[str] = field(default_factory=list)

    def count(self, *kinds: str) -> int:
        """Return how often faults of these kinds were injected."""
        return sum(n for name, n in self.injected.items() if name.split(":")[0] in kinds)

    def lines(self) -> list[tuple[str, str, str]]:
        """Return what, how often, and how often it had to be."""
        found, simulated = self.found, self.simulated
        rows = f"{found.rows:,} = {found.rows_kept:,} + {found.rows_shed:,}"
        faults = ("task failed", "sink fault", "state fault", "listener fault")
        killed = ("worker killed", "executor killed", "Spark worker killed")
        return [
            ("driver kills", f"{self.count('driver killed'):,}", "≥ 50"),
            ("executor and Python worker kills", f"{self.count(*killed):,}", "≥ 100"),
            ("task, sink, state and listener faults", f"{self.count(*faults):,}", "≥ 500"),
            ("batches, of which run again", f"{found.batches:,}, {found.replayed:,}", ""),
            ("rows in = kept + shed", rows, ""),
            ("rows unaccounted for", f"{found.rows_unaccounted:,}", "0"),
            ("decisions flipped", f"{found.decisions_flipped:,}", "0"),
            ("wrong plans used", f"{found.wrong_plans:,}", "0"),
            ("wrong lines in the ledger", f"{found.books_wrong:,}", "0"),
            ("lines lost with the driver, all named by `gaps()`", f"{found.gaps:,}", ""),
            ("lines lost and not named", f"{found.unnamed_gaps:,}", "0"),
            ("batches open in one attempt, for want of a pin", f"{found.opened:,}", ""),
            ("simulated runs of the control path", f"{simulated.runs:,}", "≥ 100,000"),
            ("faults in them", f"{simulated.faults:,}", ""),
            ("batches, rows in them", f"{simulated.batches:,}, {simulated.rows:,}", ""),
            ("promises broken in them", "0", "0"),
        ]

    def kinds(self) -> list[tuple[str, str]]:
        """Return every kind of fault and how often it was injected."""
        return [(name, f"{n:,}") for name, n in sorted(self.injected.items())]

    @property
    def reached(self) -> bool:
        """Whether the least numbers were reached and nothing was wrong."""
        least = [(line[1], line[2]) for line in self.lines() if line[2].startswith("≥")]
        enough = all(_value(got) >= _value(least_) for got, least_ in least)
        return enough and self.found.clean


def markdown(outcome: Outcome) -> str:
    """Return the tables as the docs quote them."""
    lines = [("What", "Count", "Must be"), ("---",) * 3, *outcome.lines()]
    kinds = [("Fault injected: where", "Count"), ("---",) * 2, *outcome.kinds()]
    simulated = [("Fault in simulated runs", "Count"), ("---",) * 2, *_simulated(outcome)]
    tables = [
        "\n".join(f"| {' | '.join(line)} |" for line in each) for each in (lines, kinds, simulated)
    ]
    return "\n\n".join([*tables, f"Seeds: {'; '.join(outcome.campaigns)}."])


def quote(outcome: Outcome, page: Path = PAGE) -> None:
    """Replace the tables in the page."""
    text = page.read_text(encoding="utf-8")
    if not _MARK.search(text):
        raise ValueError(f"{page} must have the marks <!-- harness --> and <!-- /harness -->")
    page.write_text(
        _MARK.sub(lambda m: f"{m[1]}{markdown(outcome)}\n{m[2]}", text), encoding="utf-8"
    )


def _simulated(outcome: Outcome) -> list[tuple[str, str]]:
    return [(name, f"{n:,}") for name, n in sorted(outcome.simulated.hits.items())]


def _value(text: str) -> int:
    return int(re.sub(r"\D", "", text))
