"""The web application: a page, what it draws, a stream of updates, and the metrics."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from spillway.dashboard import payload
from spillway.dashboard.security import Access, Checked
from spillway.telemetry import prometheus
from spillway.telemetry.watch import Watch

CLIENTS_MAX = 50
_READ_EVERY_S = 0.5
_LOOK_EVERY = 10  # reads: new guards appear seldom
_QUIET_S = 15.0  # after so long a sign of life is sent
_SLOW_S = 20.0  # a client that takes nothing for so long is let go
_STATIC = Path(__file__).parent / "static"
_TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
}


class Live:
    """Reads the ledgers while the application runs, and wakes those who wait for news."""

    def __init__(self, watch: Watch) -> None:
        """Nothing is read yet."""
        self.watch = watch
        self.clients = 0
        self.ended = False
        self.news = asyncio.Condition()

    async def run(self) -> None:
        """Read again and again; without a pause while there is a past to catch up with."""
        turn = 1  # the first look is taken before anybody can ask
        while True:
            before, known = self.watch.seq, len(self.watch.followed)
            if turn % _LOOK_EVERY == 0:
                await asyncio.to_thread(self.watch.look)
            waits = await asyncio.to_thread(self.watch.read)
            if self.watch.seq != before or len(self.watch.followed) != known:
                async with self.news:
                    self.news.notify_all()
            turn += 1
            await asyncio.sleep(0.0 if waits and self.watch.seq != before else _READ_EVERY_S)

    async def wait(self, is_new: Callable[[], bool]) -> None:
        """Wait for news, for the end, or for as long as a client may hear nothing."""
        with contextlib.suppress(TimeoutError):
            async with self.news:
                heard = self.news.wait_for(lambda: self.ended or is_new())
                await asyncio.wait_for(heard, _QUIET_S)

    async def end(self) -> None:
        """Let the streams of updates end."""
        self.ended = True
        async with self.news:
            self.news.notify_all()


def application(folders: Sequence[Path], access: Access, *, page: bool = True) -> Starlette:
    """Make the application; without the `page` it only serves metrics."""
    watch = Watch(folders)
    live = Live(watch)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await asyncio.to_thread(watch.look)
        reading = asyncio.create_task(live.run())
        yield
        reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reading

    routes = [Route("/metrics", _metrics(watch))]
    if page:
        routes += [
            Route("/api/overview", _overview(watch)),
            Route("/api/queries/{id}", _detail(watch)),
            Route("/api/events", _Events(live)),
            *(Route(path, _file(name)) for path, name in _files().items()),
        ]
    middleware = [Middleware(Checked, access=access)]
    made = Starlette(routes=routes, middleware=middleware, lifespan=lifespan)
    made.state.live = live
    return made


Endpoint = Callable[[Request], Response]


def _files() -> dict[str, str]:
    """Return the files that are served, by address; no address is ever made into a path."""
    names = sorted(path.name for path in _STATIC.iterdir() if path.suffix in _TYPES)
    return {"/" if name == "index.html" else f"/static/{name}": name for name in names}


def _file(name: str) -> Endpoint:
    path = _STATIC / name
    content = path.read_bytes()
    headers = {"Cache-Control": "no-cache"}

    def endpoint(_: Request) -> Response:
        return Response(content, media_type=_TYPES[path.suffix], headers=headers)

    return endpoint


def _overview(watch: Watch) -> Endpoint:
    def endpoint(_: Request) -> Response:
        with watch.lock:
            return _json(payload.overview(watch))

    return endpoint


def _detail(watch: Watch) -> Endpoint:
    def endpoint(request: Request) -> Response:
        span = request.query_params.get("span", "live")
        followed = watch.followed.get(request.path_params["id"])
        if followed is None:
            return PlainTextResponse("no such query", 404)
        if span not in ("live", "all"):
            return PlainTextResponse("span must be live or all", 400)
        with watch.lock:
            return _json(payload.detail(followed, span))

    return endpoint


def _metrics(watch: Watch) -> Endpoint:
    def endpoint(_: Request) -> Response:
        with watch.lock:
            text = prometheus.text(watch)
        return Response(text, media_type=prometheus.CONTENT_TYPE)

    return endpoint


def _json(value: Any) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")


class _Events:
    """The stream of updates, as server-sent events. A slow client gets fewer and larger ones.

    Nothing is queued: what a client missed is looked up when it can take more.
    """

    def __init__(self, live: Live) -> None:
        self._live = live

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._live.clients >= CLIENTS_MAX:
            await PlainTextResponse("too many watchers", 503)(scope, receive, send)
            return
        self._live.clients += 1
        try:
            async with asyncio.TaskGroup() as tasks:
                both = tasks.create_task(self._tell(send)), tasks.create_task(_gone(receive))
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                for task in both:
                    task.cancel()
        except* (TimeoutError, OSError):
            pass  # it went away, or took too long
        finally:
            self._live.clients -= 1

    async def _tell(self, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream"), (b"x-accel-buffering", b"no")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        watch = self._live.watch
        after, known = watch.seq, _known(watch)
        await _sent(send, _event("hello", {"seq": after}))
        while True:
            await self._live.wait(partial(_is_new, watch, after, known))
            if self._live.ended:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
                return
            with watch.lock:
                changed, told = _known(watch) != known, payload.updates(watch, after)
                after, known = watch.seq, _known(watch)
            if changed:
                await _sent(send, _event("reset", {}))
            await _sent(send, _event("batches", told) if told else b": still here\n\n")


def _is_new(watch: Watch, after: int, known: tuple[int, bool]) -> bool:
    return watch.seq != after or _known(watch) != known


def _known(watch: Watch) -> tuple[int, bool]:
    return len(watch.followed), watch.loaded


def _event(name: str, value: Any) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + msgspec.json.encode(value) + b"\n\n"


async def _sent(send: Send, data: bytes) -> None:
    message = {"type": "http.response.body", "body": data, "more_body": True}
    await asyncio.wait_for(send(message), _SLOW_S)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
