"""CoD on Spark: the feed lets every window out in a batch of its own, and the claims can fail."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from pyspark.sql import DataFrame, SparkSession

from spillway.studies import cod_feed, cod_on_spark
from spillway.studies.cod_feed import Feed
from spillway.studies.cod_on_spark_claims import (
    COUNT,
    MORE,
    NAMES,
    NATIVE,
    OWN,
    OWN_WINDOW,
    PYTHON,
    UNIFORM,
    WINDOW,
    joined,
    label,
)
from spillway.studies.cod_windows import Rows

MINUTES = 60.0


def feed(slides: int = 4, rows: int = 60, size_s: float = 30 * MINUTES) -> Feed:
    """So many rows in each slide of 10 minutes, on three routes whose fares are 10, 20 and 30."""
    total = slides * rows
    time_s = 600.0 * np.arange(total) / rows
    group = np.arange(total) % 3
    return Feed(
        rows=Rows(time_s=time_s, group=group, value=10.0 * (group + 1)),
        size_s=size_s,
        slide_s=10 * MINUTES,
        warm=0,
    )


def test_a_slide_is_one_file_and_two_ticks_follow_it(tmp_path: Path) -> None:
    fed = feed()
    fed.write(tmp_path / "rides")
    files = sorted((tmp_path / "rides").iterdir())
    assert [parquet.read_metadata(path).num_rows for path in files] == [60, 1, 1] * 4
    assert sorted(files, key=lambda path: path.stat().st_mtime) == files
    assert fed.measured == [8, 11]  # the third slide completes the first full window
    ids = [i for path in files for i in parquet.read_table(path)["id"].to_pylist()]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("name", [PYTHON, UNIFORM, WINDOW, OWN_WINDOW])
def test_every_way_gives_the_medians_of_full_windows(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    """Fares of a route are all alike, so that every sample of it has the true median.

    `percentile` alone is what Uniform does with its rows, and the own function over all rows is
    tried below.
    """
    seen: list[tuple[int, float]] = []

    def noting(rides: DataFrame, feed: Feed, shed: float, folder: Path) -> DataFrame:
        results = cod_on_spark.WAYS[name](rides, feed, shed, folder)
        return results.mapInArrow(note(tmp_path / "seen"), results.schema)

    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "1000")
    (tmp_path / "seen").mkdir()
    fed = cod_feed.run(spark, feed(slides=1, size_s=10 * MINUTES), noting, 0.5, tmp_path)
    assert (fed.latency_s > 0).all()
    assert fed.latency_s.size == fed.taking_in_s.size == fed.state_mb.size == 1
    for path in (tmp_path / "seen").iterdir():
        table = parquet.read_table(path)
        seen += zip(table["route"].to_pylist(), table["value"].to_pylist(), strict=True)
    assert {route for route, _ in seen} == {0, 1, 2}
    assert all(value == 10.0 * (route + 1) for route, value in seen)


def test_the_function_of_a_user_gives_medians_whether_of_lists_or_of_a_frame() -> None:
    lists = pa.record_batch([[4, 7], [[1.25, 99.0, 30.5], [12.0]]], names=["route", "fares"])
    (found,) = cod_on_spark._added_lists(iter([lists]))
    assert found.to_pydict() == {"route": [4, 7], "value": [30.5, 12.0]}
    assert set(cod_on_spark.WAYS) == set(NAMES)


def note(folder: Path):  # type: ignore[no-untyped-def]
    """Return a function that writes down what passes."""

    def each(batches):  # type: ignore[no-untyped-def]
        import uuid

        for batch in batches:
            table = pa.Table.from_batches([batch]).select(["route", "value"])
            parquet.write_table(table, folder / f"{uuid.uuid4()}.parquet")
            yield batch

    return each


def results(**latency_s: float) -> dict[str, dict[str, np.ndarray]]:
    keys = ("native", "python", "uniform", "window", "small", "count", "own", "own_window")
    return {
        label(name, on): {
            "latency_s": np.full(20, latency_s[key]),
            "taking_in_s": np.full(20, 0.5),
            "state_mb": np.full(20, 3.0),
        }
        for on in ("1 core", "2 cores")
        for key, name in zip(keys, NAMES, strict=True)
        if key in latency_s
    }


@pytest.mark.parametrize(
    ("window", "held", "better"), [(0.2, 5, 2), (0.3, 5, 1), (0.45, 4, 1), (0.7, 3, 1)]
)
def test_claims_follow_the_latencies(window: float, held: int, better: int) -> None:
    """Each of the two feeds: two pairs against percentile, two against Python, one own function.

    The same pairs by the whole time: taking rows in takes all of them as long.
    """
    found = results(
        native=0.4,
        python=0.6,
        uniform=0.1,
        window=window,
        small=0.35,
        count=0.32,
        own=3.0,
        own_window=0.9,
    )
    job = cod_on_spark.STUDY.figure("8")
    claims = job.claims(found)
    assert sum(claim.held for claim in claims) == held * 2 * 2
    assert sum(claim.verdict == "holds better" for claim in claims) == better * 2
    assert [len(panel.series) for panel in job.draw(found).panels] == [len(NAMES)] * 4


def test_where_a_claim_fails_it_says_how_much_there_was_to_save() -> None:
    found = results(native=0.4, window=0.5, count=0.32)
    claims = cod_on_spark.STUDY.figure("8").claims(found)
    whys = [claim.why for claim in claims if "on average" in claim.statement]
    assert len(whys) == 2
    assert all("a bare count of the same groups is there 1.25 times as soon" in why for why in whys)


def test_what_is_done_before_the_watermark_counts_where_both_are_added_up() -> None:
    found = results(native=0.4, window=0.5)
    for name, values in found.items():
        values["taking_in_s"] = np.full(20, 0.9 if name.startswith(NATIVE) else 0.5)
    late, in_all = cod_on_spark.STUDY.figure("8").claims(found)[::2]
    assert not late.held
    assert in_all.held
    assert in_all.ours == "1.30 times (1000 ms against 1300)"


@pytest.mark.parametrize(("window", "held"), [(0.2, 2), (0.5, 1), (0.7, 0)])
def test_claims_by_cores_follow_the_latencies(window: float, held: int) -> None:
    found = results(native=0.4, python=0.6, window=window)
    job = cod_on_spark.STUDY.figure("7")
    assert sum(claim.held for claim in job.claims(found)) == held
    assert [len(panel.series) for panel in job.draw(found).panels] == [3] * 4


def test_three_window_sizes_and_two_numbers_of_cores() -> None:
    study = cod_on_spark.STUDY
    tried: dict[str, list[str]] = {}
    for point in study.figure("8").points():
        name, on, _ = point.label.split(" | ")
        tried.setdefault(on, []).append(name)
    forth_and_back = [*NAMES, *reversed(NAMES)]
    for rows, times in ((100_000, 2), (300_000, 2), (1_000_000, 1)):
        assert tried[f"{rows:,} rows, 30 by 10 min"] == forth_and_back * times
    few = [NATIVE, WINDOW, MORE, COUNT]
    assert tried["1,000,000 rows, half dollars"] == [*few, *reversed(few)]
    assert OWN in NAMES
    assert {point.label.split(" | ")[1] for point in study.figure("7").points()} == {
        "1 core",
        "2 cores",
    }


def test_what_turns_found_is_joined_by_way_and_feed() -> None:
    one, two = (np.array([each]) for each in (0.25, 0.75))
    turns = {
        f"{label(NATIVE, 'a')} | {i}": {"latency_s": each} for i, each in enumerate((one, two))
    }
    found = joined({**turns, f"{label(NATIVE, 'b')} | 0": {"latency_s": two}})
    assert {name: values["latency_s"].tolist() for name, values in found.items()} == {
        label(NATIVE, "a"): [0.25, 0.75],
        label(NATIVE, "b"): [0.75],
    }


def test_a_repeated_trace_goes_on_whole_slides_later() -> None:
    once = Rows(time_s=np.array([600.0, 5_000.0]), group=np.array([0, 1]), value=np.ones(2))
    again = cod_on_spark._repeated(once, slide_s=1800.0)
    assert again.time_s[2] - again.time_s[0] == 5_400.0
    assert (np.diff(again.time_s) >= 0).all()
    assert again.group.tolist() == [0, 1] * (again.group.size // 2)
