"""Ranks that train with PyTorch on hosts behind shaped links."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from switchml.benchmarks.errors import MissingPeer
from switchml.benchmarks.linked_systems import LinkedSystems
from switchml.benchmarks.ranks import RankGroup, rank_group
from switchml.benchmarks.systems import launch_each
from switchml.topologies.namespaces import HOST_INTERFACE

__all__ = ["torch_group", "torch_version"]

_ASK_SECONDS: Final = 180


def torch_version(python: str, module: str) -> str:
    """Return the version of PyTorch there. Raises MissingPeer if it cannot train with SwitchML.

    `module` is the program of the ranks, which is imported.
    """
    asked: subprocess.CompletedProcess[str] | None = None
    question = f"import numpy, torch, switchml.torch_backend, {module}; print(torch.__version__)"
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        asked = subprocess.run(
            [python, "-c", question], check=False, capture_output=True, text=True, timeout=_ASK_SECONDS, cwd="/"
        )
    if asked is None or asked.returncode != 0:
        reason = (asked.stderr.strip().splitlines() or [""])[-1] if asked is not None else "it cannot be run"
        raise MissingPeer(
            f"{python} cannot train with SwitchML ({reason}): install torch, numpy and this version of switchml "
            "there, or name another interpreter with --torch-python"
        )
    return f"PyTorch {asked.stdout.strip()}"


@contextlib.contextmanager
def torch_group(
    systems: LinkedSystems, module: str, backend: str, port: int, python: str, directory: Path
) -> Iterator[RankGroup]:
    """Yield a group with a rank of the program `module` on each host. Raises RankFailed."""
    agents = {agent["name"]: agent["socket"] for agent in systems.switchml.fabric.agents}

    def launch(address: Path, log: Path) -> list[subprocess.Popen[bytes]]:
        shared = {name: value for name, value in os.environ.items() if not name.startswith("SWITCHML_")} | {
            "WORLD_SIZE": str(len(systems.places)),
            "MASTER_ADDR": str(systems.places[0].ipv4.ip),
            "MASTER_PORT": str(port),
            "GLOO_SOCKET_IFNAME": HOST_INTERFACE,
            "OMP_NUM_THREADS": "1",
        }
        command = [python, "-m", module, backend, str(address)]
        return launch_each(
            [
                ([*systems.inside(host), *command], shared | {"RANK": str(rank), "SWITCHML_AGENT": agents[host.name]})
                for rank, host in enumerate(systems.places)
            ],
            log,
        )

    with rank_group(backend, len(systems.places), directory, launch) as group:
        yield group
