"""A study whose figures fail, each in its own way."""

from __future__ import annotations

import multiprocessing
import os
from dataclasses import dataclass

from spillway.studies.study import Point, Study
from tests.studies.fake import Curve


@dataclass(frozen=True)
class Raises(Curve):
    id: str = "raises"

    def compute(self, point: Point, runs: range, seed: int) -> dict[str, list[float]]:
        if runs.start == 25 and point.label == "k = 2":
            raise ZeroDivisionError("no k")
        return {"error": [0.0] * len(runs)}


@dataclass(frozen=True)
class Dies(Curve):
    id: str = "dies"

    def compute(self, point: Point, runs: range, seed: int) -> dict[str, list[float]]:
        if multiprocessing.parent_process() is not None:  # the first slice is computed here
            os._exit(9)
        return super().compute(point, runs, seed)


@dataclass(frozen=True)
class Changes(Curve):
    id: str = "changes"

    def compute(self, point: Point, runs: range, seed: int) -> dict[str, list[float]]:
        return {f"from {runs.start}": [0.0]}


@dataclass(frozen=True)
class Babbles(Curve):
    id: str = "babbles"

    def compute(self, point: Point, runs: range, seed: int) -> dict[str, list[float]]:
        return {"error": [[1.0], [2.0]]}  # type: ignore[list-item]


@dataclass(frozen=True)
class Twins(Curve):
    id: str = "twins"

    def points(self) -> list[Point]:
        return [Point("same", {"k": 1}), Point("same", {"k": 2})]


STUDY = Study("broken", "Broken", (Raises(), Dies(), Changes(), Babbles(), Twins()))
