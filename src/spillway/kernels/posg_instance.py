"""The instances' side of POSG: they learn what rows cost, publish it, and answer the scheduler."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from spillway.kernels import heavy, las, operator
from spillway.kernels.posg import PAPER, Models, model_of

# The memory of an instance that learns by the DEFAULT rules: an int64 array.
EXECUTED, NEXT_PUBLISHED = range(2)
_FIRST_PUBLISHED = 8  # rows after which it first says what it learnt; then twice as many


class Instances(NamedTuple):
    """What the instances remember: their machines, snapshots, work done so far and models."""

    machines: np.ndarray
    snapshots_ns: np.ndarray
    worked_ns: np.ndarray
    multipliers: np.ndarray
    models: Models


def new_instances(multipliers: np.ndarray, models: Models) -> Instances:
    """Return instances that have executed nothing yet."""
    k, rows, columns = models.frequency.shape
    machines = np.zeros((k, operator.MACHINE_SIZE), dtype=np.int64)
    snapshots, worked = np.zeros((k, rows, columns)), np.zeros(k, dtype=np.int64)
    return Instances(machines, snapshots, worked, multipliers, models)


@njit(cache=True)
def execute(instances, rules, instance, key, cost_ns, sent):
    """Take one executed row; return whether the instance's model was published into `sent`."""
    instances.worked_ns[instance] += cost_ns
    machine, models = instances.machines[instance], instances.models
    if rules.mode == PAPER:
        return operator.executed(
            machine,
            models.frequency[instance],
            models.work_ns[instance],
            instances.snapshots_ns[instance],
            instances.multipliers,
            key,
            cost_ns,
            rules.window,
            rules.tolerance,
            sent.frequency,
            sent.work_ns,
        )
    heavy.update_row(
        models.keys[instance],
        models.ranks[instance],
        models.counts[instance],
        models.heavy_work_ns[instance],
        models.frequency[instance],
        models.work_ns[instance],
        instances.multipliers,
        key,
        cost_ns,
    )
    if not _is_due(machine, rules.window):
        return False
    model = model_of(models, instance)
    las.copy_model(model, sent)
    if machine[EXECUTED] >= rules.window:
        halve(model.counts, model.heavy_work_ns)
        halve(model.frequency, model.work_ns)
    return True


@njit(cache=True)
def _is_due(machine, window):
    """Count a row; return whether to publish: after 8, 16, 32 … rows, then once every window."""
    machine[EXECUTED] += 1
    due = machine[NEXT_PUBLISHED] if machine[NEXT_PUBLISHED] > 0 else _FIRST_PUBLISHED
    if machine[EXECUTED] < due:
        return False
    machine[NEXT_PUBLISHED] = due + min(due, window)
    return True


@njit(cache=True)
def halve(counts, work_ns):
    """Let what was learnt fade: half the rows, at the same mean cost."""
    for i in range(counts.shape[0]):
        for j in range(counts.shape[1]):
            if counts[i, j] > 1:
                left = (counts[i, j] + 1) // 2
                work_ns[i, j] = work_ns[i, j] // counts[i, j] * left
                counts[i, j] = left


@njit(cache=True)
def answer(instances, rules, instance, done_ns, estimate_ns):
    """Return Δ: how far the scheduler's Ĉ, as its request said, is from the truth."""
    if rules.clamp:
        return done_ns - estimate_ns
    return instances.worked_ns[instance] - estimate_ns
