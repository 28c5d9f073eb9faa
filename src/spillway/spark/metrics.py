"""The metrics of one batch: those of its gate and of its operators as one dictionary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Metrics = dict[str, Any]

ASIDE = "aside"  # shed rows that were written aside
TASKS = "tasks"  # the reports of an operator's tasks; every operator of a guard has some


def merged(found: Iterable[Mapping[str, Any]]) -> Metrics:
    """Join metrics; the reports of all operators stand one after the other.

    >>> merged([{"in_0": 5}, {"tasks": ["a"]}, {"tasks": ["b"]}])
    {'in_0': 5, 'tasks': ['a', 'b']}
    """
    metrics: Metrics = {}
    for each in found:
        tasks = [*metrics.get(TASKS, ()), *(each.get(TASKS) or ())]
        metrics |= each
        if tasks:
            metrics[TASKS] = tasks
    return metrics
