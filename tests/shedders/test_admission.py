"""The load shedder as an object: states, limits, messages, and clear refusals."""

from __future__ import annotations

import numpy as np
import pytest

from spillway.cost.sketch import SketchShape
from spillway.kernels import las
from spillway.shedders.admission import Admission, Aim, Condition, LoadShedder

MULTIPLIERS = SketchShape().multipliers
MS = 1_000_000


def model(costs_ms: dict[int, float]) -> las.Model:
    known = las.new_model(4, 54, buckets=64)
    machine = np.zeros(las.EAGER_SIZE, dtype=np.int64)
    for key, cost_ms in costs_ms.items():
        las.learn_row(machine, *known, MULTIPLIERS, key, int(cost_ms * MS), 1024)
    return known


def shedder(config: Admission, costs_ms: dict[int, float] | None = None) -> LoadShedder:
    return LoadShedder(config, model(costs_ms or {}), MULTIPLIERS)


def rows(*keys: int, every_ms: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    arrivals = (np.arange(len(keys)) * every_ms * MS).astype(np.int64)
    return np.array(keys, dtype=np.int64), arrivals


def test_of_an_unknown_row_the_whole_limit_is_feared() -> None:
    fresh = shedder(Admission(limit_ns=10 * MS, condition=Condition.EACH, margin=1.0))
    assert fresh.offer(*rows(1, 2, 3)).tolist() == [1.0, 1.0, 0.0]


def test_known_costs_decide_who_waits_too_long() -> None:
    config = Admission(limit_ns=10 * MS, condition=Condition.EACH, margin=1.0)
    known = shedder(config, {1: 4.0, 2: 9.0})
    assert known.offer(*rows(1, 2, 1, 1, every_ms=1.0)).tolist() == [1.0, 1.0, 0.0, 1.0]


def test_the_papers_shedder_passes_all_until_its_first_model() -> None:
    config = Admission(limit_ns=MS, faithful=True, factor=1.05)
    paper = shedder(config)
    assert paper.state == "NOP"
    assert paper.offer(*rows(*range(50))).all()
    paper.receive(model({1: 4.0}))
    assert paper.state == "SEND"
    assert paper.asks() is not None
    assert paper.state == "RUN"
    assert paper.asks() is None


def test_a_correction_moves_the_estimate_and_not_twice() -> None:
    config = Admission(limit_ns=10 * MS, sync_rows=1)
    known = shedder(config, {1: 4.0})
    known.offer(*rows(1))
    asked = known.asks()
    assert asked == (4 * MS, 0.0)
    for _ in range(2):
        known.correct(busy_ns=6 * MS)
    assert known.busy_until_ns == 10 * MS


def test_fewest_gives_up_what_costs_most_for_its_worth() -> None:
    config = Admission(limit_ns=50 * MS, aim=Aim.FEWEST)
    known = shedder(config, {1: 1.0, 2: 8.0})
    keys, arrivals = rows(*([1, 2] * 1000), every_ms=2.0)  # 2.25 times too much
    weights = known.offer(keys, arrivals)
    kept = {key: weights[keys == key].astype(bool).mean() for key in (1, 2)}
    assert kept[1] > 0.95
    assert 0.1 < kept[2] < 0.5
    worths = np.where(keys == 2, 100.0, 1.0)  # the costly ones are worth it
    other = shedder(config, {1: 1.0, 2: 8.0}).offer(keys, arrivals, worths=worths)
    assert other[keys == 2].astype(bool).mean() > kept[2]
    assert other[keys == 1].astype(bool).mean() < kept[1]


def test_unbiased_weights_add_up_to_the_rows() -> None:
    """A z-test over 60 runs, false-alarm rate 1e-4."""
    keys, arrivals = rows(*([1, 2, 3] * 1000), every_ms=2.0)
    config, totals = Admission(limit_ns=20 * MS, aim=Aim.UNBIASED), []
    for seed in range(60):
        uniforms = np.random.default_rng(seed).random(keys.size)
        known = shedder(config, {1: 1.0, 2: 4.0, 3: 9.0})
        totals.append(known.offer(keys, arrivals, uniforms=uniforms).sum())
    z = (np.mean(totals) - keys.size) / (np.std(totals, ddof=1) / np.sqrt(len(totals)))
    assert abs(z) < 3.9
    assert np.std(totals) > 0


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"limit_ns": -1}, "limit_ns"),
        ({"limit_ns": 1, "sync_rows": 0}, "sync_rows"),
        ({"limit_ns": 1, "condition_rows": 0}, "condition_rows"),
        ({"limit_ns": 1, "margin": 0.0}, "margin"),
        ({"limit_ns": 1, "margin": float("nan")}, "margin"),
        ({"limit_ns": 1, "factor": 0.5}, "factor"),
        ({"limit_ns": 1, "faithful": True, "aim": Aim.FEWEST}, "no other aim"),
        ({"limit_ns": 0, "aim": Aim.FEWEST}, "limit_ns"),
    ],
)
def test_nonsense_is_refused_by_name(options: dict[str, object], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Admission(**options)  # type: ignore[arg-type]


def test_unbiased_needs_numbers_to_decide_by() -> None:
    with pytest.raises(ValueError, match="uniforms"):
        shedder(Admission(limit_ns=MS, aim=Aim.UNBIASED)).offer(*rows(1))
