"""Sampled windows on Spark: what comes out, what is held, what is counted."""

import json
import math
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

import spillway as sw
from spillway.estimate.quantile_places import QuantilePlaces
from spillway.spark import window_native
from spillway.spark.quantile_sql import SORTED
from spillway.spark.window_apply import Named
from spillway.spark.window_native import RESERVED_MAX, NativeWindow
from spillway.spark.window_of import Wanted, window_of
from spillway.spark.window_span import SPAN, Span
from spillway.state.ledger import UNSAMPLED
from spillway.state.memory import Memory
from tests.conftest import wait_until

SCHEMA = "at timestamp, route string, fare double, id bigint"
MINUTE = pd.Timedelta(minutes=1)
BEGIN = pd.Timestamp("2024-01-01 00:00", tz="UTC")


def rides(minutes: range, *, per_minute: int = 50, routes: int = 5, seed: int = 1) -> pd.DataFrame:
    """Rides on few routes: route r is r + 1 times as frequent as the first."""
    random = np.random.default_rng((seed, minutes.start))
    count = len(minutes) * per_minute
    at = BEGIN + pd.to_timedelta(random.uniform(minutes.start, minutes.stop, count), unit="m")
    weights = np.arange(1, routes + 1) / np.arange(1, routes + 1).sum()
    route = random.choice(routes, count, p=weights)
    fares = np.round(random.lognormal(2.0 + route / 10, 0.4), 2)
    return pd.DataFrame(
        {
            "at": at.floor("us"),
            "route": [f"r{number}" for number in route],
            "fare": fares,
            "id": minutes.start * 1_000_000 + np.arange(count),
        }
    )


def pushing(minute: int) -> pd.DataFrame:
    """One ride that moves the watermark."""
    return pd.DataFrame(
        {"at": [BEGIN + minute * MINUTE], "route": ["push"], "fare": [1.0], "id": [-minute]}
    )


@dataclass
class Replay:
    """A stream of frames, one per batch, and what came of it."""

    spark: SparkSession
    folder: Path
    files: int = 0
    results: list[pd.DataFrame] = field(default_factory=list)
    progress: list[dict[str, object]] = field(default_factory=list)

    @property
    def state(self) -> Path:
        """The guard's folder."""
        return self.folder / "checkpoint" / "spillway"

    def add(self, *frames: pd.DataFrame, to: str = "in") -> None:
        """Let more rows come, one file per batch."""
        (self.folder / to).mkdir(exist_ok=True)
        for frame in frames:
            path = self.folder / to / f"{self.files:04d}.parquet"
            whole = frame.astype({"at": "datetime64[us, UTC]"})
            whole.to_parquet(path, index=False)
            os.utime(path, (self.files, self.files))
            self.files += 1

    def stream(self, schema: str = SCHEMA, of: str = "in") -> DataFrame:
        """Open the stream."""
        source = self.spark.readStream.schema(schema).option("maxFilesPerTrigger", "1")
        return source.parquet(str(self.folder / of))

    def run(self, rows: DataFrame) -> pd.DataFrame:
        """Process what is there and return all results so far."""

        def note(batch: DataFrame, batch_id: int) -> None:
            self.results.append(batch.toPandas())

        query = (
            rows.writeStream.foreachBatch(note)
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        self.progress += [json.loads(report.json) for report in query.recentProgress]
        return flat(pd.concat(self.results))


def flat(found: pd.DataFrame) -> pd.DataFrame:
    """Put the window's start beside the rest, and rows in order."""
    found = found.assign(start=[window["start"] for window in found["window"]])
    keys = [name for name in ("start", "route") if name in found]
    return found.drop(columns="window").sort_values(keys).reset_index(drop=True)


@pytest.fixture
def replay(spark: SparkSession, tmp_path: Path) -> Replay:
    """An empty stream."""
    return Replay(spark, tmp_path)


def guard(replay: Replay, share: float = 1.0) -> sw.Guard:
    return sw.Guard("rides", state=replay.state, control=sw.FixedRate(share))


def medians(replay: Replay, *, sample_rows: int) -> DataFrame:
    """The median fare by route in windows of ten minutes, from so many rows at most."""
    return guard(replay).window(
        replay.stream(),
        time="at",
        size="10 minutes",
        by="route",
        apply="median(fare)",
        late="0 s",
        sample_rows=sample_rows,
    )


def truth(frame: pd.DataFrame, how: Callable[[pd.Series], float] | str) -> pd.DataFrame:
    start = frame["at"].dt.floor("10min")
    return frame.groupby([start, "route"])["fare"].agg(how).reset_index()


def test_a_window_that_fits_the_budget_is_exact(replay: Replay) -> None:
    frames = [rides(range(10)), rides(range(10, 20))]
    replay.add(*frames, pushing(100), pushing(200))
    rows = medians(replay, sample_rows=512)
    found = replay.run(rows)
    exact = truth(pd.concat(frames), "median")
    found = found[found["route"] != "push"].reset_index(drop=True)
    assert found["route"].tolist() == exact["route"].tolist()
    assert found["value"].to_numpy() == pytest.approx(exact["fare"].to_numpy())
    assert (found["low"] == found["high"]).all()
    assert (found["rows"] == found["kept"]).all()


def test_a_sample_loses_no_group_keeps_to_the_share_and_is_booked(replay: Replay) -> None:
    """Three windows of 4,000 rides at 5 %: 200 rows each; the intervals hold the medians mostly.

    15 intervals at 95 %: fewer than 11 hold with a chance below 1 in 100,000.
    """
    frames = [rides(range(m, m + 10), per_minute=400) for m in (0, 10, 20)]
    replay.add(*frames, pushing(100), pushing(200))
    protected = guard(replay, share=0.05)
    rows = protected.window(
        replay.stream(),
        time="at",
        size="10 minutes",
        by="route",
        apply="median(fare)",
        late="0 s",
        allocation="cvopt",
    )
    everything = replay.run(rows)
    found = everything[everything["route"] != "push"].reset_index(drop=True)
    exact = truth(pd.concat(frames), "median")
    assert found["route"].tolist() == exact["route"].tolist()
    assert found.groupby("start")["kept"].sum().tolist() == [200, 200, 200]
    assert found.groupby("start")["rows"].sum().tolist() == [4000, 4000, 4000]
    held = (found["low"] <= exact["fare"]) & (exact["fare"] <= found["high"])
    assert held.sum() >= 11

    wait_for_books(protected, everything)
    assert set(protected.ledger().totals().shed) == {UNSAMPLED}
    held_rows = [op["numRowsTotal"] for p in replay.progress for op in p["stateOperators"]]  # type: ignore[attr-defined]
    assert max(held_rows) <= 20  # one row of state for every window and route


def test_the_sample_of_a_named_function_is_that_of_min_by(spark: SparkSession) -> None:
    """Rows of least hash: where some have no value, where all fit, and where the sample is cut."""
    rows = spark.range(3_000).selectExpr(
        "id % 7 AS route",
        f"xxhash64(id) AS {window_native._HASH}",
        f"CASE WHEN id % 5 > 0 AND id % 7 < 6 THEN double(id) END AS {window_native._VALUE}",
    )
    value, hashed = window_native._VALUE, window_native._HASH
    for held in (RESERVED_MAX + 1, 5_000):
        native = NativeWindow(
            span=Span(time="at", size="1 minute"),
            by=("route",),
            function=Named.parsed("median(fare)"),
            sample_rows=held,
        )
        sampled = native._sampled().alias("ours")
        chance = f"nvl2({value}, {hashed}, NULL)"
        by_hash = F.expr(f"min_by({value}, {chance}, {held})").alias("theirs")
        for row in rows.groupBy("route").agg(sampled, by_hash).collect():
            assert sorted(row.ours) == sorted(row.theirs or []), row.route


@pytest.mark.parametrize("held", [64, None])
def test_samples_in_pairs_or_whole_hold_no_null_by_type_so_that_spark_sorts_plain_numbers(
    spark: SparkSession, held: int | None
) -> None:
    native = NativeWindow(
        span=Span(time="at", size="1 minute"),
        by=(),
        function=Named.parsed("median(fare)"),
        sample_rows=held,
    )
    rows = spark.sql(
        f"SELECT double(NULL) AS {window_native._VALUE}, 1L AS {window_native._HASH} "
        "UNION ALL SELECT 2D, 2L"
    )
    sampled = rows.agg(native._sampled().alias("ours"))
    assert sampled.schema["ours"].dataType == T.ArrayType(T.DoubleType(), containsNull=False)
    assert sampled.collect()[0].ours == [2.0]


@pytest.mark.parametrize("sample_rows", [64, 4_096])
def test_rare_groups_take_no_state_for_rows_that_did_not_come(
    replay: Replay, sample_rows: int
) -> None:
    """600 rides on 300 routes are some kilobytes, whatever might be held of a route."""
    replay.add(rides(range(10), per_minute=60, routes=300))
    rows = medians(replay, sample_rows=sample_rows)
    query = rows.writeStream.format("noop").trigger(availableNow=True)
    query.option("checkpointLocation", str(replay.folder / "checkpoint")).start().awaitTermination()
    written = (replay.folder / "checkpoint" / "state").rglob("*.delta")
    assert 1_000 < sum(path.stat().st_size for path in written) < 60_000


def wait_for_books(protected: sw.Guard, found: pd.DataFrame) -> None:
    """Wait until the books, which come a moment after the batch, say what the results say."""

    def booked() -> tuple[int, int]:
        seen = [entry.seen for entry in protected.ledger().entries()]
        return sum(each.rows_in for each in seen), sum(each.rows_kept for each in seen)

    wanted = (found["rows"].sum(), found["kept"].sum())
    wait_until(lambda: booked() == wanted, f"books of {wanted}")


def test_a_quantile_in_spark_alone_is_the_one_of_python_with_its_bounds(replay: Replay) -> None:
    """Routes of 5 to 120 rides and a sample of 12: some whole, some not; the same rows are held."""
    frame = rides(range(10), per_minute=100, routes=12)
    replay.add(frame, pushing(100), pushing(200))
    protected = guard(replay)

    def rows(each: Replay, by: sw.Guard, **options: Any) -> DataFrame:
        window = {"time": "at", "size": "10 minutes", "by": "route", "late": "0 s"}
        return by.window(each.stream(), apply="median(fare)", sample_rows=12, **window, **options)

    found = replay.run(rows(replay, protected))
    twin = Replay(replay.spark, replay.folder / "twin")
    twin.state.mkdir(parents=True)
    shutil.copy(replay.state / "seed.json", twin.state / "seed.json")
    twin.add(frame, pushing(100), pushing(200))
    whole = twin.run(rows(twin, guard(twin), allocation="congress"))
    pd.testing.assert_frame_equal(found, whole, rtol=1e-6)
    assert found["kept"].max() == 12
    assert set(found["low"] == found["high"]) == {True, False}
    wait_for_books(protected, found)
    assert set(protected.ledger().totals().shed) == {UNSAMPLED}


@pytest.mark.parametrize(("q", "held"), [(0.5, 4), (0.9, 16), (0.01, 64)])
def test_value_and_bounds_are_those_of_the_table_for_any_number_of_rows(
    spark: SparkSession, q: float, held: int
) -> None:
    """No rows, all held, one more, many; an endless value; places outside of the sample."""
    numbers = np.random.default_rng(1).normal(size=held)
    numbers[0] = math.inf
    counts = [0, 1, 2, held - 1, held, held + 1, held + 256, held + 257, 10**5, 10**9]
    samples = {rows: numbers[: min(rows, held)] for rows in counts}
    lines = [(each.tolist(), rows) for rows, each in samples.items()]
    end = "timestamp_seconds(60)"
    given = spark.createDataFrame(lines, f"{SORTED} array<double>, rows bigint")
    native = NativeWindow(
        span=Span(time="at", size="1 minute"),
        by=(),
        function=Named.parsed(f"quantile(fare, {q})"),
        sample_rows=held,
    )
    found = native._quantile(given.withColumn(SPAN, F.expr(end))).toPandas().set_index("rows")
    places = QuantilePlaces.of(q, kept=held)
    for rows, sample in samples.items():
        value = _naive_at(np.sort(sample), q * (len(sample) - 1) + 1) if rows else math.nan
        low = high = value
        if rows > held:
            entry = places.entries(np.array([rows]))[0]
            low, high = (
                _naive_at(np.sort(sample), side[entry]) for side in (places.low, places.high)
            )
        line = found.loc[rows, ["value", "low", "high", "kept"]].tolist()
        assert line == pytest.approx([value, low, high, len(sample)], nan_ok=True), rows


def _naive_at(ordered: Any, place: float) -> float:
    """Interpolate at a place from 1 on; endless where there is none."""
    if not 1 <= place <= len(ordered):
        return -math.inf if place < 1 else math.inf
    before = ordered[int(place) - 1]
    share = place - int(place)
    return float(before + share * (ordered[int(place)] - before)) if share else float(before)


@pytest.mark.parametrize(
    ("apply", "how"), [("mean(fare)", "mean"), ("sum(fare)", "sum"), ("count()", "count")]
)
def test_means_sums_and_counts_are_exact_whatever_the_share(
    replay: Replay, apply: str, how: str
) -> None:
    frame = rides(range(10))
    replay.add(frame, pushing(100), pushing(200))
    protected = guard(replay, share=0.02)
    rows = protected.window(
        replay.stream(), time="at", size="10 minutes", by="route", apply=apply, late="0 s"
    )
    found = replay.run(rows)
    found = found[found["route"] != "push"].reset_index(drop=True)
    assert found["value"].to_numpy() == pytest.approx(truth(frame, how)["fare"].to_numpy())
    assert (found["rows"] == found["kept"]).all()


def test_a_restart_in_the_middle_of_a_window_changes_nothing(replay: Replay) -> None:
    """Sliding windows, each ride in three of them; the second run never stops."""
    frames = [rides(range(m, m + 5), per_minute=200) for m in (0, 5, 10, 15)]

    def rows(each: Replay) -> DataFrame:
        return guard(each, share=0.2).window(
            each.stream(),
            time="at",
            size="15 minutes",
            slide="5 minutes",
            by="route",
            apply="quantile(fare, 0.9)",
            late="0 s",
            sample_rows=20,
        )

    replay.add(*frames[:2])
    replay.run(rows(replay))
    replay.add(*frames[2:], pushing(100), pushing(200))
    stopped = replay.run(rows(replay))
    through = Replay(replay.spark, replay.folder / "through")
    through.state.mkdir(parents=True)
    shutil.copy(replay.state / "seed.json", through.state / "seed.json")
    through.add(*frames, pushing(100), pushing(200))
    pd.testing.assert_frame_equal(through.run(rows(through)), stopped)
    assert stopped.groupby("start")["rows"].sum().max() == 3000


def test_missing_late_and_absurd_rows_do_as_the_page_says(replay: Replay) -> None:
    """No time or late: left out. No key: a group of its own. No value: not in the sample."""
    frame = rides(range(10), routes=2)
    frame.loc[0, "at"] = pd.NaT
    frame.loc[1:10, "route"] = None
    frame.loc[11:15, "fare"] = np.nan
    late = rides(range(5), seed=9)
    lost = pd.DataFrame({"at": [BEGIN] * 3, "route": ["gone"] * 3, "fare": [np.nan] * 3, "id": 7})
    replay.add(pd.concat([frame, lost]), pushing(50), pushing(51), late, pushing(100))
    rows = guard(replay).window(
        replay.stream(), time="at", size="10 minutes", by="route", apply="median(fare)", late="0 s"
    )
    found = replay.run(rows).set_index("route")
    first = found[found["start"] == found["start"].min()]
    assert first["rows"].sum() == len(frame) - 1 - 5
    assert first.loc[[name for name in first.index if name is None], "rows"].tolist() == [10]
    assert first.loc["gone", "rows"] == 0
    assert np.isnan(first.loc["gone", "value"])


def test_a_contract_on_the_error_takes_what_it_needs_and_all_where_that_is_not_enough(
    replay: Replay,
) -> None:
    frame = rides(range(10), per_minute=800, routes=2)
    few = frame.head(40).assign(route="few", id=lambda x: x["id"] + 10**7)
    wild = frame.head(300).assign(route="wild", id=lambda x: x["id"] + 2 * 10**7)
    wild["fare"] = np.random.default_rng(3).lognormal(0.0, 4.0, 300)
    replay.add(pd.concat([frame, few, wild]), pushing(100), pushing(200))
    rows = guard(replay, share=0.01).window(
        replay.stream(),
        time="at",
        size="10 minutes",
        by="route",
        apply="median(fare)",
        late="0 s",
        error=sw.Error(relative=0.05),
    )
    found = replay.run(rows).set_index("route")
    for route in ("r0", "r1"):
        line = found.loc[route]
        assert line["high"] - line["value"] <= 0.05 * line["value"]
        assert line["kept"] < line["rows"] / 2
    assert found.loc["few", "kept"] == found.loc["few", "rows"] == 40
    assert found.loc["few", "low"] == found.loc["few", "high"]
    assert found.loc["wild", "kept"] > 0.9 * found.loc["wild", "rows"]


def test_a_function_of_the_users_gets_the_sampled_rows_with_weights(replay: Replay) -> None:
    frame = rides(range(10), per_minute=100)
    replay.add(frame, pushing(100), pushing(200))

    def totals(rows: pd.DataFrame) -> pd.DataFrame:
        assert set(rows.columns) == {"route", "fare", "_weight"}
        total = rows.assign(all=rows["_weight"]).groupby("route", as_index=False)["all"].sum()
        return total.assign(used=rows.groupby("route").size().to_numpy())

    rows = guard(replay, share=0.1).window(
        replay.stream(),
        time="at",
        size="10 minutes",
        by="route",
        apply=totals,
        schema="route string, all double, used bigint",
        columns=["fare"],
        late="0 s",
    )
    found = replay.run(rows).set_index("route").drop(index="push", errors="ignore")
    assert found["all"].to_dict() == pytest.approx(frame["route"].value_counts().to_dict())
    assert found["used"].sum() == 100


def test_strata_are_sampled_and_weighed_by_themselves(replay: Replay) -> None:
    """The counts of strata are exact by their weights; sums err far less than without strata."""
    frame = rides(range(10), per_minute=400)
    replay.add(frame, pushing(100), pushing(200))

    def totals(rows: pd.DataFrame) -> pd.DataFrame:
        assert set(rows.columns) == {"route", "fare", "octave", "_weight"}
        rows = rows.assign(all=rows["_weight"], sum=rows["_weight"] * rows["fare"], used=1)
        return rows.groupby(["route", "octave"], as_index=False)[["all", "sum", "used"]].sum()

    rows = guard(replay, share=0.1).window(
        replay.stream().selectExpr("*", "floor(2 * log2(fare)) AS octave"),
        time="at",
        size="10 minutes",
        by="route",
        strata="octave",
        values=["fare"],
        apply=totals,
        schema="route string, octave bigint, all double, sum double, used bigint",
        columns=["fare", "octave"],
        late="0 s",
    )
    found = replay.run(rows).query("route != 'push'").set_index(["route", "octave"])
    octave = np.floor(2 * np.log2(frame["fare"])).astype(int).rename("octave")
    truth = frame.groupby(["route", octave])["fare"].agg(["size", "sum"])
    assert found["all"].to_dict() == pytest.approx(truth["size"].to_dict())
    assert found["used"].sum() == 400
    off = found["sum"].groupby("route").sum() / truth["sum"].groupby("route").sum() - 1
    assert off.abs().max() < 0.04  # four deviations; one of 80 rows of a route is 4.6 % by itself


def test_a_join_sees_the_keys_of_both_sides_with_weights_of_pairs(replay: Replay) -> None:
    """The number of pairs is exact by its weights; a key of one side only is not there."""
    frame = rides(range(10), per_minute=100, routes=3)
    bids = frame[frame["route"] != "r0"].sample(300, random_state=1)
    replay.add(frame, pushing(100), pushing(200), to="rides")
    renamed = {"fare": "bid", "id": "bid_id"}
    pushed = [pushing(minute).rename(columns=renamed) for minute in (100, 200)]
    replay.add(bids.rename(columns=renamed), *pushed, to="bids")

    def pairs(rows: pd.DataFrame) -> pd.DataFrame:
        whole = rows.assign(pairs=rows["_weight"], paid=rows["_weight"] * rows["fare"])
        return whole.groupby("route", as_index=False)[["pairs", "paid"]].sum()

    rows = guard(replay, share=0.2).join(
        replay.stream(of="rides"),
        replay.stream("at timestamp, route string, bid double, bid_id bigint", of="bids"),
        time="at",
        size="10 minutes",
        by="route",
        apply=pairs,
        schema="route string, pairs double, paid double",
        late="0 s",
    )
    found = replay.run(rows).set_index("route").drop(index="push", errors="ignore")
    counts, other = frame["route"].value_counts(), bids["route"].value_counts()
    assert found["pairs"].to_dict() == pytest.approx((counts * other).dropna().to_dict())
    paid = frame.merge(bids[["route"]], on="route").groupby("route")["fare"].sum()
    assert found["paid"].to_dict() == pytest.approx(paid.to_dict(), rel=0.5)


def test_the_share_follows_the_load(replay: Replay) -> None:
    """A function that takes 2 ms a row cannot do 512 rows in a second: later windows use fewer."""
    replay.add(*(rides(range(m, m + 10), per_minute=100) for m in range(0, 60, 10)))
    replay.add(pushing(200), pushing(300))

    def slow(rows: pd.DataFrame) -> pd.DataFrame:
        import time

        time.sleep(0.002 * len(rows))
        return pd.DataFrame({"used": [len(rows)]})

    protected = sw.Guard("rides", state=replay.state, objective=sw.Latency(average="1500 ms"))
    rows = protected.window(
        replay.stream(),
        time="at",
        size="10 minutes",
        apply=slow,
        schema="used bigint",
        late="0 s",
        sample_rows=512,
    )
    found = replay.run(rows)
    assert found["used"].iloc[0] == 512  # what the state holds of a group
    assert found["used"].iloc[3:6].median() < 500  # one may be open, on a busy machine


@pytest.mark.parametrize(
    ("options", "held"),
    [
        ({}, 16),
        ({"apply": "quantile(fare, 0.9)"}, 36),
        ({"apply": "quantile(fare, 0.01)"}, 368),
        ({"apply": "quantile(fare, 1e-9)"}, 100_000),
        ({"apply": "quantile(fare, 5e-324)"}, 100_000),
        ({"allocation": "cvopt"}, 64),
        ({"apply": len, "schema": "n int"}, 64),
        ({"rows_min": 100}, 100),
        ({"error": sw.Error(relative=0.1)}, None),
        ({"sample_rows": None}, None),
        ({"sample_rows": 32}, 32),
    ],
)
def test_as_many_rows_of_a_group_are_held_as_is_asked_for_or_as_suits_the_function(
    spark: SparkSession, options: dict[str, Any], held: int | None
) -> None:
    usual = {"apply": "median(fare)", "rows_min": 2, "sample_rows": "auto"}
    rest = dict.fromkeys(("schema", "columns", "allocation", "error", "identity"))
    none: dict[str, Any] = {"by": ("route",), "values": (), "strata": ()}
    wanted = Wanted(**{**rest, **none, **usual, **options})
    window = window_of(wanted, Span(time="at", size="1 minute"), seed=0, share=lambda: 1.0)
    assert window.sample_rows == held


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"time": "when"}, "time must be one of the columns"),
        ({"time": "fare"}, "time must be a timestamp"),
        ({"size": "soon"}, "size must be a duration"),
        ({"apply": "mode(fare)"}, "apply must be"),
        ({"apply": "quantile(fare, 2)"}, r"quantile of apply must be in \(0, 1\)"),
        ({"apply": "median(price)"}, "apply must use one of"),
        ({"apply": 3}, "apply must be"),
        ({"apply": len}, "schema must have at least one column"),
        ({"by": "town"}, "key must be one of the columns"),
        ({"sample_rows": 1}, "sample_rows must be a whole number in"),
        ({"sample_rows": 10**6}, "sample_rows must be a whole number in"),
        ({"sample_rows": "all"}, "None or 'auto'.*got 'all'"),
        ({"sample_rows": 1, "error": sw.Error(relative=0.1)}, "sample_rows must be a whole"),
        ({"sample_rows": 10, "rows_min": 20}, "sample_rows must be >= rows_min"),
        ({"rows_min": 0}, "rows_min must be >= 1"),
        ({"allocation": "best"}, "allocation must be one of"),
        ({"values": ["route"]}, "values must be numbers"),
        ({"apply": "median(route)"}, "values must be numbers"),
        ({"columns": ["fare"]}, "columns has no use for"),
        ({"strata": "fare"}, "strata has no use for 'median"),
        ({"apply": len, "schema": "n int", "strata": "town"}, "key must be one of the columns"),
        (
            {
                "apply": len,
                "schema": "n int",
                "strata": "id",
                "values": ["fare"],
                "error": sw.Error(relative=0.1),
            },
            "strata must be empty where error is given",
        ),
        ({"apply": len, "schema": "n int", "columns": ["price"]}, "columns must be among"),
        ({"apply": "mean(fare)", "by": "Rows"}, "by must not name one of the results"),
    ],
)
def test_what_is_no_window_is_refused_by_name(
    replay: Replay, wrong: dict[str, object], told: str
) -> None:
    replay.add(pushing(1))
    usual = {"time": "at", "size": "10 minutes", "by": "route", "apply": "median(fare)"}
    with pytest.raises(ValueError, match=told):
        guard(replay).window(replay.stream(), **{**usual, **wrong})  # type: ignore[arg-type]


def test_a_guard_that_sheds_rows_by_itself_takes_no_window(replay: Replay) -> None:
    replay.add(pushing(1))
    shedding = sw.Guard(
        "rides", state=replay.state, control=sw.FixedRate(0.5), shed=sw.Semantic(utility="fare")
    )
    with pytest.raises(ValueError, match="shed must be left out for a window"):
        shedding.window(replay.stream(), time="at", size="1 minute", apply="count()")
    with pytest.raises(ValueError, match="df must be a stream"):
        guard(replay).window(replay.spark.range(1), time="at", size="1 minute", apply="count()")
    assert Memory(folder=replay.state)
