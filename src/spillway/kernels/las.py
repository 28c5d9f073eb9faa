"""Load-aware shedding, row by row: what the load shedder and an eager operator do (LAS).

Costs and times in ns. The shedder keeps one moment, BUSY_UNTIL: when the operator will have done
all admitted rows, by the estimates. It is the paper's Ĉ, counted from the start of time instead of
the first row, and never in the past: work cannot be done before it arrives.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from spillway.kernels import heavy
from spillway.kernels.allocation import density_cut, root_scale
from spillway.kernels.heavy import estimate_row_heavy
from spillway.kernels.sketch import estimate_row, update_row

# The states of the shedder (figure 3).
NOP, SEND, RUN = 0, 1, 2
# What CHECK looks at: the mean over the stream, every row, the mean over the latest rows.
AVERAGE, EACH, WINDOW = 0, 1, 2
# What is given up: rows as they come, the costliest for their worth, or costly ones by chance.
FAITHFUL, FEWEST, UNBIASED = 0, 1, 2
# The shedder's memory, a float64 array.
STATE, BUSY_UNTIL, LATENCY_SUM, ADMITTED, UNSEEN_NS, SINCE_SYNC, BUSY_FIX, LATENCY_FIX = range(8)
SHEDDER_SIZE = 8
# The eager operator's memory, an int64 array.
EXECUTED, NEXT_PUBLISHED, PUBLISHED, CHECKED, FORESEEN_NS, TAKEN_NS = range(6)
EAGER_SIZE = 6
_FIRST_PUBLISHED = 1  # rows after which an operator first says what it learnt; then twice as many
_PAYS_BACK = 0.5
_ROOM = 0.9  # an aim other than `faithful` lets the queue take about so much of the limit
_FILL = 0.95  # and plans with so much of the operator's time
_ADAPT_ROWS = 128
_KEEP_MIN = 0.001
_CHECK_EVERY, _CHECK_ROWS, _CHANGE = 4, 32, 0.25  # looks at every 4th row, and at 32 of them
_SETTLED_ROWS = 256  # a model of fewer rows is not yet held against anything


class Model(NamedTuple):
    """Costs by key: the exact part for heavy keys (may have no buckets) and the sketch."""

    keys: np.ndarray
    ranks: np.ndarray
    counts: np.ndarray
    heavy_work_ns: np.ndarray
    frequency: np.ndarray
    work_ns: np.ndarray


class Recent(NamedTuple):
    """The latest rows offered, whether kept or not, and the cut that follows from them.

    `cut` holds the density (FEWEST) or the scale (UNBIASED); `offered` counts the rows.
    """

    costs_ns: np.ndarray
    worths: np.ndarray
    arrivals_ns: np.ndarray
    cut: np.ndarray
    offered: np.ndarray


def new_recent(aim: int, rows: int = 1024) -> Recent:
    """Return an empty memory; without rows nothing is cut."""
    cut = np.array([np.inf if aim == UNBIASED else 0.0])
    arrivals, offered = np.zeros(rows, dtype=np.int64), np.zeros(1, dtype=np.int64)
    return Recent(np.ones(rows), np.ones(rows), arrivals, cut, offered)


def new_model(rows: int, columns: int, *, buckets: int = 0, places: int = 4) -> Model:
    """Return an empty model."""
    tables = [np.zeros((buckets, places), dtype=np.int64) for _ in range(4)]
    matrices = [np.zeros((rows, columns), dtype=np.int64) for _ in range(2)]
    return Model(*tables, *matrices)


@njit(cache=True, error_model="numpy", inline="always")
def estimate(model, multipliers, key, unseen_ns):
    """Estimate the cost of a key."""
    return estimate_row_heavy(
        model.keys,
        model.counts,
        model.heavy_work_ns,
        model.frequency,
        model.work_ns,
        multipliers,
        key,
        unseen_ns,
    )


@njit(cache=True, error_model="numpy")
def mean_ns(model):
    """Return the mean cost of all rows in a model; 0 if there is none."""
    rows = model.counts.sum() + model.frequency[0].sum()
    work = model.heavy_work_ns.sum() + model.work_ns[0].sum()
    return work / rows if rows > 0 else 0.0


@njit(cache=True, error_model="numpy")
def copy_model(source, target):
    """Overwrite a model with another."""
    target.keys[:] = source.keys
    target.ranks[:] = source.ranks
    target.counts[:] = source.counts
    target.heavy_work_ns[:] = source.heavy_work_ns
    target.frequency[:] = source.frequency
    target.work_ns[:] = source.work_ns


@njit(cache=True, error_model="numpy", inline="always")
def breaks(latency_ns, total_ns, rows, limit_ns, condition):
    """CHECK: would a row of this latency break the condition? `total_ns` of `rows` before it.

    In debt (the truth was worse than the estimates) a short wait still passes: it pays back.
    """
    if condition == EACH:
        return latency_ns > limit_ns
    return total_ns + latency_ns > limit_ns * (rows + 1.0) and latency_ns > _PAYS_BACK * limit_ns


@njit(cache=True, error_model="numpy", inline="always")
def refuses(shedder, ring, now_ns, limit_ns, condition):
    """Whether a row that arrives now would break the condition, whatever it costs itself."""
    latency_ns = max(shedder[BUSY_UNTIL] - now_ns, 0.0)
    total_ns, rows = shedder[LATENCY_SUM], shedder[ADMITTED]
    if condition == WINDOW and rows >= ring.size:
        total_ns -= ring[int(rows) % ring.size]
        rows = ring.size - 1.0
    return breaks(latency_ns, total_ns, rows, limit_ns, condition)


@njit(cache=True, error_model="numpy", inline="always")
def take(shedder, ring, cost_ns, now_ns, condition):
    """Take an admitted row into account."""
    latency_ns = max(shedder[BUSY_UNTIL] - now_ns, 0.0)
    if condition == WINDOW:
        place = int(shedder[ADMITTED]) % ring.size
        shedder[LATENCY_SUM] -= ring[place]
        ring[place] = latency_ns
    shedder[LATENCY_SUM] += latency_ns
    shedder[ADMITTED] += 1.0
    shedder[BUSY_UNTIL] = max(shedder[BUSY_UNTIL], float(now_ns)) + cost_ns


@njit(cache=True, error_model="numpy", inline="always")
def admit(shedder, ring, cost_ns, now_ns, limit_ns, condition):
    """SHED, the other way round: take the row into account and return True, or refuse it."""
    if refuses(shedder, ring, now_ns, limit_ns, condition):
        return False
    take(shedder, ring, cost_ns, now_ns, condition)
    return True


@njit(cache=True, error_model="numpy")
def admit_rows(
    shedder,
    ring,
    model,
    multipliers,
    keys,
    arrivals_ns,
    factor,
    limit_ns,
    condition,
    weights,
):
    """Admit (1) or refuse (0) many rows in order of arrival; before RUN all pass."""
    if shedder[STATE] == NOP:
        weights[:] = 1.0
        return
    # Plain arrays: numba counts references to a tuple's arrays at every use.
    frequency, work_ns, unseen_ns = model.frequency, model.work_ns, shedder[UNSEEN_NS]
    heavy_keys, counts, heavy_work_ns = model.keys, model.counts, model.heavy_work_ns
    exact = heavy_keys.shape[0] > 0
    for t in range(keys.size):
        if refuses(shedder, ring, arrivals_ns[t], limit_ns, condition):
            weights[t] = 0.0
            continue
        if exact:
            cost_ns = estimate_row_heavy(
                heavy_keys,
                counts,
                heavy_work_ns,
                frequency,
                work_ns,
                multipliers,
                keys[t],
                unseen_ns,
            )
        else:
            cost_ns = estimate_row(frequency, work_ns, multipliers, keys[t], unseen_ns)
        take(shedder, ring, factor * cost_ns, arrivals_ns[t], condition)
        weights[t] = 1.0


@njit(cache=True, error_model="numpy", inline="always")
def received(shedder, unseen_ns, faithful):
    """Take note of a new model; the paper's shedder then asks the operator how far it is."""
    shedder[UNSEEN_NS] = unseen_ns
    if faithful:
        shedder[STATE] = SEND


@njit(cache=True, error_model="numpy", inline="always")
def asks(shedder, sync_rows, faithful):
    """After an admitted row: does it carry the shedder's uncorrected estimates to the operator?

    In the paper once after every new model, else once every `sync_rows` rows.
    """
    if faithful:
        asked = shedder[STATE] == SEND
        if asked:
            shedder[STATE] = RUN
        return asked
    shedder[SINCE_SYNC] += 1.0
    if shedder[SINCE_SYNC] < sync_rows:
        return False
    shedder[SINCE_SYNC] = 0.0
    return True


@njit(cache=True, error_model="numpy", inline="always")
def corrected(shedder, busy_ns, latency_ns):
    """Take the operator's reply: truth minus the estimates without any correction.

    Several questions may be on their way at once; each reply tells the whole correction, so that
    no error is corrected twice.
    """
    shedder[BUSY_UNTIL] += busy_ns - shedder[BUSY_FIX]
    shedder[BUSY_FIX] = busy_ns
    shedder[LATENCY_SUM] += latency_ns - shedder[LATENCY_FIX]
    shedder[LATENCY_FIX] = latency_ns


@njit(cache=True, error_model="numpy", inline="always")
def chance(aim, recent, shedder, worth, cost_ns, now_ns, limit_ns):
    """Return the probability with which the aim keeps a row, before CHECK.

    The price rises with the queue: an idle operator takes any row, one at its limit only those
    above the cut. The chance follows from the past alone, so 1 / chance is an unbiased weight.
    """
    price = max(shedder[BUSY_UNTIL] - now_ns, 0.0) / (_ROOM * limit_ns)
    if aim == FAITHFUL or price == 0.0:
        return 1.0
    if aim == FEWEST:
        return 1.0 if worth / cost_ns > recent.cut[0] * price else 0.0
    return min(1.0, max(recent.cut[0] * worth / np.sqrt(cost_ns * price), _KEEP_MIN))


@njit(cache=True, error_model="numpy")
def notice(aim, recent, worth, cost_ns, now_ns):
    """Remember an offered row, and every now and then choose the cut that fits the latest ones."""
    size = recent.costs_ns.size
    place = recent.offered[0] % size
    recent.costs_ns[place], recent.worths[place] = cost_ns, worth
    recent.arrivals_ns[place] = now_ns
    recent.offered[0] += 1
    offered = recent.offered[0]
    if offered % _ADAPT_ROWS != 0 and offered not in (8, 16, 32):
        return
    known = min(offered, size)
    first = offered % size if known == size else 0
    costs, worths, counts = recent.costs_ns[:known], recent.worths[:known], np.ones(known)
    budget_ns = _FILL * (now_ns - recent.arrivals_ns[first])
    if aim == FEWEST:
        recent.cut[0] = max(density_cut(costs, worths, counts, budget_ns)[0], 0.0)
    else:
        recent.cut[0] = root_scale(costs, worths, counts, budget_ns)


@njit(cache=True, error_model="numpy", inline="always")
def offer(aim, recent, shedder, ring, worth, cost_ns, now_ns, limit_ns, condition, uniform):
    """Decide about one row: return its weight, 0 if it goes."""
    if aim == FAITHFUL:
        return 1.0 if admit(shedder, ring, cost_ns, now_ns, limit_ns, condition) else 0.0
    probability = chance(aim, recent, shedder, worth, cost_ns, now_ns, limit_ns)
    notice(aim, recent, worth, cost_ns, now_ns)
    if uniform >= probability:
        return 0.0
    if aim == UNBIASED:  # CHECK would give up rows whose weight nobody carries
        shedder[BUSY_UNTIL] = max(shedder[BUSY_UNTIL], float(now_ns)) + cost_ns
        shedder[ADMITTED] += 1.0
        return 1.0 / probability
    return 1.0 if admit(shedder, ring, cost_ns, now_ns, limit_ns, condition) else 0.0


@njit(cache=True, error_model="numpy")
def offer_rows(
    aim,
    recent,
    shedder,
    ring,
    model,
    multipliers,
    keys,
    arrivals_ns,
    worths,
    uniforms,
    factor,
    limit_ns,
    condition,
    weights,
):
    """Decide about many rows in order of arrival, into `weights`; before RUN all pass."""
    for t in range(keys.size):
        if shedder[STATE] == NOP:
            weights[t] = 1.0
            continue
        cost_ns = factor * estimate(model, multipliers, keys[t], shedder[UNSEEN_NS])
        weights[t] = offer(
            aim,
            recent,
            shedder,
            ring,
            worths[t],
            cost_ns,
            arrivals_ns[t],
            limit_ns,
            condition,
            uniforms[t],
        )


@njit(cache=True, error_model="numpy")
def learn_row(
    machine,
    keys,
    ranks,
    counts,
    heavy_work_ns,
    frequency,
    work_ns,
    multipliers,
    key,
    cost_ns,
    window,
):
    """Take one executed row into the arrays of a model; return whether to send them now.

    It is after 1, 2, 4, 8 … rows up to the window, then once every window. If the rows of late take
    a quarter more or less than the model says, the operator has changed: all is forgotten.
    """
    if machine[EXECUTED] % _CHECK_EVERY == 0:
        foreseen_ns = estimate_row_heavy(
            keys, counts, heavy_work_ns, frequency, work_ns, multipliers, key, float(cost_ns)
        )
        machine[FORESEEN_NS] += int(foreseen_ns)
        machine[TAKEN_NS] += cost_ns
        machine[CHECKED] += 1
    if machine[CHECKED] >= _CHECK_ROWS:
        off_ns = abs(machine[FORESEEN_NS] - machine[TAKEN_NS])
        if off_ns > _CHANGE * machine[TAKEN_NS] and machine[EXECUTED] >= _SETTLED_ROWS:
            ranks[:], counts[:], heavy_work_ns[:] = 0, 0, 0
            frequency[:], work_ns[:] = 0, 0
            machine[EXECUTED], machine[NEXT_PUBLISHED] = 0, 0
        machine[CHECKED], machine[FORESEEN_NS], machine[TAKEN_NS] = 0, 0, 0
    if keys.shape[0] > 0:
        heavy.update_row(
            keys, ranks, counts, heavy_work_ns, frequency, work_ns, multipliers, key, cost_ns
        )
    else:
        update_row(frequency, work_ns, multipliers, key, cost_ns)
    machine[EXECUTED] += 1
    due = machine[NEXT_PUBLISHED] if machine[NEXT_PUBLISHED] > 0 else _FIRST_PUBLISHED
    if machine[EXECUTED] < due:
        return False
    machine[NEXT_PUBLISHED] = due + min(due, window)
    machine[PUBLISHED] += 1
    return True
