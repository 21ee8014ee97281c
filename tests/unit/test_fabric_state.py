"""A damaged fabric.json: no part of it may end a command with a traceback."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from switchml.commands.root import cli
from switchml.common.processes import ProcessRecord, boot_id
from switchml.launch.fabric_state import Fabric
from switchml.launch.run_directory import RunDirectory
from switchml.launch.settings import FABRIC_OPTIONS

COMMANDS = ["status", "job list", "doctor", "down"]


def places(value: Any, above: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the place of each part of a JSON value."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in parts:
        yield (*above, name)
        yield from places(part, (*above, name))


def replaced(content: Any, place: tuple[str | int, ...], value: Any) -> Any:
    """Return a copy of a JSON value with another part at a place."""
    copy = json.loads(json.dumps(content))
    inner = copy
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = value
    return copy


@pytest.fixture
def fabric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The content of the fabric.json of a fabric whose only process has ended."""
    monkeypatch.setenv("SWITCHML_RUN_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("SWITCHML_CONTROLLER", raising=False)
    directory = RunDirectory(tmp_path / "run")
    directory.create()
    Fabric(
        directory, "running", True, boot_id(), "1", 1.0, FABRIC_OPTIONS, directory.path,
        controller=f"unix:{directory.path}/controller.sock", switches=({"name": "switch-0"},),
        agents=({"name": "agent-0", "socket": "s"},),
        processes=(ProcessRecord("controller", os.getpid(), 1, str(directory.logs / "c.log")),),
    ).save()  # fmt: skip
    content: dict[str, Any] = json.loads(directory.state_file.read_text())
    return content


@pytest.mark.parametrize("value", ["x", -1, 2**70, None, [], {}, True, ["x"]], ids=repr)
def test_each_damaged_part_is_an_error_with_a_way_out(fabric: dict[str, Any], value: Any, tmp_path: Path) -> None:
    state = tmp_path / "run" / "fabric.json"
    for place in places(fabric):
        if place[0] == "topology":  # a file of the user's, which is checked when it is drawn
            continue
        state.write_text(json.dumps(replaced(fabric, place, value)))
        for command in COMMANDS:
            result = CliRunner().invoke(cli, command.split())
            assert isinstance(result.exception, (SystemExit, type(None))), (place, command, result.exception)
        assert not state.exists() or "remove it, and `switchml-ctl down` ends" in result.stderr, (place, result.stderr)
