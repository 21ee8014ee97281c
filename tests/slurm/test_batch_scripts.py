"""examples/slurm/*.sbatch as users submit them."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.slurm.cluster import MEETS, NODES, ROOT, SECONDS, Cluster
from tests.support.fabric_harness import SCRIPTS, WORKERS, wait_until

ALARMING = re.compile("error|cancelled|killed|terminat", re.IGNORECASE)
TORCH_PROGRAMS = next(
    (
        path
        for path in (SCRIPTS, ROOT / ".venv-torch" / "bin")
        if shutil.which("torchrun", path=path) and shutil.which("switchml-agent", path=path)
    ),
    None,
)
ONE_NODE = ("--nodes=1", "--ntasks-per-node=2", "--nodelist=n1")


def lines(cluster: Cluster, job: int) -> list[dict[str, object]]:
    """Return the JSON objects that the ranks of a job have printed."""
    return [json.loads(line) for line in cluster.output(job).splitlines() if line.startswith("{")]


def waits_for_ranks(cluster: Cluster, job: int, ranks: int = 8) -> None:
    """Wait until the ranks of a job have each printed a line."""
    log = cluster.directory() / f"switchml-{job}.log"
    wait_until(lambda: log.exists() and log.read_text().count("here\n") == ranks, f"ranks of job {job}", SECONDS)


def test_a_good_job_prints_only_what_its_ranks_print(cluster: Cluster) -> None:
    job = cluster.submit("ranks.sbatch", *MEETS)
    ended = cluster.ended(job)
    assert (ended.state, ended.exit_status) == ("COMPLETED", 0)
    printed = lines(cluster, job)
    assert [rank["sum"] for rank in printed] == [36] * 8
    assert sorted(int(str(rank["rank"])) for rank in printed) == list(range(8))
    assert len(printed) == len(cluster.output(job).splitlines())
    agents = (cluster.directory() / f"switchml-{job}-agents.log").read_text()
    assert not ALARMING.search(agents)
    assert all(f"registered as {node}-{job} " in agents for node in NODES)


@pytest.mark.long
@pytest.mark.skipif(TORCH_PROGRAMS is None, reason="skipped: no torchrun with SwitchML; make venv-torch")
def test_torchrun_on_each_node(cluster: Cluster) -> None:
    assert TORCH_PROGRAMS is not None
    (cluster.shared / "stop").touch()
    variables = {"PATH": f"{TORCH_PROGRAMS}:/usr/sbin:/usr/bin:/sbin:/bin", "OMP_NUM_THREADS": "1"}
    program = [str(WORKERS / "trains.py"), "--until", "/mnt/stop", "--timeout", str(SECONDS)]
    job = cluster.submit("torchrun.sbatch", *program, **variables)
    ended = cluster.ended(job)
    assert (ended.state, ended.exit_status) == ("COMPLETED", 0), cluster.output(job)
    last = [line for line in lines(cluster, job) if "world_size" in line]
    assert sorted(int(str(line["rank"])) for line in last) == list(range(8))
    # At the end torchrun itself may warn that the other node's has left before it.
    assert not re.search("srun: |slurmstepd|Killed", cluster.output(job))


def test_the_exit_status_is_that_of_the_rank_that_was_killed(cluster: Cluster) -> None:
    job = cluster.submit("ranks.sbatch", *MEETS, "--crash", "1")
    ended = cluster.ended(job)
    assert (ended.state, ended.exit_status) == ("FAILED", 128 + 9)
    told = [line["lost"] for line in lines(cluster, job)]
    assert told
    assert all(lost == [1] for lost in told)


def test_the_exit_status_is_that_of_the_rank_that_failed(cluster: Cluster) -> None:
    job = cluster.submit("ranks.sbatch", "bash", "-c", "if [ $RANK = 3 ]; then exit 7; fi; sleep infinity")
    ended = cluster.ended(job)
    assert (ended.state, ended.exit_status) == ("FAILED", 7)


@pytest.mark.parametrize("how", [("scancel",), ("scancel", "--full", "--signal=KILL")], ids=["SIGTERM", "SIGKILL"])
def test_a_cancelled_job(cluster: Cluster, how: tuple[str, ...]) -> None:
    job = cluster.submit("ranks.sbatch", "sh", "-c", "echo here; sleep infinity")
    waits_for_ranks(cluster, job)
    assert all(f"/tmp/switchml-{job}/agent.sock" in found for found in cluster.left().values())
    cluster.run([*how, str(job)], user="ada.l")
    assert cluster.ended(job).state == "CANCELLED"


def test_a_job_that_is_requeued(cluster: Cluster) -> None:
    program = f'if [ -z "$SLURM_RESTART_COUNT" ]; then echo here; sleep infinity; fi; exec {" ".join(MEETS)}'
    job = cluster.submit("ranks.sbatch", "bash", "-c", program)
    waits_for_ranks(cluster, job)
    cluster.run(["scontrol", "requeue", str(job)], user="ada.l")
    cluster.start_requeued(job)
    ended = cluster.ended(job)
    assert (ended.state, ended.exit_status, ended.restarts) == ("COMPLETED", 0, 1)
    assert [line["sum"] for line in lines(cluster, job)] == [36] * 8


def test_two_jobs_on_one_node(cluster: Cluster) -> None:
    program = f"echo here; until [ -e /mnt/go ]; do sleep 0.1; done; exec {' '.join(MEETS)}"
    jobs = [cluster.submit(*ONE_NODE, "ranks.sbatch", "sh", "-c", program) for _ in range(2)]
    for job in jobs:
        waits_for_ranks(cluster, job, ranks=2)
    assert all(f"/tmp/switchml-{job}/agent.sock" in cluster.left()["n1"] for job in jobs)
    (cluster.shared / "go").touch()
    for job in jobs:
        assert cluster.ended(job).state == "COMPLETED"
        assert [line["sum"] for line in lines(cluster, job)] == [3, 3]


def test_a_job_waits_until_the_licences_that_it_asks_for_are_free(cluster: Cluster) -> None:
    holds = cluster.submit(
        "--licenses=switchml_slots:1024", *ONE_NODE, "ranks.sbatch", "sh", "-c", "echo here; sleep infinity"
    )
    waits_for_ranks(cluster, holds, ranks=2)
    job = cluster.submit("--licenses=switchml_slots:128", *ONE_NODE, "ranks.sbatch", "sh", "-c", "echo $SWITCHML_SLOTS")
    wait_until(lambda: cluster.job(job).reason == "Licenses", "the reason", SECONDS)
    assert cluster.job(job).state == "PENDING"
    cluster.run(["scancel", str(holds)])
    assert cluster.ended(job).state == "COMPLETED"
    assert cluster.output(job) == "128\n128\n"


@pytest.mark.parametrize("kind", ["directory", "link"])
def test_a_directory_that_another_user_has_made_is_not_used(cluster: Cluster, kind: str) -> None:
    job = cluster.submit("--hold", "ranks.sbatch", *MEETS)
    path = f"/tmp/switchml-{job}"
    make = ["mkdir", "-m", "0777", path] if kind == "directory" else ["ln", "-s", "/mnt/home/ada.l", path]
    cluster.run(make, user="bob", node="n2")
    try:
        cluster.run(["scontrol", "release", str(job)], user="ada.l")
        ended = cluster.ended(job)
        assert (ended.state, ended.exit_status) == ("FAILED", 1)
        assert f"cannot remove '{path}': Operation not permitted" in cluster.output(job)
        assert [line for line in cluster.left()["n2"] if line.startswith(path)] == [path]
        assert not list(Path(cluster.shared / "home" / "ada.l").glob("agent*"))
    finally:
        cluster.run(["rm", "-rf", path], node="n2")


def test_without_an_agent_the_job_says_what_is_missing(cluster: Cluster) -> None:
    job = cluster.submit("ranks.sbatch", *MEETS, PATH="/usr/bin:/bin")
    ended = cluster.ended(job)
    assert (ended.state, ended.exit_status) == ("FAILED", 1)
    assert "switchml-agent: command not found" in cluster.output(job)


def test_a_heterogeneous_job_is_refused(cluster: Cluster) -> None:
    job = cluster.submit("--nodes=1", "--ntasks-per-node=1", ":", "--nodes=1", "--ntasks=1", "ranks.sbatch", *MEETS)
    ended = cluster.ended(job)
    assert (ended.state, ended.exit_status) == ("FAILED", 1)
    assert "this is a heterogeneous job" in cluster.output(job)
