"""The CoD study: windows, rivals, data from a folder, and claims that can fail."""

from __future__ import annotations

import gzip
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from spillway.cli import app
from spillway.estimate import groups as estimate
from spillway.studies import (
    cod,
    cod_beyond,
    cod_claims,
    cod_data,
    cod_drift,
    cod_rivals,
    cod_strata,
    report,
)
from spillway.studies.cod_data import Made, Recorded
from spillway.studies.cod_judge import FEW, MADE, RUN, SCALAR, by_run, mean, p95
from spillway.studies.cod_limits import LEAST, VARIATION, least_error, limits
from spillway.studies.cod_rivals import ALL, BEFORE, COD, PAPER, RESERVOIRS, SHIPPED, UNIFORM, equal
from spillway.studies.cod_strata import IN_STRATA
from spillway.studies.cod_windows import Pair, Rows, Window, judge, pairs, starts_of
from spillway.studies.run import Order
from spillway.studies.study import Point

SMALL = Made(rows=3_000, windows=2, routes=500)


def rows(time_s: list[float], group: list[int], value: list[float]) -> Rows:
    return Rows(time_s=np.array(time_s), group=np.array(group), value=np.array(value))


def window(group: list[int], value: list[float]) -> Window:
    return Window.of(rows([0.0] * len(group), group, value))


def small_pair(seed: int = 1) -> Pair:
    return next(iter(SMALL.pairs(0, seed)))


# Windows ------------------------------------------------------------------------------------


def test_a_window_knows_its_groups_exactly() -> None:
    found = window([7, 3, 7, 3, 9], [10.0, 1.0, 14.0, 3.0, 5.0])
    assert found.names.tolist() == [3, 7, 9]
    assert found.rows.tolist() == [2, 2, 1]
    assert found.groups.means.tolist() == [2.0, 12.0, 5.0]
    assert found.groups.variances[:2].tolist() == [2.0, 8.0]
    assert np.isnan(found.groups.variances[2])


def test_windows_slide_and_each_has_the_one_before() -> None:
    stream = rows(list(map(float, range(10))), [0] * 10, list(map(float, range(10))))
    starts = starts_of(stream, size_s=4.0, slide_s=2.0)
    assert starts.tolist() == [0.0, 2.0, 4.0]
    cut = list(pairs(stream, starts, size_s=4.0, slide_s=2.0))
    assert [pair.window.value.tolist() for pair in cut] == [
        [0, 1, 2, 3],
        [2, 3, 4, 5],
        [4, 5, 6, 7],
    ]
    assert cut[0].before.value.tolist() == [0, 1]  # as far as there is one
    assert cut[1].before.value.tolist() == [0, 1, 2, 3]


def test_what_is_kept_whole_is_exact_and_what_is_missing_errs_by_100_percent() -> None:
    found = window([1, 1, 2, 3], [10.0, 20.0, 5.0, 8.0])
    shuffled = found.shuffled(np.random.default_rng(0))
    assert judge(found, shuffled, found.rows) == (0.0, 1.0, 0.0)
    error, kept, missing = judge(found, shuffled, np.array([2, 0, 1]))
    assert (error, kept, missing) == (pytest.approx(1 / 3), 0.75, pytest.approx(1 / 3))
    nothing = judge(found, shuffled, np.zeros(3, dtype=int))
    assert nothing == (1.0, 0.0, 1.0)


def test_what_is_found_is_what_the_shipped_estimate_says() -> None:
    pair = small_pair()
    kept = cod_rivals.by_concept(pair.window, 300)[SHIPPED]
    shuffled = pair.window.shuffled(np.random.default_rng(5))
    found = estimate.means(shuffled.sample(kept)).value
    truth = pair.window.groups.means
    expected = np.abs(found / truth - 1).mean()
    assert judge(pair.window, shuffled, kept).error == pytest.approx(expected)


def test_every_row_of_a_group_is_as_likely_to_be_kept() -> None:
    """Chi-square of 4,000 draws of 2 of 6 rows: the limit is passed by chance once in 1,000."""
    found = window([4] * 6 + [2] * 3, [float(i) for i in range(9)])
    counts = np.zeros(6)
    for seed in range(4_000):
        sample = found.shuffled(np.random.default_rng(seed)).sample(np.array([0, 2]))
        counts[sample.values.astype(int)] += 1
    assert ((counts - 8_000 / 6) ** 2 / (8_000 / 6)).sum() * 6 / 4 < 20.5


# Rivals -------------------------------------------------------------------------------------


def test_all_rivals_are_measured_and_cod_loses_no_group() -> None:
    found = cod_rivals.measure(small_pair(), 0.98, np.random.default_rng(1))
    assert set(found) == set(ALL)
    assert all(found[name].missing == 0 for name in COD)
    assert found[UNIFORM].missing > 0.5
    assert found[SHIPPED].error < 0.1 < found[UNIFORM].error


def test_strata_of_the_value_keep_no_more_and_err_less_where_groups_are_frequent() -> None:
    pair = next(iter(replace(SMALL, routes=5, rows=20_000).pairs(0, 1)))
    window, random = pair.window, np.random.default_rng(1)
    parts, parents = cod_strata.strata_of(window)
    assert np.bincount(parents, parts.rows).tolist() == window.rows.tolist()
    assert cod_strata.sizes(parts, parents, 800).sum() == 800
    errors = [cod_strata.in_strata(window, 800, random) for _ in range(20)]
    plain = [cod_rivals.measure(pair, 0.96, random)[SHIPPED] for _ in range(20)]
    assert {each.missing for each in errors} == {0.0}
    ratio = np.mean([each.error for each in plain]) / np.mean([each.error for each in errors])
    assert ratio > 2.0


def test_rivals_at_equal_rows_keep_as_many_as_cod() -> None:
    pair, random = small_pair(), np.random.default_rng(2)
    total = int(cod_rivals.by_concept(pair.window, 300)[SHIPPED].sum())
    kept = cod_rivals.at_equal_rows(pair, total, random)
    assert kept[UNIFORM].sum() == kept[RESERVOIRS].sum() == total
    for sizes in kept.values():
        assert ((sizes >= 0) & (sizes <= pair.window.rows)).all()
    expected = [
        cod_rivals.at_equal_rows(pair, total, np.random.default_rng(i))[BEFORE].sum()
        for i in range(50)
    ]
    # 50 binomial totals of standard deviation below sqrt(total): 4 standard errors.
    assert np.mean(expected) == pytest.approx(total, abs=4 * (total / 50) ** 0.5)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=20), st.integers(0, 400))
def test_reservoirs_are_equal_up_to_one_row_and_hold_what_is_asked(
    sizes: list[int], total: int
) -> None:
    there = np.array(sizes)
    kept = cod_rivals.reservoirs(there, total, np.random.default_rng(3))
    assert kept.sum() == min(total, there.sum())
    assert (kept <= there).all()
    cut = kept[kept < there]
    if cut.size:
        assert cut.max() - cut.min() <= 1
        assert kept.max() <= cut.min() + 1


def test_sample_by_keeps_nothing_of_a_group_that_the_window_before_had_not() -> None:
    pair = Pair(window([1] * 50 + [3] * 2, [1.0] * 52), window([1] * 50 + [2] * 40, [2.0] * 90))
    found = cod_rivals.fractions(pair, 20)
    assert found[1] == 0
    assert 0 < found[0] < 1
    kept = cod_rivals.at_equal_rows(pair, 60, np.random.default_rng(0))[BEFORE]
    assert kept.tolist() == [50, 0]  # all that can be


# Limits -------------------------------------------------------------------------------------


def stated_error(rows: np.ndarray, variation: np.ndarray, kept: np.ndarray) -> float:
    return float((2 / np.pi) ** 0.5 * (variation * np.sqrt(1 / kept - 1 / rows)).mean())


@given(
    st.lists(st.tuples(st.integers(1, 6), st.floats(0.01, 2.0)), min_size=1, max_size=4), st.data()
)
def test_no_allocation_errs_less_than_the_least_possible(
    groups: list[tuple[int, float]], data: st.DataObject
) -> None:
    """By brute force over all whole numbers of rows, one at least of every group."""
    rows, variation = (np.array(each, dtype=float) for each in zip(*groups, strict=True))
    budget = data.draw(st.integers(rows.size, int(rows.sum())))
    ways = product(*(range(1, int(n) + 1) for n in rows))
    errors = [stated_error(rows, variation, np.array(k)) for k in ways if sum(k) <= budget]
    assert least_error(rows, variation, budget) <= min(errors) * (1 + 1e-3) + 1e-9


def test_the_least_possible_error_is_met_where_it_can_be() -> None:
    """Large groups: k ∝ v^(2/3). A small one is kept whole rather than beyond its half."""
    rows, variation = np.full(3, 1e9), np.array([0.1, 0.4, 2.0])
    kept = 3000 * variation ** (2 / 3) / (variation ** (2 / 3)).sum()
    assert least_error(rows, variation, 3000) == pytest.approx(
        stated_error(rows, variation, kept), rel=1e-4
    )
    small = np.array([10.0, 1e9])
    whole = stated_error(small, np.ones(2), np.array([10.0, 20.0]))
    assert least_error(small, np.ones(2), 30) == pytest.approx(whole, rel=1e-4)


def test_cod_is_close_to_the_least_possible_and_rows_that_do_not_vary_have_no_limits() -> None:
    pair = next(iter(Made(rows=20_000, windows=1, routes=50).pairs(0, 1)))
    kept = cod_rivals.by_concept(pair.window, 1_000)[SHIPPED]
    found = limits(pair.window, float(kept.sum()))
    spread = np.sqrt(pair.window.groups.variances) / pair.window.groups.means
    ours = stated_error(pair.window.rows, spread, kept)
    assert ours / 1.05 < found[f"{LEAST}/error"] <= ours
    assert 0 < found[f"{VARIATION}/low"] < found[f"{VARIATION}/high"]
    assert set(limits(window([1, 2], [3.0, 4.0]), 2).values()) == {0.0}


# Drift --------------------------------------------------------------------------------------


def test_drift_counts_what_is_new_and_what_is_common() -> None:
    before = window(list(range(10)), [float(i) + 1 for i in range(10)])
    later = window([*range(5, 15)], [float(i) + 1 for i in range(10)])
    found = cod_drift.drift(Pair(before, later))
    assert found["distance"] == 0.5
    assert found["overlap"] == pytest.approx(5 / 15)
    assert found["frequencies"] == pytest.approx(0.5)
    assert cod_drift.drift(Pair(before, before)) == {
        "distance": 0.0,
        "overlap": 1.0,
        "frequencies": 0.0,
    }


def test_the_top_ten_are_the_groups_of_the_highest_mean() -> None:
    group, value = list(range(12)), [float(i) for i in range(12)]
    assert cod_drift.top(window(group, value)) == set(range(2, 12))


# The figures --------------------------------------------------------------------------------


def test_without_a_folder_only_made_rides_are_there() -> None:
    assert [job.id for job in cod.STUDY.figures] == [
        "2",
        "9",
        "10",
        "allocations",
        "drift",
        "coverage",
    ]
    labels = {point.label for job in cod.STUDY.figures for point in job.points()}
    assert not any(label.startswith(("taxi", "Google", "packets")) for label in labels)
    rates = [point.params["shed"] for point in cod.STUDY.figure("10").points()]
    assert rates == [0.98, 0.9, 0.75, 0.5]


def small(name: str) -> cod.Accuracy:
    job = cod.STUDY.figure(name)
    assert isinstance(job, cod.Accuracy)
    return job


def test_slices_of_runs_join_to_the_whole() -> None:
    job = small("9")
    point = next(point for point in job.quick_points() if point.label == FEW)
    whole = job.compute(point, range(2), 1)
    parts = [job.compute(point, runs, 1) for runs in (range(1), range(1, 2))]
    assert whole == {key: parts[0][key] + parts[1][key] for key in whole}
    assert job.compute(point, range(1), 2) != parts[0]
    assert len(whole[RUN]) == 2  # one window a run


def fake(errors: dict[str, float], *, missing: float = 0.0) -> dict[str, np.ndarray]:
    """Four windows of two runs, with these errors; 5 % for all others, 2 % kept."""
    found = {RUN: np.array([0.0, 0.0, 1.0, 1.0])}
    for name in ALL:
        found[f"{name}/error"] = np.full(4, errors.get(name, 0.05))
        found[f"{name}/kept"] = np.full(4, 0.02)
        found[f"{name}/missing"] = np.full(4, missing)
    found[f"{LEAST}/error"] = np.full(4, 0.03)
    for part, size in {"low": 0.1, "middle": 0.2, "high": 0.5}.items():
        found[f"{VARIATION}/{part}"] = np.full(4, size)
    return found


def missed(claims: list[report.Claim]) -> list[str]:
    return [claim.statement for claim in claims if not claim.held]


GOOD = {UNIFORM: 0.9, PAPER: 0.05, SHIPPED: 0.04, IN_STRATA: 0.02, equal(UNIFORM): 0.4}


def test_accuracy_claims_hold_for_what_must_be_and_not_for_what_must_not() -> None:
    assert missed(cod_claims.accuracy_claims({MADE: fake(GOOD)})) == []
    claims = cod_claims.accuracy_claims({MADE: fake(GOOD, missing=0.1)})
    assert missed(claims) == [f"{MADE}: no group is missing with CoD"]
    claims = cod_claims.accuracy_claims({MADE: fake({**GOOD, SHIPPED: 0.2})})
    assert len(missed(claims)) == 3  # ten times below, about 10 %, below every rival
    claims = cod_claims.accuracy_claims({MADE: fake({**GOOD, equal(RESERVOIRS): 0.03})})
    assert len(missed(claims)) == 1
    assert "at equal kept rows" in missed(claims)[0]
    claims = cod_claims.accuracy_claims({MADE: fake({**GOOD, UNIFORM: 0.3})})
    assert len(missed(claims)) == 3  # neither exceeds 80 %, nor is ten times either's error


def scalar(more: list[float]) -> dict[str, np.ndarray]:
    found = fake({})
    found[RUN] = np.arange(4.0)
    found[f"{SHIPPED}/error"] = 0.05 + np.array(more)
    return found


def test_a_scalar_is_equal_within_noise_and_not_beyond() -> None:
    assert missed(cod_claims.accuracy_claims({SCALAR: scalar([0.01, -0.01, 0.005, 0.0])})) == []
    assert missed(cod_claims.accuracy_claims({SCALAR: scalar([0.01, 0.011, 0.01, 0.01])})) != []


def test_allocation_and_volume_claims_can_fail() -> None:
    well = {PAPER: 0.06, SHIPPED: 0.04, IN_STRATA: 0.02}
    assert missed(cod_claims.allocation_claims({FEW: fake(well)})) == []
    for name in (SHIPPED, IN_STRATA):
        (found,) = missed(cod_claims.allocation_claims({FEW: fake({**well, name: 0.05})}))
        assert f"beyond: {name} errs" in found
    more = fake({**well, IN_STRATA: 0.05})
    more[f"{IN_STRATA}/kept"] += 0.01
    claims = cod_claims.allocation_claims({FEW: more})
    assert [IN_STRATA in each.statement for each in claims] == [False], "it kept more rows"
    rates = {
        f"{MADE}, {100 - 10 * i}% shed": fake({**GOOD, UNIFORM: 0.9 - 0.2 * i}) for i in range(3)
    }
    assert missed(cod_claims.volume_claims(rates)) == [
        f"{MADE}: and keeps 25 times fewer rows for it"
    ]
    worse = {**rates, f"{MADE}, 50% shed": fake({SHIPPED: 0.06, UNIFORM: 0.01})}
    assert len(missed(cod_claims.volume_claims(worse))) == 5


def changing(after: float, before: float) -> dict[str, np.ndarray]:
    found = fake({})
    found = {key: np.tile(values, 8) for key, values in found.items()}
    found[RUN] = np.repeat(np.arange(4.0), 8)
    place = np.arange(32) % 4
    noise = np.linspace(-0.001, 0.001, 32)
    found[f"{SHIPPED}/error"] = np.where(place == 0, after, 0.05) + noise
    found[f"{equal(BEFORE)}/error"] = np.where(place == 0, before, 0.1)
    return found


@pytest.mark.parametrize(
    ("after", "before", "lost"), [(0.05, 0.9, 0), (0.07, 0.9, 1), (0.05, 0.1, 1), (0.03, 0.9, 0)]
)
def test_change_claims_compare_the_window_after_a_change_with_the_others(
    after: float, before: float, lost: int
) -> None:
    assert len(missed(cod_beyond.change_claims({MADE: changing(after, before)}))) == lost


def test_after_a_change_only_the_rival_that_looks_back_errs_more() -> None:
    job = small("drift")
    point = job.quick_points()[0]
    found = {key: np.array(values) for key, values in job.compute(point, range(2), 1).items()}
    after, steady = cod_beyond.changed(found, f"{equal(BEFORE)}/error")
    assert after.mean() > 1.5 * steady.mean()
    after, steady = cod_beyond.changed(found, f"{SHIPPED}/error")
    assert after.mean() < 1.2 * steady.mean()


def test_coverage_counts_only_groups_that_are_kept_in_part() -> None:
    groups = [0] * 100 + [1] * 2 + [2]
    values = [*np.linspace(1, 2, 100), 5.0, 6.0, 7.0]
    found = cod_beyond.covered(window(groups, values), 0.5, np.random.default_rng(0))
    assert sum(found[f"{size}/groups"] for size in cod_beyond.SIZES) == 1
    assert found["more/groups"] == 1
    results = {key: np.array([value]) for key, value in found.items()}
    assert cod_beyond.share(results, "mean") in (0.0, 1.0)


def test_coverage_claims_can_fail_on_either_side() -> None:
    def counted(hits: float) -> dict[str, np.ndarray]:
        found = {f"{size}/groups": np.array([100.0]) for size in cod_beyond.SIZES}
        names = cod_beyond.STATISTICS
        return found | {f"{n}/{size}": np.array([hits]) for n in names for size in cod_beyond.SIZES}

    job = cod.STUDY.figure("coverage")
    assert [len(missed(job.claims({"all": counted(hits)}))) for hits in (92, 95, 98)] == [2, 0, 2]


def test_means_over_windows_are_by_run_and_percentiles_over_all() -> None:
    found = {RUN: np.array([0.0, 0.0, 1.0]), "a/error": np.array([0.1, 0.3, 0.6])}
    assert by_run(found, "a/error").tolist() == [0.2, 0.6]
    assert mean(found, "a") == pytest.approx(0.4)
    assert p95(found, "a") == pytest.approx(0.57)


@pytest.mark.parametrize("name", ["9", "10", "allocations", "drift"])
def test_every_figure_can_be_drawn_from_few_windows(name: str) -> None:
    job = small(name)
    results = {point.label: drawn(point) for point in job.quick_points()}
    figure = job.draw(results)
    assert len({line.name for panel in figure.panels for line in panel.series}) <= 6
    assert report.draw.inline_svg(figure).startswith("<svg")


def drawn(point: Point) -> dict[str, np.ndarray]:
    found = {key: np.tile(values, 4) for key, values in fake(GOOD).items()}
    found[RUN] = np.repeat([0.0, 1.0], 8)
    return found


# A folder of real data ----------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Tiny traces in the formats of the real ones, out of order where those are."""
    head = (
        "VendorID,lpep_pickup_datetime,lpep_dropoff_datetime,PULocationID,DOLocationID,fare_amount"
    )
    rides = [
        f"2,2020-03-01 {hour:02}:{minute:02}:00,2020-03-01 23:59:00,{74 + minute % 3},75,{fare}"
        for hour in (1, 0)
        for minute in range(0, 60, 5)
        for fare in (10.0 + minute, -3.0)
    ]
    _write(tmp_path / "taxi_green_tlc" / "green_2020-03.csv.gz", [head, *rides])
    events = [f"0,,1,0,5,0,u,{i % 4},9,0.5,,," for i in range(3)]
    events += [
        f"{600_000_000 + i * 60_000_000},,1,0,5,0,u,{i % 4},{i % 2},0.5,,," for i in range(99)
    ]
    events += ["6600000000,,1,0,5,0,u,0,9,,,,"]
    _write(tmp_path / "google_task_events" / "task_events_part-00000-of-00500.csv.gz", events)
    packets = ["timestamp_us,size_bytes", *(f"{i * 1_000_000},{64 + i}" for i in range(100))]
    _write(tmp_path / "packets" / "bc_pAug89_first100k_with_size.csv.gz", packets)
    return tmp_path


def _write(path: Path, lines: list[str]) -> None:
    path.parent.mkdir()
    with gzip.open(path, "wt") as file:
        file.write("\n".join(lines) + "\n")


def test_rides_are_read_in_order_without_those_that_cost_nothing(folder: Path) -> None:
    (taxi,) = cod_data.read(str(folder), "taxi")
    assert taxi.value.size == 24
    assert (np.diff(taxi.time_s) >= 0).all()
    assert taxi.group[:3].tolist() == [74_075, 76_075, 75_075]
    assert taxi.value.min() == 10.0


def test_events_are_read_from_the_start_on_and_with_a_request(folder: Path) -> None:
    (events,) = cod_data.read(str(folder), "google")
    assert events.value.size == 99
    assert set(events.group.tolist()) == {0, 1, 2, 3}
    (fine,) = cod_data.read(str(folder), "google fine")
    assert set(fine.group.tolist()) == {0, 101, 200, 301}


def test_a_run_takes_its_share_of_the_windows(folder: Path) -> None:
    taxi = Recorded(folder=str(folder), kind="taxi", size_s=1800.0, slide_s=600.0, stride=2)
    found = [sum(1 for _ in taxi.pairs(run, 1)) for run in range(2)]
    assert sum(found) == 9  # 10 full windows; nothing is before the first
    assert abs(found[0] - found[1]) <= 1
    assert taxi.params["bytes"] == (folder / "taxi_green_tlc/green_2020-03.csv.gz").stat().st_size


def test_with_a_folder_the_real_points_are_there(folder: Path) -> None:
    study = cod.with_data(str(folder))
    labels = {point.label for point in study.figure("9").points()}
    assert labels == {"packets", "Google", "Google, class and priority", "taxi"} | {
        *(point.label for point in cod.STUDY.figure("9").points())
    }
    (folder / "packets" / "bc_pAug89_first100k_with_size.csv.gz").unlink()
    assert cod_data.present(str(folder)) == {"taxi", "google"}


@pytest.mark.parametrize("figure", ["2", "9", "10", "allocations"])
def test_every_figure_with_data_computes_draws_and_claims(folder: Path, figure: str) -> None:
    order = Order(module="spillway.studies.cod", figures=(figure,), data=str(folder))
    (job,) = order.jobs
    points = [p for p in job.points() if p.label.startswith(("taxi", "Google", "packets"))]
    results = {
        point.label: {
            key: np.array(values) for key, values in job.compute(point, range(3), 1).items()
        }
        for point in points
    }
    assert {claim.figure for claim in job.claims(results)} == {figure}
    assert job.draw(results).id == figure


def test_a_folder_without_any_data_is_refused_by_name(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        app, ["study", "cod", "--data", str(tmp_path)], env={"COLUMNS": "300"}
    )
    assert result.exit_code == 2
    assert "data must be a folder with taxi_green_tlc/green_*.csv.gz or" in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["cod", "--data", "/nowhere"], "'/nowhere' does not exist"),
        (["las", "--data", "."], "--data is for cod, cs, got it with 'las'"),
        (["cod", "7"], "figure must be one of 2, 9, 10, allocations, drift, coverage, got '7'"),
    ],
)
def test_wrong_arguments_are_refused_with_2(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["study", *arguments], env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert message in " ".join(result.output.replace("│", " ").split())


def test_without_data_the_command_says_what_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["study", "cod", "2", "--quick"], env={"COLUMNS": "200"})
    assert result.exit_code in (0, 1), result.output
    assert "No --data FOLDER: what needs real data is left out." in result.output


def test_the_report_names_the_command_but_not_the_folder(folder: Path) -> None:
    order = Order(module="spillway.studies.cod", figures=("9",), data=str(folder))
    assert report.command(order) == "spillway study cod --data FOLDER 9 --seed 1"
