"""The SDE's own Python client, unchanged, with SwitchML's BfRt server, if an SDE is found."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from switchml.dataplane import bfruntime
from tests.loopback.controlled_switches import TofinoSwitch

SESSION = Path(__file__).with_name("sde_client_session.py")
SOURCE = Path(bfruntime.__file__).with_name("bfruntime.proto")


def client_path() -> str:
    """Return a PYTHONPATH that has the client, or skip."""
    places = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if install := os.environ.get("SDE_INSTALL"):
        found = sorted(Path(install).glob("lib/python3*/site-packages/tofino"))
        places += [str(path) for one in found for path in (one, one / "bfrt_grpc")]
    if not any(Path(place, "bfrt_grpc", "client.py").exists() for place in places):
        pytest.skip("the SDE's client is not found: set SDE_INSTALL, or PYTHONPATH to what holds bfrt_grpc")
    return os.pathsep.join(places)


@pytest.fixture
def switch(tmp_path: Path) -> Iterator[TofinoSwitch]:
    with TofinoSwitch(tmp_path) as process:
        yield process


def test_the_sde_client(switch: TofinoSwitch) -> None:
    environment = {**os.environ, "PYTHONPATH": client_path()}
    command = [sys.executable, str(SESSION), switch.address]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    missing = re.search(r"No module named '([\w.]+)'", ran.stderr)
    if missing and missing[1].split(".")[0] in ("google", "six"):
        pytest.skip(f"the SDE's client needs {missing[1]}, which this Python has not")
    assert ran.returncode == 0, ran.stderr
    seen = json.loads(ran.stdout.splitlines()[-1])
    assert [(index, code) for index, code, _ in seen["twice"]] == [(0, 6), (1, 6)]
    assert seen["twice"][0][2].endswith("Already exists")
    ((worker, key),) = seen["worker"]
    assert (worker["epoch"], worker["action_name"], worker["$COUNTER_SPEC_PKTS"]) == (5, "SwitchMLIngress.admit", 0)
    assert (key["slot"], key["$MATCH_PRIORITY"]) == ({"value": 0, "mask": 0xFFE0}, {"value": 3})
    assert (seen["usage"], seen["left"]) == ([1], [0])
    ((address, _),) = seen["address"]
    assert (address["mac"], address["ip"], address["is_default_entry"]) == (1, 2, True)
    ((group, _),), ((node, _),) = seen["groups"], seen["nodes"]
    assert (group["$MULTICAST_NODE_ID"], node["$MULTICAST_RID"], node["$DEV_PORT"]) == ([5], 9, [4, 5])
    ((port, _),) = seen["ports"]
    assert (port["$SPEED"], port["$PORT_UP"], port["$PORT_NAME"]) == ("BF_SPEED_100G", True, "1/0")
    ((counter, _),) = seen["counter"]
    assert (counter["$COUNTER_SPEC_PKTS"], counter["$COUNTER_SPEC_BYTES"]) == (8, 800)
    assert seen["register"] == [[7, 0]]  # one value for each pipe
    assert seen["up"]
    assert seen["loaded"]


def test_our_messages_are_those_of_the_sde() -> None:
    """Compare the numbers and types of all messages and fields with the SDE's bfruntime.proto, if it is found."""
    install = os.environ.get("SDE_INSTALL", "")
    found = [path for place in (install, os.environ.get("SDE", "")) if place for path in _find(Path(place))]
    if not found:
        pytest.skip("the SDE's bfruntime.proto is not found: set SDE_INSTALL or SDE")
    theirs, ours = _fields(found[0].read_text()), _fields(SOURCE.read_text())
    ours = {
        name: kind.replace("RpcStatus", ".google.rpc.Status") for name, kind in ours.items() if "RpcStatus." not in name
    }
    assert {name: theirs.get(name) for name in ours} == ours
    assert len(ours) > 90


def _find(place: Path) -> Iterator[Path]:
    for pattern in (
        "share/**/bfruntime.proto",
        "include/**/bfruntime.proto",
        "pkgsrc/bf-drivers/src/bf_rt/proto/*.proto",
    ):
        yield from place.glob(pattern)


def _fields(source: str) -> dict[str, str]:
    """Return "type = number" of each field and enumerator by its full name."""
    text = re.sub(r"//[^\n]*|\[\s*deprecated = true\s*\]", "", source)
    scope: list[str] = []
    fields: dict[str, str] = {}
    for token in re.finditer(r"(message|enum|oneof|service)\s+(\w+)\s*\{|\}|([.\w\s]+?)\s*=\s*(\d+)\s*;", text):
        if token[1]:
            scope.append("" if token[1] == "oneof" else token[2])
        elif token[0] == "}":
            if scope:
                scope.pop()
        else:
            words = token[3].split()
            fields[".".join([*filter(None, scope), words[-1]])] = f"{' '.join(words[:-1])} = {token[4]}"
    return fields
