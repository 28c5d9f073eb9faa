"""The LAS study: deterministic, resumable slices, and claims that can fail."""

from __future__ import annotations

import numpy as np
import pytest

from spillway.studies.las import PRELUDE, STUDY, Setting, Sweep
from spillway.studies.las_beyond import aim_claims, cold_claims
from spillway.studies.las_claims import provisioning_claims
from spillway.studies.las_series import PHASE_ROWS, PHASES, TIME_SERIES, phases
from spillway.studies.las_series_claims import series_claims
from spillway.studies.study import Point


def figure(name: str) -> Sweep:
    job = STUDY.figure(name)
    assert isinstance(job, Sweep)
    return job


def test_the_figures_and_run_counts_are_the_papers() -> None:
    assert [job.id for job in STUDY.figures[:6]] == ["4", "5", "6", "7", "8", "9"]
    assert {figure(name).runs for name in "45678"} == {5000}
    default = Setting()
    assert (default.share, default.limit_ms, default.zipf, default.epsilon) == (
        0.25,
        6.4,
        1.0,
        0.05,
    )
    assert default.shedding("LAS", 0).shape.columns == 54


def test_slices_of_runs_join_to_the_whole() -> None:
    job, point = figure("aims"), Point("25%")
    whole = job.compute(point, range(3), 1)
    parts = [job.compute(point, runs, 1) for runs in (range(1), range(1, 3))]
    assert whole == {key: parts[0][key] + parts[1][key] for key in whole}
    assert job.compute(point, range(1), 2) != parts[0]


def test_5000_runs_are_100_associations_of_50_orders() -> None:
    setting = Setting(rows=64)
    streams = [setting.streams(run)[0] for run in (0, 99, 100)]
    assert streams[0].keys.tolist() == streams[1].keys.tolist()
    assert streams[0].keys.tolist() != streams[2].keys.tolist()
    assert streams[0].costs_ns.tolist() != streams[1].costs_ns.tolist()


def test_the_prelude_is_at_half_load_and_before_the_measured_rows() -> None:
    bare, whole = Setting(rows=1000).streams(3)
    assert whole.rows == bare.rows + PRELUDE
    assert whole.keys[PRELUDE:].tolist() == bare.keys.tolist()
    gap = float(np.diff(whole.arrivals_ns[:PRELUDE]).mean())
    assert gap == pytest.approx(2 * bare.cost_ns_mean, rel=1e-6)


def test_the_phases_change_rate_keys_and_costs_as_described() -> None:
    stream = phases(1, 1)
    parts = {
        phase: slice(i * PHASE_ROWS, (i + 1) * PHASE_ROWS - 1) for i, phase in enumerate(PHASES)
    }
    gaps = {phase: float(np.diff(stream.arrivals_ns[rows]).mean()) for phase, rows in parts.items()}
    assert gaps["B"] == pytest.approx(gaps["A"] / 2, rel=1e-6)
    assert gaps["E"] == pytest.approx(gaps["A"] * 1.5, rel=1e-6)
    costs = {phase: float(stream.costs_ns[rows].mean()) for phase, rows in parts.items()}
    assert costs["F"] > 1.9 * costs["A"]
    assert costs["G"] == pytest.approx(costs["A"], rel=0.03)
    assert (stream.keys[parts["A"]] == 0).mean() > 0.1 > (stream.keys[parts["D"]] == 0).mean()


def test_the_time_series_has_five_windows_a_phase_and_the_shipped_las_follows_full_knowledge() -> (
    None
):
    found = {
        key: np.array(values)
        for key, values in TIME_SERIES.compute(TIME_SERIES.points()[0], range(1), 1).items()
    }
    assert {len(values) for values in found.values()} == {35}
    claims = series_claims(found)
    assert claims[-1].verdict == "holds better"
    TIME_SERIES.draw({"phases": found})


def test_claims_fail_where_results_contradict_them() -> None:
    def found(cold_ms: float, shipped_ms: float) -> dict[str, dict[str, np.ndarray]]:
        keys = {"LAS, cold start/latency_ms": cold_ms, "LAS default/latency_ms": shipped_ms}
        return {"25%": {key: np.array([value]) for key, value in keys.items()}}

    assert cold_claims(found(500.0, 6.0))[0].held
    assert not cold_claims(found(500.0, 6.5))[0].held
    assert not cold_claims(found(6.0, 6.0))[0].held

    def aims(full: float, fewest: float) -> dict[str, dict[str, np.ndarray]]:
        keys = {
            "Full Knowledge/dropped": full,
            "LAS fewest/dropped": fewest,
            "LAS fewest/latency_ms": 5.0,
            "LAS unbiased/latency_ms": 7.0,
        }
        return {"25%": {key: np.array([value]) for key, value in keys.items()}}

    assert aim_claims(aims(0.25, 0.17))[0].held
    assert not aim_claims(aims(0.25, 0.18))[0].held
    assert not aim_claims(aims(0.25, 0.17))[1].held


def test_figure_4_is_computed_drawn_and_judged_from_a_few_runs() -> None:
    job = figure("4")
    results = {
        point.label: {
            key: np.array(values) for key, values in job.compute(point, range(3), 1).items()
        }
        for point in job.quick_points()
    }
    drawn = job.draw(results)
    assert [series.name for series in drawn.panels[0].series] == list(job.names)
    judged = {claim.statement: claim for claim in provisioning_claims(results)}
    assert judged["Full Knowledge always abides by τ"].held
    assert judged["beyond: the shipped LAS meets τ from the first row on, at every point"].held
