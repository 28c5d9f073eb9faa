"""The report: one page that stands alone, escapes everything and looks the same every time."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from spillway.studies import report
from spillway.studies.draw import inline_svg, picture_of, save
from spillway.studies.report import Findings, as_markdown, findings, page, write
from spillway.studies.run import Order, run
from spillway.studies.study import Claim, Figure, Panel, Series
from tests.studies import fake

ORDER = Order(module="tests.studies.fake", quick=True)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    return findings(ORDER, run(ORDER, workers=1, cache=tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="module")
def folder(found: Findings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `write` writes, into a folder that was not there."""
    return write(found, tmp_path_factory.mktemp("out") / "new" / "folder").parent


@pytest.fixture(scope="module")
def text(folder: Path) -> str:
    """The page."""
    return (folder / "report.html").read_text(encoding="utf-8")


class Reader(HTMLParser):
    """Collects tags, ids, links and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.attributes if key == name]


def test_the_page_loads_nothing_from_elsewhere(text: str) -> None:
    read = Reader(text)
    assert not {"script", "link", "iframe", "img"} & set(read.tags)
    links = read.all("href") + read.all("xlink:href") + read.all("src")
    assert links
    assert all(link.startswith(("#", "data:image/png;base64,")) for link in links)
    assert not re.search(r"url\((?!#)|@import", text)


def test_every_id_is_there_once_and_every_link_has_its_target(text: str) -> None:
    read = Reader(text)
    ids = read.all("id")
    assert len(ids) == len(set(ids)) > 50
    targets = [link[1:] for link in read.all("href") + read.all("xlink:href") if link[0] == "#"]
    targets += re.findall(r"url\(#([^)]+)\)", text)
    assert set(targets) <= set(ids)


def test_foreign_text_is_escaped_everywhere(text: str, folder: Path) -> None:
    assert "<script" not in text
    assert Reader(text).text.count(fake.NASTY) >= 5
    assert "<script" not in (folder / "claims.md").read_text()
    assert "<script" not in (folder / "figures" / "bars.svg").read_text()


def test_the_page_says_how_many_claims_hold_and_which_do_not(found: Findings, text: str) -> None:
    read = Reader(text).text
    assert "3 claims: 1 hold, 1 hold better than in the paper, 1 do not hold." in read
    assert "Does not hold here:" in read
    assert "Does not hold here:" not in Reader(page(without_missed(found))).text


def without_missed(found: Findings) -> Findings:
    held = tuple(claim for claim in found.claims if claim.held)
    return Findings(order=found.order, figures=found.figures, claims=held)


def test_every_figure_has_its_picture_and_its_claims(text: str) -> None:
    sections = text.split("<section>")[1:]
    assert len(sections) == 3
    assert all(section.count("<svg") == 1 for section in sections)
    assert [section.count('<td class="verdict') for section in sections] == [2, 1, 0]
    assert "The paper claims nothing" in sections[2]


def test_light_and_dark_change_the_pictures_too(found: Findings, text: str) -> None:
    assert "prefers-color-scheme: dark" in text
    picture = inline_svg(found.figures[0])
    assert "var(--ink, #1f2937)" in picture
    assert "var(--paper, #ffffff)" in picture


def test_the_folder_holds_page_pictures_and_claims(folder: Path) -> None:
    there = (path for path in folder.rglob("*") if path.is_file())
    files = sorted(str(path.relative_to(folder)) for path in there)
    pictures = [
        f"figures/{name}.{kind}" for name in ("bars", "curve", "line") for kind in ("png", "svg")
    ]
    assert files == sorted(["claims.json", "claims.md", "report.html", *pictures])


def test_pictures_are_whole_and_the_same_every_time(
    found: Findings, folder: Path, tmp_path: Path
) -> None:
    for figure in found.figures:
        svg, png = save(figure, tmp_path)
        ElementTree.fromstring(svg.read_bytes())
        assert png.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
        for path in (svg, png):
            assert path.read_bytes() == (folder / "figures" / path.name).read_bytes()


def test_a_long_line_does_not_make_a_huge_file(found: Findings) -> None:
    assert len(inline_svg(found.figures[2])) < 300_000


def test_claims_json_is_what_was_found(found: Findings, folder: Path) -> None:
    read = json.loads((folder / "claims.json").read_text())
    assert read["counts"] == {"holds": 1, "holds better": 1, "does not hold": 1}
    assert (read["study"], read["seed"], read["quick"], read["version"]) == ("fake", 1, True, 1)
    assert [Claim(**claim) for claim in read["claims"]] == list(found.claims)


def test_markdown_has_one_row_per_claim_and_six_cells_in_each(found: Findings) -> None:
    rows = [line for line in as_markdown(found).splitlines() if line.startswith("|")]
    assert len(rows) == 2 + 3
    assert [len(re.findall(r"(?<!\\)\|", row)) for row in rows] == [7] * 5


def test_the_footer_names_the_command_that_makes_it_again(text: str) -> None:
    assert "spillway study fake --seed 1 --quick" in Reader(text).text


def test_a_claim_about_another_figure_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    stray = [Claim("elsewhere", "s", "p", "o", "holds")]
    monkeypatch.setattr(fake.Line, "claims", lambda *_: stray)
    order = Order(module="tests.studies.fake", figures=("line",))
    results = {"line": {"all": fake.Line().compute(fake.Line().points()[0], range(1), 1)}}
    monkeypatch.setattr(fake.Line, "draw", lambda *_: Figure("line", "t", (Panel("y", ()),)))
    with pytest.raises(ValueError, match=r"must speak of one of \['line'\], got 'elsewhere'"):
        report.findings(order, results)  # type: ignore[arg-type]


# Drawing ------------------------------------------------------------------------------------


def test_a_series_keeps_its_colour_in_every_panel_and_all_differ() -> None:
    lines = tuple(Series(f"s{i}", (1.0, 2.0), (float(i), i + 1.0)) for i in range(14))
    both = picture_of(Figure("f", "t", (Panel("a", lines), Panel("b", lines[::-1]))))
    first, second = (
        {tuple(line.get_ydata()): _look(line) for line in axes.get_lines()} for axes in both.axes
    )
    assert first == second
    assert len(set(first.values())) == 14


def _look(line: object) -> tuple[object, ...]:
    return line.get_color(), line.get_linestyle(), line.get_marker()  # type: ignore[attr-defined]


def test_gaps_zeros_on_a_logarithmic_axis_and_a_single_point_can_be_drawn() -> None:
    odd = Series("odd", (1.0, 2.0, 3.0), (float("nan"), 0.0, 1.0), (0.0, 0.0, 0.5), (1.0, 1.0, 2.0))
    one = Series("one", (2.0,), (5.0,))
    for y_log in (False, True):
        assert "<svg" in inline_svg(Figure("f", "t", (Panel("y", (odd, one), y_log=y_log),)))


def test_labels_on_the_x_axis_become_bars_and_dots_where_y_is_logarithmic() -> None:
    lines = (Series("a", ("x", "y"), (1.0, 10.0)), Series("b", ("y",), (5.0,)))
    for y_log, bars in ((False, 3), (True, 0)):
        axes = picture_of(Figure("f", "t", (Panel("v", lines, y_log=y_log),))).axes[0]
        assert len(axes.patches) == bars
        assert [label.get_text() for label in axes.get_xticklabels()] == ["x", "y"]


def test_no_global_state_of_matplotlib_is_used() -> None:
    code = (
        "import sys, matplotlib\n"
        "seen = lambda: {k: repr(v) for k, v in dict.items(matplotlib.rcParams)}\n"
        "before = seen()\n"
        "from spillway.studies.draw import inline_svg\n"
        "from spillway.studies.study import *\n"
        "inline_svg(Figure('f', 't', (Panel('y', (Series('a', (1.0,), (1.0,)),)),)))\n"
        "print('matplotlib.pyplot' in sys.modules, seen() == before)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.split() == ["False", "True"]
