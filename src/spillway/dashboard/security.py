"""Who may see the page: checks of Host, Origin, method and token before anything else runs."""

from __future__ import annotations

import hmac
import ipaddress
import re
import secrets
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

TOKEN_MIN = 16
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::\d{1,5})?")
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Who may look: by which names the page may be called, and with which token.

    >>> Access.of("0.0.0.0", token="")
    Traceback (most recent call last):
      ...
    ValueError: token must not be empty on '0.0.0.0', which other machines can reach
    """

    hosts: frozenset[str]
    token: str

    @classmethod
    def of(cls, host: str, *, token: str | None, allow: Sequence[str] = ()) -> Access:
        """Draw a token if none is given; refuse to go without one where others can reach it."""
        token = secrets.token_urlsafe(24) if token is None else token
        if not token and not is_loopback(host):
            raise ValueError(f"token must not be empty on {host!r}, which other machines can reach")
        if token and (len(token) < TOKEN_MIN or not re.fullmatch(r"[\w.~-]+", token, re.ASCII)):
            raise ValueError(
                f"token must be empty or {TOKEN_MIN} and more letters, digits, or any of -._~; "
                f"got {len(token)} characters"
            )
        own = (f"[{host}]" if ":" in host else host, socket.gethostname())
        return cls(hosts=frozenset(map(str.lower, (*_LOOPBACK, *own, *allow))), token=token)

    def knows(self, host: str) -> bool:
        """Say whether a Host header names this page; any port will do."""
        match = _HOST.fullmatch(host)
        return match is not None and match[1].lower() in self.hosts

    def is_right(self, token: str) -> bool:
        """Compare in a time that tells nothing."""
        return hmac.compare_digest(token.encode(), self.token.encode())


def is_loopback(host: str) -> bool:
    """Say whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Checked:
    """Lets a request pass to the application if it may, and adds safe headers to the answer."""

    def __init__(self, app: ASGIApp, *, access: Access) -> None:
        """Stand before an application."""
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = self._refused(scope, Headers(scope=scope))
        await (answer or self._app)(scope, receive, _safely(send))

    def _refused(self, scope: Scope, headers: Headers) -> Response | None:
        """Return an error, or the cookie for a right token; None if the request may pass."""
        host, origin = headers.get("host", ""), headers.get("origin")
        if not self._access.knows(host) or len(headers.getlist("host")) != 1:
            return PlainTextResponse("unknown Host", 400)
        if origin is not None and origin.partition("://")[2].lower() != host.lower():
            return PlainTextResponse("another origin", 403)
        if scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("the page can only be read", 405, {"Allow": "GET, HEAD"})
        return self._unknown(scope, headers)

    def _unknown(self, scope: Scope, headers: Headers) -> Response | None:
        if not self._access.token:
            return None
        name = _cookie_name(scope)
        asked = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if asked and scope["path"] == "/" and self._access.is_right(asked):
            entered = RedirectResponse("/", 303)
            entered.set_cookie(name, self._access.token, httponly=True, samesite="strict")
            return entered
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        if self._access.is_right(bearer) or self._access.is_right(_cookie(headers, name)):
            return None
        told = "the token is missing or wrong: open the address that the command printed\n"
        return PlainTextResponse(told, 401, {"WWW-Authenticate": "Bearer"})


def _cookie_name(scope: Scope) -> str:
    """Name the cookie by the port: browsers share cookies among the ports of a machine."""
    server: Any = scope.get("server") or ("", 0)
    return f"spillway-{server[1]}"


def _cookie(headers: Headers, name: str) -> str:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(name)
    except CookieError:
        return ""
    return found.value if found else ""


def _safely(send: Send) -> Send:
    async def with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return with_headers
