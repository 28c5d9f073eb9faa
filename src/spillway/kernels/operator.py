"""The operator's side of LAS and POSG: it fills its sketch and says when it is worth sending.

`machine` is an int64 array: the phase, the rows executed, the sketches published.
"""

from __future__ import annotations

from numba import njit

from spillway.kernels.sketch import relative_error, snapshot, update_row

START, STABILIZING = 0, 1
PHASE, EXECUTED, PUBLISHED = 0, 1, 2
MACHINE_SIZE = 3


@njit(cache=True)
def executed(
    machine,
    frequency,
    work_ns,
    means_ns,
    multipliers,
    key,
    cost_ns,
    window,
    tolerance,
    sent_frequency,
    sent_work_ns,
):
    """Take one executed row; return whether the sketch was published into `sent_*` and reset.

    Every `window` rows: in START take a snapshot and go to STABILIZING; in STABILIZING publish if
    the cells' means have moved by at most `tolerance` since the snapshot, else take a new one
    (LAS listing III.1, POSG section III-B). The row itself is counted last, after a reset.
    """
    published = False
    machine[EXECUTED] += 1
    if machine[EXECUTED] % window == 0:
        if machine[PHASE] == START:
            snapshot(frequency, work_ns, means_ns)
            machine[PHASE] = STABILIZING
        elif relative_error(means_ns, frequency, work_ns) <= tolerance:
            _publish(machine, frequency, work_ns, sent_frequency, sent_work_ns)
            published = True
        else:
            snapshot(frequency, work_ns, means_ns)
    update_row(frequency, work_ns, multipliers, key, cost_ns)
    return published


@njit(cache=True)
def _publish(machine, frequency, work_ns, sent_frequency, sent_work_ns):
    sent_frequency[:] = frequency
    sent_work_ns[:] = work_ns
    frequency[:] = 0
    work_ns[:] = 0
    machine[PHASE] = START
    machine[PUBLISHED] += 1


@njit(cache=True)
def executed_rows(
    machine,
    frequency,
    work_ns,
    means_ns,
    multipliers,
    keys,
    costs_ns,
    begin,
    window,
    tolerance,
    sent_frequency,
    sent_work_ns,
):
    """Take rows from `begin` on up to one that publishes; return the row after it, -1 if none did.

    Call again from there until it returns -1.
    """
    for t in range(begin, keys.size):
        if executed(
            machine,
            frequency,
            work_ns,
            means_ns,
            multipliers,
            keys[t],
            costs_ns[t],
            window,
            tolerance,
            sent_frequency,
            sent_work_ns,
        ):
            return t + 1
    return -1
