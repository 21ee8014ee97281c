"""Commands about jobs other than starting them: exit statuses, waiting, logs, completion."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from switchml.common.version import VERSION
from tests.support.fabric_harness import Ctl, runs, wait_until

# Makes all-reduces until it is stopped.
BUSY = """
import numpy as np, switchml
with switchml.connect() as comm:
    while True:
        comm.all_reduce(np.ones(100_000, np.float32))
"""


@pytest.fixture
def busy(ctl: Ctl) -> Iterator[Ctl]:
    """Provide a fabric of two agents over UDP, on which a job named busy makes all-reduces."""
    ctl.run("up", "--agents", "2", "--transport", "udp")
    job = ctl.start("job", "start", "--workers", "2", "--name", "busy", "--", sys.executable, "-c", BUSY)
    wait_until(lambda: [job["state"] for job in ctl.json("job", "list")["jobs"]] == ["RUNNING"], "busy runs")
    yield ctl
    job.terminate()
    job.communicate(timeout=60)


def test_a_failed_job_gives_its_status_to_who_watches_or_waits(fabric: Ctl) -> None:
    fabric.run("job", "start", "--workers", "2", "--name", "broken", "--", "sh", "-c", "exit $((RANK * 7))", status=7)
    assert "FAILED" in fabric.run("job", "watch", "broken", status=7).stdout
    assert fabric.json("job", "watch", "broken", status=7)["state"] == "FAILED"
    assert "broken: FAILED" in fabric.run("job", "wait", "broken", status=7).stdout
    fabric.run("job", "start", "--workers", "1", "--name", "good", "--", "true")
    assert fabric.json("job", "wait", "good")["state"] == "COMPLETED"
    assert fabric.run("job", "wait", "nosuch", status=3).stdout == ""


def test_waiting_has_a_deadline_and_ends_with_the_job(fabric: Ctl) -> None:
    fabric.run("job", "start", "--workers", "1", "--name", "idle")
    late = fabric.run("job", "wait", "idle", "--timeout", "6", status=124)  # in which the controller must answer once
    assert "job idle did not end within 6 s: it is READY" in late.stderr
    waiting = fabric.start("job", "wait", "idle", "--json")
    fabric.run("job", "stop", "idle")
    stdout, _ = waiting.communicate(timeout=60)
    assert waiting.returncode == 1
    assert '"state": "STOPPED"' in stdout


def test_what_is_empty_or_unknown_is_said(fabric: Ctl) -> None:
    assert fabric.run("job", "list").stdout == "no live jobs\n"
    assert fabric.run("job", "list", "--all").stdout == "no jobs\n"
    assert "multicast groups: none" in fabric.run("switch", "show").stdout
    assert "no job has the name 'nosuch'" in fabric.run("events", "--job", "nosuch", status=3).stderr
    fabric.run("job", "start", "--workers", "1", "--name", "known", "--", "true")
    assert "job-completed" in fabric.run("events", "--job", "known").stdout


def test_shares_may_be_percentages(fabric: Ctl) -> None:
    [loss] = fabric.json("switch", "loss", "--ingress", "5%", "--egress", "0.1%")["losses"]
    assert (round(loss["ingress"], 4), round(loss["egress"], 4)) == (0.05, 0.001)


def completions(ctl: Ctl, shell: str, line: str) -> str:
    """Return the completions of the last word of a line, requested like the shells' scripts do."""
    asked = Ctl(ctl.run_dir)
    asked.environment |= {
        "_SWITCHML_CTL_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": line.split()[-1] if shell == "fish" else str(len(line.split()) - 1),
    }
    return asked.run().stdout


def test_names_are_completed(fabric: Ctl) -> None:
    fabric.run("job", "start", "--workers", "1", "--name", "digits")
    assert completions(fabric, "bash", "switchml-ctl job stop di") == "plain,digits\n"
    assert completions(fabric, "fish", "switchml-ctl job stop di") == "plain,digits\tREADY\n"
    assert completions(fabric, "bash", "switchml-ctl switch show s") == "plain,switch-0\n"
    assert completions(fabric, "bash", "switchml-ctl agent show a").startswith("plain,a")
    away = "switchml-ctl --controller 127.0.0.1:1 job stop di"
    assert completions(fabric, "bash", away).strip() == ""


def test_all_jobs_are_stopped_at_once(fabric: Ctl) -> None:
    for name in ("one", "two"):
        fabric.run("job", "start", "--workers", "1", "--name", name)
    stopped = fabric.json("job", "stop", "--all")["jobs"]
    assert {(job["name"], job["state"]) for job in stopped} == {("one", "STOPPED"), ("two", "STOPPED")}
    assert fabric.run("job", "stop", "--all").stdout == "no live jobs\n"


def test_ports_and_agents_of_a_busy_switch(busy: Ctl) -> None:
    def ports() -> list[dict[str, Any]]:
        found = busy.json("switch", "ports", "--interval", "1.5")["ports"]
        assert isinstance(found, list)
        return found

    wait_until(lambda: all(port["results_per_second"] > 0 for port in ports()), "results on all ports")
    shown = ports()
    assert [(port["port"], port["ranks"]) for port in shown] == [(1, 2)]
    assert all(port["contributions_per_second"] > 0 for port in shown)
    [first, _] = busy.json("agent", "list")["agents"]
    agent = busy.json("agent", "show", first["registration"]["name"])
    assert [(rank["job"], rank["state"]) for rank in agent["ranks"]] == [("busy", "ATTACHED")]
    assert "contributions/s" in busy.run("switch", "ports", "--interval", "0.5").stdout
    assert "no agent 'nosuch'" in busy.run("agent", "show", "nosuch", status=3).stderr


def test_versions_of_all_programs(fabric: Ctl) -> None:
    versions = fabric.json("version")["versions"]
    assert [version["kind"] for version in versions] == ["client", "controller", "agent", "switch"]
    assert {version["version"] for version in versions[:3]} == {VERSION}


def test_logs_of_all_ranks_and_their_last_lines(ctl: Ctl) -> None:
    script = "for i in 1 2 3; do echo line $i of $RANK; done; printf unfinished"
    ctl.run("job", "start", "--workers", "2", "--name", "talk", "--", "sh", "-c", script)
    every = ctl.run("job", "logs", "talk").stdout.splitlines()
    assert every[:4] == [*(f"[0] line {i} of 0" for i in (1, 2, 3)), "[1] line 1 of 1"]
    assert sorted(every[6:]) == ["[0] unfinished", "[1] unfinished"]
    last = ctl.run("job", "logs", "talk", "--tail", "2").stdout.splitlines()
    assert sorted(last) == ["[0] line 3 of 0", "[0] unfinished", "[1] line 3 of 1", "[1] unfinished"]
    assert ctl.run("job", "logs", "talk", "--rank", "1", "--tail", "1").stdout == "unfinished"
    [log] = ctl.json("job", "logs", "talk", "--rank", "0")["logs"]
    assert (log["rank"], log["lines"][-1]) == (0, "unfinished")
    assert "no log of rank 2" in ctl.run("job", "logs", "talk", "--rank", "2", status=1).stderr


def test_a_detached_job_is_waited_for(ctl: Ctl, tmp_path: Path) -> None:
    go = tmp_path / "go"
    script = 'echo "$GREETING" from $RANK; while ! test -e $0; do sleep 0.05; done; exit $((RANK * 3))'
    arguments = ("--workers", "2", "--name", "late", "--env", "GREETING=hello you", "--", "sh", "-c", script, str(go))
    started = ctl.json("job", "start", "--detach", *arguments)
    assert started["name"] == "late"
    assert runs(started["pid"])
    waiting = ctl.start("job", "wait", "late")
    go.touch()
    waiting.communicate(timeout=60)
    assert waiting.returncode == 3
    assert ctl.run("job", "logs", "late").stdout.splitlines() == ["[0] hello you from 0", "[1] hello you from 1"]
    wait_until(lambda: not runs(started["pid"]), "its launcher has ended")
    assert "rank 1 has ended with status 3" in (Path(started["run_dir"]) / "launcher.log").read_text()
    assert ctl.run("job", "wait", "late", status=3).stdout.startswith("late: FAILED")  # its fabric continues to run


def test_a_detached_job_that_is_refused_ends_with_that_status(fabric: Ctl) -> None:
    arguments = ("--workers", "1", "--switch", "nowhere", "--", "true")
    refused = fabric.json("job", "start", "--detach", *arguments, status=3)
    assert refused["error"] == "SwitchNotFound"


def test_a_detached_job_is_stopped_like_any(fabric: Ctl) -> None:
    arguments = ("--workers", "2", "--name", "endless", "--", "sleep", "1000")
    started = fabric.json("job", "start", "--detach", *arguments)
    fabric.run("job", "stop", "endless")
    wait_until(lambda: not runs(started["pid"]), "its launcher has ended")
