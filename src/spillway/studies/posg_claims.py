"""What POSG's paper says about its figures 4 to 10, judged by what our runs give.

"POSG" follows the paper's rules to the letter; "POSG clamped" also counts idle time; "POSG
default" is what is shipped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from spillway.studies.study import Claim, Results, Verdict

Floats = NDArray[np.float64]

ROUND_ROBIN, FULL, LEAST = "Round Robin", "Full Knowledge", "Least loaded (100 ms stale)"
PAPER, CLAMPED, DEFAULT = "POSG", "POSG clamped", "POSG default"
SERIES_ROWS, WINDOW_ROWS = 150_000, 2_000
_CLOSE = 0.05  # a speed-up within so much of the paper's is the paper's

_WORK_ONLY = (
    "Ĉ by the paper's rules counts work and no idle time, so equal totals are not equal queues "
    "once an instance has been idle"
)
_STABLE_LATE = (
    "cells move by more than 5 % until an instance has done 3 windows, so that by the paper's "
    "rules nearly half of the stream is placed by round robin, and sketches of so few rows "
    "differ by 1 % between instances, which adds up until the next synchronisation"
)
_LATE_CELLS = "cells that are filled late count as change, so that nearly nothing is published"
_SCALE = "runs differ in mean cost, hence in the scale of all times, more than policies do"
_EXACT_HEAVY = "heavy keys are known exactly and Ĉ is corrected often, so a small sketch will do"
_TALKS_MORE = "it synchronises every 64 rows; a reply is one number"


def completion_ms(results: Results, label: str, name: str) -> Floats:
    """Return the mean completion time L̄ of every run."""
    return results[label][f"{name}/completion_ms"]


def speed_up(results: Results, label: str, name: str) -> Floats:
    """Return S_L of every run: round robin's completion times over the policy's."""
    return completion_ms(results, label, ROUND_ROBIN) / completion_ms(results, label, name)


def claims_4(results: Results) -> list[Claim]:
    """Judge what is said about the distribution of keys."""
    flat = ("uniform", "Zipf-0.5")
    claims = _gains("4", "gain for uniform keys and Zipf-0.5", 1.06, results, flat, _STABLE_LATE)
    claims += _gains("4", "gain at Zipf-1.0", 1.25, results, ("Zipf-1.0",), _STABLE_LATE)
    for name in (PAPER, DEFAULT):
        slower = [label for label in results if _mean(results, [label], name) <= 1]
        beaten = [label for label in results if _ratio(results, label, name, FULL) < 1]
        claims += [
            _yes_no("4", "better than Round Robin with all keys", name, slower, _STABLE_LATE),
            _yes_no("4", "worse than Full Knowledge with all keys", name, beaten, ""),
            _apart(results, name),
            _as_good(results, name),
        ]
    return claims


def _apart(results: Results, name: str) -> Claim:
    worst = float(completion_ms(results, "Zipf-1.5", name).max())
    best = float(completion_ms(results, "Zipf-1.5", ROUND_ROBIN).min())
    exact = float(completion_ms(results, "Zipf-1.5", FULL).max())
    statement = "greatest completion time at Zipf-1.5 below Round Robin's least"
    why = f"{_SCALE}: Full Knowledge's greatest is {exact:.0f} ms"
    ours = f"{worst:.0f} ms against {best:.0f} ms"
    return _claim("4", statement, name, "yes", ours, _holds(worst < best), why, why)


def _as_good(results: Results, name: str) -> Claim:
    ratio = _ratio(results, "Zipf-2.5", name, FULL)
    statement = "completion time over Full Knowledge's at Zipf-2.5"
    return _claim("4", statement, name, "1.00", f"{ratio:.2f}", _holds(ratio <= 1.05), _LATE_CELLS)


def claims_5(results: Results) -> list[Claim]:
    """Judge what is said about over-provisioning."""
    claims = _gains("5", "speed-up at 102 %", 1.26, results, ("102 %",), _WORK_ONLY)
    for name in (PAPER, DEFAULT):
        labels = [f"{q} %" for q in range(100, 110) if f"{q} %" in results]
        least = min(_mean(results, [label], name) for label in labels)
        statement, ours = "least mean speed-up from 100 to 109 %", f"{least:.2f}"
        claims.append(_claim("5", statement, name, "1.15", ours, _verdict(least, 1.15), _WORK_ONLY))
    claims += _gains("5", "speed-up at 115 %", 1.07, results, ("115 %",), _WORK_ONLY)
    for name in (PAPER, DEFAULT):
        ends = [_mean(results, [label], name) for label in ("95 %", "115 %")]
        middle = _mean(results, ["102 %"], name)
        ours = f"{middle:.2f} at 102 %, {ends[0]:.2f} at 95 %, {ends[1]:.2f} at 115 %"
        statement, held = "less speed-up at both ends", _holds(max(ends) < middle)
        claims.append(_claim("5", statement, name, "yes", ours, held, _WORK_ONLY))
    return claims


def claims_6(results: Results) -> list[Claim]:
    """Judge what is said about the greatest cost."""
    claims = _gains("6", "mean speed-up over w_max", 1.19, results, list(results), _STABLE_LATE)
    for name in (PAPER, DEFAULT):
        times = [float(completion_ms(results, label, name).mean()) for label in results]
        falls = [f"{b:.0f} ms after {a:.0f} ms" for a, b in pairwise(times) if b <= a]
        claims.append(_yes_no("6", "completion time rises with w_max", name, falls, ""))
    return claims


def claims_7(results: Results) -> list[Claim]:
    """Judge what is said about the number of different costs."""
    claims = _gains("7", "mean gain over w_n", 1.19, results, list(results), _STABLE_LATE)
    many = [label for label in results if float(label) >= 16]
    for name in (PAPER, DEFAULT):
        times = [float(completion_ms(results, label, name).mean()) for label in many]
        spread = max(times) / min(times) - 1
        statement, ours = "completion times differ slightly from 16 values on", f"by {spread:.0%}"
        held = _holds(spread <= 0.10)
        claims.append(_claim("7", statement, name, "slightly", ours, held, _SCALE, _SCALE))
    return claims


def claims_8(results: Results) -> list[Claim]:
    """Judge what is said about the number of instances."""
    claims = []
    for name in (PAPER, DEFAULT):
        alone = _mean(results, ["1"], name)
        held = _holds(alone == 1)
        claims.append(_claim("8", "speed-up with k = 1", name, "1.000", f"{alone:.3f}", held))
        for few, many, growth in (("2", "3", 0.04), ("9", "10", 0.01)):
            if few in results and many in results:
                more = _mean(results, [many], name) / _mean(results, [few], name) - 1
                statement = f"growth of the speed-up from k = {few} to {many}"
                verdict = _verdict(more, growth, 0.01)
                paper, ours = f"{growth:+.0%}", f"{more:+.1%}"
                claims.append(_claim("8", statement, name, paper, ours, verdict, _STABLE_LATE))
    return claims


def claims_9(results: Results) -> list[Claim]:
    """Judge what is said about the precision of the sketch."""
    claims = []
    why = f"{_STABLE_LATE}; more cells make it later still"
    for name in (PAPER, DEFAULT):
        rise = _mean(results, ["0.01"], name) / _mean(results, ["0.1"], name) - 1
        fine = [label for label in results if float(label) <= 0.09]
        least = min(float(speed_up(results, label, name).min()) for label in fine)
        statement, verdict = "growth of the speed-up from ε = 0.1 to 0.01", _verdict(rise, 0.30)
        claims += [
            _claim("9", statement, name, "+30 %", f"{rise:+.0%}", verdict, why, _EXACT_HEAVY),
            _claim(
                "9",
                "least speed-up of all runs with ε <= 0.09",
                name,
                "> 1",
                f"{least:.2f}",
                _holds(least > 1),
                why,
            ),
        ]
    return claims


def claims_10(values: Mapping[str, Floats]) -> list[Claim]:
    """Judge what is said about the change in the middle of a long stream."""
    claims = []
    for name in (PAPER, DEFAULT):
        started, relearnt = values[f"{name}/first_run"][0], values[f"{name}/relearnt"][0]
        rest = slice(round(relearnt) // WINDOW_ROWS + 1, None)
        ours, rival = (float(values[f"{n}/mean_ms"][rest].mean()) for n in (name, ROUND_ROBIN))
        messages = float(values[f"{name}/messages"][0]) / SERIES_ROWS * 500_000
        again = "row by which all instances have published again after the change"
        versus, faster = f"{ours:.0f} ms against {rival:.0f} ms", _holds(ours < rival)
        counted, few = "messages per 500,000 rows (the prototype's)", _sooner(messages, 916)
        claims += [
            _row("10", "row at which RUN is reached", name, 10_690, started),
            _row("10", again, name, 84_912, relearnt),
            _claim("10", "faster than Round Robin from then on", name, "yes", versus, faster),
            _claim("10", counted, name, "916", f"{messages:,.0f}", few, "", _TALKS_MORE),
        ]
    return claims


def _row(figure: str, statement: str, name: str, paper: int, ours: float) -> Claim:
    verdict = _sooner(ours, paper)
    return _claim(figure, statement, name, f"{paper:,}", f"{ours:,.0f}", verdict, _STABLE_LATE)


def _gains(
    figure: str, statement: str, paper: float, results: Results, labels: Sequence[str], why: str
) -> list[Claim]:
    """Judge a mean speed-up by the paper's rules and by the default ones."""
    clamped = f"{why}; with idle time counted it is {_mean(results, labels, CLAMPED):.2f}"
    found = {name: _mean(results, labels, name) for name in (PAPER, DEFAULT)}
    return [
        _claim(
            figure, statement, name, f"{paper:.2f}", f"{ours:.2f}", _verdict(ours, paper), clamped
        )
        for name, ours in found.items()
    ]


def _yes_no(figure: str, statement: str, name: str, exceptions: list[str], why: str) -> Claim:
    ours = f"not for {', '.join(exceptions)}" if exceptions else "yes"
    return _claim(figure, statement, name, "yes", ours, _holds(not exceptions), why)


def _claim(
    figure: str,
    statement: str,
    name: str,
    paper: str,
    ours: str,
    verdict: Verdict,
    why: str = "",
    why_default: str = "",
) -> Claim:
    """Name the policy; say why only of what does not hold. `why` is about the paper's rules."""
    reason = why if name == PAPER else why_default
    failed = verdict == "does not hold"
    return Claim(figure, f"{name}: {statement}", paper, ours, verdict, reason if failed else "")


def _mean(results: Results, labels: Sequence[str], name: str) -> float:
    """Return the mean speed-up over the labels that were computed."""
    found = [float(speed_up(results, label, name).mean()) for label in labels if label in results]
    return float(np.mean(found))


def _ratio(results: Results, label: str, name: str, other: str) -> float:
    """Return the mean completion time of one policy over that of another."""
    times = (float(completion_ms(results, label, n).mean()) for n in (name, other))
    return next(times) / next(times)


def _verdict(ours: float, paper: float, close: float = _CLOSE) -> Verdict:
    """Judge a figure of which more is better."""
    if ours > paper + close:
        return "holds better"
    return "holds" if ours >= paper - close else "does not hold"


def _sooner(ours: float, paper: float) -> Verdict:
    """Judge a figure of which less is better."""
    if ours < 0.95 * paper:
        return "holds better"
    return "holds" if ours <= 1.05 * paper else "does not hold"


def _holds(held: bool) -> Verdict:
    return "holds" if held else "does not hold"
