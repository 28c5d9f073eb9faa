"""Schedules: arrivals and counts agree to the row, and texts say what they mean or are refused."""

import gzip
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.workload.rate import Schedule, parse_rate

DURATION_S = 60.0
SPECS = [
    "3000",
    "0.7",
    "steps:0=3000,20=24000,40=3000",
    "steps:0=0,5=7.5,6=0,9=1",
    "sine:mean=5000,amplitude=4000,period=60",
    "sine:mean=10,amplitude=10,period=7",
    "flash:base=1000,peak=20000,at=10,rise=2,decay=8",
]


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    steps_s = draw(st.lists(st.floats(1e-3, 1e4), min_size=1, max_size=8))
    sizes = st.one_of(st.just(0.0), st.floats(0, 1e6), st.integers(0, 50).map(float))
    steps_rows = draw(st.lists(sizes, min_size=len(steps_s), max_size=len(steps_s)))
    return Schedule(
        knots_s=np.cumsum([0.0, *steps_s]),
        knots_rows=np.cumsum([0.0, *steps_rows]),
    )


def has_arrived(schedule: Schedule, row: int, t_s: float) -> bool:
    return bool(schedule.arrival_s(np.array([row]))[0] <= t_s)


@given(schedule=schedules(), row=st.integers(0, 2**21), t_s=st.floats(-10, 1e5))
def test_a_row_has_arrived_iff_it_is_counted(schedule: Schedule, row: int, t_s: float) -> None:
    assert has_arrived(schedule, row, t_s) == (row < schedule.rows_by(t_s))


@given(schedule=schedules(), pick=st.floats(0, 1))
def test_the_instant_of_arrival_is_exact_to_the_last_bit(schedule: Schedule, pick: float) -> None:
    if schedule.rows_total == 0:
        return
    row = min(int(pick * schedule.rows_total), schedule.rows_total - 1)
    at_s = float(schedule.arrival_s(np.array([row]))[0])
    assert schedule.rows_by(np.nextafter(at_s, -np.inf)) <= row < schedule.rows_by(at_s)


@given(schedule=schedules())
def test_arrivals_never_go_back_and_stay_within_the_duration(schedule: Schedule) -> None:
    rows = np.arange(min(schedule.rows_total, 5000))
    arrivals = schedule.arrival_s(rows)
    assert (np.diff(arrivals) >= 0).all()
    assert ((arrivals > 0) & (arrivals <= schedule.duration_s)).all()


@pytest.mark.parametrize("spec", SPECS)
def test_counts_are_the_integral_of_the_rate(spec: str) -> None:
    schedule = parse_rate(spec, DURATION_S)
    grid_s = np.arange(0, DURATION_S, 1e-3)
    integral = np.cumsum([schedule.rate_at(t) for t in grid_s]) * 1e-3
    for second in (7, 13, 21, 45, 60):
        expected = integral[second * 1000 - 1]
        assert schedule.rows_by(float(second)) == pytest.approx(expected, rel=1e-2, abs=1.5)


@pytest.mark.parametrize("spec", SPECS)
def test_nothing_arrives_before_the_start_nor_after_the_end(spec: str) -> None:
    schedule = parse_rate(spec, DURATION_S)
    assert schedule.duration_s == DURATION_S
    assert schedule.rows_by(-1.0) == schedule.rows_by(0.0) == 0
    assert schedule.rows_by(DURATION_S) == schedule.rows_by(1e9) == schedule.rows_total
    assert schedule.rate_at(-0.1) == schedule.rate_at(DURATION_S) == 0
    assert schedule.arrival_s(np.array([schedule.rows_total])) == np.inf


def test_steps_are_exact() -> None:
    schedule = parse_rate("steps:0=3000,20=24000,40=3000", 60)
    counts = [schedule.rows_by(t) for t in (10, 20, 21, 40, 60)]
    assert counts == [30_000, 60_000, 84_000, 540_000, 600_000]
    assert (schedule.rate_at(19.99), schedule.rate_at(20)) == pytest.approx((3000, 24000))


@pytest.mark.parametrize("rate", [1, 7, 1000, 24_000])
def test_whole_rates_give_whole_seconds_their_exact_count(rate: int) -> None:
    schedule = parse_rate(str(rate), 100)
    assert [schedule.rows_by(t) for t in range(101)] == [rate * t for t in range(101)]


def test_steps_after_the_duration_are_cut() -> None:
    assert parse_rate("steps:0=10,5=20,99=1000", 10).rows_total == 150


def test_a_sine_swings_between_mean_plus_and_minus_amplitude() -> None:
    schedule = parse_rate("sine:mean=5000,amplitude=4000,period=60", 60)
    assert schedule.rows_total == 300_000
    assert schedule.rate_at(15) == pytest.approx(9000, rel=0.01)
    assert schedule.rate_at(45) == pytest.approx(1000, rel=0.01)


def test_a_flash_crowd_rises_linearly_and_decays_exponentially() -> None:
    schedule = parse_rate("flash:base=1000,peak=21000,at=10,rise=2,decay=8", 200)
    rates = [schedule.rate_at(t) for t in (5, 11, 12, 20, 190)]
    assert rates == pytest.approx([1000, 11_000, 21_000, 1000 + 20_000 / np.e, 1000], rel=0.03)
    assert schedule.rows_total == pytest.approx(200 * 1000 + 20_000 * (1 + 8), abs=1)


def test_a_flash_crowd_that_starts_at_once_or_never_is_a_schedule_too() -> None:
    assert parse_rate("flash:base=0,peak=10,at=0,rise=1,decay=1", 5).rate_at(0) >= 0
    assert parse_rate("flash:base=5,peak=10,at=99,rise=1,decay=1", 10).rows_total == 50


@pytest.mark.parametrize("name", ["counts.csv", "counts.csv.gz"])
@pytest.mark.parametrize("head", ["", "count\n"])
def test_a_file_gives_the_count_of_every_second(tmp_path: Path, name: str, head: str) -> None:
    path = write(tmp_path / name, head + "5\n0\n3\n")
    schedule = parse_rate(f"file:{path}", 3)
    assert [schedule.rows_by(t) for t in (1, 1.9, 2, 3)] == [5, 5, 5, 8]


def test_the_last_column_counts_unless_another_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "counts.csv", "time,requests,bytes\n21:30,2,100\n21:31,4,200\n")
    assert parse_rate(f"file:{path}", 2).rows_total == 300
    assert parse_rate(f"file:{path},column=requests", 2).rows_total == 6


def test_a_file_is_scaled_skipped_and_stretched(tmp_path: Path) -> None:
    path = write(tmp_path / "counts.csv", "count\n100\n60\n30\n")
    assert parse_rate(f"file:{path},scale=0.1,skip=1", 2).rows_total == 9
    assert parse_rate(f"file:{path},every=60,skip=60", 60).rows_total == 60
    assert parse_rate(f"file:{path},every=60", 30).rows_total == 50


def test_rows_end_where_the_file_ends(tmp_path: Path) -> None:
    schedule = parse_rate(f"file:{write(tmp_path / 'counts.csv', '4' + chr(10))}", 10)
    assert (schedule.rows_total, schedule.duration_s, schedule.rate_at(5)) == (4, 10, 0)


@pytest.mark.parametrize(
    ("spec", "names"),
    [
        ("", ["number", "''"]),
        ("-5", [">= 0", "'-5'"]),
        ("nan", ["finite", "'nan'"]),
        ("3000/s", ["finite number", "'3000/s'"]),
        ("wave:mean=1", ["flash", "steps", "'wave:mean=1'"]),
        ("steps:5=100", ["start at 0", "'5=100'"]),
        ("steps:0=1,9=2,3=4", ["increase", "'0=1,9=2,3=4'"]),
        ("steps:0=1,20", ["name=value", "'20'"]),
        ("steps:0=-1", [">= 0", "'-1'"]),
        ("sine:mean=5,amplitude=6,period=60", ["amplitude <= mean"]),
        ("sine:mean=5,amplitude=1,period=0", ["'period'", "> 0", "0.0"]),
        ("sine:mean=5,amplitude=1,period=6,phase=1", ["amplitude, mean, period", "phase=1"]),
        ("sine:mean=5,mean=5,period=6", ["amplitude, mean, period"]),
        ("flash:base=9,peak=1,at=1,rise=1,decay=1", ["peak >= base"]),
        ("flash:base=1,peak=2,at=1,rise=0,decay=1", ["'rise'", "> 0"]),
        ("file:/no/such/file.csv", ["existing file", "'/no/such/file.csv'"]),
        ("file:/x,speed=2", ["scale, skip, column or every", "'speed'"]),
    ],
)
def test_a_bad_text_is_refused_by_part_rule_and_value(spec: str, names: list[str]) -> None:
    with pytest.raises(ValueError, match="rate") as refusal:
        parse_rate(spec, 60)
    assert all(name in str(refusal.value) for name in names), str(refusal.value)


@pytest.mark.parametrize(
    ("text", "more", "names"),
    [
        ("count\n1\nmany\n", "", ["finite number", "'many'"]),
        ("count\n1\n-2\n", "", [">= 0", "'-2'"]),
        ("count\n1\n", ",skip=5", ["after the first 5"]),
        ("a,b\n1,2\n", ",column=c", ["['a', 'b']", "'c'"]),
        ("a,b\n1,2\n3\n", ",column=b", ["finite number", "''"]),
        ("count\n1\n", ",every=0", ["'every'", "> 0"]),
    ],
)
def test_a_bad_file_is_refused(tmp_path: Path, text: str, more: str, names: list[str]) -> None:
    path = write(tmp_path / "counts.csv", text)
    with pytest.raises(ValueError, match="rate") as refusal:
        parse_rate(f"file:{path}{more}", 60)
    assert all(name in str(refusal.value) for name in names), str(refusal.value)


@pytest.mark.parametrize("duration_s", [0.0, -1.0, float("nan"), float("inf")])
def test_a_duration_is_positive_and_finite(duration_s: float) -> None:
    with pytest.raises(ValueError, match="duration_s must be positive and finite"):
        parse_rate("10", duration_s)


@pytest.mark.parametrize(
    ("knots_s", "knots_rows", "rule"),
    [
        ([0.0], [0.0], "knots_s must be two or more"),
        ([0.0, np.nan], [0.0, 1.0], "knots_s must be two or more finite"),
        ([1.0, 2.0], [0.0, 1.0], "knots_s must be .* from 0 on"),
        ([0.0, 1.0], [0.0, 1.0, 2.0], "one length, got 2 and 3"),
        ([0.0, 1.0, 1.0], [0.0, 1.0, 2.0], "knots_s must increase strictly"),
        ([0.0, 1.0, 2.0], [0.0, 2.0, 1.0], "knots_rows must not fall"),
        ([0.0, 1.0], [0.0, 1e18], r"pass 2\*\*53"),
    ],
)
def test_knots_that_are_no_schedule_are_refused(
    knots_s: list[float], knots_rows: list[float], rule: str
) -> None:
    with pytest.raises(ValueError, match=rule):
        Schedule(knots_s=np.array(knots_s), knots_rows=np.array(knots_rows))


def test_questions_that_make_no_sense_are_refused() -> None:
    schedule = parse_rate("10", 1)
    with pytest.raises(ValueError, match="t_s must be a number, got nan"):
        schedule.rows_by(float("nan"))
    with pytest.raises(ValueError, match="rows must be >= 0, got -1"):
        schedule.arrival_s(np.array([-1]))


def test_a_schedule_cannot_be_changed_from_outside() -> None:
    knots_s = np.array([0.0, 1.0])
    schedule = Schedule(knots_s=knots_s, knots_rows=np.array([0.0, 5.0]))
    knots_s[1] = 99.0
    assert schedule.duration_s == 1.0
    with pytest.raises(ValueError, match="read-only"):
        schedule.knots_rows[1] = 6.0


def test_a_schedule_survives_pickling() -> None:
    schedule = parse_rate("sine:mean=50,amplitude=40,period=6", 60)
    copy = pickle.loads(pickle.dumps(schedule))
    rows = np.arange(schedule.rows_total)
    assert (copy.arrival_s(rows) == schedule.arrival_s(rows)).all()


def write(path: Path, text: str) -> Path:
    data = text.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path
