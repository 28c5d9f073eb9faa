"""The application: real and made rides, the query on a sample, and one short run."""

from __future__ import annotations

import gzip
from datetime import datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import Row, SparkSession
from typer.testing import CliRunner

from apps.taxi_routes import rides
from apps.taxi_routes.__main__ import app
from apps.taxi_routes.rides import Choice
from apps.taxi_routes.run import Settings, run
from apps.taxi_routes.show import Summary, heading, line
from apps.taxi_routes.top import TopRoutes


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A day of rides in the format of the real ones: one a minute, the latest first."""
    head = "lpep_pickup_datetime,PULocationID,DOLocationID,fare_amount"
    lines = [
        f"2020-03-01 {minute // 60:02}:{minute % 60:02}:00,{1 + minute % 2},3,{minute - 500.0}"
        for minute in range(24 * 60 - 1, -1, -1)
    ]
    (tmp_path / "taxi_green_tlc").mkdir()
    with gzip.open(tmp_path / "taxi_green_tlc" / "green_2020-03.csv.gz", "wt") as file:
        file.write("\n".join([head, *lines]) + "\n")
    zones = (
        "LocationID,borough,zone,centroid_lon,centroid_lat\n1,EWR,Airport,0,0\n3,Bronx,Park,0,0\n"
    )
    (tmp_path / rides.ZONES).write_text(zones)
    return tmp_path


def test_real_rides_are_those_of_the_hours_with_a_fare_in_order(folder: Path) -> None:
    found = rides.load(Choice(data=str(folder), first_hour=8, hours=1))
    assert found.fare.tolist() == [float(fare) for fare in range(1, 40)]  # 8:21 to 8:59
    assert set(found.route.tolist()) == {1_003, 2_003}
    assert datetime.fromtimestamp(found.pickup_s[0]).minute == 21


def test_routes_are_named_by_their_zones(folder: Path) -> None:
    zones = rides.names(str(folder))
    assert rides.named(1_003, zones) == "Airport to Park"
    assert rides.named(2_003, zones) == "zone 2 to Park"
    assert rides.names(None) == rides.names(str(folder / "packets")) == {}


def test_made_rides_are_as_many_as_asked_for() -> None:
    found = rides.load(Choice(hours=1, first_hour=12, rows_per_hour=20_000))
    assert found.fare.size == pytest.approx(20_000 * 1.35, rel=0.06)
    assert (np.diff(found.pickup_s) >= 0).all()


def test_the_query_orders_routes_and_says_how_sure_it_is() -> None:
    sampled = pd.DataFrame(
        {
            "route": [5, 5, 5, 9, 9, 2],
            "fare": [10.0, 12.0, 14.0, 30.0, 32.0, 20.0],
            "_weight": [100.0] * 3 + [1.0] * 3,
        }
    )
    found = TopRoutes(routes=2)(sampled)
    assert found["route"].tolist() == [9, 2]
    assert found["fare"].tolist() == [31.0, 20.0]
    assert (found["low"] == found["high"]).all()  # both were used whole
    assert found["certain"].tolist() == [True, True]
    assert found["window_rides"].tolist() == [303, 303]
    assert found["window_used"].tolist() == [6, 6]
    last = TopRoutes(routes=3)(sampled).iloc[2]
    assert last["low"] < 12.0 < last["high"]
    assert (last["rides"], last["used"]) == (300, 3)
    assert TopRoutes(routes=1, of="median")(sampled)["fare"].tolist() == [31.0]
    often = TopRoutes(rides_min=3)(sampled)
    assert often["route"].tolist() == [5]
    assert often["window_rides"].tolist() == [303]
    assert TopRoutes(rides_min=301)(sampled).empty


def result(**changes: object) -> Row:
    span = Row(start=datetime(2020, 3, 1, 8), end=datetime(2020, 3, 1, 8, 30))
    values = {
        "window": span,
        "rank": 1,
        "route": 1_003,
        "fare": 12.5,
        "low": 11.0,
        "high": 14.0,
        "certain": False,
        "rides": 1_300,
        "used": 3,
        "window_rides": 10_000,
        "window_used": 250,
        "window_routes": 90,
    }
    return Row(**{**values, **changes})


def test_a_line_says_fare_interval_and_rides() -> None:
    shown = " ".join(line(result(), {1: "Airport", 3: "Park"}).split())
    assert shown == "1 Airport to Park 12.50 [11.00, 14.00] 3 of 1,300 rides perhaps"
    assert "exact" in line(result(low=12.5, high=12.5), {})
    assert "[?, 14.00]" in line(result(low=float("-inf")), {})
    assert "10,000 rides on 90 routes, 250 used (2.5%)" in heading([result()])


def test_the_summary_counts_windows_and_rides() -> None:
    summary = Summary()
    assert "No window ended" in str(summary)
    for _ in range(2):
        summary.add([result()])
    assert str(summary).startswith("2 windows with 20,000 rides in all, 500 (2.5%) used")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--shed", "1"], "shed must be in [0, 1), got 1.0"),
        (["--slide", "40"], "slide must be 1 to 30 minutes, got 40"),
        (["--of", "mode"], "'mode' is not one of 'mean', 'median'"),
        (["--allocation", "none"], "'none' is not one of"),
        (["--data", "/nowhere"], "'/nowhere' does not exist"),
        (["--data", "tests"], "data must be a folder with taxi_green_tlc/green_*.csv.gz"),
    ],
)
def test_a_wrong_option_is_refused_before_spark_starts(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert message in " ".join(result.output.replace("│", " ").split())


def test_every_window_comes_out_with_its_true_first_routes_if_nothing_is_shed(
    spark: SparkSession, tmp_path: Path
) -> None:
    choice = Choice(hours=2, first_hour=0, rows_per_hour=2_000, seed=3)
    settings = Settings(choice=choice, rate=200_000, shed=0.0, size_min=60, slide_min=30)
    told: list[list[Row]] = []
    run(spark, settings, tmp_path / "run", on_window=told.append)
    made = rides.load(choice)
    ends = [window[0]["window"]["end"] for window in told]
    assert ends == sorted(set(ends))
    assert len(told) == 3  # until 0:30, 1:00 and 1:30; the last rides end no window
    hour = told[1]
    among = made.pickup_s < made.pickup_s[0] // 3600 * 3600 + 3600
    fares = pd.Series(made.fare[among]).groupby(made.route[among]).mean()
    assert [row["fare"] for row in hour] == pytest.approx(sorted(fares, reverse=True)[:10])
    assert {row["window_rides"] for row in hour} == {int(among.sum())}
    assert all(row["certain"] for row in hour[:1])
