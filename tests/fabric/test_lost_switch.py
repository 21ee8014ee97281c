"""A switch that is killed and does not return: all ranks are told long before the deadline of their calls."""

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.fabric_harness import Ctl, wait_until


@pytest.mark.parametrize(
    ("transport", "seconds"),
    [("shm", 3.0), pytest.param("udp", 4.0, marks=pytest.mark.long)],  # its end of the ranks' connections; its address
)
def test_all_ranks_hear_that_the_switch_is_gone(
    ctl: Ctl, transport: str, seconds: float, limit: Callable[[float], float]
) -> None:
    ctl.run("up", "--transport", transport, "--agents", "2")
    switch = next(process for process in ctl.processes() if process["name"] == "switch-0")
    worker = ctl.worker("survives", "--steps", "100000", "--size", "100000", "--timeout", "60", "--say-steps")
    job = ctl.start("job", "start", "--workers", "3", "--json", *worker)
    try:
        wait_until(lambda: _has_made_steps(ctl), "the ranks make steps")
        killed = time.monotonic()
        os.kill(switch["pid"], signal.SIGKILL)
        stdout, stderr = job.communicate(timeout=80)
    finally:
        job.kill()
    said = [json.loads(line.split("] ", 1)[1]) for line in stderr.splitlines() if "] {" in line]
    errors = [words for words in said if "error" in words]
    assert len(errors) == 3, stderr[-2000:]
    for words in errors:
        assert words["error"].startswith("SwitchLost"), words
        assert words["error_at"] - killed < limit(seconds)
    assert job.returncode == 3
    result = json.loads(stdout)
    assert (result["state"], result["key"]) == ("FAILED", 1)
    assert "switch-0" in result["failure"]
    assert "the packets that switch switch-0 dropped are not known" in stderr


def _has_made_steps(ctl: Ctl) -> bool:
    logs = list(Path(ctl.run_dir).glob("jobs/*/rank-*.log"))
    return len(logs) == 3 and all('"step"' in log.read_text() for log in logs)
