"""The soft switch's metrics: packets by port, drop reason, job and verdict."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from finsy.proto import p4r

from switchml.common.metrics_server import Families
from switchml.dataplane.constants import DropReason, Verdict
from switchml.dataplane.softswitch._native import Switch
from switchml.dataplane.softswitch.device import Device
from switchml.dataplane.softswitch.errors import P4RuntimeError

__all__ = ["SwitchMetrics", "jobs_of"]

_JOB_TABLE: Final = ".job_table"
_FAULTS: Final = tuple((fault, f"injected_{fault}") for fault in ("drop", "duplicate", "delay", "flip"))


def jobs_of(device: Device) -> list[int]:
    """Return the ids of the jobs in the device's tables; call it on the event loop of the P4Runtime server."""
    try:
        pipeline = device.pipeline
    except P4RuntimeError:
        return []
    table = next(t.preamble.id for t in pipeline.config.p4info.tables if t.preamble.name.endswith(_JOB_TABLE))
    entries = pipeline.read(p4r.Entity(table_entry=p4r.TableEntry(table_id=table)))
    return [int.from_bytes(entry.table_entry.match[0].exact.value, "big") for entry in entries]


class SwitchMetrics:
    """Read the native switch, from any thread; `jobs` returns the ids of its jobs."""

    def __init__(self, switch: Switch, ports: Collection[int], version: str, jobs: Callable[[], list[int]]) -> None:
        self._switch = switch
        self._ports = tuple(ports)
        self._version = version
        self._jobs = jobs

    def __call__(self, families: Families) -> None:
        """Add the current values."""
        families.gauge("switchml_softswitch_info", "Version of the soft switch.", 1, version=self._version)
        for number in self._ports:
            counters, port = self._switch.port_counters(number), str(number)
            for name, help_text, value in (
                ("received_packets", "Packets received.", counters["received"]),
                ("sent_packets", "Packets sent.", counters["sent"]),
                (
                    "receive_overflows",
                    "Packets lost because the receive buffer was full.",
                    counters["receive_overflow"],
                ),
                ("receive_errors", "Frames in which a device detected an error.", counters["receive_errors"]),
                ("handed_over_frames", "Frames received by a shard other than their slot's.", counters["handed_over"]),
                ("send_errors", "Packets that the kernel or a device refused to send.", counters["send_errors"]),
            ):
                families.counter(f"switchml_softswitch_port_{name}_total", help_text, value, port=port)
            for fault, key in _FAULTS:
                families.counter(
                    "switchml_softswitch_port_injected_faults_total",
                    "Faults injected on purpose (--drop and similar options).",
                    counters[key], port=port, fault=fault,  # type: ignore[literal-required]
                )  # fmt: skip
        for reason in DropReason:
            packets, _ = self._switch.read_drop_counter(reason)
            families.counter(
                "switchml_softswitch_dropped_packets_total", "Packets dropped.", packets, reason=reason.name.lower()
            )
        for job in self._jobs():
            for verdict in Verdict:
                packets, _ = self._switch.read_job_counter(job << 4 | verdict)
                families.counter(
                    "switchml_softswitch_job_packets_total", "Contributions by verdict.", packets,
                    job_id=str(job), verdict=verdict.name.lower(),
                )  # fmt: skip
