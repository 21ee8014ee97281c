"""The server of the live page: one reader of the controller, whose readings go to every viewer.

A viewer gets a page with the present state, then server-sent events
(https://html.spec.whatwg.org/multipage/server-sent-events.html).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import secrets
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import anyio
import uvicorn
from cryptography import x509
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from switchml.common.errors import ConfigurationError
from switchml.common.tls import CERTIFICATE_FILE, KEY_FILE, Certificates, TlsError, is_local
from switchml.controller.client import ControllerClient
from switchml.controller.errors import ControllerError
from switchml.ops.live_page.connections import Connections
from switchml.ops.live_page.reading import PageReader

__all__ = ["MOST_CONNECTIONS", "MOST_VIEWERS", "LivePage", "PageAddress"]

MOST_VIEWERS: Final = 32
MOST_CONNECTIONS: Final = 4 * MOST_VIEWERS  # a browser may load the page's files at the same time
_SILENT_SECONDS: Final = 30  # after which a connection that has not asked for anything is closed
_UNTAKEN_SECONDS: Final = 30  # after which a connection whose viewer takes nothing is closed
_STOP_SECONDS: Final = 2
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_FILES: Final = Path(__file__).parent
_OPEN_THE_LINK: Final = "Open the link that `switchml-ctl top --web` has printed; it is new each time.\n"
_FULL: Final = f"This page has {MOST_VIEWERS} viewers, which is the most that it serves. Close one of them.\n"

_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Connection": "close",  # the time for a request is limited once for a connection, not again between two
}


@dataclass(frozen=True)
class PageAddress:
    """The address at which the page is served; beyond loopback only with certificates.

    A connection that asks for nothing for `silence` seconds is closed, and one whose viewer takes nothing for
    `patience` seconds.
    """

    host: str = "127.0.0.1"
    port: int = 0
    certificates: Certificates | None = None
    patience: int = _UNTAKEN_SECONDS
    silence: float = _SILENT_SECONDS


class LivePage:
    """The page of one fabric, served at `url`, which has the token, from the construction on.

    Raises:
        ConfigurationError: the address is beyond loopback without certificates, or these cannot be used.
        ControllerError: the controller cannot be reached.
        OSError: the address cannot be used.

    """

    def __init__(self, client: ControllerClient, interval: float, place: PageAddress) -> None:
        self._reader = PageReader(client)
        self._interval = interval
        hosts = _host_names(place)
        name = _name_of_this_host(place.host.lower(), hosts)
        self._socket = _listen(place)
        self.port = int(self._socket.getsockname()[1])
        token = secrets.token_urlsafe(32)
        secure = place.certificates is not None
        shown = f"[{name}]" if ":" in name else name
        self.url = f"{'https' if secure else 'http'}://{shown}:{self.port}/?token={token}"
        self._state = self._reader.read()
        self._states = _States(self._encoded())
        app = _Guard(_application(self._states, interval), hosts, token, _cookie_name(self.port), secure)
        directory = place.certificates.directory if place.certificates is not None else None
        config = uvicorn.Config(
            app, http="h11", ws="none", loop="asyncio", lifespan="off", interface="asgi3",
            log_level="error", access_log=False, proxy_headers=False, server_header=False,
            timeout_graceful_shutdown=_STOP_SECONDS,
            ssl_certfile=directory / CERTIFICATE_FILE if directory is not None else None,
            ssl_keyfile=directory / KEY_FILE if directory is not None else None,
        )  # fmt: skip
        connections = Connections(MOST_CONNECTIONS, place.silence)
        self._server = _Server(config, self._socket, connections, self._states.close)

    def serve(self) -> None:
        """Serve the page until SIGINT or SIGTERM, which then has its usual effect, or until `stop`."""
        stopped = threading.Event()

        async def run() -> None:
            arguments = (asyncio.get_running_loop(), stopped)
            reader = threading.Thread(target=self._read, args=arguments, name="reader", daemon=True)
            reader.start()
            try:
                await self._server.serve([])  # without sockets: uvicorn itself would accept without limits
            finally:
                stopped.set()
                reader.join(_STOP_SECONDS)

        try:
            asyncio.run(run())
        finally:
            self._socket.close()

    @property
    def viewers(self) -> int:
        """The number of viewers that follow the page."""
        return self._states.viewers

    def stop(self) -> None:
        """Make `serve`, which another thread runs, return soon."""
        self._server.should_exit = True

    def _read(self, loop: asyncio.AbstractEventLoop, stopped: threading.Event) -> None:
        """Read the controller until `stopped`, and publish each state, also that the controller is away."""
        while not stopped.wait(self._interval):
            try:
                self._state = self._reader.read()
            except ControllerError as error:
                self._state["away"] = str(error)
            except Exception as error:  # whatever it is: without its reader, the page would never change again
                self._state["away"] = repr(error)
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._states.publish, self._encoded())

    def _encoded(self) -> bytes:
        # Escaped so that it can stand inside a script element of the page; names come from users.
        text = json.dumps(self._state, separators=(",", ":"))
        return text.replace("<", "\\u003c").encode()


class _Server(uvicorn.Server):
    """Accepts by way of `connections`. Ends the viewers' streams when the process is to end; they would go on."""

    def __init__(
        self,
        config: uvicorn.Config,
        listening: socket.socket,
        connections: Connections,
        end_streams: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self._listening = listening
        self._connections = connections
        self._end_streams = end_streams

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._accepting = asyncio.create_task(self._connections.accept(self._listening, self))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._accepting.cancel()
        self._end_streams()
        await super().shutdown(sockets)


class _States:
    """The latest state, and the number of viewers. None are kept for a slow viewer, who misses them."""

    def __init__(self, state: bytes) -> None:
        self.latest = state
        self.viewers = 0
        self.closed = False
        self._next = asyncio.Event()

    def publish(self, state: bytes) -> None:
        """Replace the state."""
        self.latest = state
        self._wake()

    def close(self) -> None:
        """Let the streams of all viewers end."""
        self.closed = True
        self._wake()

    def _wake(self) -> None:
        self._next.set()
        self._next = asyncio.Event()

    async def after(self, seen: bytes) -> bytes:
        """Return the latest state, once it is not `seen`."""
        while self.latest is seen and not self.closed:
            await self._next.wait()
        return self.latest


def _application(states: _States, interval: float) -> ASGIApp:
    page = (_FILES / "page.html").read_bytes().replace(b"INTERVAL", f"{interval:g}".encode())

    async def show(_: Request) -> Response:
        if states.viewers >= MOST_VIEWERS:
            return PlainTextResponse(_FULL, 503)
        return Response(page.replace(b"STATE", states.latest), media_type="text/html; charset=utf-8")

    def file(name: str, kind: str) -> Route:
        content = (_FILES / name).read_bytes()

        async def get(_: Request) -> Response:
            return Response(content, media_type=kind)

        return Route(f"/{name}", get)

    files = [file("page.js", "text/javascript"), file("page.css", "text/css")]
    return Starlette(routes=[Route("/", show), *files, Route("/events", _Stream(states))])


class _Stream:
    """The events of one viewer: the state now, and each later one as soon as the viewer has taken the one before."""

    def __init__(self, states: _States) -> None:
        self._states = states

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._states.viewers >= MOST_VIEWERS:
            await PlainTextResponse(_FULL, 503)(scope, receive, send)
            return
        self._states.viewers += 1
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._end_with_the_viewer, receive, tasks.cancel_scope)
                await self._send_states(send)
                tasks.cancel_scope.cancel()
        finally:
            self._states.viewers -= 1

    async def _end_with_the_viewer(self, receive: Receive, scope: anyio.CancelScope) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        scope.cancel()

    async def _send_states(self, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        state = b""
        while not self._states.closed:
            state = await self._states.after(state)
            # Returns when the connection's buffer has room for more.
            await send({"type": "http.response.body", "body": b"data: " + state + b"\n\n", "more_body": True})
        await send({"type": "http.response.body", "body": b""})


class _Guard:
    """Answers only those who have the token: the link's is exchanged for a cookie, and leaves the address.

    Other Host headers are refused, so that no name that a foreign page has rebound to this address reaches it.
    """

    def __init__(self, app: ASGIApp, hosts: frozenset[str], token: str, cookie: str, secure: bool) -> None:
        self._app = app
        self._hosts = hosts
        self._token = token
        self._cookie = cookie
        self._secure = secure
        self._session = secrets.token_urlsafe(32)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        answer = self._refusal(Request(scope)) or self._app
        await answer(scope, receive, send_with_headers)

    def _refusal(self, request: Request) -> Response | None:
        """Return the answer to a request that does not get what it asks for; None for one that does."""
        host = _host_name(request.headers.get("host", ""))
        if not _covers(self._hosts, host):
            return PlainTextResponse("This page has another name: its address is in the link.\n", 400)
        if request.method != "GET":
            return PlainTextResponse("This page can only be read.\n", 405, {"Allow": "GET"})
        token = request.query_params.get("token")
        if token is not None and _equal(token, self._token):
            answer = RedirectResponse("/", 303)
            # Not "strict": if the link is on a page of another site, a browser keeps such a cookie from this redirect.
            answer.set_cookie(self._cookie, self._session, httponly=True, samesite="lax", secure=self._secure)
            return answer
        if token is not None or not _equal(request.cookies.get(self._cookie, ""), self._session):
            return PlainTextResponse(_OPEN_THE_LINK, 401)
        return None


def _equal(given: str, wanted: str) -> bool:
    # Compared in constant time, so that timing does not reveal how much of a secret is right.
    return hmac.compare_digest(given.encode(errors="replace"), wanted.encode())


def _cookie_name(port: int) -> str:
    """Return a name for the cookie that no page at another host has, and that stays when the page is started again.

    Browsers do not keep cookies apart by port, and `ssh -L` makes pages of several hosts pages of one.
    """
    host = hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]
    return f"switchml-{host}-{port}"


def _covers(names: frozenset[str], host: str) -> bool:
    """Return whether one of the names, in lower case, is the host's or a wildcard for it."""
    return bool(names & {host, f"*.{host.partition('.')[2]}"})


def _name_of_this_host(address: str, names: frozenset[str]) -> str:
    """Return the name for the link, from the address and the names that the page has.

    It has to be of this host: under a name of another one, the link would give that one the token.
    """
    own = socket.gethostname().lower()
    for name in (address, own, *sorted(name for name in names if name.startswith(f"{own}."))):
        if _covers(names, name):
            return name
    if any(name.startswith("*") for name in names):
        raise ConfigurationError(
            f"the certificate is for several hosts ({', '.join(sorted(names))}): give the name of this one in --address"
        )
    return min(names)


def _host_name(header: str) -> str:
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:  # not an address
        return ""


def _host_names(place: PageAddress) -> frozenset[str]:
    """Return the names and addresses by which viewers may call the page; checks the certificates."""
    if place.certificates is None:
        if not is_local(f"{place.host}:{place.port}"):
            raise ConfigurationError(
                f"{place.host} is not on loopback, and without TLS everyone on the path could read the page: give "
                "--certificate DIRECTORY, or serve it on loopback and reach it by `ssh -L` (docs/operate/monitoring.md)"
            )
        return _LOOPBACK | {place.host.lower()}
    try:
        certificate = x509.load_pem_x509_certificates(place.certificates.read().certificate)[0]
    except TlsError as error:
        raise ConfigurationError(str(error)) from None
    names: list[str] = []
    with contextlib.suppress(x509.ExtensionNotFound):
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names = [*found.get_values_for_type(x509.DNSName), *map(str, found.get_values_for_type(x509.IPAddress))]
    if not names:
        raise ConfigurationError(
            f"the certificate in {place.certificates.directory} names no host (subject alternative names), so no "
            "browser accepts it for the page"
        )
    return frozenset(name.lower() for name in names)


def _listen(place: PageAddress) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
        listening = socket.create_server((place.host, place.port), family=family)
    except OSError as error:
        why = f"the page cannot be served at {place.host}:{place.port}: {error.strerror}; give another --address"
        raise OSError(error.errno, why) from error
    # Connections inherit it: the kernel ends one whose other end takes nothing. A viewer on a suspended laptop would
    # keep its place, and what it has not taken, without limit.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * place.patience)
    return listening
