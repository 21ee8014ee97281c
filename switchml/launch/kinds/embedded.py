"""The embedded fabric: processes of this machine that are connected over loopback and shared memory."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from switchml.common.errors import ConfigurationError
from switchml.common.processes import find_program
from switchml.dataplane.constants import PROTOCOL_MAX_WORKERS
from switchml.launch.kinds.kind import NEEDS_BMV2, THREADS_NEED_UDP, FabricKind, shared_fields
from switchml.launch.layouts import AgentPlace, Layout, SwitchPlace
from switchml.launch.settings import EMBEDDED_POOL, EMBEDDED_VALUES, SMALL_POOL

__all__ = ["Embedded"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Embedded(FabricKind):
    """Agents whose ranks reach the soft switch by `transport`, shm or udp; with `racks` there is a switch for each.

    Over UDP, agents and switch have `threads` data threads.
    """

    agents: int = 1
    racks: int = 0
    transport: str = "shm"
    threads: int = 1
    values: int = EMBEDDED_VALUES

    def __post_init__(self) -> None:
        """Raise ConfigurationError for options that contradict each other."""
        if self.agents < self.racks:
            raise ConfigurationError(f"{self.agents} agents for {self.racks} racks: each needs one; raise --agents")
        if self.threads > 1 and self.transport != "udp":
            raise ConfigurationError(THREADS_NEED_UDP)

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Embedded:
        """Return the one that options with the names of FABRIC_OPTIONS describe. Raises ConfigurationError."""
        if options["workers"]:
            raise ConfigurationError(
                "--workers is the number of hosts in network namespaces and needs a switch (--switch soft or bmv2) or "
                "a topology file; the embedded fabric has agents (--agents)"
            )
        if options["program"]:
            raise ConfigurationError(NEEDS_BMV2)
        agents, racks = options["agents"], options["racks"]
        return cls(
            agents=agents if agents > 1 else max(1, racks),  # 1 is the default
            racks=racks,
            transport="udp" if options["transport"] == "udp" else "shm",
            threads=options["threads"],
            **shared_fields(options, values=EMBEDDED_VALUES),
        )

    def layout(self, run_directory: Path, socket_directory: Path) -> Layout:  # noqa: ARG002 (has no namespaces)
        """Return the layout on loopback. Its methods raise ProgramNotFoundError."""
        return _Loopback(self, socket_directory)


class _Loopback(Layout):
    """The embedded fabric: one soft switch with a UDP port on 127.0.0.0/8, and one for shared memory.

    With racks there is such a switch for each, and one with a UDP port only above them.
    """

    def __init__(self, kind: Embedded, socket_directory: Path) -> None:
        super().__init__(socket_directory)
        self._kind = kind
        self._socket_directory = socket_directory
        leaves = [f"leaf{rack}" for rack in range(1, kind.racks + 1)]
        self._names = ["spine", *leaves] if leaves else ["switch-0"]

    def switches(self) -> list[SwitchPlace]:
        """Return the only switch, or the one above all racks and those of the racks."""
        return [SwitchPlace(name, self._command(number)) for number, name in enumerate(self._names)]

    def _command(self, number: int) -> list[str]:
        ports = ["--grpc", self._p4runtime[number], "--udp-port", "1=127.0.0.1:0"]
        if self._kind.transport == "udp":
            ports += ["--shards", str(self._kind.threads)]
        elif number > 0 or not self._kind.racks:
            ports += ["--shm-port", f"2={self._switch_socket(number)}", "--shm-threads", str(self._kind.threads)]
        return [find_program("switchml-switch"), *ports, *self._kind.soft_switch_arguments()]

    def _switch_socket(self, number: int) -> Path:
        return self._socket_directory / (f"switch-{number}.sock" if self._kind.racks else "switch.sock")

    def switch_table(self, name: str, ready: dict[str, Any]) -> dict[str, Any]:
        return {
            "name": name,
            **self._kind.table_at_udp(ready),
            **self._pools(),
            **({"parent": {"switch": self._names[0], "port": 1, "uplink": 1}} if name != self._names[0] else {}),
        }

    def _pools(self) -> dict[str, int]:
        if self._kind.transport != "shm":
            return {"default_pool": self._kind.pool(EMBEDDED_POOL["udp"])}
        return {
            "default_pool": self._kind.pool(EMBEDDED_POOL["shm"]),
            "small_pool": self._kind.pool(SMALL_POOL),
            "small_job": min(len(os.sched_getaffinity(0)), PROTOCOL_MAX_WORKERS),
        }

    def agents(self) -> list[AgentPlace]:
        program = find_program("switchml-agent")
        found = []
        for number in range(self._kind.agents):
            address = f"127.0.0.{number + 1}"
            command = [program, "--address", address, "--transport", self._kind.transport]
            command += ["--threads", str(self._kind.threads)]
            switch = 0
            if self._kind.racks:
                switch = 1 + number * self._kind.racks // self._kind.agents
                command += ["--switch", self._names[switch]]
            if self._kind.transport == "shm":
                command += ["--switch-socket", str(self._switch_socket(switch))]
            found.append(AgentPlace(f"agent-{number}", command, {"address": address}))
        return found
