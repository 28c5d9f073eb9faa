"""One operator behind a load shedder, on virtual time: arrivals, queue, learning and messages.

Of the decisions nothing is made here: `kernels.las` and `kernels.operator` make them.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from spillway.kernels import las
from spillway.kernels.heavy import estimate_row_heavy
from spillway.kernels.las import (
    ADMITTED,
    BUSY_FIX,
    BUSY_UNTIL,
    LATENCY_FIX,
    LATENCY_SUM,
    NOP,
    STATE,
    UNSEEN_NS,
)
from spillway.kernels.operator import MACHINE_SIZE, executed
from spillway.kernels.sketch import estimate_row

# Who decides.
BASE_LINE, STRAW_MAN, FULL_KNOWLEDGE, PAPER, DEFAULT = range(5)
# What a run counts.
SKETCHES, REQUESTS, REPLIES, FIRST_RUN = range(4)


@njit(cache=True, error_model="numpy")
def run(
    policy,
    aim,
    keys,
    costs_ns,
    arrivals_ns,
    utilities,
    uniforms,
    shedder,
    ring,
    recent,
    models,
    multipliers,
    limits,
    learning,
    more,
    latencies_ns,
    weights,
    counters,
):
    limit_ns, condition = limits
    window, tolerance, factor, sync_rows = learning
    drop_share, stream_mean_ns, delay_ns, prelude = more
    own, sent, used = models  # at the operator, on the way, at the shedder
    # Plain arrays: numba counts references to a tuple's arrays at every use.
    frequency, work_ns = used.frequency, used.work_ns
    heavy_keys, counts, heavy_work_ns = used.keys, used.counts, used.heavy_work_ns
    own_keys, own_ranks, own_counts, own_heavy_ns, own_frequency, own_work_ns = own
    sent_frequency, sent_work_ns = sent.frequency, sent.work_ns
    rows = keys.size
    paper, learns = policy == PAPER, policy == DEFAULT
    machine = np.zeros(MACHINE_SIZE, dtype=np.int64)
    eager = np.zeros(las.EAGER_SIZE, dtype=np.int64)
    means = np.zeros(own.frequency.shape)

    queue = np.empty(rows, dtype=np.int64)  # admitted rows in order, with when each is done
    done_ns = np.empty(rows, dtype=np.int64)
    asked_busy = np.full(rows, np.nan)  # what the shedder thought, on rows that ask for the truth
    asked_sum = np.zeros(rows)
    reply_at = np.empty(rows, dtype=np.int64)
    reply_busy, reply_sum = np.empty(rows), np.empty(rows)
    admitted, finished, replied, read = 0, 0, 0, 0
    sent_at = np.int64(-1)
    true_sum, busy_ns = 0.0, np.int64(0)

    for t in range(rows):
        now = arrivals_ns[t]
        # The operator finishes rows, learns, publishes and answers.
        while finished < admitted and done_ns[finished] <= now:
            row = queue[finished]
            published = False
            if paper:
                published = executed(
                    machine,
                    own_frequency,
                    own_work_ns,
                    means,
                    multipliers,
                    keys[row],
                    costs_ns[row],
                    window,
                    tolerance,
                    sent_frequency,
                    sent_work_ns,
                )
            elif learns:
                published = las.learn_row(
                    eager,
                    own_keys,
                    own_ranks,
                    own_counts,
                    own_heavy_ns,
                    own_frequency,
                    own_work_ns,
                    multipliers,
                    keys[row],
                    costs_ns[row],
                    window,
                )
                if published:
                    las.copy_model(own, sent)
            if published:
                counters[SKETCHES] += 1
                sent_at = done_ns[finished] + delay_ns
            if row >= prelude:
                true_sum += latencies_ns[row]
            if not np.isnan(asked_busy[finished]):
                reply_at[replied] = done_ns[finished] + delay_ns
                reply_busy[replied] = done_ns[finished] - asked_busy[finished]
                reply_sum[replied] = true_sum - asked_sum[finished]
                replied += 1
                counters[REPLIES] += 1
            finished += 1
        # Messages arrive at the shedder.
        if 0 <= sent_at <= now:
            las.copy_model(sent, used)
            if shedder[STATE] == NOP:
                counters[FIRST_RUN] = t
            las.received(shedder, las.mean_ns(used), paper)
            sent_at = np.int64(-1)
        while read < replied and reply_at[read] <= now:
            told = reply_sum[read] if learns and condition == las.AVERAGE else 0.0
            las.corrected(shedder, reply_busy[read], told)
            read += 1
        # The row passes or goes.
        if t == prelude:
            shedder[LATENCY_SUM], shedder[LATENCY_FIX], shedder[ADMITTED] = 0.0, 0.0, 0.0
            if not (paper or learns):
                shedder[BUSY_UNTIL] = busy_ns
        if (
            aim == las.FAITHFUL
            and policy != BASE_LINE
            and t >= prelude
            and shedder[STATE] != NOP
            and las.refuses(shedder, ring, now, limit_ns, condition)
        ):  # known without knowing what the row costs
            weights[t] = 0.0
            continue
        cost = float(costs_ns[t]) if policy == FULL_KNOWLEDGE else stream_mean_ns
        if paper:
            cost = factor * estimate_row(
                frequency, work_ns, multipliers, keys[t], shedder[UNSEEN_NS]
            )
        elif learns:
            cost = estimate_row_heavy(
                heavy_keys,
                counts,
                heavy_work_ns,
                frequency,
                work_ns,
                multipliers,
                keys[t],
                shedder[UNSEEN_NS],
            )
        if t < prelude or shedder[STATE] == NOP:
            if shedder[STATE] != NOP:
                shedder[BUSY_UNTIL] = max(shedder[BUSY_UNTIL], float(now)) + cost
        elif policy == BASE_LINE:
            weights[t] = 1.0 / (1.0 - drop_share) if uniforms[t] >= drop_share else 0.0
        else:
            weights[t] = las.offer(
                aim,
                recent,
                shedder,
                ring,
                utilities[t],
                cost,
                now,
                limit_ns,
                condition,
                uniforms[t],
            )
        if weights[t] == 0.0:
            continue
        start = max(busy_ns, now)
        latencies_ns[t] = start - now
        busy_ns = start + costs_ns[t]
        queue[admitted], done_ns[admitted] = t, busy_ns
        if (paper or learns) and las.asks(shedder, sync_rows, paper):
            asked_busy[admitted] = shedder[BUSY_UNTIL] - shedder[BUSY_FIX]
            asked_sum[admitted] = shedder[LATENCY_SUM] - shedder[LATENCY_FIX]
            counters[REQUESTS] += 1
        admitted += 1
