"""The metrics of a training process for Prometheus: counters of its communicators, counted by native code."""

from __future__ import annotations

import dataclasses
import logging
import os
import threading
import weakref
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from switchml.client.errors import ConnectError, SwitchMLError
from switchml.common.counter_table import PROCESS, THREAD
from switchml.common.installation import reinstall_command

if TYPE_CHECKING:
    from switchml.client.membership import Membership

__all__ = ["MetricsServer", "serve_from_environment", "serve_metrics", "track"]

_log = logging.getLogger(__name__)

VARIABLE: Final = "SWITCHML_METRICS"
_CLOSE_SECONDS: Final = 5.0
_COUNTERS: Final = tuple(
    dataclasses.replace(counter, metric=counter.metric.replace("switchml_rank_", "switchml_process_"))
    for counter in (*THREAD, *PROCESS)
)

_memberships: weakref.WeakSet[Membership] = weakref.WeakSet()
_lock = threading.Lock()
_from_environment: MetricsServer | None = None


class MetricsServer:
    """An HTTP server at `address` ("HOST:PORT"), until `close`."""

    def __init__(self, server: Any, thread: threading.Thread, host: str) -> None:
        self._server = server
        self._thread = thread
        self.address = f"{host}:{server.server_port}"

    def close(self) -> None:
        """Stop; takes up to half a second."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(_CLOSE_SECONDS)

    def disown(self) -> None:
        """Close a forked child's copy of the socket, which would keep the port open after the parent has ended."""
        self._server.socket.close()


def track(membership: Membership) -> None:
    """Include a communicator in the metrics as long as there are references to it or to one of its calls."""
    with _lock:
        _memberships.add(membership)


def serve_metrics(port: int = 0, address: str = "127.0.0.1") -> MetricsServer:
    """Serve this process's metrics at http://ADDRESS:PORT/metrics for Prometheus; port 0 takes any free one.

    There is no authentication: any client that reaches the address can read the metrics; on loopback, that is every
    user of this machine. The agent has the same counters and can require a token (switchml-agent --metrics-token). The
    environment variable SWITCHML_METRICS ("PORT" or "HOST:PORT") does the same at the first `connect`, with LOCAL_RANK
    added to the port.

    Raises:
        SwitchMLError: prometheus-client is not installed.
        OSError: the address cannot be bound.

    """
    try:
        from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server
    except ImportError as error:
        raise SwitchMLError(f"metrics need prometheus-client ({error}); `{reinstall_command()}`") from error
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector())
    ProcessCollector(registry=registry)
    server, thread = start_http_server(port, address, registry)
    return MetricsServer(server, thread, address)


def serve_from_environment(environ: Mapping[str, str] = os.environ) -> MetricsServer | None:
    """Serve metrics at the address in SWITCHML_METRICS, if it is set; once in a process.

    Raises:
        ConnectError: its value is not an address. An address that cannot be bound is only logged.
        SwitchMLError: prometheus-client is not installed.

    """
    global _from_environment
    text = environ.get(VARIABLE)
    with _lock:
        if not text or _from_environment is not None:
            return _from_environment
        host, _, port = text.rpartition(":")
        local_rank = environ.get("LOCAL_RANK", "0")
        if not (port.isdecimal() and local_rank.isdecimal() and int(port) < 2**16):
            raise ConnectError(f"{VARIABLE} is {text!r}, which is neither PORT nor HOST:PORT")
        number = int(port) + int(local_rank) if int(port) else 0
        try:
            _from_environment = serve_metrics(number, host or "127.0.0.1")
        except (OSError, OverflowError) as error:
            _log.warning(
                "cannot serve the metrics of this process at %s:%d (%s): %s",
                host or "127.0.0.1",
                number,
                VARIABLE,
                error,
            )
        return _from_environment


class _Collector:
    """Reads all communicators of the process, also closed ones, and adds up those of the same rank and job."""

    def collect(self) -> Iterator[Any]:
        """Yield the metric families."""
        from switchml.common.metrics_server import Families

        families = Families()
        with _lock:
            newest = {(now.name, now.rank, now.epoch): member for member in _memberships if (now := member.native)}
        for (name, rank, _), member in sorted(newest.items(), key=lambda item: item[0]):
            labels = {"job_name": name, "rank": str(rank)}
            families.counters(_COUNTERS, member.native.spent(), **labels)
            families.gauge(
                "switchml_process_position_chunks",
                "Chunks whose results have arrived.",
                member.native.position,
                **labels,
            )
            families.gauge(
                "switchml_process_failed", "1 if later calls will raise an error.", member.failure is not None, **labels
            )
        yield from families.all()


def _disown() -> None:
    """Leave memberships and server to the parent process."""
    global _lock, _memberships, _from_environment
    _lock, _memberships = threading.Lock(), weakref.WeakSet()  # a thread of the parent may have held the old lock
    if _from_environment is not None:
        _from_environment.disown()
        _from_environment = None


os.register_at_fork(after_in_child=_disown)
