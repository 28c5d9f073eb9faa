"""The page as it is served: live updates, bounds on clients, the command line."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

import spillway as sw
from spillway.dashboard import app as app_module
from spillway.dashboard.serve import Server, serve
from spillway.telemetry.watch import Watch
from tests.conftest import wait_until
from tests.telemetry.making import Story, write

TOKEN = "a-token-of-length-24-abc"
STORY = Story()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    write(tmp_path / "state", STORY, batches=50)
    server = serve([tmp_path / "state"], token=TOKEN)
    yield server
    server.stop()


def client(server: Server) -> httpx.Client:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    return httpx.Client(base_url=server.url.partition("?")[0], headers=headers, timeout=20.0)


def events(lines: Iterator[str]) -> Iterator[tuple[str, Any]]:
    """Read server-sent events."""
    name = ""
    for line in lines:
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


def wait_loaded(asked: httpx.Client) -> Any:
    wait_until(lambda: bool(asked.get("/api/overview").json()["loaded"]), "the books are read")
    return asked.get("/api/overview").json()


def test_a_batch_is_pushed_to_the_page_with_words_and_numbers(
    server: Server, tmp_path: Path
) -> None:
    with client(server) as asked:
        told = wait_loaded(asked)
        with asked.stream("GET", "/api/events") as stream:
            heard = events(stream.iter_lines())
            assert next(heard)[0] == "hello"
            write(tmp_path / "state", STORY, first=50, batches=1)
            name, (update,) = next((n, v) for n, v in heard if n == "batches")
    assert name == "batches"
    assert update["words"].endswith("keeping 31 %: costliest keys first")
    numbers = dict(zip(told["columns"], update["points"][0], strict=False))
    assert numbers["share"] == pytest.approx(0.31, abs=0.02)
    assert update["counted"][0] == 51


def test_open_pages_do_not_hold_up_the_end(
    server: Server, capfd: pytest.CaptureFixture[str]
) -> None:
    with client(server) as asked, asked.stream("GET", "/api/events") as stream:
        heard = events(stream.iter_lines())
        assert next(heard)[0] == "hello"
        server.stop()
        assert list(heard) == []  # the stream has an end
    assert capfd.readouterr().err == ""


def test_a_query_that_starts_later_appears_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_module, "_LOOK_EVERY", 1)
    write(tmp_path / "first", STORY, batches=1)
    server = serve([tmp_path], token=TOKEN)
    with client(server) as asked, asked.stream("GET", "/api/events") as stream:
        wait_loaded(asked)
        write(tmp_path / "second", Story(name="second"), batches=1)
        assert any(name == "reset" for name, _ in events(stream.iter_lines()))
        names = {query["name"] for query in asked.get("/api/overview").json()["queries"]}
    server.stop()
    assert names == {"rides", "second"}


def test_more_watchers_than_the_bound_are_sent_away_and_those_who_leave_make_room(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_module, "CLIENTS_MAX", 1)
    with client(server) as asked:
        with asked.stream("GET", "/api/events") as first:
            told = events(first.iter_lines())  # held: a stream that nobody reads is closed
            assert next(told)[0] == "hello"
            with asked.stream("GET", "/api/events") as second:
                assert second.status_code == 503

        def free() -> bool:
            with asked.stream("GET", "/api/events") as again:
                return again.status_code == 200

        wait_until(free, "room for another watcher")


def test_a_client_that_says_nothing_does_not_keep_others_from_the_page(server: Server) -> None:
    port = int(re.search(r":(\d+)/", server.url)[1])  # type: ignore[index]
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
    for each in silent:
        each.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n")  # and no end
    with client(server) as asked:
        assert asked.get("/").status_code == 200
    for each in silent:
        each.close()


def test_a_watcher_that_takes_nothing_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_module, "_SLOW_S", 0.05)
    live = app_module.Live(Watch([]))

    async def forever() -> Any:
        await asyncio.Event().wait()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            await forever()

    async def watch() -> None:
        await asyncio.wait_for(app_module._Events(live)({"type": "http"}, forever, send), 30)

    asyncio.run(watch())
    assert live.clients == 0


def test_the_history_is_there_again_after_the_page_s_server_was_restarted(tmp_path: Path) -> None:
    write(tmp_path / "state", STORY, batches=1500)
    found = []
    for _ in range(2):
        server = serve([tmp_path / "state"], token=TOKEN)
        with client(server) as asked:
            (query,) = wait_loaded(asked)["queries"]
            found.append(asked.get(f"/api/queries/{query['id']}?span=all").json())
        server.stop()
    assert found[0] == found[1]
    assert len(found[0]["rows"][0]) == 375  # 1500 batches, 4 a point
    assert found[0]["batches_each"] == 4


def test_a_guard_serves_its_own_page(tmp_path: Path) -> None:
    state = tmp_path / "rides" / "spillway"
    write(state, STORY, batches=3)
    guard = sw.Guard("rides", objective=sw.Latency(average="2 s"), state=state)
    server = guard.dashboard(token=TOKEN)
    with client(server) as asked:
        assert wait_loaded(asked)["queries"][0]["batch_id"] == 2
    assert server.url in server._repr_html_()
    server.stop()
    assert not any(t.name == "spillway-dashboard" for t in threading.enumerate())


def test_the_command_prints_the_address_serves_and_ends_with_ctrl_c(tmp_path: Path) -> None:
    script = "from spillway.cli import app; app()"
    command = [sys.executable, "-c", script, "dashboard", str(tmp_path), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    wait_until(lambda: _answers(url), "the page answers")
    assert httpx.get(url.partition("?")[0]).status_code == 401
    process.send_signal(signal.SIGINT)
    _, complaints = process.communicate(timeout=60)
    assert (process.returncode, complaints) == (0, "")


def _answers(url: str) -> bool:
    try:
        return httpx.get(url).status_code == 303
    except httpx.TransportError:
        return False
