"""Starts the page: in the foreground for the command line, on a thread for a notebook."""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from spillway.dashboard.app import application
from spillway.dashboard.security import Access, is_loopback

PORT = 8377
_START_S = 10.0
_CONNECTIONS_MAX = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A page that is served on a thread of this process."""

    url: str
    _uvicorn: uvicorn.Server
    _thread: threading.Thread

    def stop(self) -> None:
        """Stop serving."""
        self._uvicorn.should_exit = True
        self._thread.join(_START_S)

    def _repr_html_(self) -> str:
        """Show a link in a notebook."""
        return f'<a href="{self.url}" target="_blank" rel="noreferrer">Spillway dashboard</a>'


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the page is served: an address that is bound already, and who may look."""

    bound: socket.socket
    access: Access

    @classmethod
    def of(
        cls, *, host: str, port: int, token: str | None = None, allow: Sequence[str] = ()
    ) -> Place:
        """Bind the address; whatever is wrong with it is known before anything starts."""
        if not 0 <= port <= 65535:
            raise ValueError(f"port must be in [0, 65535], got {port}")
        access = Access.of(host, token=token, allow=allow)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        bound = socket.socket(family, socket.SOCK_STREAM)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind((host, port))
        except OSError as error:
            bound.close()
            raise ValueError(f"host and port must be free, got {host}:{port}: {error}") from error
        return cls(bound=bound, access=access)

    @property
    def address(self) -> str:
        """The address without the token."""
        host, port = self.bound.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        return f"http://{shown}:{port}/"

    @property
    def url(self) -> str:
        """The address that opens the page."""
        return f"{self.address}?token={self.access.token}" if self.access.token else self.address

    @property
    def is_public(self) -> bool:
        """Whether other machines can reach it."""
        return not is_loopback(self.bound.getsockname()[0])


class _Ending(uvicorn.Server):
    """Lets the streams of updates end before it waits for what is open."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        app: Any = self.config.app
        await app.state.live.end()
        await super().shutdown(sockets)


def server_of(folders: Sequence[Path], place: Place, *, page: bool = True) -> uvicorn.Server:
    """Return the server, not yet started."""
    return _Ending(
        uvicorn.Config(
            application(folders, place.access, page=page),
            http="h11",
            ws="none",
            loop="asyncio",
            access_log=False,  # the first address holds the token
            log_level="warning",
            server_header=False,
            proxy_headers=False,
            limit_concurrency=_CONNECTIONS_MAX,
            timeout_graceful_shutdown=1,
        )
    )


def serve(folders: Sequence[Path], *, port: int = 0, token: str | None = None) -> Server:
    """Serve the page on this machine, on a thread; return when it answers."""
    place = Place.of(host="127.0.0.1", port=port, token=token)
    server = server_of(folders, place)
    thread = threading.Thread(
        target=server.run, kwargs={"sockets": [place.bound]}, daemon=True, name="spillway-dashboard"
    )
    thread.start()
    pause = threading.Event()
    for _ in range(int(_START_S / 0.02)):
        if server.started or not thread.is_alive():
            break
        pause.wait(0.02)
    if not server.started:
        raise RuntimeError(f"the dashboard did not start within {_START_S:g} s")
    return Server(url=place.url, _uvicorn=server, _thread=thread)
