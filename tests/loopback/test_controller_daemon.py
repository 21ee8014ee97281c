"""Start and end of the daemon."""

from __future__ import annotations

import json
import os
import queue
import signal
import socket
import subprocess
import threading
from pathlib import Path

import pytest

from switchml.controller import errors
from switchml.controller.client import ControllerClient
from switchml.controller.proto import switchml_pb2 as pb
from tests.support.controller_harness import (
    DEADLINE,
    ControllerProcess,
    controller_command,
    resume,
    suspend,
    wait_until,
)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(controller_command(*arguments), capture_output=True, text=True, timeout=DEADLINE)


def refused(*arguments: str) -> str:
    """Check that the daemon ends with status 1 and one line."""
    done = run(*arguments)
    assert done.returncode == 1, done
    assert done.stdout == ""
    lines = [line for line in done.stderr.splitlines() if not line[:1].isdigit()]
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("Error: ")
    return lines[0]


def _pids(ready_file: Path) -> list[int]:
    try:
        return [json.loads(ready_file.read_text()).get("pid")]
    except FileNotFoundError:  # the daemon removes that of an earlier one
        return []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_ready_file_and_a_clean_end(tmp_path: Path, number: signal.Signals) -> None:
    ready_file = tmp_path / "ready.json"
    ready_file.write_text('{"address": "of an earlier one"}')
    arguments = ["--listen", "127.0.0.1:0", "--store", str(tmp_path / "s.sqlite"), "--ready-file", str(ready_file)]
    with subprocess.Popen(controller_command(*arguments), stderr=subprocess.PIPE, text=True) as process:
        wait_until(lambda: process.pid in _pids(ready_file), "it is ready")
        ready = json.loads(ready_file.read_text())
        assert ready == {"address": ready["address"], "pid": process.pid, "version": "0.1.0"}
        with ControllerClient(ready["address"]) as client:
            assert client.info().store_path == str(tmp_path / "s.sqlite")
            assert client.list_switches() == []
            with pytest.raises(errors.SwitchNotFound, match="no switch is configured"):
                client.start_job(pb.StartJobRequest(workers=1))
            with pytest.raises(errors.SwitchNotFound):
                client.show_switch()
        process.send_signal(number)
        _, stderr = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0, stderr
    assert "Traceback" not in stderr
    assert "ERROR" not in stderr
    assert not list(tmp_path.glob("*.partial"))


def test_a_busy_port(tmp_path: Path) -> None:
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        listen = f"127.0.0.1:{busy.getsockname()[1]}"
        line = refused("--listen", listen, "--store", str(tmp_path / "s.sqlite"))
    assert f"cannot listen on {listen}" in line


def test_the_port_of_another_controller(tmp_path: Path) -> None:
    first = ControllerProcess(tmp_path, "")
    try:
        first.start()
        assert "cannot listen on" in refused("--listen", first.listen, "--store", str(tmp_path / "other.sqlite"))
        assert "in use by another controller" in refused(
            "--listen", "127.0.0.1:0", "--store", str(tmp_path / "store.sqlite")
        )
    finally:
        first.stop()


def test_a_unix_socket_instead_of_a_port(tmp_path: Path) -> None:
    path = tmp_path / "c.sock"
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(path))
    stale.close()  # the file remains, as after a crash
    process = ControllerProcess(tmp_path, "")
    process.listen = f"unix:{path}"
    try:
        with process.start() as client:
            assert client.address == f"unix:{path}"
            assert client.list_jobs() == []
            assert path.stat().st_mode & 0o777 == 0o600
            line = refused("--listen", process.listen, "--store", str(tmp_path / "other.sqlite"))
            assert f"cannot listen on unix:{path} for gRPC: another process does" in line
            assert client.list_jobs() == []
    finally:
        process.stop()
    nowhere = f"unix:{tmp_path / 'none' / 'c.sock'}"
    assert f"cannot listen on {nowhere}" in refused("--listen", nowhere, "--store", str(tmp_path / "s.sqlite"))


def test_a_stream_notices_that_the_controller_has_stopped(tmp_path: Path) -> None:
    process = ControllerProcess(tmp_path, "")
    seen: queue.SimpleQueue[str] = queue.SimpleQueue()

    def follow(client: ControllerClient) -> None:
        for event in client.read_events(follow=True):
            seen.put(event.kind)
            if event.kind == "job-refused":
                return

    try:
        address = process.start().address
        assert process.process is not None
        with ControllerClient(address, notice=seen.put) as client:
            threading.Thread(target=follow, args=[client], daemon=True).start()
            assert seen.get(timeout=DEADLINE) == "controller-started"
            suspend(process.process)
            try:
                assert "asking again" in seen.get(timeout=DEADLINE)
            finally:
                resume(process.process)
            with pytest.raises(errors.SwitchNotFound):
                client.start_job(pb.StartJobRequest(workers=1))
            assert seen.get(timeout=DEADLINE) == "the controller answers again"
            assert seen.get(timeout=DEADLINE) == "job-refused"
    finally:
        process.stop()


def test_a_bad_configuration(tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text("[[switches]]\nname = 3")
    assert f"configuration {config}: [[switches]]: name is 3" in refused("--config", str(config))
    assert "No such file" in refused("--config", str(tmp_path / "none.toml"))
    assert "'nowhere' is not HOST:PORT" in refused("--listen", "nowhere")


def test_an_unreadable_store(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.write_text("no database " * 1000)
    assert "not a database" in refused("--listen", "127.0.0.1:0", "--store", str(store))
    assert "cannot be used" in refused("--listen", "127.0.0.1:0", "--store", str(store / "below"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_no_permission(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert "Permission denied" in refused("--listen", "127.0.0.1:0", "--store", str(tmp_path / "s.sqlite"))


def test_a_ready_file_that_cannot_be_written(tmp_path: Path) -> None:
    line = refused(
        *("--listen", "127.0.0.1:0", "--store", str(tmp_path / "s"), "--ready-file", str(tmp_path / "no" / "file"))
    )
    assert "ready file" in line


def test_options_help_and_version() -> None:
    assert run("--nonsense").returncode == 2
    done = run("--help")
    assert done.returncode == 0
    assert "--ready-file" in done.stdout
    assert "0.1.0" in run("--version").stdout


def test_nobody_answers() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        with ControllerClient(address) as client, pytest.raises(errors.ControllerUnavailable, match=address):
            client.info()
