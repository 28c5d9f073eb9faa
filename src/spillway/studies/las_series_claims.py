"""What LAS's paper says about figure 9, phase by phase."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from spillway.studies.las_judge import CLOSE, DEFAULT, FAR, FULL, PAPER, STRAW, claim
from spillway.studies.study import Claim

Floats = NDArray[np.float64]


def series_claims(found: Mapping[str, Floats]) -> list[Claim]:
    """Figure 9: phases A to G, five windows each."""
    phases = {
        name: dict(zip("ABCDEFG", np.array_split(found[name], 7), strict=True)) for name in found
    }
    wait = {name: phases[f"{name}/latency_ms"] for name in (STRAW, PAPER, DEFAULT, FULL)}
    dropped = {name: phases[f"{name}/dropped"] for name in (STRAW, PAPER, DEFAULT, FULL)}
    late = {name: {p: float(v[2:].mean()) for p, v in wait[name].items()} for name in wait}
    share = {name: {p: float(v.mean()) for p, v in dropped[name].items()} for name in dropped}
    slow = "the sketch mixes old and new costs until it is stable, and the correction waits in the "
    slow += "queue that it should prevent; the shipped LAS does not"

    def text(name: str, phase: str) -> str:
        return f"{name} {late[name][phase]:.3g} ms"

    return [
        claim(
            "9",
            "A: LAS quickly does as well as Full Knowledge, Straw-Man's latency grows",
            "diverge",
            f"{text(PAPER, 'A')}, {text(FULL, 'A')}, {text(STRAW, 'A')}",
            late[PAPER]["A"] <= 64 and late[STRAW]["A"] > late[FULL]["A"],
        ),
        claim(
            "9",
            "B: all drop about half of the rows",
            "larger amounts",
            ", ".join(f"{name} {share[name]['B']:.0%}" for name in share),
            all(0.4 < share[name]["B"] < 0.6 for name in share),
        ),
        claim(
            "9",
            "D: Full Knowledge and LAS drop more and stay close to τ, Straw-Man drops the same",
            "close to 64 ms; strong deterioration",
            f"{text(PAPER, 'D')}, {text(FULL, 'D')}, {text(STRAW, 'D')}",
            late[PAPER]["D"] <= 64 * CLOSE and late[STRAW]["D"] > FAR * 64,
        ),
        claim(
            "9",
            "E: over-provisioned, nobody drops anything",
            "no tuple dropped",
            ", ".join(f"{name} {share[name]['E']:.2%}" for name in share),
            all(share[name]["E"] < 0.005 for name in share),
        ),
        claim(
            "9",
            "F: LAS starts far above τ and converges towards it, Straw-Man diverges",
            "converges within the phase",
            f"LAS {wait[PAPER]['F'][0]:.3g} ms, at the end {wait[PAPER]['F'][-1]:.3g} ms; "
            f"Straw-Man {wait[STRAW]['F'][-1]:.3g} ms",
            wait[PAPER]["F"][-1] <= 64 * CLOSE,
            why=slow,
        ),
        claim(
            "9",
            "G: little effect on LAS, Straw-Man cannot recover",
            "little effect; not recovered",
            f"{text(PAPER, 'G')} and {share[PAPER]['G']:.0%} dropped, {text(STRAW, 'G')}",
            late[PAPER]["G"] <= 64 * CLOSE
            and share[PAPER]["G"] <= share[FULL]["G"] + 0.05
            and late[STRAW]["G"] > FAR * 64,
            why="LAS pays in G for the queue that it let grow in F: it drops most rows until that "
            "queue is done",
        ),
        claim(
            "9",
            "beyond: the shipped LAS is as good as Full Knowledge in every phase",
            "not claimed",
            ", ".join(f"{p}: {late[DEFAULT][p]:.3g} / {late[FULL][p]:.3g} ms" for p in "ABCDEFG"),
            all(late[DEFAULT][p] <= 1.1 * max(late[FULL][p], 1.0) for p in "ABCDEFG"),
            better=True,
        ),
    ]
