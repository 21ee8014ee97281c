"""A controller that is killed and started again, as by a service manager, while `job start` and others need it."""

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.fabric_harness import Ctl, runs, wait_until


class Controller:
    """The controller of a fabric, which can be killed and started again at the same address."""

    def __init__(self, ctl: Ctl) -> None:
        self.address = json.loads((ctl.run_dir / "fabric.json").read_text())["controller"]
        [self.pid] = [process["pid"] for process in ctl.processes() if process["name"] == "controller"]
        self.command = Path(f"/proc/{self.pid}/cmdline").read_text().split("\0")[:-1]
        self.log = ctl.run_dir / "controller-again.log"
        self.again: subprocess.Popen[bytes] | None = None

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        wait_until(lambda: not runs(self.pid), "the controller has ended")

    def start_again(self) -> None:
        with self.log.open("wb") as log:
            self.again = subprocess.Popen([*self.command, "--listen", self.address], stderr=log)

    def close(self) -> None:
        if self.again is not None:
            self.again.terminate()
            self.again.wait(30)


@pytest.fixture
def controller(ctl: Ctl) -> Iterator[Controller]:
    ctl.run("up", "--agents", "3")
    found = Controller(ctl)
    yield found
    found.close()


def start(ctl: Ctl, policy: str, *worker: str) -> tuple[dict[str, Any], Path]:
    """Start a job of three ranks in the background; return its description and the log of its launcher."""
    job = ctl.json("job", "start", "--workers", "3", "--on-failure", policy, "--detach", *worker)
    return job, Path(job["run_dir"]) / "launcher.log"


def text_of(file: Path) -> str:
    """Return what a process that has been started, or will be soon, has written."""
    return file.read_text() if file.exists() else ""


def rank_processes(launcher: int) -> list[int]:
    """Return the processes of the ranks, in their order."""
    return [int(pid) for pid in Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()]


def has_socket(pid: int) -> bool:
    """Return whether a process has an open socket."""
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # just closed
            if descriptor.readlink().name.startswith("socket:"):
                return True
    return False


@pytest.mark.parametrize("policy", ["shrink", "restart"])
def test_a_rank_that_ends_meanwhile_does_not_end_the_others(ctl: Ctl, controller: Controller, policy: str) -> None:
    enough = ctl.run_dir / "enough"
    job, log = start(ctl, policy, *ctl.worker("until_told", str(enough)))
    outputs = [Path(job["run_dir"]) / f"rank-{rank}.log" for rank in range(3)]
    wait_until(lambda: "sum of 3" in text_of(outputs[1]), "the ranks make sums")
    waiting = ctl.start("job", "wait", job["name"], "--json")
    watching = ctl.start("job", "watch", job["name"])
    assert watching.stdout is not None
    assert "RUNNING" in watching.stdout.readline()
    wait_until(lambda: has_socket(waiting.pid), "`job wait` asks the controller")
    ctl.json("job", "show", job["name"])  # which asks later, and so is answered later
    controller.kill()
    os.kill(rank_processes(job["pid"])[1], signal.SIGKILL)
    wait_until(lambda: "rank 1 has ended with status 137" in text_of(log), "the launcher notices")
    wait_until(lambda: "asking again" in text_of(log), "the launcher asks in vain")
    controller.start_again()
    others, size = ([0, 2], 2) if policy == "shrink" else ([0, 1, 2], 3)
    wait_until(lambda: f"goes on as one of {size}" in text_of(outputs[0]), "the others go on", 60)
    wait_until(lambda: text_of(outputs[others[-1]]).endswith(f"sum of {size}\n"), "they make sums", 60)
    enough.touch()
    stdout, stderr = waiting.communicate(timeout=60)
    assert json.loads(stdout).get("state") == "COMPLETED", text_of(log) + stdout + stderr
    assert waiting.returncode == 0
    assert "COMPLETED" in watching.communicate(timeout=30)[0]
    wait_until(lambda: not runs(job["pid"]), "the launcher ends")
    for rank in others:
        assert text_of(outputs[rank]).endswith("told\n")
    assert "cannot" not in text_of(log)


def test_a_job_in_the_background_is_stopped_after_it(ctl: Ctl, controller: Controller) -> None:
    job, log = start(ctl, "abort", *ctl.worker("waits"))
    following = ctl.start("events", "--follow", "--json")
    assert following.stdout is not None
    following.stdout.readline()
    controller.kill()
    wait_until(lambda: "asking again" in text_of(log), "the launcher asks in vain")
    controller.start_again()
    wait_until(lambda: "answers again" in text_of(log), "the launcher has an answer")
    ctl.run("--controller", controller.address, "job", "stop", job["name"])
    wait_until(lambda: not runs(job["pid"]), "the launcher has ended its ranks")
    for line in following.stdout:
        if json.loads(line)["kind"] == "job-stopped":
            break
    else:
        pytest.fail("the events end with the first controller")
    following.terminate()
    following.communicate(timeout=30)
