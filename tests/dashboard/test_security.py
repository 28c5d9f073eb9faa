"""The page is for those who may see it: Host, Origin, method, token, paths, names."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from spillway.dashboard import app as app_module
from spillway.dashboard import security
from spillway.dashboard.app import application
from spillway.dashboard.security import Access, is_loopback
from spillway.dashboard.serve import Place
from tests.telemetry.making import Story, write

TOKEN = "a-token-of-length-24-abc"
ROUTES = ("/", "/metrics", "/api/overview", "/api/queries/x", "/api/events", "/static/uPlot.js")
EVIL = "<script>alert(1)</script>\"'&"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    write(tmp_path / "state", Story(name=EVIL), batches=3)
    access = Access.of("127.0.0.1", token=TOKEN)
    url = "http://127.0.0.1:8377"
    with TestClient(application([tmp_path / "state"], access), base_url=url) as client:
        yield client


def bearer(token: str = TOKEN) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("token", [None, "", "wrong", TOKEN[:-1], TOKEN + "x", "é"])
def test_without_the_right_token_nothing_is_told(
    client: TestClient, route: str, token: str | None
) -> None:
    headers = {} if token is None else {"Authorization": f"Bearer {token}".encode()}
    answer = client.get(route, headers=headers)
    assert answer.status_code == 401
    assert "spillway" not in answer.text.lower()


def test_the_right_token_opens_as_bearer_and_by_the_address(client: TestClient) -> None:
    assert client.get("/api/overview", headers=bearer()).status_code == 200
    entered = client.get(f"/?token={TOKEN}", follow_redirects=False)
    assert entered.status_code == 303
    assert entered.headers["location"] == "/"
    cookie = entered.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert client.get("/api/overview").status_code == 200  # the client holds the cookie now


def test_the_token_in_the_address_opens_the_page_only(client: TestClient) -> None:
    """A link cannot carry it to an answer that others could embed."""
    assert client.get(f"/api/overview?token={TOKEN}").status_code == 401


def test_tokens_are_compared_in_constant_time(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the function that is made for it, and by nothing else: if it says yes, the door opens."""
    asked: list[bytes] = []

    def yes(given: bytes, _: bytes) -> bool:
        asked.append(given)
        return True

    monkeypatch.setattr(security.hmac, "compare_digest", yes)
    assert client.get("/api/overview", headers=bearer("wrong")).status_code == 200
    assert asked == [b"wrong"]


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "", "127.0.0.1:8377@evil", "10.0.0.1", "a b"]
)
def test_an_unknown_host_is_refused_whatever_the_token(client: TestClient, host: str) -> None:
    """A page of a stranger whose name resolves to this machine gets nothing."""
    answer = client.get("/api/overview", headers={**bearer(), "Host": host})
    assert answer.status_code == 400


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:9999", "LOCALHOST", "[::1]:8377"])
def test_this_machine_s_names_are_known(client: TestClient, host: str) -> None:
    assert client.get("/api/overview", headers={**bearer(), "Host": host}).status_code == 200


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1"])
def test_another_origin_is_refused(client: TestClient, method: str, origin: str) -> None:
    headers = {**bearer(), "Origin": origin}
    assert client.request(method, "/api/overview", headers=headers).status_code == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_the_page_can_only_be_read(client: TestClient, method: str) -> None:
    assert client.request(method, "/api/overview", headers=bearer()).status_code == 405


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/..%2fapp.py",
        "/static/%2e%2e/%2e%2e/app.py",
        "/static//etc/passwd",
        "/static/%00",
        "/static/uPlot.js%00.css",
        "/static/",
        "/..%2f..%2fetc/passwd",
        "/api/queries/..%2f..%2fetc%2fpasswd",
        "/api/queries/%2e%2e",
    ],
)
def test_paths_that_lead_out_lead_nowhere(client: TestClient, path: str) -> None:
    answer = client.get(path, headers=bearer())
    assert answer.status_code == 404
    assert "root:" not in answer.text


def test_what_is_served_is_listed_and_no_more(client: TestClient) -> None:
    served = set(app_module._files())
    assert served == {
        "/",
        *(f"/static/{name}" for name in ("dashboard.css", "dashboard.js", "spillway.svg")),
        *(f"/static/{name}" for name in ("uPlot.css", "uPlot.js")),
    }
    assert all(client.get(path, headers=bearer()).status_code == 200 for path in served)


def test_a_strange_span_is_refused(client: TestClient) -> None:
    (query,) = overview(client)["queries"]
    path = f"/api/queries/{query['id']}?span="
    assert client.get(path + "../x", headers=bearer()).status_code == 400
    assert client.get(path + "all", headers=bearer()).status_code == 200


def overview(client: TestClient) -> Any:
    return client.get("/api/overview", headers=bearer()).json()


def test_the_very_first_answer_names_the_guards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is read whole: the page would otherwise show an empty list as loaded."""

    async def never(_: app_module.Live) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(app_module.Live, "run", never)
    write(tmp_path / "state", Story(name="rides"), batches=3)
    access = Access.of("127.0.0.1", token=TOKEN)
    url = "http://127.0.0.1:8377"
    with TestClient(application([tmp_path / "state"], access), base_url=url) as client:
        told = overview(client)
    assert [(query["name"], query["batch_id"]) for query in told["queries"]] == [("rides", 2)]
    assert not told["loaded"]


def test_a_name_that_is_a_script_travels_as_text_and_no_script_may_run_from_elsewhere(
    client: TestClient,
) -> None:
    answer = client.get("/api/overview", headers=bearer())
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["queries"][0]["name"] == EVIL
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    for name in ("x-content-type-options", "x-frame-options", "referrer-policy"):
        assert name in answer.headers


def test_the_page_never_makes_html_of_text() -> None:
    source = (Path(app_module.__file__).parent / "static" / "dashboard.js").read_text()
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert word not in source.replace("never as HTML", "")
    page = (Path(app_module.__file__).parent / "static" / "index.html").read_text()
    assert "http:" not in page
    assert "https:" not in page  # nothing comes from elsewhere


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_no_start_where_others_can_reach_it_without_a_token(host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(ValueError, match="token must not be empty"):
        Place.of(host=host, port=0, token="")


@pytest.mark.parametrize(
    "token", ["short", "x" * 15, "with space and more", "a" * 20 + "\n", "é" * 20]
)
def test_a_weak_or_odd_token_is_refused_and_not_repeated(token: str) -> None:
    with pytest.raises(ValueError, match="token must be") as error:
        Access.of("127.0.0.1", token=token)
    assert token not in str(error.value)


def test_a_token_is_drawn_anew_for_every_start() -> None:
    drawn = {Access.of("127.0.0.1", token=None).token for _ in range(20)}
    assert len(drawn) == 20
    assert min(map(len, drawn)) >= 32


def test_further_hosts_can_be_allowed() -> None:
    access = Access.of("127.0.0.1", token=TOKEN, allow=["Metrics.Example"])
    assert access.knows("metrics.example:443")
    assert not replace(access, hosts=frozenset({"x"})).knows("metrics.example")


def test_a_port_that_is_taken_is_named() -> None:
    first = Place.of(host="127.0.0.1", port=0)
    port = first.bound.getsockname()[1]
    first.bound.listen()
    with pytest.raises(ValueError, match=f"got 127.0.0.1:{port}"):
        Place.of(host="127.0.0.1", port=port)
    first.bound.close()
