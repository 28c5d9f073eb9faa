"""What must hold of CS: names, numbers and verdicts, without Spark and on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from spillway.studies.las_judge import claim
from spillway.studies.study import Claim, Results

Floats = NDArray[np.float64]

EMPTY, LS_R, LS_S = "empty", "LS-R", "LS-S"
CS_D, CS_A, CS_C, CS_B = "CS-D", "CS-A", "CS-C", "CS-B"
FRONTIER, UNMIXED = "frontier", "frontier, unmixed"
FOUR = (CS_D, CS_A, CS_C, CS_B)
DEGRADING = (*FOUR, FRONTIER)
NAMES = (EMPTY, LS_R, LS_S, *DEGRADING)
LIMIT_S = 2.0
TURNS = 3  # of what is compared closely under overload
TURNS_BEYOND = 8  # where all selections are the least one, and only chance is left to tell apart
CHANCE = 0.05  # what is less likely than that is not called chance
NEAR = 0.01  # so close are displacements: a hundredth of the most that is possible
TOLD = 0.05  # and so close is what rows say of their accuracy to what is measured
HELD = 1.05  # so many times the limit is held
DECIDED_MS = 20.0  # a hundredth of the limit
SAME = 0.99  # of the results are all, but for words in other letters

_NOISE = "the engine's own time per batch varies, and with it the time that is left for work"
_PROFILE = "the profile was measured on other tweets than those that were ranked"


def label(name: str, load: float, turn: int = 0) -> str:
    """Name a point: a handler, how many times the work that can be done comes in, which turn."""
    return f"{name}, turn {turn + 1}, load {load:g}"


def loads(results: Results) -> list[float]:
    """Return the loads of the points."""
    return sorted({float(found.rsplit(" ", 1)[1]) for found in results})


def turns(results: Results, name: str, load: float, key: str) -> list[float]:
    """Return the means of what was measured of a handler at a load, turn by turn."""
    named = (results.get(label(name, load, turn)) for turn in range(TURNS_BEYOND))
    return [float(found[key].mean()) for found in named if found is not None]


def typical(results: Results, name: str, load: float, key: str) -> float:
    """Return the median over the turns."""
    return float(np.median(turns(results, name, load, key)))


def kept(results: Results, name: str, load: float) -> float:
    """Return the share of the rows that were searched."""
    rows = typical(results, name, load, "rows")
    return typical(results, name, load, "kept") / rows


def chance(results: Results, load: float, key: str, *, sign: float = 1.0) -> float:
    """Return how likely the frontier's median is as far above the least of the four's by chance.

    With few turns nothing can be told: 0. A `sign` of -1 compares with the largest from below.
    """
    each = np.array([turns(results, name, load, key) for name in (FRONTIER, *FOUR)])
    return likely(each * sign) if each.shape[1] >= TURNS_BEYOND else 0.0


def likely(each: Floats) -> float:
    """Return how likely the first line's median is as far above the others' least by chance.

    All numbers are dealt out anew many times, as if it did not matter whose they are.
    """
    dealt = np.random.default_rng(0).permuted(np.tile(each.ravel(), (10_000, 1)), axis=1)
    middles = np.median(np.concatenate([each.reshape(1, -1), dealt]).reshape(-1, *each.shape), 2)
    behind = middles[:, 0] - middles[:, 1:].min(1)
    return float(np.mean(behind[1:] >= behind[0]))


def throughput(results: Results, name: str, load: float) -> float:
    """Return how many rows were searched in a second."""
    return typical(results, name, load, "kept") / typical(results, name, load, "duration_s")


def claims_profile(results: Results) -> list[Claim]:
    """Table 5.4: what the subtasks take and give."""
    found = results["profile"]
    lost = {key[5:]: float(v.mean()) for key, v in found.items() if key.startswith("lost/")}
    times = {key[3:]: float(v.mean()) for key, v in found.items() if key.startswith("us/")}
    optional = sum(times[name] for name in lost) / sum(times.values())
    few = sorted(lost, key=lambda name: -lost[name])[:3]
    worth = sum(lost[name] for name in few) / sum(lost.values())
    share = sum(times[name] for name in few) / sum(times.values())
    return [
        claim(
            "profile",
            "most of the work is optional",
            "97 % of a message's time (table 5.4)",
            f"{optional:.0%} of a row's {sum(times.values()):.1f} µs",
            optional > 0.5,
            why="the mandatory filter sees every tweet, the others only those that are found",
        ),
        claim(
            "profile",
            "a few subtasks make most of the accuracy, at a small part of the time",
            "subtasks 6, 7 and 10 make 73 % of it",
            f"{', '.join(few)}: {worth:.0%} of all that can be lost, {share:.0%} of the time",
            worth > 0.5 > share,
            why=_PROFILE,
        ),
    ]


def claims_plan(results: Results) -> list[Claim]:
    """Figure 5.1, tables 5.5 and 5.6: the plan and its frontier."""
    found = results["plan"]
    together = float(np.corrcoef(found["us"], found["accuracy"])[0, 1])
    best = np.interp(found["us"], found["frontier_us"], found["frontier_accuracy"])
    return [
        claim(
            "5.1",
            "longer entries are more accurate, by and large",
            "a direct relationship, almost linear",
            f"correlation {together:.2f} over {found['us'].size} entries",
            together >= 0.5,
            why="few subtasks make most of the accuracy, and they are short",
        ),
        claim(
            "5.1",
            "beyond: no entry is above the frontier, which has few of them",
            "left open (6.3.2)",
            f"{found['frontier_us'].size} of {found['us'].size}, on the hull "
            f"{found['hull_us'].size}; the highest entry above it: "
            f"{max(float((found['accuracy'] - best).max()), 0.0):.2g}",
            bool((found["accuracy"] <= best + 1e-9).all()),
            better=True,
        ),
    ]


def claims_budgets(results: Results) -> list[Claim]:
    """The same time for every classifier, without Spark: how far the ranking is displaced."""
    gaps, ratios, chances = {}, {}, {}
    for on, found in results.items():
        best = min(float(np.median(found[name])) for name in FOUR)
        gaps[on] = float(np.median(found[FRONTIER])) - best
        chances[on] = _chance(found)
        ratios[on] = float(found[CS_D].mean()) / max(float(found[FRONTIER].mean()), 1e-9)
    worst = max(gaps, key=lambda on: gaps[on])
    most = max(ratios, key=lambda on: ratios[on])
    return [
        claim(
            "budgets",
            "beyond: in the same time the frontier displaces no more than the best of the four "
            f"(+ {NEAR:.0%}, or by chance: p ≥ {CHANCE:g})",
            "left open (6.3.2)",
            f"{worst}: {gaps[worst]:+.2%} at worst (by chance: p = {chances[worst]:.2f}); at best "
            f"{min(gaps.values()):+.2%}",
            all(gaps[on] <= NEAR or chances[on] >= CHANCE for on in gaps),
            better=min(gaps.values()) < -NEAR,
            why=_PROFILE,
        ),
        claim(
            "budgets",
            "CS-A displaces less than CS-D, CS-C and CS-B",
            "LC-A best of the load classifiers",
            _spread({on: float(found[CS_A].mean()) for on, found in results.items()})
            + "; CS-D "
            + _spread({on: float(found[CS_D].mean()) for on, found in results.items()}),
            all(found[CS_A].mean() <= found[CS_D].mean() + NEAR for found in results.values()),
            better=ratios[most] > 2,
            why=_PROFILE,
        ),
    ]


def _chance(found: Mapping[str, Floats]) -> float:
    """Return how likely the frontier is behind by chance; 0 of few runs, which tell nothing."""
    each = np.array([found[name] for name in (FRONTIER, *FOUR)])
    return likely(each) if each.shape[1] >= TURNS_BEYOND else 0.0


def claims_rates(results: Results) -> list[Claim]:
    """Figures 5.2 to 5.6 on Spark."""
    every = loads(results)
    over = [load for load in every if load >= 1]
    return [
        *_deadline(results, every, over),
        *_displacement(results, every),
        *_window(results, every, over),
        _throughput(results, every),
        _told(results, every),
        _handler(results, over),
    ]


def _deadline(results: Results, every: list[float], over: list[float]) -> list[Claim]:
    latency = {load: typical(results, FRONTIER, load, "latency_s") for load in every}
    none = {load: typical(results, EMPTY, load, "latency_s") for load in over}
    early = {load: typical(results, FRONTIER, load, "shed_early") for load in every}
    shares = {load: kept(results, FRONTIER, load) for load in every}
    rivals = {
        load: max(kept(results, name, load) for name in NAMES if name not in (EMPTY, FRONTIER))
        for load in every
    }
    less = {load: chance(results, load, "kept", sign=-1.0) for load in every}
    return [
        claim(
            "rates",
            f"the frontier holds the limit of {LIMIT_S:g} s on average (× {HELD})",
            "2 s for a message",
            _by_load(latency, "{:.2f} s"),
            max(latency.values()) <= HELD * LIMIT_S,
            why=_NOISE,
        ),
        claim(
            "rates",
            "without a handler the limit breaks under overload",
            "from about 3,500 messages a second on",
            _by_load(none, "{:.1f} s"),
            none[max(none)] > LIMIT_S,
            why="the run is too short for the queue to grow",
        ),
        claim(
            "rates",
            "no row goes while any optional work is done",
            "beyond the range of CS nothing is done",
            f"{sum(early.values()):.0f} rows did; kept: {_by_load(shares, '{:.1%}')}",
            sum(early.values()) == 0,
            why="a batch was larger than told, or the limits on a plan came first",
        ),
        claim(
            "rates",
            "beyond that the fewest rows go: at least as many are kept as by any other (- 2 %, or "
            f"by chance: p ≥ {CHANCE:g})",
            "not compared",
            _by_load({load: shares[load] - rivals[load] for load in every}, "{:+.1%}")
            + _told_chance(less),
            all(shares[load] >= rivals[load] - 0.02 or less[load] >= CHANCE for load in every),
            why=_NOISE,
        ),
    ]


def _displacement(results: Results, every: list[float]) -> list[Claim]:
    ours = {load: typical(results, FRONTIER, load, "displaced") for load in every}
    best = {load: min(typical(results, n, load, "displaced") for n in FOUR) for load in every}
    latency = {load: typical(results, FRONTIER, load, "latency_s") for load in every}
    gap = {load: ours[load] - best[load] for load in every}
    likely = {load: chance(results, load, "displaced") for load in every}
    shed = {
        name: {load: typical(results, name, load, "displaced") for load in every}
        for name in (LS_R, LS_S)
    }
    return [
        claim(
            "rates",
            "at every rate the frontier displaces no more than the best of the four (+ "
            f"{NEAR:.0%}, or by chance: p ≥ {CHANCE:g}), within the limit",
            "left open (6.3.2)",
            f"{_by_load(gap, '{:+.2%}')}{_told_chance(likely)}; itself "
            f"{_by_load(ours, '{:.2%}')}; turns: "
            + "; ".join(_turns(results, name, every) for name in DEGRADING),
            all(gap[load] <= NEAR or likely[load] >= CHANCE for load in every)
            and max(latency.values()) <= HELD * LIMIT_S,
            better=min(gap.values()) < -NEAR,
            why=_NOISE,
        ),
        claim(
            "rates",
            "at every rate it displaces less than both shedders of rows (+ 1 %)",
            "all between 30 and 45 places; LS-S and LS-R do well",
            "; ".join(f"{name} {_by_load(found, '{:.2%}')}" for name, found in shed.items()),
            all(ours[load] <= min(f[load] for f in shed.values()) + NEAR for load in every),
            better=True,
            why=_NOISE,
        ),
    ]


def _window(results: Results, every: list[float], over: list[float]) -> list[Claim]:
    there = {
        name: {load: typical(results, name, load, "there") for load in every}
        for name in (FRONTIER, LS_R, LS_S)
    }
    more = [
        there[FRONTIER][load] > max(there[LS_R][load], there[LS_S][load])
        or there[FRONTIER][load] >= SAME
        for load in every
    ]
    return [
        claim(
            "rates",
            "under overload the window has more valid results than with LS-R and LS-S",
            "larger windows for all load classifiers",
            "; ".join(f"{name} {_by_load(found, '{:.0%}')}" for name, found in there.items()),
            all(more),
            better=any(
                there[FRONTIER][load] > 1.2 * max(there[LS_R][load], there[LS_S][load])
                for load in over
            ),
            why=_NOISE,
        )
    ]


def _throughput(results: Results, every: list[float]) -> Claim:
    ratio = {
        load: throughput(results, FRONTIER, load) / throughput(results, EMPTY, load)
        for load in every
    }
    return claim(
        "rates",
        "rows searched in a second, against all subtasks on all rows: more, the greater the load",
        "shorter application durations than the baseline",
        _by_load(ratio, "{:.2f} times"),
        ratio[max(ratio)] > 1 and ratio[max(ratio)] >= ratio[min(ratio)],
        better=ratio[max(ratio)] > 2,
        why="a fixed part of every batch is the engine's own time",
    )


def _told(results: Results, every: list[float]) -> Claim:
    """Compare what rows say of themselves with the final ranking, where no rows are missing."""
    full = [load for load in every if kept(results, FRONTIER, load) > SAME]
    told = {load: typical(results, FRONTIER, load, "told") for load in full}
    right = {load: typical(results, FRONTIER, load, "right") for load in full}
    gaps = {load: right[load] - told[load] for load in full}
    return claim(
        "rates",
        "beyond: rows say what they are worth; the ranking is at most 5 points worse than that",
        "not told",
        f"measured less told: {_by_load(gaps, '{:+.1%}')}; told {_by_load(told, '{:.1%}')}"
        if gaps
        else "rows were shed at every rate",
        bool(gaps) and min(gaps.values()) >= -TOLD,
        why="rows of different selections stand in one window",
    )


def _handler(results: Results, over: list[float]) -> Claim:
    taken = {
        name: 1e3 * float(np.mean([typical(results, name, load, "decided_s") for load in over]))
        for name in NAMES
        if name != EMPTY
    }
    least = max(taken[LS_R], taken[LS_S])
    return claim(
        "rates",
        f"deciding takes the shedders of rows least, and all of them less than {DECIDED_MS:g} ms",
        "LS-R and LS-S least, CS-D and CS-A longest: 0.01 ms for each message",
        ", ".join(f"{name} {value:.2f} ms" for name, value in taken.items()) + " for each batch",
        all(least <= taken[name] <= DECIDED_MS for name in DEGRADING),
        why="the plan was built anew in every batch",
    )


def _told_chance(likely: Mapping[float, float]) -> str:
    """Tell by how much chance differences are explained, where there are turns enough."""
    told = {load: p for load, p in likely.items() if p > 0}
    return f" (by chance: p = {_by_load(told, '{:.2f}')})" if told else ""


def _turns(results: Results, name: str, every: list[float]) -> str:
    """Tell the displacements of all turns, where there are several."""
    found = {load: turns(results, name, load, "displaced") for load in every}
    told = (
        f"{', '.join(f'{value:.1%}' for value in values)} at {load:g}"
        for load, values in found.items()
        if len(values) > 1
    )
    return f"{name} {' and '.join(told)}"


def _by_load(values: Mapping[float, float], form: str) -> str:
    return ", ".join(f"{form.format(value)} at {load:g}" for load, value in values.items())


def _spread(values: Mapping[str, float], show: Callable[[float], str] = "{:.1%}".format) -> str:
    return f"{show(min(values.values()))} to {show(max(values.values()))}"
