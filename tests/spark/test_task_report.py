"""A task's report survives its way to the driver whole, or is refused by name."""

from __future__ import annotations

import base64

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.cost.heavy import HeavySketch
from spillway.spark.observe import Timing, observation, task_reports
from spillway.spark.task_report import decode, encode
from spillway.state import files
from spillway.values import TaskReport

COUNTS = st.integers(0, 1 << 62)
TIMING = Timing(batch_id=4, started_at_s=1_000.0, duration_s=2.0)


def report(**more: object) -> TaskReport:
    return TaskReport(instance=1, rows_in=10, **more)  # type: ignore[arg-type]


@given(
    st.builds(
        TaskReport,
        instance=st.integers(0, 10_000),
        rows_in=COUNTS,
        rows_refused=COUNTS,
        busy_ns=COUNTS,
        latency_ns_sum=COUNTS,
        latency_ns_max=COUNTS,
        costs=st.binary(max_size=200),
    )
)
def test_what_is_read_is_what_was_written(told: TaskReport) -> None:
    value = encode(told)
    assert decode(value) == decode(bytearray(value)) == decode(memoryview(value)) == told
    assert decode(base64.b64encode(value).decode()) == told


def test_a_sketch_travels_compressed() -> None:
    sketch = HeavySketch()
    sketch.update(np.arange(100), np.arange(100))
    told = report(costs=sketch.to_bytes())
    assert len(encode(told)) < len(told.costs) / 4
    assert HeavySketch.from_bytes(decode(encode(told)).costs).work_total_ns == 99 * 50


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"{}",
        "no base64!",
        encode(report())[:-5],
        encode(report()).replace(b'"rows_in":10', b'"rows_in":99'),
        files.encode("task report", report(costs=b"not compressed")),
        files.encode("task report", report(costs=b"\x78\x01")),
        files.encode("plan", report()),
    ],
)
def test_anything_else_is_refused(value: bytes | str) -> None:
    with pytest.raises(files.BadStateFile):
        decode(value)


def test_the_observation_has_the_reports_and_keeps_what_was_not_refused() -> None:
    tasks = [encode(report(rows_refused=3)), base64.b64encode(encode(report())).decode()]
    metrics = {"in_0": 50, "kept_0": 20, "tasks": tasks}
    seen = observation(metrics, TIMING, ("all",))
    assert (seen.rows_in, seen.rows_kept, seen.rows_refused) == (50, 17, 3)
    assert [stratum.rows_kept for stratum in seen.strata] == [20]
    assert seen.tasks == (report(rows_refused=3), report())


@pytest.mark.parametrize("strata", [(), ("all",)])
def test_without_a_gate_the_rows_are_the_operators(strata: tuple[str, ...]) -> None:
    metrics = {"tasks": [encode(report(rows_refused=3)), encode(report())]}
    seen = observation(metrics, TIMING, strata)
    assert (seen.rows_in, seen.rows_kept, seen.rows_refused) == (20, 17, 3)
    assert seen.strata == ()


@pytest.mark.parametrize("metrics", [{}, {"tasks": None}, {"tasks": []}])
def test_no_operator_has_no_reports(metrics: dict[str, object]) -> None:
    assert task_reports(metrics) == ()
