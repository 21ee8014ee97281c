"""p4runtime-shell, an independent P4Runtime client, drives the soft switch.

It pins a protobuf of 2022, so it has a separate virtual environment, created once in the repository's root.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.p4_messages import P4INFO_PATH, info
from tests.support.soft_switch import SwitchProcess

ENVIRONMENT = Path(__file__).parents[2] / ".venv-p4runtime-shell"
REQUIREMENT = "p4runtime-shell==0.0.6"
INSTALL_SECONDS = 240


def run(*command: str | Path, seconds: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=seconds)


@pytest.fixture(scope="module")
def shell_python() -> Path:
    """Return the interpreter of the environment; skip with pip's reason if it cannot be created."""
    python = ENVIRONMENT / "bin" / "python"
    probe = ("-c", "import p4runtime_sh.shell")
    if python.exists() and run(python, *probe).returncode == 0:
        return python
    shutil.rmtree(ENVIRONMENT, ignore_errors=True)
    try:
        for command in (
            (sys.executable, "-m", "venv", ENVIRONMENT),
            (python, "-m", "pip", "install", "--quiet", REQUIREMENT),
            (python, *probe),
        ):
            done = run(*command, seconds=INSTALL_SECONDS)
            if done.returncode != 0:
                pytest.skip(f"{REQUIREMENT} cannot be installed: {(done.stderr or done.stdout)[-1000:]}")
    except subprocess.TimeoutExpired as error:
        pytest.skip(f"{REQUIREMENT} cannot be installed: {error}")
    return python


@pytest.fixture(scope="module")
def seen(shell_python: Path, switch_process: SwitchProcess, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the results of the session in p4runtime_shell_session.py."""
    device_config = tmp_path_factory.mktemp("shell") / "device_config.json"
    device_config.write_text('{"values_per_packet": 64, "slots": 32}')
    session = Path(__file__).with_name("p4runtime_shell_session.py")
    done = run(shell_python, session, switch_process.address, P4INFO_PATH, device_config)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.timeout(2 * INSTALL_SECONDS)
def test_connects_and_lists_tables(seen: Any) -> None:
    assert seen["api_version"] == "1.5.0"
    assert seen["tables"] == sorted(table.preamble.name for table in info().tables)
    assert "SwitchMLIngress.worker_table" in seen["tables"]


def test_inserts_modifies_and_deletes_entries(seen: Any) -> None:
    rank, worker = seen["entries"]
    assert r'value: "\017\240"' in rank  # UDP port 4000
    assert "priority: 1" in worker
    (modified,) = seen["modified"]
    assert r'value: "\017\241"' in modified
    assert seen["deleted"] == []
    assert "NOT_FOUND" in seen["error"]
    assert "rank_table has no such entry" in seen["error"]


def test_multicast_group_and_counters(seen: Any) -> None:
    assert seen["group"] == [[1, 0], [2, 1]]
    assert seen["groups_left"] == 0
    assert seen["counters"] == 32
