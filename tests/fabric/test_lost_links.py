"""Links between racks that fail: the jobs whose tree uses one end with an error that names it, and others go on."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from switchml.topologies.namespaces import SWITCHES, Namespaces, switch_interface
from tests.support.fabric_harness import Ctl, needs_namespaces, wait_until

pytestmark = needs_namespaces

SECONDS = 2.0
"""The time until a link must be named, as docs/understand/failures.md says."""
UPLINK = 3  # of leaf2, which has two hosts


def start(ctl: Ctl, name: str, switch: str, workers: int) -> None:
    """Start a job whose ranks make steps until they get an error."""
    worker = ctl.worker("survives", "--steps", "100000", "--size", "20000", "--timeout", "60", "--say-steps")
    worker += ["--pause", "0.05"]
    ctl.run("job", "start", "--detach", "--name", name, "--switch", switch, "--workers", str(workers), *worker)


def said(ctl: Ctl, name: str, key: str) -> list[dict[str, Any]]:
    """Return what the ranks of a job have said so far that has this key."""
    logs = list(Path(ctl.run_dir).glob(f"jobs/*{name}*/rank-*.log"))
    lines = [line for log in logs for line in log.read_text().splitlines(keepends=True)]
    return [json.loads(line) for line in lines if f'"{key}"' in line and line.endswith("\n")]


def wait_for(ctl: Ctl, name: str, key: str, number: int) -> list[dict[str, Any]]:
    """Wait until the ranks of a job have said something with this key often enough; return all of it."""
    wait_until(lambda: len(said(ctl, name, key)) >= number, f"the ranks of {name} say {key}")
    return said(ctl, name, key)


def cut(ctl: Ctl) -> Callable[[], None]:
    """Take the interface of a leaf's uplink down, and return the function that takes it up again."""

    def set_link(state: str) -> None:
        namespace, interface = Namespaces(ctl.run_dir).name(SWITCHES), switch_interface("leaf2", UPLINK)
        subprocess.run(["ip", "-n", namespace, "link", "set", interface, state], check=True, timeout=30)

    set_link("down")
    return lambda: set_link("up")


def lose_results(ctl: Ctl) -> Callable[[], object]:
    """Let a leaf drop what it receives from the spine, and return the function that ends this."""
    command = ("switch", "loss", "leaf2", "--port", str(UPLINK), "--ingress")
    ctl.run(*command, "1")
    return lambda: ctl.run(*command, "0")


def test_a_dead_uplink_is_named(ctl: Ctl, limit: Callable[[float], float]) -> None:
    ctl.run("up", "--switch", "soft", "--workers", "4", "--racks", "2")
    start(ctl, "alone", "leaf2", 2)
    for number, (fail, link) in enumerate([(lose_results, "spine -> leaf2"), (cut, "leaf2 -> spine")]):
        tree = f"tree{number}"
        start(ctl, tree, "spine", 4)
        wait_for(ctl, tree, "step", 8)
        failed = time.monotonic()
        repair = fail(ctl)
        found = wait_for(ctl, tree, "error", 4)
        repair()
        for words in found:
            assert words["error"].startswith("SwitchLost")
            assert f"link {link} is dead" in words["error"]
            assert f"port {UPLINK} of leaf2 and port 2 of spine" in words["error"]
            assert words["error_at"] - failed < limit(SECONDS)
    wait_for(ctl, "alone", "step", len(said(ctl, "alone", "step")) + 1)  # it goes on
    assert not said(ctl, "alone", "error")
