"""A process's metrics for Prometheus: served over HTTP, counted when somebody asks.

Text format: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, ParamSpec, TypeVar

from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from switchml.common.metrics_address import MetricsPlace

__all__ = ["MOST_CONNECTIONS", "Families", "MetricsServer", "on_loop"]

_LOG = logging.getLogger(__name__)

_COLLECT_SECONDS: Final = 5.0
MOST_CONNECTIONS: Final = 16
"""That are served at one time; more are closed at once."""
_SILENCE_SECONDS: Final = 10.0  # of one of them
_FIRST_BUCKET_SECONDS: Final = 1.024e-6  # durations.h
_LOOPBACK: Final = ("127.", "::1", "localhost")

P = ParamSpec("P")
T = TypeVar("T")


class Families:
    """Collects samples under the names that they are exported by; a name's samples need not come together."""

    def __init__(self) -> None:
        self._families: dict[str, Metric] = {}

    def gauge(self, name: str, help_text: str, value: float, **labels: str) -> None:
        """Add a value that goes up and down."""
        family = self._families.setdefault(name, GaugeMetricFamily(name, help_text, labels=list(labels)))
        assert isinstance(family, GaugeMetricFamily)
        family.add_metric(list(labels.values()), value)

    def counter(self, name: str, help_text: str, value: float, **labels: str) -> None:
        """Add a value that only grows; the name ends in _total."""
        assert name.endswith("_total"), name
        family = self._families.setdefault(name, CounterMetricFamily(name, help_text, labels=list(labels)))
        assert isinstance(family, CounterMetricFamily)
        family.add_metric(list(labels.values()), value)

    def durations(self, name: str, help_text: str, buckets: Sequence[int], nanoseconds: int, **labels: str) -> None:
        """Add a histogram from the native code's buckets (durations.h) and the sum of all durations."""
        family = self._families.setdefault(name, HistogramMetricFamily(name, help_text, labels=list(labels)))
        assert isinstance(family, HistogramMetricFamily)
        cumulative: list[tuple[str, float]] = []
        seen = 0
        for number, count in enumerate(buckets):
            seen += count
            last = number == len(buckets) - 1
            cumulative.append(("+Inf" if last else f"{_FIRST_BUCKET_SECONDS * 2**number:.6g}", seen))
        family.add_metric(list(labels.values()), cumulative, nanoseconds / 1e9)

    def all(self) -> list[Metric]:
        """Return the families."""
        return list(self._families.values())


class MetricsServer(Collector):
    """Serves what `fill` puts into its Families each time somebody asks, and the process's CPU time, memory and files.

    `fill` is called in a thread of the server. A request without the place's token, where it has one, gets status 401.
    """

    def __init__(self, place: MetricsPlace, fill: Callable[[Families], None]) -> None:
        """Listen at once; port 0 takes any free one.

        Raises:
            OSError: the address cannot be had.

        """
        self._fill = fill
        host, port, token = place
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        ProcessCollector(registry=registry)
        try:
            self._server, self._thread = start_http_server(port, host, registry)
        except OSError as error:
            why = f"metrics cannot be served at {host}:{port}: {error.strerror}; give another --metrics"
            raise OSError(error.errno, why) from error
        if token:
            require_token(self._server, token)
        _limit(self._server)
        self.address = f"{f'[{host}]' if ':' in host else host}:{self._server.server_port}"
        _LOG.info("metrics at http://%s/metrics", self.address)
        if not token and not host.startswith(_LOOPBACK):
            _LOG.warning("metrics are served at %s to whoever reaches it", self.address)

    def collect(self) -> Iterable[Metric]:
        """Return what there is now."""
        families = Families()
        self._fill(families)
        return families.all()

    def close(self) -> None:
        """Stop listening; takes up to half a second. A process that ends need not: the thread ends with it."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(_COLLECT_SECONDS)


def require_token(server: Any, token: str) -> None:
    """Let a WSGI server answer only requests that bring a token (RFC 6750, section 2.1)."""
    serve, wanted = server.get_app(), f"Bearer {token}".encode()

    def authorized(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
        # Compared in constant time: how much of it is right must not show.
        if hmac.compare_digest(environ.get("HTTP_AUTHORIZATION", "").encode("latin-1", "replace"), wanted):
            return serve(environ, start_response)  # type: ignore[no-any-return]
        start_response("401 Unauthorized", [("WWW-Authenticate", "Bearer"), ("Content-Type", "text/plain")])
        return [b"a bearer token is needed: see --metrics-token\n"]

    server.set_app(authorized)


def _limit(server: Any) -> None:
    """Bound what those who connect can take up, each of them a thread, for as long as they are silent."""
    room = threading.BoundedSemaphore(MOST_CONNECTIONS)
    serve = server.process_request_thread

    def serve_and_make_room(request: object, address: object) -> None:
        try:
            serve(request, address)
        finally:
            room.release()

    server.process_request_thread = serve_and_make_room
    server.verify_request = lambda _request, _address: room.acquire(blocking=False)
    server.RequestHandlerClass = type("Handler", (server.RequestHandlerClass,), {"timeout": _SILENCE_SECONDS})


def on_loop(function: Callable[P, T]) -> Callable[P, T]:
    """Return what runs `function` on the event loop that is running now, for state that belongs to it.

    What it returns is to be called from another thread, and raises TimeoutError when the loop is too busy.
    """
    loop = asyncio.get_running_loop()

    def wait(*args: P.args, **kwargs: P.kwargs) -> T:
        async def run() -> T:
            return function(*args, **kwargs)

        return asyncio.run_coroutine_threadsafe(run(), loop).result(_COLLECT_SECONDS)

    return wait
