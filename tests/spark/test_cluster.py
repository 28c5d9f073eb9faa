"""On a standalone cluster of real processes the guard decides as in local mode."""

import contextlib
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from faults.cluster import Standalone
from tests.spark import cluster_job

JOB = Path(cluster_job.__file__)
ROOT = JOB.parents[2]


def project_archive(folder: Path) -> Path:
    """Zip the project as `--py-files` wants it."""
    path = folder / "spillway.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for source in (ROOT / "src").rglob("*.py"):
            archive.write(source, source.relative_to(ROOT / "src"))
    return path


@contextlib.contextmanager
def running(cluster: Standalone, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Start the job on the cluster, with the project shipped as a zip."""
    command = [sys.executable, str(JOB), cluster.url, str(folder), str(project_archive(folder))]
    environment = {**os.environ, "PYTHONPATH": ""}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as job:
        yield job


def lose_a_worker(cluster: Standalone, job: subprocess.Popen[str], folder: Path) -> Any:
    """In the first batch kill a worker with its executor; return the report of the job."""
    assert job.stdout is not None
    report = None
    for line in job.stdout:
        if line.startswith("BATCH 0"):
            assert len(cluster.executors()) == 2
            cluster.kill_worker()
            (folder / "go").touch()
        if line.startswith("REPORT "):
            report = json.loads(line.removeprefix("REPORT "))
    return report


def test_a_cluster_with_a_straggler_that_loses_a_worker_decides_as_local_mode_does(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Main path, placement on two executors, code shipped as a zip, a worker killed in mid-run.

    In the first batch one task hangs until a second attempt overtakes it: each row counts once.
    """
    here, there = tmp_path / "local", tmp_path / "cluster"
    for folder in (here, there):
        folder.mkdir()
    (here / "go").touch()
    with (
        Standalone(tmp_path / "spark", workers=2, hosts=2) as cluster,
        running(cluster, there) as job,
    ):
        local = json.loads(json.dumps(cluster_job.guarded(spark, here)))  # while the job starts
        remote = lose_a_worker(cluster, job, there)
    assert remote is not None, "the job did not get done"
    assert remote["ids"] == local["ids"]
    assert remote["books"] == local["books"]
    assert [rows_in for _, rows_in, _, _ in local["books"]] == [
        cluster_job.BATCH_ROWS
    ] * cluster_job.BATCHES
    for batch, _, kept, operated_on in local["books"]:
        assert len(local["ids"][str(batch)]) == kept == operated_on
    assert (there / "overtook").exists()
    assert not (there / "ended").exists()
    assert set(remote["instances"]) == {"0", "1"}
    assert all("spillway.zip" in origin for origin in remote["origins"])
