"""A process's metrics for Prometheus, collected on each request and served over HTTP.

Text format: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, ParamSpec, TypeVar

from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from switchml.common.counters import Counter
from switchml.common.metrics_address import MetricsPlace
from switchml.common.tls import Certificates, TlsError

__all__ = ["MOST_CONNECTIONS", "Families", "MetricsExporter", "on_loop"]

_LOG = logging.getLogger(__name__)

_COLLECT_SECONDS: Final = 5.0
MOST_CONNECTIONS: Final = 16
"""Connections that are served at the same time; further ones are closed at once."""
_SILENCE_SECONDS: Final = 10.0  # after which a silent connection is closed
_FIRST_BUCKET_SECONDS: Final = 1.024e-6  # durations.h
_LOOPBACK: Final = ("127.", "::1", "localhost")

P = ParamSpec("P")
T = TypeVar("T")


class Families:
    """Collect samples under the names that they are exported by; the samples of a name may be added in any order."""

    def __init__(self) -> None:
        self._families: dict[str, Metric] = {}

    def gauge(self, name: str, help_text: str, value: float, **labels: str) -> None:
        """Add a value that can rise and fall."""
        family = self._families.setdefault(name, GaugeMetricFamily(name, help_text, labels=list(labels)))
        assert isinstance(family, GaugeMetricFamily)
        family.add_metric(list(labels.values()), value)

    def counter(self, name: str, help_text: str, value: float, /, **labels: str) -> None:
        """Add a value that only rises; the name ends in _total."""
        assert name.endswith("_total"), name
        family = self._families.setdefault(name, CounterMetricFamily(name, help_text, labels=list(labels)))
        assert isinstance(family, CounterMetricFamily)
        family.add_metric(list(labels.values()), value)

    def counters(self, counters: Iterable[Counter], values: Mapping[str, Any], **labels: str) -> None:
        """Add the counters that have a metric; `values` are those of the native code, by their names."""
        for counter in counters:
            value, metric = values[counter.name], (counter.metric, counter.metric_help)
            if counter.is_histogram:
                self.durations(*metric, value, values[counter.total], **labels)
            elif counter.metric:
                self.counter(*metric, counter.in_units(value), **labels, **counter.labels)

    def durations(self, name: str, help_text: str, buckets: Sequence[int], nanoseconds: int, /, **labels: str) -> None:
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
        """Return the metric families."""
        return list(self._families.values())


class MetricsExporter(Collector):
    """Serve the samples that `fill` adds to its Families on each request, and the process's CPU time, memory and files.

    `fill` is called in a thread of the server. The expiry of `certificates` is another sample. If the place has a
    token, a request without it gets status 401.
    """

    def __init__(
        self, place: MetricsPlace, fill: Callable[[Families], None], certificates: Certificates | None = None
    ) -> None:
        """Listen at once; port 0 takes any free port.

        Raises:
            OSError: the address cannot be used.

        """
        self._fill = fill
        self._certificates = certificates
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
            _LOG.warning("metrics are served at %s to everyone who can reach it", self.address)

    def collect(self) -> Iterable[Metric]:
        """Return the current samples."""
        families = Families()
        self._fill(families)
        if self._certificates is not None:
            with contextlib.suppress(TlsError):  # no file may be there for a moment, while they are replaced
                help_text = "End of the validity of the process's TLS certificate"
                families.gauge("switchml_certificate_expiry_timestamp_seconds", help_text, self._certificates.expiry())
        return families.all()

    def close(self) -> None:
        """Stop listening, which takes up to half a second. Not needed at exit: the thread ends with the process."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(_COLLECT_SECONDS)


def require_token(server: Any, token: str) -> None:
    """Let a WSGI server answer only requests with a token (RFC 6750, section 2.1)."""
    serve, wanted = server.get_app(), f"Bearer {token}".encode()

    def authorized(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
        # Compared in constant time, so that timing does not reveal how much of a token is right.
        if hmac.compare_digest(environ.get("HTTP_AUTHORIZATION", "").encode("latin-1", "replace"), wanted):
            return serve(environ, start_response)  # type: ignore[no-any-return]
        start_response("401 Unauthorized", [("WWW-Authenticate", "Bearer"), ("Content-Type", "text/plain")])
        return [b"a bearer token is needed: see --metrics-token\n"]

    server.set_app(authorized)


def _limit(server: Any) -> None:
    """Limit the connections and their silence, because each occupies a thread."""
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
    """Return a function that runs `function` on the event loop that is running now, to which its state belongs.

    The returned function must be called from another thread, and raises TimeoutError if the loop is too busy.
    """
    loop = asyncio.get_running_loop()

    def wait(*args: P.args, **kwargs: P.kwargs) -> T:
        async def run() -> T:
            return function(*args, **kwargs)

        return asyncio.run_coroutine_threadsafe(run(), loop).result(_COLLECT_SECONDS)

    return wait
