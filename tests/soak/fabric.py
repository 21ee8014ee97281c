"""The fabric of the soak: one soft switch, and agents over shared memory and over UDP."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from switchml.controller.client import ControllerClient
from tests.soak.sampling import files_bytes
from tests.support.fabric_harness import SCRIPTS, Ctl, wait_until

__all__ = ["SHM_AGENTS", "UDP_AGENTS", "SoakFabric", "soak_fabric"]

SHM_AGENTS = 2
UDP_AGENTS = 2
SLOTS = 2048
"""No more slots than the jobs take, so that all can be used before the first sample (run.use_all_slots)."""
_START_SECONDS = 60.0


class SoakFabric:
    """A live fabric; `sockets` are those of the agents over shared memory, then those of the others."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ctl = Ctl(directory / "run")
        self.ctl.run("up", "--transport", "shm", "--agents", str(SHM_AGENTS), "--slots", str(SLOTS))
        self.state: dict[str, Any] = json.loads((self.ctl.run_dir / "fabric.json").read_text())
        self.sockets = [Path(agent["socket"]) for agent in self.state["agents"]]
        self._udp: dict[str, subprocess.Popen[bytes]] = {}

    def add_udp_agents(self) -> None:
        """Start agents whose ranks reach the same switch over UDP."""
        for number in range(UDP_AGENTS):
            name, path = f"agent-udp-{number}", self.ctl.run_dir / f"agent-udp-{number}.sock"
            command = [str(SCRIPTS / "switchml-agent"), "--transport", "udp", "--switch-port", "1", "--name", name]
            command += ["--address", f"127.0.0.{number + 2}", "--socket", str(path)]
            command += ["--controller", self.state["controller"]]
            with (self.ctl.run_dir / "logs" / f"{name}.log").open("wb") as log:
                self._udp[name] = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                )
            self.sockets.append(path)
        with self.client() as client:
            wait_until(
                lambda: sum(agent.live for agent in client.list_agents()) == SHM_AGENTS + UDP_AGENTS,
                "all agents are registered",
                _START_SECONDS,
            )

    def client(self) -> ControllerClient:
        return ControllerClient(self.state["controller"], timeout=120)

    def processes(self) -> dict[str, int]:
        """Return the process ids by name."""
        ours = {process["name"]: int(process["pid"]) for process in self.state["processes"]}
        return ours | {name: process.pid for name, process in self._udp.items()}

    def store_bytes(self) -> int:
        return files_bytes(self.ctl.run_dir, "controller.sqlite*")

    def log_bytes(self) -> int:
        return files_bytes(self.ctl.run_dir / "logs", "*")

    def close(self) -> None:
        for process in self._udp.values():
            process.terminate()
        for process in self._udp.values():
            process.wait(_START_SECONDS)
        self.ctl.run("down")


@contextlib.contextmanager
def soak_fabric(directory: Path) -> Iterator[SoakFabric]:
    """Run a fabric in `directory` during the context."""
    fabric = SoakFabric(directory)
    try:
        fabric.add_udp_agents()
        yield fabric
    finally:
        fabric.close()
