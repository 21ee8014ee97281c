"""The soft switch's metrics: packets by port, drop reason, job and verdict."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from finsy.proto import p4r

from switchml.common.counter_table import FAULTS, PORT
from switchml.common.metrics_server import Families
from switchml.dataplane.constants import DropReason, Verdict
from switchml.dataplane.softswitch._native import Switch
from switchml.dataplane.softswitch.device import P4RuntimeDevice
from switchml.dataplane.softswitch.errors import P4RuntimeError

__all__ = ["SwitchMetrics", "jobs_of"]

_JOB_TABLE: Final = ".job_table"


def jobs_of(device: P4RuntimeDevice) -> list[int]:
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
            families.counters((*PORT, *FAULTS), self._switch.port_counters(number), port=str(number))
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
