"""The operator: what is known of a tweet's entities is looked up and added to it.

Looking up an account of the press takes longest (a database of what it wrote before), a politician
less, anyone else next to nothing. The lookups are stood in for by work or waiting of that length.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal

from apps.tweet_enrichment.tweets import work_ms

SCHEMA = (
    "id bigint, author string, media int, politicians int, others int, "
    "entity string, seen int, share double"
)
Row = dict[str, Any]


@dataclass(kw_only=True)
class Enrich:
    """Adds which of its entities the task has met most often, how often, and its share of all.

    It begins anew with every task: what it counts are the mentions so far within the task.

    >>> enrich, row = Enrich(), {"id": 1, "author": "a", "media": 0, "politicians": 0, "others": 1}
    >>> [enrich({**row, "mentions": [name]})["seen"] for name in ("bob", "eve", "bob")]
    [1, 1, 2]
    """

    work: Literal["busy", "waiting"] = "busy"
    met: Counter[str] = field(default_factory=Counter)

    def __call__(self, row: Row) -> Row:
        """Enrich one tweet."""
        self._look_up(work_ms((row["media"], row["politicians"], row["others"])))
        self.met.update(row["mentions"])
        entity = max(row["mentions"], key=lambda name: self.met[name], default=None)
        seen = self.met[entity] if entity is not None else 0
        kept = {name: row[name] for name in ("id", "author", "media", "politicians", "others")}
        return {**kept, "entity": entity, "seen": seen, "share": seen / max(self.met.total(), 1)}

    def _look_up(self, work_ms: int) -> None:
        if self.work == "waiting":
            time.sleep(work_ms / 1e3)
            return
        until_ns = time.perf_counter_ns() + work_ms * 1_000_000
        while time.perf_counter_ns() < until_ns:
            pass
