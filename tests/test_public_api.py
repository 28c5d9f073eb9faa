"""The public names: few, light to import, and refusing what makes no sense by its name."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import spillway as sw

HEAVY = ("pyspark", "pandas", "matplotlib", "typer", "starlette", "uvicorn", "py4j")
GOOD: dict[str, Any] = {
    "name": "rides",
    "state": "checkpoint/spillway",
    "objective": sw.Latency(average="2 s"),
}


def guard(**changes: Any) -> sw.Guard:
    arguments = {**GOOD, **changes}
    return sw.Guard(arguments.pop("name"), **arguments)


def test_there_are_at_most_25_names() -> None:
    assert 0 < len(sw.__all__) <= 25


def test_the_names_are_sorted_and_none_is_doubled() -> None:
    assert sw.__all__ == sorted(set(sw.__all__))


@pytest.mark.parametrize("name", sw.__all__)
def test_every_name_resolves_to_something_documented(name: str) -> None:
    assert (getattr(sw, name).__doc__ or "").strip()


def test_all_is_what_is_exported() -> None:
    """Every public name that the module binds or loads on demand is in `__all__`, and no other."""
    assert sw.__file__ is not None
    tree = ast.parse(Path(sw.__file__).read_text())
    imported = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("spillway")
        for alias in node.names
    }
    assert imported == set(sw.__all__)


def test_a_star_import_brings_exactly_the_public_names() -> None:
    names: dict[str, object] = {}
    exec("from spillway import *", names)
    assert set(names) - {"__builtins__"} == set(sw.__all__)


@pytest.mark.parametrize("name", ["Nonsense", "_private", "pyspark", "counts"])
def test_an_unknown_attribute_raises_an_attribute_error_that_names_it(name: str) -> None:
    with pytest.raises(AttributeError, match=f"'spillway' has no attribute '{name}'"):
        getattr(sw, name)


def test_importing_spillway_loads_nothing_heavy() -> None:
    script = f"""
import sys
import spillway
spillway.Guard("rides", objective=spillway.Latency(average="2 s"), state="nowhere")
print([name for name in {HEAVY!r} if name in sys.modules])
"""
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert found.stdout.strip() == "[]"


def test_a_name_that_needs_pyspark_loads_it_only_when_asked() -> None:
    script = """
import sys
import spillway
before = "pyspark" in sys.modules
spillway.count
print(before, "pyspark" in sys.modules)
"""
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert found.stdout.strip() == "False True"


def test_a_guard_touches_nothing_before_protect(tmp_path: Path) -> None:
    made = guard(state=tmp_path / "state")
    assert made.faults == 0
    assert made.ledger().entries() == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"objective": None}, "objective"),
        ({"objective": "2 s"}, "objective"),
        ({"objective": 2.0}, "objective"),
        ({"state": "s3://x"}, "state"),
        ({"state": "s3a://bucket/x"}, "state"),
        ({"state": "hdfs:///x"}, "state"),
        ({"state": Path("s3://x")}, "state"),
        ({"state": ""}, "state"),
        ({"state": "  "}, "state"),
        ({"state": "a\0b"}, "state"),
        ({"state": "file:///a%00b"}, "state"),
        ({"checkpoint": "s3://x"}, "checkpoint"),
        ({"checkpoint": "a\0b"}, "checkpoint"),
        ({"on_error": "close"}, "on_error"),
        ({"on_error": ""}, "on_error"),
        ({"on_error": None}, "on_error"),
        ({"name": ""}, "name"),
        ({"name": "two\nlines"}, "name"),
        ({"name": "esc\x1b[31m"}, "name"),
    ],
    ids=str,
)
def test_a_wrong_argument_of_the_guard_is_refused_by_its_name(
    changes: dict[str, Any], named: str
) -> None:
    with pytest.raises(ValueError, match=rf"\b{named}\b"):
        guard(**changes)


@pytest.mark.parametrize("argument", ["on_error", "state", "name"])
def test_the_refused_value_is_in_the_message(argument: str) -> None:
    bad = {"on_error": "close", "state": "s3://x", "name": "two\nlines"}[argument]
    with pytest.raises(ValueError, match=argument) as error:
        guard(**{argument: bad})
    assert repr(bad) in str(error.value)


@pytest.mark.parametrize(
    "state", ["/a/state", "file:///a/state", "file:/a/state", Path("/a/state")]
)
def test_a_path_or_a_file_url_is_a_state(state: str | Path) -> None:
    assert guard(state=state).state == Path("/a/state")


def test_a_controller_may_stand_in_for_an_objective() -> None:
    made = guard(objective=None, control=sw.FixedRate(0.1))
    assert made.loop.controller == sw.FixedRate(0.1)


def test_the_parts_that_were_given_are_the_parts_that_are_used() -> None:
    limits, shed, cost = sw.Limits(keep_min=0.5), sw.Semantic(utility="u"), sw.AverageCost(window=5)
    loop = guard(limits=limits, shed=shed, cost=cost).loop
    assert (loop.limits, loop.shedder, loop.cost) == (limits, shed, cost)
    assert loop.controller == sw.HoldLatency(objective=sw.Latency(average="2 s"))


@pytest.mark.parametrize("state", ["/checkpoints/rides", None])
def test_a_guard_without_a_checkpoint_beside_it_knows_none(
    tmp_path: Path, state: str | None
) -> None:
    assert guard(state=state or tmp_path / "state").checkpoint is None


def test_a_guard_inside_a_checkpoint_finds_it(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    assert guard(state=tmp_path / "state").checkpoint == tmp_path
    assert guard(state="/elsewhere", checkpoint=tmp_path).checkpoint == tmp_path
