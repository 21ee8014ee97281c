"""`up`, `status` and `down`: one fabric per run directory, which leaves nothing behind."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from switchml.common.processes import ProcessRecord
from tests.support.fabric_harness import Ctl, runs, wait_until


def test_up_status_down(ctl: Ctl) -> None:
    up = ctl.json("up", "--agents", "2", "--values", "64", "--slots", "1024")
    assert up["started"]
    assert [process["name"] for process in up["processes"]] == ["ports", "switch-0", "controller", "agent-0", "agent-1"]
    assert all(runs(process["pid"]) for process in up["processes"])
    assert ctl.run_dir.stat().st_mode & 0o777 == 0o700

    status = ctl.json("status")
    assert status["state"] == "running"
    [switch] = status["switches"]
    assert (switch["values_per_packet"], switch["slots"], switch["slots_free"]) == (64, 1024, 1024)
    assert switch["connected"]
    assert switch["primary"]
    assert [agent["registration"]["address"] for agent in status["agents"]] == ["127.0.0.1", "127.0.0.2"]
    assert status["jobs"] == []

    down = ctl.json("down")
    assert sorted(down["ended"]) == ["agent-0", "agent-1", "controller", "ports", "switch-0"]
    assert not any(runs(process["pid"]) for process in up["processes"])
    assert not list(ctl.run_dir.glob("*.sock"))
    assert ctl.json("status", status=4)["state"] == "none"
    logs = {log.name: log.read_text() for log in (ctl.run_dir / "logs").iterdir()}
    assert [name for name, text in logs.items() if "leaked" in text or "Traceback" in text] == []


def test_racks(ctl: Ctl) -> None:
    up = ctl.json("up", "--racks", "2", "--agents", "4", "--values", "64")
    names = ["ports", "spine", "leaf1", "leaf2", "controller", *(f"agent-{number}" for number in range(4))]
    assert [process["name"] for process in up["processes"]] == names
    script = "import numpy as np, switchml; c = switchml.connect(); x = np.full(6400, c.rank + 1, np.int32); "
    script += "c.all_reduce(x); c.close(); assert (x == 10).all()"
    command = ("job", "start", "--workers", "4", "--switch", "spine", "--", sys.executable, "-c", script)
    result = ctl.json(*command)
    assert result["state"] == "COMPLETED"
    assert (result["switch"]["contributions"], result["switch"]["results"]) == (2 * 100, 100)
    job = ctl.json("job", "show", result["name"])
    assert [rank["switch"] for rank in job["ranks"]] == ["leaf1", "leaf1", "leaf2", "leaf2"]


# Becomes another user, then connects to each of these sockets.
CONNECT_AS_NOBODY = """
import os, socket, sys
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
for path in sys.argv[1:]:
    for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
        with socket.socket(socket.AF_UNIX, kind) as client:
            try:
                client.connect(path)
                print(path, "connected")
            except OSError as error:
                print(path, error.strerror)
"""


def listening_at(pid: int) -> set[str]:
    """Return the TCP addresses on which a process listens (proc(5), /proc/net/tcp)."""
    links = [str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir() if link.exists()]
    own = {link.removeprefix("socket:[").removesuffix("]") for link in links if link.startswith("socket:[")}
    tables = [Path(f"/proc/{pid}/net/{name}").read_text() for name in ("tcp", "tcp6")]
    rows = [line.split() for table in tables for line in table.splitlines()]
    return {row[1] for row in rows if row[3] == "0A" and row[9] in own}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_can_command_nothing_of_a_fabric(fabric: Ctl) -> None:
    """Check this even for a run directory that is open to all; the only TCP ports serve metrics."""
    served = json.loads((fabric.run_dir / "prometheus.json").read_text())
    metrics = {f"0100007F:{int(one['targets'][0].rpartition(':')[2]):04X}" for one in served}
    listening = {address for process in fabric.processes() for address in listening_at(process["pid"])}
    assert listening == metrics
    assert fabric.json("status")["controller"] == f"unix:{fabric.run_dir}/controller.sock"

    sockets = sorted(str(path) for path in fabric.run_dir.glob("*.sock"))
    names = ["agent-0.sock", "controller.sock", "p4runtime.sock", "ports.sock", "switch.sock"]
    assert [Path(path).name for path in sockets] == names
    for directory in (fabric.run_dir, fabric.run_dir.parent):
        directory.chmod(0o755)
    command = [sys.executable, "-c", CONNECT_AS_NOBODY, *sockets]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, cwd="/")
    fabric.run_dir.chmod(0o700)
    assert found.stdout.splitlines() == [f"{path} Permission denied" for path in sockets for _ in range(2)]


# Becomes another user, and tries to bind these UDP ports in the ways that the kernel offers; prints those that worked.
BIND_AS_NOBODY = """
import os, socket, sys
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
for port in sys.argv[1:]:
    for address in ("127.0.0.1", "127.0.0.9", "0.0.0.0"):
        for option in (None, socket.SO_REUSEADDR, socket.SO_REUSEPORT):
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as thief:
                if option is not None:
                    thief.setsockopt(socket.SOL_SOCKET, option, 1)
                try:
                    thief.bind((address, int(port)))
                    print(address, port)
                except OSError:
                    pass
"""


def udp_ports_of(pid: int) -> set[str]:
    """Return the UDP ports of a process's sockets (proc(5), /proc/net/udp)."""
    links = [str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir() if link.exists()]
    rows = [line.split() for line in Path(f"/proc/{pid}/net/udp").read_text().splitlines()[1:]]
    return {str(int(row[1].rpartition(":")[2], 16)) for row in rows if f"socket:[{row[9]}]" in links}


def _made_steps(jobs: Path) -> int:
    """Return the number of ranks that have made a step."""
    return sum('"step"' in log.read_text() for log in jobs.glob("*/rank-*.log"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("racks", [(), ("--racks", "2")], ids=["one switch", "tree"])
def test_another_user_cannot_take_the_ports_of_processes_that_were_killed(ctl: Ctl, racks: tuple[str, ...]) -> None:
    """Kill switches and agents while a job sends to them; `down` frees their ports and leaves no file of theirs."""
    ctl.run("up", "--transport", "udp", "--agents", "2", "--values", "64", *racks)
    others = ["--switch", "spine"] if racks else []
    worker = ctl.worker("survives", "--steps", "100000", "--size", "1000", "--timeout", "60", "--say-steps")
    job = ctl.start("job", "start", "--workers", "2", *others, *worker)
    try:
        logs = ctl.run_dir / "jobs"
        wait_until(lambda: _made_steps(logs) == 2, "both ranks make steps")
        movers = [one for one in ctl.processes() if one["name"] not in ("ports", "controller")]
        ports = {port for one in movers for port in udp_ports_of(one["pid"])}
        assert len(ports) == len(movers)
        for process in movers:
            os.kill(process["pid"], signal.SIGKILL)
        wait_until(lambda: not any(runs(process["pid"]) for process in movers), "all have ended")
        command = [sys.executable, "-c", BIND_AS_NOBODY, *ports]
        found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, cwd="/")
        assert found.stdout == ""
    finally:
        job.kill()
        job.communicate(timeout=60)
    ctl.run("down")
    assert [path.name for path in ctl.run_dir.iterdir() if path.suffix in (".sock", ".ready")] == []
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, cwd="/")
    assert {line.split()[1] for line in found.stdout.splitlines()} == ports


@pytest.mark.parametrize("lost", ["fabric.json", "run directory"])
def test_down_ends_a_fabric_whose_state_is_lost(fabric: Ctl, lost: str) -> None:
    pids = [process["pid"] for process in fabric.processes()]
    if lost == "fabric.json":
        (fabric.run_dir / "fabric.json").unlink()
    else:
        # At once, because a controller without its store ends and removes its own files.
        fabric.run_dir.rename(fabric.run_dir.with_name("lost"))
    [check] = [check for check in fabric.json("doctor", status=1)["checks"] if check["name"] == "fabric"]
    assert (check["status"], check["remedy"]) == ("failure", "`switchml-ctl down` ends them.")
    # A controller without its store may have ended by itself.
    others = {"agent-0", "ports", "switch-0"}
    assert others <= set(fabric.json("down")["ended"]) <= {*others, "controller"}
    assert not any(runs(pid) for pid in pids)
    assert not list(fabric.run_dir.glob("*.sock"))
    assert fabric.json("down")["ended"] == []


def test_up_replaces_a_fabric_whose_state_is_lost(fabric: Ctl) -> None:
    """Check that `up` refuses if a job still uses the fabric."""
    pids = [process["pid"] for process in fabric.processes()]
    job = fabric.start("job", "start", "--workers", "1", *fabric.worker("waits"))
    wait_until(lambda: fabric.json("job", "list")["jobs"], "the job uses the fabric")
    (fabric.run_dir / "fabric.json").unlink()
    (fabric.run_dir / "fabric.json").write_text("{")
    assert "`switchml-ctl down` ends the processes that it listed" in fabric.run("up", status=1).stderr
    (fabric.run_dir / "fabric.json").unlink()
    assert "jobs still use the processes that it listed" in fabric.run("up", status=1).stderr
    assert all(runs(pid) for pid in pids)
    job.terminate()
    job.communicate(timeout=60)
    again = fabric.run("up")
    [ended] = re.findall("ending the processes of a fabric whose fabric.json is lost: (.*)", again.stderr)
    assert sorted(ended.split(", ")) == ["agent-0", "controller", "ports", "switch-0"]
    assert not any(runs(pid) for pid in pids)
    assert fabric.json("status")["state"] == "running"


def test_up_twice_is_one_fabric(fabric: Ctl) -> None:
    before = fabric.processes()
    assert "already runs" in fabric.run("up").stderr
    assert fabric.processes() == before


def test_up_with_other_options_names_those_that_differ(fabric: Ctl) -> None:
    before = fabric.json("status")["options"]
    fabric.run("up", "--agents", str(before["agents"]), "--transport", "auto")
    fabric.environment["SWITCHML_FABRIC_VALUES"] = "64"
    refused = fabric.run("up", "--agents", str(before["agents"]), "--transport", "udp", status=1)
    differences = f"--transport is shm instead of udp, --values is {before['values']} instead of 64"
    assert f"with other options: {differences}; end it with `switchml-ctl down` first" in refused.stderr
    assert fabric.json("status")["options"] == before


def test_starters_at_the_same_time_make_one_fabric(ctl: Ctl) -> None:
    starters = [ctl.start("up", "--json") for _ in range(4)]
    results = [json.loads(starter.communicate(timeout=60)[0]) for starter in starters]
    assert sorted(result["started"] for result in results) == [False, False, False, True]
    assert len({tuple(process["pid"] for process in result["processes"]) for result in results}) == 1


def test_a_fabric_comes_up_again_after_down_and_keys_go_on(ctl: Ctl) -> None:
    ctl.run("up")
    first = ctl.json("job", "start", "--workers", "2", "--name", "same")
    ctl.run("down")
    ctl.run("up")
    second = ctl.json("job", "start", "--workers", "2", "--name", "same")
    assert second["key"] > first["key"]
    assert second["run_dir"] != first["run_dir"]


def test_a_process_that_has_died_is_named_and_the_fabric_replaced(fabric: Ctl) -> None:
    victim = next(process for process in fabric.processes() if process["name"] == "agent-0")
    os.kill(victim["pid"], signal.SIGKILL)
    status = fabric.start("status", "--json")
    stdout, stderr = status.communicate(timeout=60)
    assert status.returncode == 4
    assert json.loads(stdout)["state"] == "broken"
    assert "agent-0 has ended" in stderr
    again = fabric.run("up")
    assert "removing the fabric whose agent-0 has ended" in again.stderr
    assert fabric.json("status")["state"] == "running"


def kill(fabric: Ctl, name: str) -> None:
    [victim] = [process for process in fabric.processes() if process["name"] == name]
    os.kill(victim["pid"], signal.SIGKILL)
    wait_until(lambda: not runs(victim["pid"]), f"{name} has ended")


def test_the_controller_of_a_broken_fabric_answers_and_later_its_store(fabric: Ctl) -> None:
    fabric.run("job", "start", "--workers", "2", "--name", "done", "--", "true")
    kill(fabric, "switch-0")
    for command in (["agent", "list"], ["top", "--once"], ["events", "--job", "done"]):
        found = fabric.run(*command)
        assert "switch-0 has ended, and its controller still runs" in found.stderr
        assert len(found.stdout.splitlines()) > 0
    kill(fabric, "controller")
    assert fabric.json("job", "show", "done")["state"] == "COMPLETED"
    fabric.run("down")
    found = fabric.run("events", "--last", "3")
    assert "no fabric runs in" in found.stderr
    assert len(found.stdout.splitlines()) == 3
    assert [job["name"] for job in fabric.json("job", "list", "--all")["jobs"]] == ["done"]
    fabric.run("job", "show", "another", status=3)
    fabric.run("events", "--follow", status=4)


def test_down_stops_jobs_in_order_although_an_agent_has_ended(ctl: Ctl) -> None:
    ctl.run("up", "--agents", "2")
    name = ctl.json("job", "start", "--workers", "1")["name"]
    [rank] = ctl.json("job", "show", name)["ranks"]
    kill(ctl, "agent-1" if rank["agent"] == "agent-0" else "agent-0")
    assert ctl.json("down")["jobs_stopped"] == [name]
    assert ctl.json("job", "status", name)["state"] == "STOPPED"


def test_another_process_with_a_recorded_pid_is_not_touched(fabric: Ctl) -> None:
    bystander = subprocess.Popen(["sleep", "60"])
    try:
        state = json.loads((fabric.run_dir / "fabric.json").read_text())
        agent = next(process for process in state["processes"] if process["name"] == "agent-0")
        ProcessRecord(**agent).end(5)
        agent["pid"] = bystander.pid  # as if another process had got this process id
        (fabric.run_dir / "fabric.json").write_text(json.dumps(state))
        assert "agent-0" not in fabric.json("down")["ended"]
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_a_fabric_of_an_earlier_boot_is_replaced(fabric: Ctl) -> None:
    state = json.loads((fabric.run_dir / "fabric.json").read_text())
    (fabric.run_dir / "fabric.json").write_text(json.dumps(state | {"boot": "another"}))
    assert fabric.json("status", status=4)["state"] == "broken"
    # Process ids are meaningless after a reboot; these processes are found by a variable in their environment.
    assert sorted(fabric.json("down")["ended"]) == ["agent-0", "controller", "ports", "switch-0"]
    assert not any(ProcessRecord(**process).alive() for process in state["processes"])


def test_a_daemon_that_does_not_start_is_named_with_its_last_words(ctl: Ctl) -> None:
    ctl.run_dir.mkdir(mode=0o700)
    (ctl.run_dir / "controller.sqlite").mkdir()  # a store cannot be opened there
    failed = ctl.run("up", status=1)
    assert "controller ended with status 1" in failed.stderr
    assert "controller.sqlite" in failed.stderr
    assert ctl.processes() == []


def test_a_long_run_directory_works(ctl: Ctl) -> None:
    long = Ctl(ctl.run_dir.parent / ("long-" * 20) / "run")
    try:
        [agent] = long.json("up")["agents"]
        assert not agent["socket"].startswith(str(long.run_dir))
        assert long.json("job", "start", "--workers", "2", *long.worker("sums"))["state"] == "COMPLETED"
    finally:
        long.run("down")
    assert not Path(agent["socket"]).parent.exists()


def test_doctor_finds_a_live_fabric_healthy(fabric: Ctl) -> None:
    report = fabric.json("doctor")
    assert report["healthy"]
    assert {"fabric", "controller", "switch-0", "agent-0"} <= {check["name"] for check in report["checks"]}


@pytest.mark.parametrize("daemon", ["switchml-switch", "switchml-controller"])
def test_a_busy_port_is_said_to_be_busy(daemon: str, ctl: Ctl) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        address = f"127.0.0.1:{holder.getsockname()[1]}"
        ctl.run_dir.mkdir(mode=0o700)
        arguments = ["--grpc", address, "--udp-port", "1=127.0.0.1:0"]
        if daemon == "switchml-controller":
            arguments = ["--listen", address, "--store", str(ctl.run_dir / "store.sqlite")]
        path = ctl.environment["PATH"].split(":")[0]
        process = subprocess.run([f"{path}/{daemon}", *arguments], capture_output=True, text=True, timeout=60)
    assert process.returncode == 1
    assert address in process.stderr
    assert "in use" in process.stderr
