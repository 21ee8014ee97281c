"""examples/slurm/site: Prolog, Epilog and TaskProlog, with which `srun python train.py` needs nothing else."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.slurm.cluster import MEETS, SECONDS, USERS, Cluster
from tests.support.fabric_harness import wait_until

NOTHING: dict[str, list[str]] = {"n1": [], "n2": []}
OPTIONS = "--output=switchml-%j.log"


def srun(cluster: Cluster, *arguments: str, user: str = "ada.l") -> subprocess.CompletedProcess[str]:
    return cluster.run(["srun", *arguments], user, check=False)


def said(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def script(cluster: Cluster, text: str, *options: str) -> int:
    """Submit a batch script of ada.l."""
    file = cluster.shared / "script.sh"
    file.write_text(f"#!/bin/bash\n{text}\n")
    return cluster.submit(OPTIONS, *options, "/mnt/script.sh")


def started(cluster: Cluster, job: int) -> None:
    """Wait until a batch job has printed a line."""
    log = cluster.directory() / f"switchml-{job}.log"
    wait_until(lambda: log.exists() and "here\n" in log.read_text(), f"job {job} runs", SECONDS)


def test_srun_alone_starts_ranks_with_agents(site: Cluster) -> None:
    done = srun(site, "-N2", "-n4", *MEETS)
    assert done.returncode == 0, done.stderr
    assert [rank["sum"] for rank in said(done.stdout)] == [10] * 4
    assert len(done.stdout.splitlines()) == 4


def test_the_variables_of_a_task(site: Cluster) -> None:
    """Check MASTER_ADDR in particular: the job's nodes are n[1-2]."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    done = srun(site, "-N2", "-n4", "--ntasks-per-node=2", "--label", "printenv", *names)
    tasks: dict[int, list[str]] = {}
    for task, value in re.findall(r"^(\d): (.*)$", done.stdout, re.MULTILINE):
        tasks.setdefault(int(task), []).append(value)
    port = tasks[0][-1]
    assert tasks == {task: [str(task), "4", str(task % 2), "n1", port] for task in range(4)}


def test_the_agent_is_a_process_of_the_user_without_privileges(site: Cluster) -> None:
    show = 'grep "^Uid\\|^Gid\\|^Groups\\|^Cap\\|^NoNew" /proc/$(cat /run/switchml-slurm/$SLURM_JOB_ID.pid)/status'
    status = dict(line.split(":\t") for line in srun(site, "-n1", "sh", "-c", show).stdout.splitlines())
    number = str(USERS["ada.l"])
    assert status["Uid"].split() == status["Gid"].split() == [number] * 4
    assert status["Groups"].strip() == ""
    assert {int(status[f"Cap{name}"], 16) for name in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {0}
    assert status["NoNewPrivs"] == "1"


def test_a_batch_script_is_not_a_rank(site: Cluster) -> None:
    job = script(site, "printenv RANK WORLD_SIZE; printenv SWITCHML_AGENT")
    assert site.ended(job).state == "COMPLETED"
    assert site.output(job) == f"/run/switchml-slurm/{job}/agent.sock\n"


def test_steps_that_overlap_are_jobs_of_their_own(site: Cluster) -> None:
    step = f"srun --overlap {' '.join(MEETS)}"
    job = script(site, f"{step} & {step} & wait", "-N2", "-n4")
    assert site.ended(job).state == "COMPLETED"
    ranks = said(site.output(job))
    assert [rank["sum"] for rank in ranks] == [10] * 8
    assert len({rank["job"] for rank in ranks}) == 2


@pytest.mark.parametrize("first", ["n1", "n2"])
def test_a_heterogeneous_job(site: Cluster, first: str) -> None:
    second = {"n1": "n2", "n2": "n1"}[first]
    program = ["sh", "-c", f"printenv MASTER_ADDR; exec {' '.join(MEETS)}"]
    done = srun(site, "-w", first, "-n1", *program, ":", "-w", second, "-n2", *program)
    assert done.returncode == 0, done.stderr
    assert [rank["sum"] for rank in said(done.stdout)] == [6] * 3
    assert done.stdout.splitlines().count(first) == 3  # where rank 0 is


def test_the_pool_has_as_many_slots_as_the_job_has_licences(site: Cluster) -> None:
    assert srun(site, "-n1", "-L", "switchml_slots:64", "printenv", "SWITCHML_SLOTS").stdout == "64\n"
    assert srun(site, "-n1", "printenv", "SWITCHML_SLOTS").stdout == ""


def test_a_rank_that_crashes(site: Cluster) -> None:
    done = srun(site, "-N2", "-n4", *MEETS, "--crash", "1")
    assert done.returncode == 128 + 9
    assert [rank["lost"] for rank in said(done.stdout)] == [[1]] * 3


def test_a_job_that_is_cancelled_or_requeued_leaves_nothing(site: Cluster) -> None:
    job = script(site, "srun sh -c 'echo here; sleep infinity'", "-N2", "-n2")
    started(site, job)
    for found in site.left().values():
        assert f"/run/switchml-slurm/{job}/agent.sock" in found
    site.run(["scontrol", "requeue", str(job)], user="ada.l")
    (site.directory() / f"switchml-{job}.log").unlink()
    site.start_requeued(job)
    started(site, job)
    site.run(["scancel", str(job)], user="ada.l")
    assert site.ended(job).state == "CANCELLED"
    assert site.left() == NOTHING


def test_two_users_jobs_on_one_node_are_apart(site: Cluster) -> None:
    job = script(site, "echo here; sleep infinity", "-w", "n1")
    started(site, job)
    look = f"ls /run/switchml-slurm/{job}; ls /run/switchml-slurm; mkdir /run/switchml-slurm/99"
    done = srun(site, "-w", "n1", "-n1", "sh", "-c", f"{look}; exec {' '.join(MEETS)}", user="bob")
    assert [rank["sum"] for rank in said(done.stdout)] == [1]
    assert {str(job), str(job + 1)} <= set(done.stdout.split())
    assert done.stderr.count("Permission denied") == 2


def test_without_an_agent_the_job_runs_and_is_told(site: Cluster) -> None:
    site.install_site_scripts(path="/usr/sbin:/usr/bin:/sbin:/bin")
    done = srun(site, "-w", "n1", "-n2", *MEETS)
    assert done.returncode != 0
    [told] = [line for line in done.stdout.splitlines() if not line.startswith("{")]
    assert told.startswith("SwitchML has no agent on n1: ")
    assert told.endswith("switchml-agent: not found")
    assert all("there is no agent socket at" in str(rank["message"]) for rank in said(done.stdout))


def test_without_the_controller_the_job_runs_and_says_so(site: Cluster) -> None:
    site.stop_controller()
    try:
        done = srun(site, "-n1", *MEETS, "--timeout", "2")
    finally:
        site.start_controller()
    [rank] = said(done.stdout)
    assert rank["reason"] == "ControllerUnavailable"
    assert "controller" in str(rank["message"])


def test_root_runs_nothing_that_the_user_chooses(site: Cluster) -> None:
    """Check that neither the user's PATH nor shell or loader variables reach Prolog and Epilog."""
    evil = site.shared / "home" / "ada.l" / "evil"
    evil.mkdir()
    for name in ("cat", "grep", "id", "ip", "kill", "mount", "mountpoint", "rm", "rmdir", "sed", "setpriv", "squeue"):
        program = evil / name
        program.write_text("#!/bin/bash -p\necho $UID >>/mnt/ran\n")
        program.chmod(0o755)
    (site.shared / "ran").touch()
    (site.shared / "ran").chmod(0o666)
    variables = {"BASH_ENV": f"/mnt/home/ada.l/evil/{name}", "ENV": f"/mnt/home/ada.l/evil/{name}"}
    path = f"/mnt/home/ada.l/evil:{Path(MEETS[0]).parent}:/usr/bin:/bin"
    comment = "--comment=$(/mnt/home/ada.l/evil/id)"
    command = f"PATH={path} exec srun --export=ALL --job-name='`/mnt/home/ada.l/evil/id`' -n1 '{comment}' /bin/true"
    done = site.run(["sh", "-c", command], "ada.l", variables=variables)
    assert done.returncode == 0
    site.wait_idle()
    assert "0" not in (site.shared / "ran").read_text().split()
    assert site.left() == NOTHING


HOSTILE = r"""
directory=$(dirname "$SWITCHML_AGENT")
cat "$(dirname "$directory")/$SLURM_JOB_ID.pid"
kill -KILL "$(cat "$(dirname "$directory")/$SLURM_JOB_ID.pid")"
rm -rf "$directory"/*
ln -s /mnt/victim "$directory/agent.sock"
ln -s /mnt "$directory/agent.ready"
mkdir -p "$directory/a/b/c"
chmod 0 "$directory/a"
head -c 100000000 /dev/zero >"$directory/full"
stat --format=%s "$directory/full"
"""


def test_a_hostile_user_cannot_turn_root_against_others(site: Cluster) -> None:
    victim = site.shared / "victim"
    victim.mkdir()
    (victim / "file").write_text("precious")
    job = script(site, HOSTILE)
    assert site.ended(job).state == "COMPLETED", site.output(job)
    assert (victim / "file").read_text() == "precious"
    size = int(site.output(job).split()[-1])
    assert size <= 4 << 20, "the user can fill /run"


def test_the_epilog_signals_only_the_jobs_agent(site: Cluster) -> None:
    """Check an agent that has ended, and whose process number another process has."""
    other = site.run(["sh", "-c", "sleep infinity >/dev/null 2>&1 & echo $!"], user="bob").stdout.strip()
    job = script(site, "echo here; until [ -e /mnt/end ]; do sleep 0.1; done", "-w", "n1")
    started(site, job)
    ended = f"read agent </run/switchml-slurm/{job}.pid; kill $agent; echo {other} >/run/switchml-slurm/{job}.pid"
    site.run(["bash", "-c", ended], node="n1")
    (site.shared / "end").touch()
    site.ended(job)
    site.run(["kill", "-0", other])
    site.run(["kill", other])
