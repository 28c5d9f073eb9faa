"""On a standalone cluster of real processes the guard decides as in local mode."""

import json
import os
import subprocess
import sys
import zipfile
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


def run_and_lose_a_worker(cluster: Standalone, folder: Path) -> Any:
    """Run the job; after its second batch, kill a worker with its executor."""
    command = [sys.executable, str(JOB), cluster.url, str(folder), str(project_archive(folder))]
    report = None
    environment = {**os.environ, "PYTHONPATH": ""}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as job:
        assert job.stdout is not None
        for line in job.stdout:
            if line.startswith("BATCH 1"):
                assert len(cluster.executors()) == 2
                cluster.kill_worker()
            if line.startswith("REPORT "):
                report = json.loads(line.removeprefix("REPORT "))
    return report


def test_a_cluster_that_loses_a_worker_decides_as_local_mode_does(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Main path, placement on two executors, code shipped as a zip, a worker killed in mid-run."""
    for name in ("local", "cluster"):
        (tmp_path / name).mkdir()
    local = json.loads(json.dumps(cluster_job.guarded(spark, tmp_path / "local")))
    with Standalone(tmp_path / "spark", workers=2) as cluster:
        remote = run_and_lose_a_worker(cluster, tmp_path / "cluster")
    assert remote is not None, "the job did not get done"
    assert remote["ids"] == local["ids"]
    assert remote["books"] == local["books"]
    assert [rows_in for _, rows_in, _ in local["books"]] == [400] * 5
    assert {batch: len(ids) for batch, ids in local["ids"].items()} == {
        str(batch): kept for batch, _, kept in local["books"]
    }
    assert set(remote["instances"]) == {"0", "1"}
    assert all("spillway.zip" in origin for origin in remote["origins"])
