"""Parallel instances behind a scheduler, on virtual time: arrivals, queues and messages.

Of the decisions nothing is made here: `kernels.posg` makes them. What cannot be (a row lost, placed
twice, done too early or out of order) raises `AssertionError` at the step where it happens.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from spillway.kernels import posg, posg_instance

# Who decides.
TURN, PROACTIVE, EXACT, LEAST = range(4)
# What a run counts.
SKETCHES, REQUESTS, REPLIES, STALE_REPLIES = range(4)
NEVER = np.iinfo(np.int64).max


@njit(cache=True)
def run(setup, rows, speeds, queues, requests, outcome, counters):
    """Run all rows through the instances, into `outcome` and `counters`."""
    # Names of their own: taking an array out of a tuple costs more than what is done with it.
    policy, rules, scheduler, instances, sent, delay_ns, every_ns = setup
    keys, costs_ns, arrivals_ns = rows
    first_rows, factors = speeds
    first, last, first_done_ns, following = queues
    placed, taken_ns, done_ns, states, learnt = outcome
    epochs, estimates_ns = requests
    machine, totals_ns, worked_ns = scheduler.machine, scheduler.totals_ns, instances.worked_ns
    exact_ns, backlogs = np.zeros(first.size), np.zeros(first.size, dtype=np.int64)
    shown, speed, finished, m = 0, 0, 0, keys.size
    for row in range(m + 1):
        # What the scheduler hears before it places the row; after the last row, everything.
        now_ns = arrivals_ns[row] if row < m else NEVER - 1
        heard_ns = _heard_until(now_ns, every_ns) - delay_ns if row < m else now_ns
        while True:
            done = _next_done(heard_ns, first, first_done_ns, following, done_ns)
            if done < 0:
                break
            finished += 1
            instance = placed[done]
            if done_ns[done] < arrivals_ns[done] + taken_ns[done]:
                raise AssertionError("a row was done before its work could be")
            if policy == PROACTIVE:
                published = posg_instance.execute(
                    instances, rules, instance, keys[done], taken_ns[done], sent
                )
                if epochs[done] > 0:
                    request = (epochs[done], estimates_ns[done])
                    _reply(scheduler, instances, rules, instance, done_ns[done], request, counters)
                if published:
                    counters[SKETCHES] += 1
                    posg.receive_sketch(scheduler, rules, instance, sent)
            else:
                backlogs[instance] -= 1
                worked_ns[instance] += taken_ns[done]
        if row == m:
            break
        # The row is placed.
        while speed + 1 < first_rows.size and first_rows[speed + 1] <= row:
            speed += 1
        states[row], learnt[row] = machine[posg.STATE], counters[SKETCHES]
        if policy == PROACTIVE:
            instance, asks = posg.place(scheduler, rules, keys[row], now_ns)
            if asks:
                counters[REQUESTS] += 1
                epochs[row] = machine[posg.EPOCH]
                estimates_ns[row] = totals_ns[instance]
        elif policy == TURN:
            instance = posg.take_turn(machine, first.size)
        elif policy == LEAST:
            shown = _show_until(heard_ns, shown, row, arrivals_ns, placed, backlogs)
            instance = posg.fewest(backlogs, machine)
        else:
            for i in range(first.size):
                exact_ns[i] = _cost_on(costs_ns[row], factors[speed, i])
            instance = posg.place_exactly(totals_ns, exact_ns, now_ns, rules.mode)
        if placed[row] != -1 or not 0 <= instance < first.size:
            raise AssertionError("a row was placed twice or nowhere")
        placed[row] = instance
        taken_ns[row] = _cost_on(costs_ns[row], factors[speed, instance])
        start_ns = now_ns if last[instance] < 0 else max(now_ns, done_ns[last[instance]])
        done_ns[row] = start_ns + taken_ns[row]
        _enqueue(row, instance, done_ns[row], first, last, first_done_ns, following)
    if finished != m:
        raise AssertionError("a row was never done, or done twice")


@njit(cache=True)
def _heard_until(now_ns, report_every_ns):
    """Return the moment up to which the scheduler may have heard: now, or the last report."""
    return now_ns if report_every_ns == 0 else now_ns // report_every_ns * report_every_ns


@njit(cache=True)
def _cost_on(cost_ns, factor):
    return np.int64(np.floor(cost_ns * factor + 0.5))


@njit(cache=True)
def _enqueue(row, instance, done_ns, first, last, first_done_ns, following):
    """Put the row behind all others of its instance."""
    if first[instance] < 0:
        first[instance], first_done_ns[instance] = row, done_ns
    else:
        following[last[instance]] = row
    last[instance] = row


@njit(cache=True)
def _next_done(until_ns, first, first_done_ns, following, done_ns):
    """Take the row that is done next from its queue; -1 if none is done by then."""
    instance = 0
    for other in range(1, first.size):
        if first_done_ns[other] < first_done_ns[instance]:
            instance = other
    if first_done_ns[instance] > until_ns:
        return -1
    row = first[instance]
    after = following[row]
    first[instance] = after
    first_done_ns[instance] = done_ns[after] if after >= 0 else NEVER
    if after >= 0 and done_ns[after] < done_ns[row]:
        raise AssertionError("a row overtook the one before it")
    return row


@njit(cache=True)
def _reply(scheduler, instances, rules, instance, done_ns, request, counters):
    """Let the instance answer the request that came with the row it has just done."""
    epoch, estimate_ns = request
    delta_ns = posg_instance.answer(instances, rules, instance, done_ns, estimate_ns)
    counted = posg.receive_reply(scheduler, rules, instance, epoch, delta_ns)
    counters[REPLIES] += 1
    counters[STALE_REPLIES] += 0 if counted else 1


@njit(cache=True)
def _show_until(until_ns, shown, row, arrivals_ns, placed, backlogs):
    """Count the rows that had been placed by then into the backlogs; return how many are shown."""
    while shown < row and arrivals_ns[shown] <= until_ns:
        backlogs[placed[shown]] += 1
        shown += 1
    return shown
