"""Commands about jobs, beyond starting them: how they end is an exit status, and what they wrote is there."""

from __future__ import annotations

from fabric_harness import Ctl


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
    late = fabric.run("job", "wait", "idle", "--timeout", "0.5", status=124)
    assert "job idle has not ended within 0.5 s: it is READY" in late.stderr
    waiting = fabric.start("job", "wait", "idle", "--json")
    fabric.run("job", "stop", "idle")
    stdout, _ = waiting.communicate(timeout=30)
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
