"""Jobs from admission to their end, through the command line."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.fabric_harness import Ctl, runs, wait_until

RESULT_KEYS = {"job_id", "name", "workers", "state", "exit_codes", "switch", "run_dir", "seconds"}


def test_a_job_brings_its_fabric_up_and_takes_it_down(ctl: Ctl) -> None:
    result = ctl.json("job", "start", "--workers", "4", "--name", "sums", *ctl.worker("sums"))
    assert result.keys() >= RESULT_KEYS
    assert (result["name"], result["workers"], result["state"]) == ("sums", 4, "COMPLETED")
    assert result["exit_codes"] == [0, 0, 0, 0]
    assert result["switch"]["contributions"] == 0  # ranks on one machine do without it
    logs = sorted(path.name for path in Path(result["run_dir"]).glob("rank-*.log"))
    assert logs == [f"rank-{rank}.log" for rank in range(4)]
    assert ctl.json("status", status=4)["state"] == "none"
    # Logs remain when the fabric has ended.
    assert "rounds right" in ctl.run("job", "logs", "sums", "--rank", "2").stdout


def test_a_job_counts_what_the_switch_adds_up(ctl: Ctl) -> None:
    ctl.environment["SWITCHML_DIRECT"] = "0"
    result = ctl.json("job", "start", "--workers", "4", *ctl.worker("sums"))
    assert result["switch"]["results"] > 100
    assert result["switch"]["contributions"] >= 4 * result["switch"]["results"]


def test_a_job_leaves_a_fabric_of_up_alone(fabric: Ctl) -> None:
    fabric.run("job", "start", "--workers", "2", *fabric.worker("sums"))
    assert fabric.json("status")["state"] == "running"


ENDS = """
import pathlib, sys, time
import numpy as np
import switchml
directory, *statuses = sys.argv[1:]
with switchml.connect() as comm:
    comm.all_reduce(np.ones(10, np.float32))
    rank = comm.rank
pathlib.Path(directory, f"ended-{rank}").touch()
end = time.monotonic() + 60
while not pathlib.Path(directory, "go").exists() and time.monotonic() < end:
    time.sleep(0.02)
sys.exit(int(statuses[rank]))
"""


@pytest.mark.parametrize(
    ("sent", "statuses"),
    [
        (signal.SIGKILL, (0, 0)),
        (signal.SIGKILL, (0, 7)),
        pytest.param(signal.SIGSTOP, (0, 7), marks=pytest.mark.long),  # every call ends at its deadline
    ],
)
def test_exit_codes_do_not_need_the_controller(
    fabric: Ctl, tmp_path: Path, sent: signal.Signals, statuses: tuple[int, int]
) -> None:
    command = ["--", sys.executable, "-c", ENDS, str(tmp_path), *map(str, statuses)]
    job = fabric.start("job", "start", "--workers", "2", "--json", *command)
    wait_until(lambda: len(list(tmp_path.glob("ended-*"))) == 2, "the ranks have done their work")
    [controller] = [process["pid"] for process in fabric.processes() if process["name"] == "controller"]
    os.kill(controller, sent)
    (tmp_path / "go").touch()
    result, notes = job.communicate(timeout=90)
    assert job.returncode == max(statuses), notes
    content = json.loads(result)
    assert content["exit_codes"] == list(statuses)
    assert "the controller does not report how the job ended" in content["failure"]
    assert content["failure"] in notes


def test_workers_find_their_environment(fabric: Ctl) -> None:
    program = "import json, os; print(json.dumps(dict(os.environ)))"
    result = fabric.json("job", "start", "--workers", "2", "--name", "env", "--", sys.executable, "-c", program)
    for rank in range(2):
        [line] = (Path(result["run_dir"]) / f"rank-{rank}.log").read_text().splitlines()
        found = json.loads(line)
        expected = {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": "2",
            "LOCAL_WORLD_SIZE": "2",
            "SWITCHML_RANK": str(rank),
            "SWITCHML_WORLD_SIZE": "2",
            "SWITCHML_JOB": "env",
            "MASTER_ADDR": "127.0.0.1",
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "SWITCHML_JOB_DIR": result["run_dir"],
            "SWITCHML_RUN_DIR": str(fabric.run_dir),
            "SWITCHML_CONTROLLER": f"unix:{fabric.run_dir}/controller.sock",
        }
        assert {name: found[name] for name in expected} == expected
        assert Path(found["SWITCHML_AGENT"]).is_socket()
        assert 0 < int(found["MASTER_PORT"]) < 65536


def test_output_is_prefixed_on_stderr(fabric: Ctl) -> None:
    result = fabric.run("job", "start", "--workers", "2", "--json", "--", "sh", "-c", "echo hello from $RANK")
    json.loads(result.stdout)
    assert "[0] hello from 0\n" in result.stderr
    assert "[1] hello from 1\n" in result.stderr
    assert "\x1b" not in result.stderr


def test_a_ready_job_is_attached_to_by_hand_and_completes(ctl: Ctl) -> None:
    started = ctl.json("job", "start", "--workers", "2", "--name", "by-hand")
    assert started["state"] == "READY"
    assert ctl.json("status")["state"] == "running"  # the fabric continues to run for it
    processes = []
    for variables in started["attach"]:
        other = Ctl(ctl.run_dir)
        other.environment |= {name: value for name, value in variables.items() if name != "host"}
        other.environment |= {"RANK": variables["SWITCHML_RANK"], "WORLD_SIZE": "2"}
        command = other.worker("sums")[1:]
        processes.append(subprocess.Popen(command, env=other.environment))
    assert [process.wait(60) for process in processes] == [0, 0]
    watched = ctl.run("job", "watch", "by-hand")
    assert "COMPLETED" in watched.stdout.splitlines()[-1]
    assert ctl.json("status")["state"] == "running"


def test_two_jobs_at_the_same_time_are_both_right(fabric: Ctl) -> None:
    runs = [
        fabric.start(
            "job", "start", "--workers", "4", "--json", *fabric.worker("sums", "--seed", seed, "--seconds", "2")
        )
        for seed in ("1", "2")
    ]
    results = [json.loads(run.communicate(timeout=90)[0]) for run in runs]
    assert [result["state"] for result in results] == ["COMPLETED", "COMPLETED"]
    assert results[0]["job_id"] != results[1]["job_id"]


def test_concurrent_jobs_without_up_share_one_fabric_that_ends_with_the_last(ctl: Ctl, tmp_path: Path) -> None:
    over = tmp_path / "over"
    short = ctl.start("job", "start", "--workers", "2", "--json", *ctl.worker("sums"))
    long = ctl.start("job", "start", "--workers", "2", "--json", *ctl.worker("sums", "--until", str(over)))
    outputs = {}
    outputs["short"] = short.communicate(timeout=60)
    assert long.poll() is None
    assert ctl.json("status")["state"] == "running"
    processes = ctl.processes()
    over.touch()
    outputs["long"] = long.communicate(timeout=60)
    for name, (stdout, stderr) in outputs.items():
        assert json.loads(stdout)["state"] == "COMPLETED", (name, stderr)
    assert ctl.json("status", status=4)["state"] == "none"
    assert not any(runs(process["pid"]) for process in processes)


def test_stop_frees_the_slots(ctl: Ctl) -> None:
    ctl.run("up", "--slots", "1024")
    job = ctl.json("job", "start", "--workers", "2", "--slots", "1024", "--name", "all-of-it")
    [switch] = ctl.json("switch", "list")["switches"]
    assert switch["slots_free"] == 0
    refused = ctl.json("job", "start", "--workers", "2", "--slots", "512", status=3)
    assert refused["error"] == "NoRoom"
    assert "512" in refused["message"]
    assert refused["figures"]
    assert ctl.json("job", "stop", str(job["job_id"]))["state"] == "STOPPED"
    assert ctl.json("job", "stop", "all-of-it")["state"] == "STOPPED"
    [switch] = ctl.json("switch", "list")["switches"]
    assert switch["slots_free"] == 1024
    detail = ctl.json("switch", "show")
    assert detail["groups"] == []
    assert not [entry for entry in detail["entries"] if entry["table"].endswith("worker_table")]
    assert ctl.json("job", "start", "--workers", "2", "--slots", "512")["state"] == "READY"


def test_a_second_job_of_the_same_name_is_refused(fabric: Ctl) -> None:
    fabric.run("job", "start", "--workers", "2", "--name", "one")
    refused = fabric.json("job", "start", "--workers", "2", "--name", "one", *fabric.worker("sums"), status=3)
    assert refused["error"] == "JobExists"
    assert "one" in refused["message"]
    fabric.run("job", "stop", "one")
    fabric.run("job", "start", "--workers", "2", "--name", "one", *fabric.worker("sums"))


@pytest.mark.parametrize(
    ("arguments", "error", "status"),
    [
        (("--switch", "nowhere"), "SwitchNotFound", 3),
        (("--slots", "7"), "InvalidRequest", 2),
        (("--name", "a/b"), "InvalidRequest", 2),
    ],
)
def test_what_the_controller_refuses(arguments: tuple[str, ...], error: str, status: int, fabric: Ctl) -> None:
    assert fabric.json("job", "start", "--workers", "2", *arguments, status=status)["error"] == error
    assert fabric.json("job", "list")["jobs"] == []


def test_jobs_that_do_not_exist(fabric: Ctl) -> None:
    for command in ("show", "stop", "watch"):
        assert fabric.json("job", command, "99", status=3)["error"] == "JobNotFound"


@pytest.mark.parametrize(("how", "exit_code"), [("exit", 5), ("kill", 128 + signal.SIGKILL), ("raise", 1)])
def test_a_rank_that_fails_is_named_and_its_status_passed_on(
    how: str, exit_code: int, fabric: Ctl, limit: Callable[[float], float]
) -> None:
    result = fabric.json(
        "job", "start", "--workers", "4", "--name", "doomed", *fabric.worker("fails", how), status=exit_code
    )
    assert result["state"] == "FAILED"
    assert "rank 1" in result["failure"]
    assert result["exit_codes"] == [3, exit_code, 3, 3]
    for rank in (0, 2, 3):
        log = (Path(result["run_dir"]) / f"rank-{rank}.log").read_text()
        name, seconds = re.findall(r"^(WorkerLost|JobEnded) after ([\d.]+) s", log, re.MULTILINE)[0]
        assert name == "WorkerLost"
        assert float(seconds) < limit(2)
    shown = fabric.json("job", "show", "doomed")
    assert shown["state"] == "FAILED"
    assert shown["ranks"][1]["exit_code"] == exit_code
    [switch] = fabric.json("switch", "list")["switches"]
    assert switch["slots_free"] == switch["slots"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_job_and_the_fabric_it_started(number: signal.Signals, ctl: Ctl) -> None:
    process = ctl.start("job", "start", "--workers", "3", "--json", *ctl.worker("waits"))
    assert process.stderr is not None
    attached = 0
    while attached < 3:
        line = process.stderr.readline()
        assert line, "the job has ended before it was interrupted"
        attached += "attached" in line
    processes = ctl.processes()
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 128 + number, stderr
    assert json.loads(stdout)["state"] == "STOPPED"
    assert not any(runs(entry["pid"]) for entry in processes)
    assert ctl.json("status", status=4)["state"] == "none"


def test_an_interrupt_while_the_fabric_starts_leaves_nothing(ctl: Ctl) -> None:
    process = ctl.start("job", "start", "--workers", "2", *ctl.worker("waits"))
    assert process.stderr is not None
    assert "starting switch" in process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert ctl.processes() == []


def test_a_killed_launcher_leaves_a_fabric_that_the_next_job_uses(ctl: Ctl) -> None:
    process = ctl.start(
        "job", "start", "--workers", "2", "--name", "orphan", *ctl.worker("waits"), start_new_session=True
    )
    assert process.stderr is not None
    attached = 0
    while attached < 2:  # a rank that prints later would be killed by SIGPIPE
        line = process.stderr.readline()
        assert line
        attached += "attached" in line
    process.kill()
    process.communicate()
    [job] = ctl.json("job", "list")["jobs"]
    ctl.run("job", "stop", job["name"])
    assert ctl.json("job", "start", "--workers", "2", *ctl.worker("sums"))["state"] == "COMPLETED"
    assert ctl.json("status", status=4)["state"] == "none"


def test_workers_that_never_attach(fabric: Ctl) -> None:
    result = fabric.json("job", "start", "--workers", "2", "--", "true")
    assert result["exit_codes"] == [0, 0]
    assert fabric.json("job", "list")["jobs"] == []
    assert [job["id"] for job in fabric.json("job", "list", "--all")["jobs"]] == [result["job_id"]]


def test_a_rank_that_is_late_with_one_of_several_tensors(fabric: Ctl) -> None:
    assert fabric.json("job", "start", "--workers", "2", *fabric.worker("late"))["state"] == "COMPLETED"


def test_sixty_four_workers(fabric: Ctl) -> None:
    script = "import numpy, switchml\nwith switchml.connect() as c:\n x = numpy.full(999, c.rank, numpy.int32)\n"
    script += " c.all_reduce(x)\n assert (x == 64 * 63 // 2).all()\n"
    result = fabric.json("job", "start", "--workers", "64", "--", sys.executable, "-c", script)
    assert result["exit_codes"] == [0] * 64
    assert result["state"] == "COMPLETED"


def test_a_program_with_a_daemon_thread_ends_without_a_word(fabric: Ctl) -> None:
    """End while the frame of a thread keeps the main program's variables, so that nothing in them is destroyed."""
    script = "import threading, switchml\nc = switchml.connect()\nstarted = threading.Event()\n"
    script += "def wait():\n started.set()\n threading.Event().wait()\n"
    script += "threading.Thread(target=wait, daemon=True).start()\nstarted.wait()\nc.barrier()\nc.close()\n"
    run = fabric.start("job", "start", "--workers", "2", "--name", "quiet", "--", sys.executable, "-c", script)
    _, stderr = run.communicate(timeout=120)
    assert run.returncode == 0, stderr
    assert "leak" not in stderr


@pytest.mark.parametrize("every", [False, True])
def test_logs_follow_a_command_to_its_end(every: bool, fabric: Ctl, tmp_path: Path) -> None:
    """Check that no output is lost, including lines written after the rank has left the job."""
    script = "import pathlib, sys, time, switchml\nwith switchml.connect() as c:\n"
    script += " while not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.05)\n"
    script += "print('it has left', flush=True)\ntime.sleep(1)\nprint('rank', c.rank, 'ends')"
    go = tmp_path / "go"
    run = fabric.start("job", "start", "--workers", "2", "--name", "talk", "--", sys.executable, "-c", script, str(go))
    wait_until(lambda: [job["state"] for job in fabric.json("job", "list")["jobs"]] == ["RUNNING"], "it runs")
    follow = fabric.start("job", "logs", "talk", "--follow", *([] if every else ["--rank", "1"]))
    go.touch()
    stdout, stderr = follow.communicate(timeout=60)
    run.communicate(timeout=60)
    assert follow.returncode == 0, stderr
    if every:
        assert sorted(stdout.splitlines()) == [
            *("[0] it has left", "[0] rank 0 ends", "[1] it has left", "[1] rank 1 ends"),
        ]
    else:
        assert stdout.splitlines() == ["it has left", "rank 1 ends"]


def test_switch_show_prints_what_is_installed(fabric: Ctl) -> None:
    fabric.run("job", "start", "--workers", "3", "--name", "shown")
    detail = fabric.json("switch", "show")
    tables = {entry["table"].rpartition(".")[2] for entry in detail["entries"]}
    assert {"worker_table", "rank_table", "job_table"} <= tables
    [group] = detail["groups"]
    assert [replica["instance"] for replica in group["replicas"]] == [0, 1, 2]
    text = fabric.run("switch", "show").stdout
    assert "worker_table (3)" in text
    assert "0-2" in text
    assert "127.0.0.1" in text


def test_agents_are_listed_with_their_ranks(fabric: Ctl) -> None:
    fabric.run("job", "start", "--workers", "3")
    [agent] = fabric.json("agent", "list")["agents"]
    assert agent["live"]
    assert agent["ranks_in_use"] == 3
    assert agent["registration"]["name"] in fabric.run("agent", "list").stdout
    assert Path(agent["registration"]["socket"]).is_socket()
