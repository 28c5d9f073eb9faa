"""How much later than the first each instance of an operator begins with a batch.

Spark starts the tasks of a stage one after the other. Who begins late is done late, with equal
work: a placement that knows it gives the late ones less. Starts that lie far apart are no such
delays: instances that wait for a slot would be given ever less, and clocks may differ.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spillway.values import TaskReport

_NEWEST = 0.25  # weight of the newest batch
_SHARE_MAX = 0.25  # of what an instance takes: later ones have waited for something else
_WORTH_NS = 5_000_000  # differences that are not worth a thought


def remember(before: Sequence[float], tasks: Sequence[TaskReport]) -> tuple[float, ...]:
    """Return the delays in ns by instance after one more batch, that of the earliest being 0.

    >>> first, second = (TaskReport(instance=i, rows_in=9, begun_at_ns=5 + i) for i in (0, 1))
    >>> remember((), [first, second])  # no time was taken: nothing to compare a delay with
    ()
    """
    begun_ns = _begun_ns(tasks)
    if begun_ns is None:
        return tuple(before)
    late_ns = begun_ns - begun_ns.min()
    if late_ns.max() > _SHARE_MAX * np.mean([task.busy_ns for task in tasks]):
        return tuple(before)
    if len(before) != late_ns.size:
        return tuple(late_ns.tolist())
    mixed = (1.0 - _NEWEST) * np.array(before) + _NEWEST * late_ns
    return tuple((mixed - mixed.min()).round().tolist())


def delays_ns(remembered: Sequence[float]) -> tuple[float, ...]:
    """Return what is worth to be reckoned with; none if all begin at about the same time."""
    return tuple(remembered) if remembered and max(remembered) >= _WORTH_NS else ()


def _begun_ns(tasks: Sequence[TaskReport]) -> np.ndarray[tuple[int], np.dtype[np.float64]] | None:
    """Return when every instance began, in their order; None unless each had one task with rows."""
    worked = sorted((task.instance, task.begun_at_ns) for task in tasks if task.begun_at_ns > 0)
    if len(worked) < 2 or [instance for instance, _ in worked] != list(range(len(worked))):
        return None
    return np.array([begun for _, begun in worked], dtype=np.float64)
