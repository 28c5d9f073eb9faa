"""The values of a study: what is run, what is drawn, what is claimed.

A study is a list of figures. A figure is a list of points (its x axis, or its configurations);
a point is computed `runs` times, every run from its own number, so that any slice of the runs can
be computed anywhere and the numbers stay the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Param = float | int | str
Verdict = Literal["holds", "holds better", "does not hold"]
VERDICTS: tuple[Verdict, ...] = ("holds", "holds better", "does not hold")

# Label of a point -> key that `compute` returned -> the values of all runs, in order of the runs.
Results = Mapping[str, Mapping[str, NDArray[np.float64]]]

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class Point:
    """One configuration of a figure; its label names it, its parameters are its identity.

    >>> Point("k = 2", {"instances": 2}).params["instances"]
    2
    """

    label: str
    params: Mapping[str, Param] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Reject parameters that a cache key cannot tell apart."""
        for name, value in self.params.items():
            if isinstance(value, bool) or not isinstance(value, str | int | float):
                raise ValueError(f"params[{name!r}] must be a number or a text, got {value!r}")


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a panel: a mean per x, and the band around it if there is one."""

    name: str
    x: tuple[float | str, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...] | None = None
    high: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        """Reject a line whose parts are of different lengths, and half a band."""
        if (self.low is None) != (self.high is None):
            raise ValueError(f"low and high must come together, got one of them in {self.name!r}")
        for name in ("mean", "low", "high"):
            part = getattr(self, name)
            if part is not None and len(part) != len(self.x):
                raise ValueError(
                    f"{name} of series {self.name!r} must have {len(self.x)} values, "
                    f"as x has, got {len(part)}"
                )


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes; `lines` are named horizontal marks, such as an objective.

    `borders` are named vertical ones: what begins at that x, such as a phase.
    """

    y_label: str
    series: tuple[Series, ...]
    x_label: str = ""
    y_log: bool = False
    lines: tuple[tuple[str, float], ...] = ()
    borders: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Figure:
    """A picture: its panels from top to bottom. The id is also its file's name."""

    id: str
    title: str
    panels: tuple[Panel, ...]

    def __post_init__(self) -> None:
        """Reject an id that is no file name, and a picture of nothing."""
        check_id("Figure.id", self.id)
        if not self.panels:
            raise ValueError(f"panels of figure {self.id!r} must be one or more, got none")


@dataclass(frozen=True, slots=True)
class Claim:
    """What the paper states beside what we measured; `why` explains a difference.

    >>> Claim("figure-1", "error falls with k", "2 %", "1.4 %", "holds").verdict
    'holds'
    >>> Claim("figure-1", "error falls with k", "2 %", "1.4 %", "nearly")
    Traceback (most recent call last):
    ValueError: verdict must be one of 'holds', 'holds better', 'does not hold', got 'nearly'
    """

    figure: str
    statement: str
    paper: str
    ours: str
    verdict: Verdict
    why: str = ""

    def __post_init__(self) -> None:
        """Reject verdicts that are none."""
        if self.verdict not in VERDICTS:
            known = ", ".join(map(repr, VERDICTS))
            raise ValueError(f"verdict must be one of {known}, got {self.verdict!r}")

    @property
    def held(self) -> bool:
        """Whether what the paper states was found here too."""
        return self.verdict != "does not hold"


class FigureJob(Protocol):
    """A figure as work: points to compute, then a picture and claims from their results.

    `compute` gets a slice of the runs and returns for every key a list of numbers; the lists of
    all slices are joined in order of the runs. It must depend on nothing but its arguments: run
    `i` draws from a generator seeded with (seed, i), never from one shared by the slice.
    A job is sent to other processes by its place in the study, so it may hold anything.
    """

    @property
    def id(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def runs(self) -> int: ...
    @property
    def quick_runs(self) -> int: ...

    def points(self) -> Sequence[Point]: ...
    def quick_points(self) -> Sequence[Point]: ...
    def compute(self, point: Point, runs: range, seed: int) -> dict[str, list[float]]: ...
    def draw(self, results: Results) -> Figure: ...
    def claims(self, results: Results) -> list[Claim]: ...


@dataclass(frozen=True, slots=True)
class Study:
    """A paper's figures. A new `version` forgets what was computed by an older one."""

    name: str
    title: str
    figures: tuple[FigureJob, ...]
    version: int = 1

    def __post_init__(self) -> None:
        """Reject names that are no file names, and two figures of one id."""
        check_id("Study.name", self.name)
        ids = [job.id for job in self.figures]
        for index, name in enumerate(ids):
            check_id("figures' ids", name)
            if name in ids[:index]:
                raise ValueError(f"figures' ids must differ, got {name!r} twice")

    def figure(self, name: str) -> FigureJob:
        """Return the figure of that id."""
        for job in self.figures:
            if job.id == name:
                return job
        known = ", ".join(job.id for job in self.figures)
        raise ValueError(f"figure must be one of {known}, got {name!r}")


def check_id(what: str, text: str) -> None:
    """Reject a text that cannot stand as a file's name."""
    if not _ID.fullmatch(text):
        raise ValueError(f"{what} must be letters, digits, '.', '_' and '-', got {text!r}")
