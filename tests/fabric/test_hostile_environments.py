"""Machines that lack something: each command says what is missing, without a traceback."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from switchml.dataplane.softswitch._native import UDP_PORT_BUFFER_BYTES
from tests.support.fabric_harness import SCRIPTS, Ctl, needs_namespaces

SECONDS = 90
CONNECT = """
import switchml
try:
    switchml.connect(job="x", rank=0, world_size=1)
except switchml.SwitchMLError as error:
    print(type(error).__name__, error)
"""
NO_HOME = ("unshare", "--user", "--map-user=64123", "env", "--unset=HOME", "--unset=XDG_CONFIG_HOME")


def ended(
    ctl: Ctl, *command: str, limit: Callable[[], None] | None = None, prefix: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """Run a program of this environment, and require that it prints no traceback."""
    words = [*prefix, str(SCRIPTS / command[0]), *command[1:]]
    done = subprocess.run(
        words, env=ctl.environment, capture_output=True, text=True, timeout=SECONDS, preexec_fn=limit, check=False
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


def why_no_other_user() -> str:
    if shutil.which("unshare") is None:
        return "unshare is missing"
    return subprocess.run([*NO_HOME, "true"], capture_output=True, text=True, check=False).stderr


@pytest.mark.skipif(why_no_other_user() != "", reason="user namespaces are not allowed here")
def test_a_user_without_an_account_or_a_home_is_served(ctl: Ctl) -> None:
    status = ended(ctl, "switchml-ctl", "status", prefix=NO_HOME)
    assert (status.returncode, "there is no controller" in status.stderr) == (4, True), status.stderr
    connected = ended(ctl, os.path.relpath(sys.executable, SCRIPTS), "-c", CONNECT, prefix=NO_HOME)
    assert connected.stdout.startswith("ConnectError"), connected.stderr
    ctl.environment["SWITCHML_RUN_DIR"] = "~/run"
    refused = ended(ctl, "switchml-ctl", "status", prefix=NO_HOME)
    assert (refused.returncode, "give an absolute path" in refused.stderr) == (2, True), refused.stderr
    connected = ended(ctl, os.path.relpath(sys.executable, SCRIPTS), "-c", CONNECT, prefix=NO_HOME)
    assert "give an absolute path" in connected.stdout, connected.stderr


@pytest.mark.skipif(why_no_other_user() != "", reason="user namespaces are not allowed here")
def test_doctor_wants_the_socket_buffers_that_daemons_want(ctl: Ctl) -> None:
    limits = [int(Path(f"/proc/sys/net/core/{name}").read_text()) for name in ("rmem_max", "wmem_max")]
    checks = json.loads(ended(ctl, "switchml-ctl", "doctor", "--json", prefix=NO_HOME).stdout)["checks"]
    [check] = [check for check in checks if check["name"] == "socket buffers"]
    assert check["status"] == ("ok" if min(limits) >= UDP_PORT_BUFFER_BYTES else "warning")
    assert check["status"] == "ok" or f"={UDP_PORT_BUFFER_BYTES}" in check["remedy"]


def test_files_that_may_not_grow(ctl: Ctl) -> None:
    started = ended(ctl, "switchml-ctl", "up", limit=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)))
    assert started.returncode == 1
    assert "File too large; raise the limit on the size of files (`ulimit -f`)" in started.stderr


def test_too_few_open_files_for_the_ranks(fabric: Ctl) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))

    refused = ended(fabric, "switchml-ctl", "job", "start", "--workers", "8", "--", "true", limit=limit)
    assert refused.returncode == 1
    assert "8 ranks needs 88 open files in this process, which may have 40; raise the limit" in refused.stderr
    assert [job["state"] for job in fabric.json("job", "list", "--all")["jobs"]] == ["STOPPED"]


def test_a_soft_limit_on_open_files_is_raised(fabric: Ctl) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (40, hard))

    done = ended(fabric, "switchml-ctl", "job", "start", "--workers", "8", "--", "true", limit=limit)
    assert done.returncode == 0, done.stderr


@needs_namespaces
@pytest.mark.parametrize("command", ["status", "up", "down", "job list", "doctor"])
def test_without_proc(fabric: Ctl, command: str) -> None:
    hide = ("unshare", "--mount", "--propagation", "private", "sh", "-c", 'mount -t tmpfs none /proc; exec "$@"', "sh")
    done = ended(fabric, "switchml-ctl", *command.split(), prefix=hide)
    assert done.returncode == 1
    assert "mount /proc" in done.stderr + " ".join(done.stdout.split())
    assert fabric.json("status")["state"] == "running"
