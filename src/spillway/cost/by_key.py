"""What rows cost by their key, learnt from the operator's own reports (LAS and POSG on Spark).

A cost model is asked while a batch waits, on Spark Connect in a fresh Python worker, where a second
is long: what needs compiled code happens when it learns, and the table that the gate looks up is
ready in the state.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from spillway.cost import pace, start
from spillway.cost.average import AverageCost, mean_cost
from spillway.values import CostState, CostTable, Forecast, Observation

if TYPE_CHECKING:
    from spillway.cost.heavy import HeavySketch
    from spillway.cost.sketch import CostSketch

_FIXED_BATCHES = 9  # the latest ones' median is what a batch takes beside its operator
_ROWS_TRUSTED = 256  # fewer do not say that costs have changed, or that instances differ
_ZIPPED = b"\x78"
_INSTANCES_PACED = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class CostByKey:
    """The mean cost of every key, exact for the heavy ones, and what a batch takes for its work.

    Where no operator reports, this is `AverageCost`. Where one does, a batch is foreseen as what it
    takes beside the operator and the operator's span, from what the rows that come in cost. A
    batch whose work is more than `changed` off what its keys should have cost replaces what was
    known; else it is merged, single keys that are so far off lose half of their past, and beyond
    `rows_max` rows the whole model does.

    >>> CostByKey().forecast(CostState(samples=((100.0, 1.0),) * 4), 200.0)
    Forecast(fixed_s=0.5, work_s=1.0, surge=1.0)
    """

    line: AverageCost = field(default_factory=AverageCost)
    changed: float = 0.25
    rows_max: int = 65_536
    instances_max: int = 64
    uneven: float = 1.25

    def __post_init__(self) -> None:
        """Reject thresholds that mean nothing."""
        if not 0 < self.changed < math.inf:
            raise ValueError(f"changed must be finite and > 0, got {self.changed}")
        if self.rows_max < 2:
            raise ValueError(f"rows_max must be >= 2, got {self.rows_max}")
        if self.instances_max < 0:
            raise ValueError(f"instances_max must be >= 0, got {self.instances_max}")
        if not 1 < self.uneven < math.inf:
            raise ValueError(f"uneven must be finite and > 1, got {self.uneven}")

    def learn(self, state: CostState, seen: Observation) -> CostState:
        """Return the state after one more batch; damaged reports are passed over."""
        state = replace(state, samples=self.line.learn(state, seen).samples)
        if not seen.tasks:
            return replace(state, work=()) if seen.rows_kept else state
        return self._learn_keys(self._learn_work(state, seen), seen)

    def forecast(self, state: CostState, rows: float) -> Forecast | None:
        """Predict `fixed + span of the work`, or without reports `fixed + rows * C`.

        The operator's own clock tells both apart: no line needs to be fitted.
        """
        if not state.work:
            return self.line.forecast(state, rows)
        work_s, span_s, duration_s = np.asarray(state.work).T
        fixed_s = float(np.median((duration_s - span_s)[-_FIXED_BATCHES:]))
        weights = np.power(self.line.decay, np.arange(len(work_s), dtype=np.float64)[::-1])
        spread = mean_cost(work_s, span_s, weights)  # 1 for one task, 1/k for k equal ones
        return Forecast(fixed_s=fixed_s, work_s=rows * state.row_ns / 1e9 * spread)

    def table(self, state: CostState) -> CostTable | None:
        """Return what keys cost; None before the first report with a key."""
        return state.table

    def _learn_work(self, state: CostState, seen: Observation) -> CostState:
        """Note how long the batch took for its work, and what a row that comes in costs."""
        if not (seen.rows_kept > 0 and seen.work_s > 0 and 0 < seen.duration_s < math.inf):
            return state
        sample = (seen.work_s, seen.work_span_s, seen.duration_s)
        work = (*state.work, sample)[-self.line.window :]
        starts = start.remember(state.starts, seen.tasks)
        return replace(state, work=work, starts=starts, row_ns=_row_ns(state.row_ns, seen))

    def _learn_keys(self, state: CostState, seen: Observation) -> CostState:
        from spillway.cost.fade import fade_contradicted

        reports = [
            (task.instance, sketch) for task in seen.tasks if (sketch := read_costs(task.costs))
        ]
        batch = _merged(sketch for _, sketch in reports)
        if batch is None or not batch.rows_seen:
            return state
        model, by_instance = read_costs(state.costs), self._by_instance(state, reports)
        if model is None or self._has_changed(model, batch):
            model, by_instance = batch, self._by_instance(CostState(), reports)
        else:
            state = replace(state, paced=pace.remember(state.paced, _worked(model, reports)))
            fade_contradicted(model, batch, self.changed)
            model.merge(batch)
        unseen_ns = batch.mean_ns * _ratio(seen.cost_ns_mean, seen.cost_ns_kept)
        return self._kept(state, model, by_instance, unseen_ns)

    def _kept(
        self,
        state: CostState,
        model: HeavySketch,
        by_instance: tuple[CostSketch, ...],
        unseen_ns: float,
    ) -> CostState:
        """Let what is too old fade, and put all into the state."""
        from spillway.cost.fade import fade, fade_sketch
        from spillway.cost.table import pack

        if model.rows_seen > self.rows_max:
            fade(model)
        for sketch in by_instance:
            if sketch.rows_seen > self.rows_max:
                fade_sketch(sketch)
        uneven = by_instance if self._uneven(model, by_instance) else ()
        return replace(
            state,
            costs=_zipped(model.to_bytes()),
            instances=tuple(_zipped(sketch.to_bytes()) for sketch in by_instance),
            table=replace(
                pack(model, uneven, unseen_ns=unseen_ns),
                paces=pace.paces(state.paced),
                delays_ns=start.delays_ns(state.starts),
            ),
        )

    def _has_changed(self, model: HeavySketch, batch: HeavySketch) -> bool:
        """Compare what the batch took with what the model foresees for those very rows."""
        if batch.rows_seen < _ROWS_TRUSTED:
            return False
        foreseen = _meant_ns(model, batch)
        return not abs(batch.work_total_ns - foreseen) <= self.changed * foreseen

    def _by_instance(
        self, state: CostState, reports: list[tuple[int, HeavySketch]]
    ) -> tuple[CostSketch, ...]:
        """Return one sketch for each instance, with this batch; none if there are too many."""
        last = max((instance for instance, _ in reports), default=-1)
        if last >= self.instances_max or min(instance for instance, _ in reports) < 0:
            return ()
        known = [_read_sketch(data) for data in state.instances]
        known += [_read_sketch(b"") for _ in range(last + 1 - len(known))]
        for instance, sketch in reports:
            _add(known[instance], sketch)
        return tuple(known)

    def _uneven(self, model: HeavySketch, by_instance: tuple[CostSketch, ...]) -> bool:
        """Say whether some instance is slower than another for the same keys."""
        shared = _read_sketch(b"")
        _add(shared, model)
        pace = [
            sketch.work_total_ns / max(_foreseen_ns(shared, sketch, model.mean_ns), 1.0)
            for sketch in by_instance
            if sketch.rows_seen >= _ROWS_TRUSTED
        ]
        return len(pace) > 1 and max(pace) > self.uneven * min(pace)


def _row_ns(before_ns: float, seen: Observation) -> float:
    """Return what a row that comes in costs: as measured on the kept ones, by ratio.

    The estimates say how much dearer the rows that came in were than those that were kept; they
    cancel out where all cost the same. Few rows move what was known only in part.
    """
    kept_ns = seen.work_s * 1e9 / seen.rows_kept
    ratio = _ratio(seen.cost_ns_mean, seen.cost_ns_kept)
    trust = min(1.0, seen.rows_kept / _ROWS_TRUSTED) if before_ns > 0 else 1.0
    return trust * kept_ns * ratio + (1.0 - trust) * before_ns


def _ratio(came_ns: float | None, kept_ns: float | None) -> float:
    if came_ns is None or kept_ns is None or not (came_ns > 0 and kept_ns > 0):
        return 1.0
    ratio = came_ns / kept_ns
    return ratio if 0 < ratio < math.inf else 1.0


def _worked(
    model: HeavySketch, reports: list[tuple[int, HeavySketch]]
) -> list[tuple[float, float, float]]:
    """Return what every instance did, by a model that has not learnt from these very rows."""
    known = {i: sketch for i, sketch in reports if 0 <= i < _INSTANCES_PACED}
    worked = [(0.0, 0.0, 0.0)] * (max(known, default=-1) + 1)
    for i, sketch in known.items():
        took_ns = float(sketch.work_total_ns)
        worked[i] = (float(sketch.rows_seen), took_ns, _meant_ns(model, sketch))
    return worked


def _meant_ns(model: HeavySketch, rows: HeavySketch) -> float:
    """Return what rows should take: the heavy keys one by one, the others by their cells."""
    counts = rows.table[2][rows.table[2] > 0]
    heavy_ns = float(counts @ model.estimate_ns(rows.heavy_keys))
    return heavy_ns + _foreseen_ns(model.sketch, rows.sketch, model.mean_ns)


def _foreseen_ns(model: CostSketch, rows: CostSketch, unseen_ns: float) -> float:
    """Return what these rows should take: their cells at the model's means."""
    means = np.full(model.frequency.shape, unseen_ns)
    np.divide(model.work_ns, model.frequency, out=means, where=model.frequency > 0)
    return float((rows.frequency * means).sum(axis=1).mean())


def _add(sketch: CostSketch, heavy: HeavySketch) -> None:
    """Add both parts of a heavy sketch to a plain one."""
    from spillway.kernels.table import add_keys

    sketch.merge(heavy.sketch)
    keys, _, counts, work_ns = (part[heavy.table[2] > 0] for part in heavy.table)
    add_keys(sketch.frequency, sketch.work_ns, sketch.multipliers, keys, counts, work_ns)


def _merged(sketches: Iterable[HeavySketch]) -> HeavySketch | None:
    merged: HeavySketch | None = None
    for sketch in sketches:
        if merged is None:
            merged = sketch.copy()
        else:
            merged.merge(sketch)
    return merged


def read_costs(data: bytes) -> HeavySketch | None:
    """Read what a state or a report holds; None if that is nothing, damaged or of another size."""
    from spillway.cost.heavy import HeavySketch

    try:
        read = HeavySketch.from_bytes(_unzipped(data))
    except (ValueError, zlib.error):
        return None
    usual = HeavySketch()
    same = (read.shape, read.capacity, read.places) == (usual.shape, usual.capacity, usual.places)
    return read if same else None


def _read_sketch(data: bytes) -> CostSketch:
    """Read the sketch of an instance; an empty one if there is none, or it is damaged."""
    from spillway.cost.sketch import CostSketch

    try:
        read = CostSketch.from_bytes(_unzipped(data))
    except (ValueError, zlib.error):
        return CostSketch()
    return read if read.shape == CostSketch().shape else CostSketch()


def _zipped(data: bytes) -> bytes:
    return zlib.compress(data, level=1)


def _unzipped(data: bytes) -> bytes:
    """Return the data of a state, or of a task, which does not compress: that begins otherwise."""
    return zlib.decompress(data) if data[:1] == _ZIPPED else data
