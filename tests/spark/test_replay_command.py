"""`spillway replay` finds, writes and compares, and its exit code says how it went."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

import spillway as sw
from spillway.cli import app
from tests.conftest import rows_batches, wait_until

SCHEMA = "id bigint, fare double"


@pytest.fixture(scope="module")
def finished(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A guarded stream over three files that has ended; the folder holds `in` and `checkpoint`."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "in").mkdir()
    for number in range(3):
        ids = range(number * 500, number * 500 + 500)
        lines = (json.dumps({"id": i, "fare": i / 7}) for i in ids)
        (folder / "in" / f"{number}.json").write_text("\n".join(lines))
    stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", "1")
    guard = sw.Guard("rides", state=state_of(folder), control=sw.FixedRate(0.3))
    rows = guard.protect(stream.json(str(folder / "in")))
    writer = rows.writeStream.format("parquet").option("path", str(folder / "kept"))
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
    query.processAllAvailable()
    wait_until(lambda: rows_batches(guard.ledger()) == 3, "three batches in the ledger")
    query.stop()
    return folder


def state_of(folder: Path) -> Path:
    return folder / "checkpoint" / "spillway"


def replay(folder: Path, *arguments: str) -> Result:
    source = ["--format", "json", "--schema", SCHEMA, "--option", f"path={folder / 'in'}"]
    command = ["replay", str(state_of(folder)), *source, *arguments]
    return CliRunner().invoke(app, command, catch_exceptions=False)


def test_the_rows_are_counted_or_written_and_the_books_agree(
    spark: SparkSession, finished: Path, tmp_path: Path
) -> None:
    kept = [row["id"] for row in spark.read.parquet(str(finished / "kept")).collect()]
    shed = 1500 - len(kept)
    counted = replay(finished, "--batches", "0-2")
    assert counted.exit_code == 0
    assert f"3 batches: {shed:,} of {shed:,} shed rows found" in counted.output
    target = str(tmp_path / "late")
    written = replay(finished, "--batches", "0-2", "--to", target)
    assert written.exit_code == 0
    late = [row["id"] for row in spark.read.parquet(target).collect()]
    assert sorted(kept + late) == list(range(1500))
    again = replay(finished, "--batches", "0-2", "--to", target)
    assert again.exit_code == 3
    assert "already exists" in again.output


def test_corrections_can_be_written_too(
    spark: SparkSession, finished: Path, tmp_path: Path
) -> None:
    target = str(tmp_path / "corrections")
    assert replay(finished, "--batches", "0,1,2", "--corrections", "--to", target).exit_code == 0
    published = spark.read.parquet(str(finished / "kept")).selectExpr("sum(_weight)")
    added = spark.read.parquet(target).selectExpr("sum(_weight)")
    assert published.first()[0] + added.first()[0] == pytest.approx(1500, rel=1e-12)  # type: ignore[index]


def test_rows_prepared_by_a_function_of_a_module(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_rides_job.py").write_text(
        "def prepare(raw):\n    return raw.where('id < 500')\n"
    )
    monkeypatch.chdir(tmp_path)
    short = replay(finished, "--batches", "0-2", "--prepare", "my_rides_job:prepare")
    assert short.exit_code == 1
    assert "batch 1: 0 rows of" in short.output


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--batches", "5-1"), "batches must be like 120-180"),
        (("--batches", "0-9"), "batches must be in the books"),
        (("--batches", "0", "--option", "path"), "options must be NAME=VALUE, got 'path'"),
        (("--batches", "0", "--mode", "ignore"), "--mode must be error, append or overwrite"),
        (("--batches", "0", "--prepare", "no_such_module:f"), "prepare must be MODULE:FUNCTION"),
    ],
)
def test_what_makes_no_sense_ends_with_2(
    finished: Path, arguments: tuple[str, ...], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    shown = replay(finished, *arguments)
    assert shown.exit_code == 2
    assert told in shown.output


def test_a_list_of_files_that_is_gone_ends_with_3(finished: Path) -> None:
    sources = finished / "checkpoint" / "sources"
    sources.rename(sources.with_name("elsewhere"))
    try:
        shown = replay(finished, "--batches", "0-2")
    finally:
        sources.with_name("elsewhere").rename(sources)
    assert shown.exit_code == 3
    assert "the list of the files is not retained" in shown.output
