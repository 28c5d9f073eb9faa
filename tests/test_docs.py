"""Every Python block of the docs and the README runs, page by page; names go on through a page.

A page may hold code that is not shown, in a comment `<!-- run ... -->`: the small real stream that
its examples need. A block that cannot run here stands behind `<!-- not run: reason -->`. Folders at
the root (/checkpoints, /tables, /data) are those of the test.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import spillway as sw

ROOT = Path(__file__).parents[1]
PART = re.compile(
    r"^<!-- run\n(?P<hidden>.*?)^-->$"
    r"|(?:^<!-- not run: (?P<reason>[^\n]+) -->\n)?^```python\n(?P<shown>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
# Spark's JVM does not follow the test into its folder, so relative checkpoints are put there too.
FOLDERS = re.compile(r"""(?<=["'])(/(?=(checkpoints|tables|data|shared)/)|(?=checkpoint["'/]))""")


@dataclass(frozen=True)
class Part:
    """A block of code, where it stands, and why it does not run, if so."""

    code: str
    line: int
    shown: bool
    reason: str | None


def parts(page: Path) -> Iterator[Part]:
    text = page.read_text(encoding="utf-8")
    for found in PART.finditer(text):
        which = "shown" if found["shown"] is not None else "hidden"
        line = text.count("\n", 0, found.start(which)) + 1
        yield Part(found[which], line, which == "shown", found["reason"])


def pages() -> list[Path]:
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in found if "```python" in page.read_text(encoding="utf-8")]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_every_block_is_found_and_says_why_if_it_does_not_run(page: Path) -> None:
    fences = len(re.findall(r"^```python", page.read_text(encoding="utf-8"), re.MULTILINE))
    assert sum(part.shown for part in parts(page)) == fences
    assert all(part.reason is None or len(part.reason) > 10 for part in parts(page))


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_the_blocks_of_a_page_run(
    page: Path, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"spark": spark, "__name__": "__main__"}
    try:
        for part in parts(page):
            if part.reason is None:
                run(part, page, tmp_path, names)
    finally:
        clean_up(spark, names)


def run(part: Part, page: Path, folder: Path, names: dict[str, object]) -> None:
    code = FOLDERS.sub(f"{folder}/", part.code)
    padding = "\n" * (part.line - 1)  # so that an error names the line of the page
    exec(compile(padding + code, str(page), "exec"), names)


def clean_up(spark: SparkSession, names: dict[str, object]) -> None:
    for query in spark.streams.active:
        query.stop()
    for guard in [each for each in names.values() if isinstance(each, sw.Guard)]:
        guard.live.leave(spark)
