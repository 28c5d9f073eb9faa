"""The metrics of one batch: those of its gate and of its operators as one dictionary.

They stand in `query.lastProgress.observedMetrics` and in Spark's UI, so their names say what they
are: `rows_in`, `rows_kept`, and with strata `rows_in_above`, `rows_kept_above`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Metrics = dict[str, Any]

ASIDE = "aside"  # shed rows that were written aside
TASKS = "tasks"  # the reports of an operator's tasks; every operator in Python has some
WINDOW_ROWS, WINDOW_USED = "window_rows", "window_rows_used"  # of windows that need no Python


def count_names(what: str, strata: Sequence[str]) -> list[str]:
    """Name the counts of all strata; those that would be the same have their number in them.

    >>> count_names("rows_in", ["all"]), count_names("rows_in", ["rare", "very rare", "very_rare"])
    (['rows_in'], ['rows_in_rare', 'rows_in_very_rare_1', 'rows_in_very_rare_2'])
    """
    if len(strata) == 1:
        return [what]
    plain = [re.sub(r"\W", "_", name) for name in strata]
    several = {name for name in plain if plain.count(name) > 1}
    ends = [f"{name}_{i}" if name in several else name for i, name in enumerate(plain)]
    return [f"{what}_{end}" for end in ends]


def merged(found: Iterable[Mapping[str, Any]]) -> Metrics:
    """Join metrics; reports of operators stand one after the other, rows of windows add up.

    >>> merged([{"rows_in": 5}, {"tasks": ["a"]}, {"tasks": ["b"]}])
    {'rows_in': 5, 'tasks': ['a', 'b']}
    >>> merged([{"window_rows": 5}, {"window_rows": None}, {"window_rows": 2}])
    {'window_rows': 7}
    """
    metrics: Metrics = {}
    for each in found:
        tasks = [*metrics.get(TASKS, ()), *(each.get(TASKS) or ())]
        rows = {
            name: (metrics.get(name) or 0) + (each[name] or 0)
            for name in (WINDOW_ROWS, WINDOW_USED)
            if name in each
        }
        metrics |= {**each, **rows}
        if tasks:
            metrics[TASKS] = tasks
    return metrics
