"""`job profile` and `events` during a job."""

import contextlib
import json
import time
from pathlib import Path
from typing import Any

import pytest

from switchml.controller.client import ControllerClient
from switchml.controller.errors import JobNotFound
from tests.support.fabric_harness import Ctl, wait_until


def wait_for_calls(ctl: Ctl) -> None:
    end = time.monotonic() + 60
    with ControllerClient(json.loads((ctl.run_dir / "fabric.json").read_text())["controller"]) as client:
        while True:
            with contextlib.suppress(JobNotFound):
                if sum(rank.calls for rank in client.profile_job("busy").ranks) >= 20:
                    return
            assert time.monotonic() < end
            time.sleep(0.1)


@pytest.mark.parametrize(("transport", "own"), [("shm", ("sum",)), ("direct", ()), ("udp", ("send", "receive"))])
def test_a_running_job_is_profiled(ctl: Ctl, transport: str, own: tuple[str, ...], tmp_path: Path) -> None:
    ctl.run("up", "--transport", transport.replace("direct", "shm"))
    ctl.environment["SWITCHML_DIRECT"] = str(int(transport == "direct"))
    job = ctl.start("job", "start", "--workers", "2", "--name", "busy", *ctl.worker("waits"))
    try:
        wait_for_calls(ctl)

        found: dict[str, Any] = {"ranks": [{"calls": 0}]}

        def all_make_calls() -> bool:
            found.update(ctl.json("job", "profile", "busy", "--seconds", "0.5", "--calls", "5"))
            return all(rank["calls"] > 0 for rank in found["ranks"])

        wait_until(all_make_calls, "all ranks make calls while a busy machine stalls none of them")
        assert 0.5 <= found["seconds"] < 60
        assert not found["missing"]
        assert [rank["rank"] for rank in found["ranks"]] == [0, 1]
        for rank in found["ranks"]:
            assert rank["calls"] > 0
            assert rank["bytes"] == 4000 * rank["calls"]
            spent = rank["quantize"] + rank["wait"] + rank["dequantize"]
            assert 0 < spent < found["seconds"] + 30  # agents may answer late
            assert all((rank[name] > 0) is (name in own) for name in ("send", "receive", "sum"))
            assert 0 < len(rank["latest"]) <= 5
            for call in rank["latest"]:
                assert abs(call["ended"] - time.time()) < 60
                assert call["operation"] == "all_reduce"

        picture = tmp_path / "timeline.svg"
        shown = ctl.run("job", "profile", "busy", "--plot", str(picture))
        assert "quantize" in shown.stdout
        timeline = [line.split()[:2] for line in shown.stdout.splitlines() if line.startswith("rank ")]
        assert [rank for rank in timeline if rank[1].isdecimal()] == [["rank", "0"], ["rank", "1"]]
        assert picture.read_text().count("<!-- rank ") == 2
        assert "wrote" in shown.stderr

        trace = tmp_path / "trace.json"
        ctl.run("job", "profile", "busy", "--seconds", "0.5", "--trace", str(trace))
        events = json.loads(trace.read_text())["traceEvents"]
        calls = [event for event in events if event["name"] == "all_reduce 4 kB"]
        assert {event["pid"] for event in calls} == {1, 2}
        assert {event["args"]["dtype"] for event in calls} == {"float32"}
        assert "exchange" in {event["name"] for event in events}

        def calls_in_an_interval() -> bool:
            (seen,) = ctl.json("top", "--once", "--interval", "2")["jobs"]
            assert (seen["name"], seen["state"], seen["workers"]) == ("busy", "RUNNING", 2)
            return seen["bytes_per_second"] > 0 and all(rank["per_second"]["sent"] > 0 for rank in seen["ranks"])

        wait_until(calls_in_an_interval, "all ranks make calls while a busy machine stalls none of them")

        kinds = [event["kind"] for event in ctl.json("events", "--job", "busy")["events"]]
        assert kinds[:2] == ["job-started", "job-ready"]
        assert kinds.count("rank-attached") == 2
        assert "controller-started" not in kinds
    finally:
        ctl.run("job", "stop", "busy")
        job.communicate(timeout=60)
    assert ctl.run("job", "profile", "busy", status=3).stderr.startswith("Error: job busy is STOPPED")
    assert "busy" in ctl.run("events", "--last", "1").stdout
