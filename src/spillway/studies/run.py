"""Computes a study in slices: on all cores, from the cache where it can, the same every time.

A slice is some runs of one point. Its result is written at once as a checked file, so a study that
was interrupted goes on where it stopped; a damaged file is computed again. Numbers depend on the
seed and the run alone, never on the number of workers or their order.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import wait
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from spillway.state import files
from spillway.studies.study import FigureJob, Point, Results, Study

STUDIES = {
    "las": "spillway.studies.las",
    "posg": "spillway.studies.posg",
    "cod": "spillway.studies.cod",
    "dissp": "spillway.studies.dissp",
    "cs": "spillway.studies.cs",
}
ON_SPARK = {
    "las": "spillway.studies.las_on_spark",
    "posg": "spillway.studies.posg_on_spark",
    "cod": "spillway.studies.cod_on_spark",
    "dissp": "spillway.studies.dissp_on_spark",
    "cs": "spillway.studies.cs_on_spark",
}
WITH_DATA = ("cod", "cs")  # they have points on real data, if a folder of it is named
CACHE = Path(".spillway-study")
SLICE_RUNS = 25  # seconds to a minute of work: what an interruption may cost
_KIND = "study slice"

Values = dict[str, NDArray[np.float64]]


class StudyError(Exception):
    """A slice could not be computed; the message names figure, point and runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What to compute: the module that holds the study, which figures (all if none), the seed.

    `data` is the folder of real data, for studies that have points on such.
    """

    module: str
    figures: tuple[str, ...] = ()
    seed: int = 1
    quick: bool = False
    data: str | None = None

    @property
    def study(self) -> Study:
        """The study that the module holds."""
        module = import_module(self.module)
        study: Study = module.STUDY if self.data is None else module.with_data(self.data)
        return study

    @property
    def words(self) -> str:
        """The study as the command line names it, such as `las --on spark`."""
        words = self.study.name.replace("-on-", " --on ")
        return words if self.data is None else f"{words} --data FOLDER"

    @property
    def jobs(self) -> tuple[FigureJob, ...]:
        """The chosen figures, in the study's order; an unknown one is refused by name."""
        chosen = {self.study.figure(name).id for name in self.figures}
        return tuple(job for job in self.study.figures if not chosen or job.id in chosen)

    def points(self, job: FigureJob) -> tuple[Point, ...]:
        """The points of a figure; each has a label of its own."""
        points = tuple(job.quick_points() if self.quick else job.points())
        labels = [point.label for point in points]
        for index, label in enumerate(labels):
            if label in labels[:index]:
                raise StudyError(f"figure {job.id}: two points have the label {label!r}")
        return points

    def runs(self, job: FigureJob) -> int:
        """How often each point of a figure is run."""
        return job.quick_runs if self.quick else job.runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """Some runs of one point, and the file for their result; travels to the workers."""

    order: Order
    figure: str
    point: Point
    first: int
    last: int
    folder: Path

    def __str__(self) -> str:
        """Name the slice for errors."""
        runs = f"runs {self.first} to {self.last - 1}"
        return f"figure {self.figure}, point {self.point.label!r}, {runs}"

    @property
    def key(self) -> str:
        """All that the result depends on, as text."""
        study = self.order.study
        return json.dumps(
            {
                "study": study.name,
                "version": study.version,
                "figure": self.figure,
                "point": self.point.label,
                "params": dict(sorted(self.point.params.items())),
                "runs": [self.first, self.last],
                "seed": self.order.seed,
                "quick": self.order.quick,
            }
        )

    @property
    def path(self) -> Path:
        """Where the result is kept."""
        digest = hashlib.sha256(self.key.encode()).hexdigest()[:32]
        return self.folder / self.figure / f"{digest}.json"

    def compute(self) -> None:
        """Compute the runs and write their numbers down."""
        job = self.order.study.figure(self.figure)
        try:
            found = job.compute(self.point, range(self.first, self.last), self.order.seed)
            values = {key: _numbers(key, numbers) for key, numbers in found.items()}
        except Exception as error:
            raise StudyError(f"{self}: {type(error).__name__}: {error}") from error
        # Bytes and not digits: bit for bit the same when read again, NaN and infinity included.
        body = {key: numbers.tobytes() for key, numbers in values.items()}
        files.write(self.path, _KIND, _Body(key=self.key, values=body))

    def read(self) -> Values | None:
        """Return the numbers written down; None if there are none or the file is damaged."""
        try:
            body = files.decode(self.path.read_bytes(), _KIND, _Body)
            if body.key != self.key:
                return None
            return {key: np.frombuffer(raw, "<f8") for key, raw in body.values.items()}
        except (FileNotFoundError, files.BadStateFile, ValueError):
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Body:
    key: str
    values: dict[str, bytes]


def run(
    order: Order,
    *,
    workers: int,
    cache: Path = CACHE,
    fresh: bool = False,
    on_done: Callable[[Slice], None] = lambda _: None,
) -> dict[str, Results]:
    """Compute the figures of an order; the results by figure, point and key.

    `on_done` hears of every slice that is there, first of those found in the cache; `fresh` looks
    for none there.
    """
    if workers < 1:
        raise ValueError(f"workers must be >= 1, got {workers}")
    slices = slices_of(order, cache)
    missing = []
    for part in slices:
        if fresh or part.read() is None:
            missing.append(part)
        else:
            on_done(part)
    with closing(_computed(missing, workers)) as done:
        for part in done:
            on_done(part)
    return {job.id: _results([p for p in slices if p.figure == job.id]) for job in order.jobs}


def slices_of(order: Order, cache: Path = CACHE) -> list[Slice]:
    """Return all slices of an order, figure by figure."""
    folder = cache.absolute() / order.study.name
    return [
        Slice(order=order, figure=job.id, point=point, first=first, last=last, folder=folder)
        for job in order.jobs
        for point in order.points(job)
        for first, last in _bounds(order.runs(job))
    ]


def _bounds(runs: int) -> Iterator[tuple[int, int]]:
    if runs < 1:
        raise StudyError(f"runs must be >= 1, got {runs}")
    for first in range(0, runs, SLICE_RUNS):
        yield first, min(first + SLICE_RUNS, runs)


def _results(slices: list[Slice]) -> Results:
    """Join the slices of a figure, in order of the runs."""
    parts: dict[str, list[Values]] = {}
    for part in slices:
        values = part.read()
        if values is None:
            raise StudyError(f"{part}: its result {part.path} vanished or was damaged")
        before = parts.setdefault(part.point.label, [])
        if before and before[0].keys() != values.keys():
            raise StudyError(f"{part}: keys must be {list(before[0])}, got {list(values)}")
        before.append(values)
    return {
        label: {key: np.concatenate([values[key] for values in found]) for key in found[0]}
        for label, found in parts.items()
    }


def _computed(slices: list[Slice], workers: int) -> Generator[Slice, None, None]:
    """Compute the slices and yield each when it is done.

    The first one is computed here: what must be compiled is compiled once, not by every worker.
    """
    here = len(slices) if workers == 1 else 1
    for part in slices[:here]:
        part.compute()
        yield part
    if slices[here:]:
        yield from _computed_by_workers(slices[here:], workers)


def _computed_by_workers(slices: list[Slice], workers: int) -> Generator[Slice, None, None]:
    with _pool(min(workers, len(slices))) as pool:
        futures = {pool.submit(part.compute): part for part in slices}
        for future in as_completed(futures):
            try:
                future.result()
            except BrokenProcessPool as error:
                raise StudyError(f"a worker died, perhaps for lack of memory: {error}") from error
            yield futures[future]


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Run workers that end with this block, however it ends.

    They are started anew and not forked: a fork copies the locks of compiled code and of the
    progress bar's thread in whatever state they are.
    """
    before = set(multiprocessing.active_children())
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker)
    try:
        yield pool
        pool.shutdown()
    except BaseException:  # also Ctrl-C: what is done is in the cache, the rest is given up
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in set(multiprocessing.active_children()) - before:
            worker.terminate()
        raise


def _start_worker() -> None:
    """Leave Ctrl-C to the parent, and end when the parent ends, even if it was killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_leave_after, args=(parent.sentinel,), daemon=True).start()


def _leave_after(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)


def _numbers(key: str, numbers: object) -> NDArray[np.float64]:
    """Return the numbers of one key; anything but a list of numbers is refused."""
    found = np.asarray(numbers, dtype="<f8")
    if found.ndim != 1:
        raise ValueError(f"compute must return a list of numbers for {key!r}, got {numbers!r}")
    return found
