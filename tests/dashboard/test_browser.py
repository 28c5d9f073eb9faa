"""The page in a real browser: draws live data, follows, reconnects, and stays quick."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import spillway as sw
from spillway.dashboard.serve import Server, serve
from spillway.telemetry.words import reason
from tests.conftest import Driven
from tests.telemetry.making import Story, write

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium")
TOKEN = "a-token-of-length-24-abc"

MISSING = "Chromium is not installed (Debian: apt install chromium)"
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=MISSING)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        launched.close()


class Opened:
    """A page whose errors fail the test."""

    def __init__(self, browser: Browser, **options: Any) -> None:
        size = {"width": 1280, "height": 900}
        self.context = browser.new_context(**{"viewport": size, **options})
        self.page: Page = self.context.new_page()
        self.errors: list[str] = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()
        assert self.errors == []


def drawn(page: Page) -> int:
    """Count the charts that have ink on them, beside the axes: the line's own colour."""
    script = """() => [...document.querySelectorAll('.chart canvas')].filter((canvas) => {
        const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
        const seen = new Set();
        for (let i = 0; i < data.length; i += 4) if (data[i + 3] > 200)
            seen.add(`${data[i] >> 4},${data[i + 1] >> 4},${data[i + 2] >> 4}`);
        return seen.size > 2;
    }).length"""
    return int(page.evaluate(script))


def until(page: Page, holds: Callable[[], bool], timeout_s: float = 60.0) -> None:
    """Wait in Python: the page's own policy forbids to evaluate text again and again in it."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s"
        page.wait_for_timeout(30)


def tile(page: Page, title: str) -> str:
    return page.locator(f"#tiles div:has(dt:text('{title}')) dd").inner_text()


def test_a_running_query_is_drawn_within_2_s_of_a_batch_and_its_history_survives_restarts(
    driven: Driven, browser: Browser
) -> None:
    """A real stream: calm, burst, calm; then the page is opened again, and the query started."""
    heard: list[float] = []
    guard = sw.Guard("rides", control=sw.FixedRate(0.25), state=driven.state)
    booked = threading.Event()

    def note(event: object) -> None:
        if type(event).__name__ == "Observed":
            heard.append(time.time())
            booked.set()

    guard.on_event(note)
    query = driven.start(guard.protect(driven.stream(), arrived="arrived"))
    server = guard.dashboard(token=TOKEN)
    with Opened(browser) as opened:
        page = opened.page
        driven.advance(query, to_s=1.0)
        assert booked.wait(60)
        page.goto(server.url)
        page.wait_for_selector(".chart canvas", timeout=60_000)
        until(page, lambda: page.locator("#name").inner_text() == "rides")
        delays = []
        for to_s, came in ((2.0, "2,000"), (9.0, "9,000"), (10.0, "10 k")):  # calm, burst, calm
            booked.clear()
            driven.advance(query, to_s=to_s)
            assert booked.wait(60)
            until(page, lambda came=came: tile(page, "In all").startswith(came))
            delays.append(time.time() - heard[-1])
        assert max(delays) < 2.0, f"from a batch in the books to the page: {delays} s"
        until(page, lambda: told(guard) in page.locator("#words").inner_text().lower())
        assert drawn(page) >= 3
        until(page, lambda: shown_batches(page) == len(heard) >= 4)
        batches = shown_batches(page)
        assert tile(page, "Latency, p99").startswith("≤")  # no objective asks for it
        assert "not measured" in tile(page, "Latency, p99")
        page.reload()
        until(page, lambda: shown_batches(page) >= batches)
        query.stop()
        again = sw.Guard("rides", control=sw.FixedRate(0.25), state=driven.state)
        query = driven.start(again.protect(driven.stream(), arrived="arrived"))
        driven.advance(query, to_s=11.0)
        until(page, lambda: tile(page, "In all").startswith("11 k"))
        assert shown_batches(page) > batches
    server.stop()
    query.stop()


def told(guard: sw.Guard) -> str:
    """What the books say of the last batch; Spark may have cut a step of the clock in two."""
    return reason(list(guard.ledger().entries())[-1]).lower()


def bursts(page: Page) -> float:
    """How the rate of the last batch on the chart compares with that of the third."""
    script = "(() => { const rate = data.rows[place.rate]; return rate.at(-1) / rate[2]; })()"
    return float(page.evaluate(script))


def shown_batches(page: Page) -> int:
    return int(page.evaluate("data === null ? 0 : data.rows[0].length"))


@pytest.fixture
def story(tmp_path: Path) -> Story:
    return Story(started_at_s=time.time() - 60)


def test_the_page_shows_burst_recovery_reason_and_objective(
    tmp_path: Path, browser: Browser, story: Story
) -> None:
    write(tmp_path / "state", story, batches=60)
    server = serve([tmp_path / "state"], token=TOKEN)
    with Opened(browser) as opened:
        page = opened.page
        page.goto(server.url)
        page.wait_for_selector("#state.shedding")
        assert page.locator("#words").inner_text().lower().endswith("costliest keys first")
        assert "average ≤ 2 s" in tile(page, "Latency, mean")
        assert tile(page, "Latency, p99").split(" ")[0] not in ("≤", "–")
        assert bursts(page) > 3.0  # times as many rows a second as the batches before
        assert drawn(page) == 7
        write(tmp_path / "state", story, first=60, batches=40)
        page.wait_for_selector("#state.held", timeout=10_000)
        assert bursts(page) == pytest.approx(1.0, abs=0.2)  # the recovery
        assert "100 %" in tile(page, "Kept")
        assert page.url.endswith("/")  # the token is not left in the address
    server.stop()


def test_the_page_reconnects_when_its_server_comes_back_and_goes_on(
    tmp_path: Path, browser: Browser, story: Story
) -> None:
    write(tmp_path / "state", story, batches=10)
    server = serve([tmp_path / "state"], token=TOKEN)
    port = int(server.url.partition("?")[0].rpartition(":")[2].strip("/"))
    with Opened(browser) as opened:
        page = opened.page
        page.goto(server.url)
        page.wait_for_selector(".link.live")
        server.stop()
        page.wait_for_selector(".link.lost")
        write(tmp_path / "state", story, first=10, batches=5)
        server = _again([tmp_path / "state"], port)
        page.wait_for_selector(".link.live", timeout=20_000)
        until(page, lambda: page.evaluate("data.rows[0].length") == 15)
    server.stop()


def _again(folders: list[Path], port: int) -> Server:
    """Serve on the port of before, as soon as it is free."""
    deadline = time.monotonic() + 20
    while True:
        try:
            return serve(folders, port=port, token=TOKEN)
        except ValueError:
            if time.monotonic() > deadline:
                raise


def test_50_queries_and_a_history_of_1e5_batches_do_not_slow_the_page(
    tmp_path: Path, browser: Browser
) -> None:
    """First paint from a ledger of 10^5 batches in under 1 s, and little memory."""
    now_s = time.time()
    write(
        tmp_path / "long",
        Story(name="long", period=5000, started_at_s=now_s - 1e5),
        batches=100_000,
    )
    for number in range(49):
        story = Story(name=f"query {number:02d}", seed=number, started_at_s=now_s - 100)
        write(tmp_path / f"q{number:02d}", story, batches=100)
    server = serve([tmp_path], token=TOKEN)
    with Opened(browser) as opened:
        page = opened.page
        page.goto(server.url)
        page.wait_for_selector(".chart canvas")
        paint_ms = page.evaluate(
            "performance.getEntriesByName('first-contentful-paint')[0].startTime"
        )
        charts_ms = page.evaluate("performance.now()")
        print(f"first paint {paint_ms:.0f} ms, charts there after {charts_ms:.0f} ms")
        assert paint_ms < 1000
        until(page, lambda: page.locator(".card").count() == 50)
        page.locator(".card", has_text="long").click()
        page.click("[data-span=all]")
        whole = "data.batches_each === 256 && data.loaded"
        until(page, lambda: page.evaluate(whole), timeout_s=200)  # it is read behind the page
        assert page.evaluate("data.rows[0].length") <= 512
        assert drawn(page) >= 5
        heap = page.evaluate("performance.memory.usedJSHeapSize")
        assert heap < 64e6
    server.stop()


def test_a_name_that_is_a_script_is_shown_and_not_run(tmp_path: Path, browser: Browser) -> None:
    name = "<img src=x onerror=document.title='run'><script>document.title='run'</script>"
    write(tmp_path / "state", Story(name=name, started_at_s=time.time() - 10), batches=10)
    server = serve([tmp_path / "state"], token=TOKEN)
    with Opened(browser) as opened:
        page = opened.page
        page.goto(server.url)
        page.wait_for_selector(".chart canvas")
        assert page.locator("#name").inner_text() == name
        assert page.title() != "run"
        assert page.locator("script").count() == 2
        assert page.locator("main img").count() == 0
    server.stop()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone_everything_fits_the_width_in_light_and_dark(
    tmp_path: Path, browser: Browser, scheme: str
) -> None:
    for name in ("rides", "fares"):
        write(tmp_path / name, Story(name=name, started_at_s=time.time() - 60), batches=60)
    server = serve([tmp_path], token=TOKEN)
    phone: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "is_mobile": True}
    with Opened(browser, **phone, has_touch=True, color_scheme=scheme) as opened:
        page = opened.page
        page.goto(server.url)
        page.locator(".card", has_text="rides").tap()
        page.wait_for_selector(".chart canvas")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert not page.locator("#list").is_visible()
        shade = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, shade[4:-1].split(","))) < 200) == (scheme == "dark")
        page.locator(".back").tap()
        page.wait_for_selector(".card")
        assert page.locator("#list").is_visible()
    server.stop()
