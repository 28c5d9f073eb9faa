"""Proactive placement, row by row: what the scheduler of POSG decides.

Costs and times in ns. `totals_ns` is the paper's Ĉ. By the PAPER's rules it is the work given to
every instance. Where `clamp` is set it is the moment at which the instance will be free, which is
never in the past: an idle instance has no use for the work it once did.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from spillway.kernels import las
from spillway.kernels.heavy import estimate_row_heavy
from spillway.kernels.sketch import estimate_row

PAPER, DEFAULT = 0, 1
# The states of the scheduler (figure 3), and its memory: an int64 array.
ROUND_ROBIN, SEND_ALL, WAIT_ALL, RUN = 0, 1, 2, 3
STATE, EPOCH, TURN, ASKED, REPLIED, SINCE_SYNC = range(6)
SCHEDULER_SIZE = 6
# Instances differ in speed if mean costs of so many rows are so far apart. Means of few rows differ
# by chance, and a search for the cheapest instance would find the one that is most in error.
_UNEQUAL_ROWS, _UNEQUAL = 256, 1.25


class Rules(NamedTuple):
    """How both sides behave: the window N, the tolerance μ, rows between synchronisations."""

    mode: int
    clamp: bool
    window: int
    tolerance: float
    sync_rows: int


class Models(NamedTuple):
    """One cost model per instance: the arrays of `las.Model` with the instance as first axis."""

    keys: np.ndarray
    ranks: np.ndarray
    counts: np.ndarray
    heavy_work_ns: np.ndarray
    frequency: np.ndarray
    work_ns: np.ndarray


class Scheduler(NamedTuple):
    """What the scheduler remembers; `unequal` (one flag) is whether instances differ in speed."""

    machine: np.ndarray
    totals_ns: np.ndarray
    means_ns: np.ndarray
    rows_learnt: np.ndarray
    asked: np.ndarray
    replied: np.ndarray
    deltas_ns: np.ndarray
    costs_ns: np.ndarray
    unequal: np.ndarray
    multipliers: np.ndarray
    models: Models


def new_models(instances: int, rows: int, columns: int, buckets: int, places: int = 4) -> Models:
    """Return empty models."""
    tables = [np.zeros((instances, buckets, places), dtype=np.int64) for _ in range(4)]
    matrices = [np.zeros((instances, rows, columns), dtype=np.int64) for _ in range(2)]
    return Models(*tables, *matrices)


def new_scheduler(multipliers: np.ndarray, models: Models) -> Scheduler:
    """Return a scheduler that knows nothing yet."""
    k = models.frequency.shape[0]
    machine = np.zeros(SCHEDULER_SIZE, dtype=np.int64)
    totals, means, deltas, costs = (np.zeros(k) for _ in range(4))
    rows_learnt = np.zeros(k, dtype=np.int64)
    asked, replied = (np.zeros(k, dtype=np.bool_) for _ in range(2))
    unequal = np.zeros(1, dtype=np.bool_)
    return Scheduler(
        machine,
        totals,
        means,
        rows_learnt,
        asked,
        replied,
        deltas,
        costs,
        unequal,
        multipliers,
        models,
    )


@njit(cache=True)
def model_of(models: Models, instance: int) -> las.Model:
    """Return one instance's model; it shares its arrays with the others'."""
    return las.Model(
        models.keys[instance],
        models.ranks[instance],
        models.counts[instance],
        models.heavy_work_ns[instance],
        models.frequency[instance],
        models.work_ns[instance],
    )


@njit(cache=True)
def take_turn(machine, instances):
    """Round robin: return the instance whose turn it is."""
    instance = machine[TURN]
    machine[TURN] = (instance + 1) % instances
    return instance


@njit(cache=True)
def fewest(backlogs, machine):
    """Return the instance of least backlog; among equals, the next in turn."""
    k = backlogs.size
    first = take_turn(machine, k)
    best = first
    for step in range(1, k):
        instance = (first + step) % k
        if backlogs[instance] < backlogs[best]:
            best = instance
    return best


@njit(cache=True)
def free_first(totals_ns, now_ns, clamp):
    """SUBMIT: return the instance of least Ĉ; the first of those that are idle alike."""
    best, least_ns = 0, np.inf
    for instance in range(totals_ns.size):
        total_ns = totals_ns[instance]
        if clamp:
            total_ns = max(total_ns, float(now_ns))
        if total_ns < least_ns:
            best, least_ns = instance, total_ns
    return best


@njit(cache=True)
def done_first(totals_ns, costs_ns, now_ns):
    """Return the instance that will have done the row first."""
    best, least_ns = 0, np.inf
    for instance in range(totals_ns.size):
        done_ns = max(totals_ns[instance], float(now_ns)) + costs_ns[instance]
        if done_ns < least_ns:
            best, least_ns = instance, done_ns
    return best


@njit(cache=True)
def charge(totals_ns, instance, cost_ns, now_ns, clamp):
    """UPDATE Ĉ: give an instance the work of a row."""
    if clamp:
        totals_ns[instance] = max(totals_ns[instance], float(now_ns))
    totals_ns[instance] += cost_ns


@njit(cache=True)
def place_exactly(totals_ns, costs_ns, now_ns, mode):
    """Full knowledge: place a row of known cost (on every instance) greedily."""
    if mode == DEFAULT:
        instance = done_first(totals_ns, costs_ns, now_ns)
    else:
        instance = free_first(totals_ns, now_ns, False)
    charge(totals_ns, instance, costs_ns[instance], now_ns, mode == DEFAULT)
    return instance


@njit(cache=True)
def estimate_on(scheduler, instance, key, mode):
    """Estimate a row's cost on an instance. A key never seen costs the mean; in the paper, 0."""
    unseen_ns = scheduler.means_ns[instance] if mode == DEFAULT else 0.0
    models, multipliers = scheduler.models, scheduler.multipliers
    frequency, work_ns = models.frequency[instance], models.work_ns[instance]
    if models.keys.shape[1] == 0:
        return estimate_row(frequency, work_ns, multipliers, key, unseen_ns)
    return estimate_row_heavy(
        models.keys[instance],
        models.counts[instance],
        models.heavy_work_ns[instance],
        frequency,
        work_ns,
        multipliers,
        key,
        unseen_ns,
    )


@njit(cache=True)
def _estimate_everywhere(scheduler, key, mode):
    """Fill in what a row costs on every instance."""
    for instance in range(scheduler.costs_ns.size):
        scheduler.costs_ns[instance] = estimate_on(scheduler, instance, key, mode)


@njit(cache=True)
def start_epoch(scheduler):
    """Begin a synchronisation: every instance is to be asked, older replies count no more."""
    machine = scheduler.machine
    machine[STATE], machine[ASKED], machine[REPLIED], machine[SINCE_SYNC] = SEND_ALL, 0, 0, 0
    machine[EPOCH] += 1
    scheduler.asked[:] = False
    scheduler.replied[:] = False


@njit(cache=True)
def place(scheduler, rules, key, now_ns):
    """Place one row; return its instance and whether it carries a synchronisation request.

    By the PAPER's rules the next k rows carry the requests, row i to instance i; by the DEFAULT
    ones the first row that goes to an instance anyway does.
    """
    # Names of their own: handing the whole scheduler on costs more than what is done with it.
    machine, totals_ns, asked = scheduler.machine, scheduler.totals_ns, scheduler.asked
    if machine[STATE] == ROUND_ROBIN:
        return take_turn(machine, totals_ns.size), False
    machine[SINCE_SYNC] += 1
    if machine[STATE] == RUN and 0 < rules.sync_rows < machine[SINCE_SYNC]:
        start_epoch(scheduler)
    if machine[STATE] == SEND_ALL and rules.mode == PAPER:
        instance = machine[ASKED]
    elif scheduler.unequal[0]:
        _estimate_everywhere(scheduler, key, rules.mode)
        instance = done_first(totals_ns, scheduler.costs_ns, now_ns)
    else:
        instance = free_first(totals_ns, now_ns, rules.clamp)
    charge(
        totals_ns, instance, estimate_on(scheduler, instance, key, rules.mode), now_ns, rules.clamp
    )
    return instance, machine[STATE] == SEND_ALL and _ask(machine, asked, instance)


@njit(cache=True)
def _ask(machine, asked, instance):
    """Return whether the row just placed carries a request; with the last one, wait for all."""
    if asked[instance]:
        return False
    asked[instance] = True
    machine[ASKED] += 1
    if machine[ASKED] == asked.size:
        machine[STATE] = WAIT_ALL
    return True


@njit(cache=True)
def place_rows(scheduler, rules, keys, now_ns, instances, requested, epochs, estimates_ns):
    """Place many rows in order; a requested one has the epoch and Ĉ that its request carries."""
    for t in range(keys.size):
        instance, asks = place(scheduler, rules, keys[t], now_ns[t])
        instances[t], requested[t] = instance, asks
        epochs[t] = scheduler.machine[EPOCH]
        estimates_ns[t] = scheduler.totals_ns[instance]


@njit(cache=True)
def receive_sketch(scheduler, rules, instance, model):
    """Take an instance's new model in, and synchronise once there is enough to start with.

    Enough is a model of every instance in the paper. By the DEFAULT rules it is the first one: it
    stands in for the others until theirs come.
    """
    las.copy_model(model, model_of(scheduler.models, instance))
    scheduler.means_ns[instance] = las.mean_ns(model)
    scheduler.rows_learnt[instance] = max(rows_of(model), 1)
    least_rows = scheduler.rows_learnt.min()
    if rules.mode == DEFAULT:
        if scheduler.machine[STATE] == ROUND_ROBIN:
            _stand_in(scheduler, instance, model)
        if least_rows >= min(_UNEQUAL_ROWS, rules.window):
            scheduler.unequal[0] = scheduler.means_ns.max() > _UNEQUAL * scheduler.means_ns.min()
    if rules.mode == DEFAULT or scheduler.machine[STATE] != ROUND_ROBIN or least_rows > 0:
        start_epoch(scheduler)


@njit(cache=True)
def rows_of(model):
    """Return how many rows a model was made of."""
    return model.counts.sum() + model.frequency[0].sum()


@njit(cache=True)
def _stand_in(scheduler, instance, model):
    scheduler.means_ns[:] = scheduler.means_ns[instance]
    for other in range(scheduler.rows_learnt.size):
        if other != instance:
            las.copy_model(model, model_of(scheduler.models, other))


@njit(cache=True)
def receive_reply(scheduler, rules, instance, epoch, delta_ns):
    """Take an instance's Δ; return whether it counted: not one of an old epoch, nor a second one.

    In the paper all Δ of an epoch are applied together; by the DEFAULT rules at once.
    """
    machine = scheduler.machine
    if epoch != machine[EPOCH] or not scheduler.asked[instance] or scheduler.replied[instance]:
        return False
    scheduler.replied[instance] = True
    machine[REPLIED] += 1
    scheduler.deltas_ns[instance] = delta_ns
    complete = machine[REPLIED] == scheduler.replied.size
    if rules.mode == DEFAULT:
        scheduler.totals_ns[instance] += delta_ns
    elif complete:
        scheduler.totals_ns[:] += scheduler.deltas_ns
    if complete:
        machine[STATE] = RUN
    return True
