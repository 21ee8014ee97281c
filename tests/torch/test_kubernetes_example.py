"""The pods of examples/kubernetes without Kubernetes: commands, variables, host names and mounts, as processes.

Each pod is a mount and a UTS namespace. They share a network namespace, in which the names that the headless Service
gives them stand for loopback. Their agent is one of the fabric, their image is this environment.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from switchml.topologies.namespaces import run_ip
from tests.support.fabric_harness import Ctl, needs_namespaces

EXAMPLES = Path(__file__).parents[2] / "examples" / "kubernetes"
WORKER = Path(__file__).parent / "torchrun_worker.py"
SECONDS = 300  # for starts of up to eight processes that import PyTorch, on a machine with other work
pytestmark = [pytest.mark.timeout(2 * SECONDS), needs_namespaces]

# Arguments: the host's name, its /etc/hosts, the agent's socket, the path of that in the pod, and the pod's command.
POD = """
set -e
hostname "$1"
mount --bind "$2" /etc/hosts
mount -t tmpfs pod /run
mkdir "${4%/*}"
touch "$4"
mount --bind "$3" "$4"
shift 4
exec "$@"
"""


class Pods:
    """The pods of one job, whose only container has the programs of the test in place of those of its image."""

    def __init__(self, network: str, agent: str, directory: Path) -> None:
        self.directory = directory
        self._network = network
        self._agent = agent
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, index: int, names: list[str], command: list[str], environment: Mapping[str, str]) -> None:
        """Start the pod of an index; `names` are those of all pods in the network."""
        host = names[index].partition(".")[0]
        hosts = self.directory / f"hosts-{index}"
        hosts.write_text(f"127.0.0.1 localhost {' '.join(names)} {host}\n")
        programs = {
            "python": [sys.executable],
            "torchrun": [sys.executable, "-m", "torch.distributed.run"],
            "/workspace/train.py": [str(WORKER), str(self.directory)],
        }
        replaced = [word for part in command for word in programs.get(part, [part])]
        pod = ["sh", "-c", POD, "pod", host, str(hosts), self._agent, environment["SWITCHML_AGENT"], *replaced]
        separate = ["ip", "netns", "exec", self._network, "unshare", "--mount", "--uts", "--propagation", "private"]
        variables = {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1", **environment}
        self._running.append(subprocess.Popen([*separate, *pod], env=variables))

    def wait(self) -> list[int]:
        """Return how the pods end."""
        return [each.wait(SECONDS) for each in self._running]

    def end(self) -> None:
        for each in self._running:
            each.kill()
            each.wait(SECONDS)


@pytest.fixture
def pods(fabric: Ctl, tmp_path: Path) -> Iterator[Pods]:
    network = f"switchml-pods-{os.getpid()}"
    agent = json.loads((fabric.run_dir / "fabric.json").read_text())["agents"][0]
    run_ip([f"netns add {network}"])
    try:
        run_ip(["link set lo up"], network)
        made = Pods(network, agent["socket"], tmp_path)
        yield made
        made.end()
    finally:
        run_ip([f"netns del {network}"])


def documents(name: str) -> dict[str, dict[str, Any]]:
    return {each["kind"]: each for each in yaml.safe_load_all((EXAMPLES / name).read_text())}


def environment_of(container: dict[str, Any], annotations: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a container as the kubelet makes them."""
    found = {}
    for entry in container["env"]:
        if "value" in entry:
            found[entry["name"]] = entry["value"]
        else:
            path = entry["valueFrom"]["fieldRef"]["fieldPath"]
            found[entry["name"]] = annotations[path.removeprefix("metadata.annotations['").removesuffix("']")]
    return found


def check_ranks(pods: Pods, fabric: Ctl, ranks: int) -> None:
    assert pods.wait() == [0] * ranks
    said = [json.loads((pods.directory / f"0-{rank}.json").read_text()) for rank in range(ranks)]
    assert [each["total"] for each in said] == [ranks * (ranks + 1) / 2] * ranks
    newest = fabric.json("job", "list", "--all")["jobs"][-1]
    assert newest["workers"] == ranks


def test_the_pods_of_the_indexed_job_are_the_ranks_of_a_job(fabric: Ctl, pods: Pods) -> None:
    job = documents("job.yaml")["Job"]
    specification = job["spec"]
    pod, ranks = specification["template"]["spec"], specification["completions"]
    [container] = pod["containers"]
    names = [f"{job['metadata']['name']}-{index}.{pod['subdomain']}" for index in range(ranks)]
    for index in range(ranks):
        annotations = {"batch.kubernetes.io/job-completion-index": str(index)}
        environment = {**environment_of(container, annotations), "JOB_COMPLETION_INDEX": str(index)}
        pods.start(index, names, container["command"], environment)
    check_ranks(pods, fabric, ranks)


def test_the_pods_of_the_train_job_run_torchrun(fabric: Ctl, pods: Pods) -> None:
    train_job, runtime = documents("trainjob.yaml")["TrainJob"], documents("runtime.yaml")["ClusterTrainingRuntime"]
    name, trainer = train_job["metadata"]["name"], train_job["spec"]["trainer"]
    [replicated] = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    [container] = replicated["template"]["spec"]["template"]["spec"]["containers"]
    # Kubeflow's names of the pods, and its variables: without a request for resources a pod has one rank.
    names = [f"{name}-{replicated['name']}-0-{index}.{name}" for index in range(trainer["numNodes"])]
    for index in range(len(names)):
        given = {
            "PET_NNODES": str(len(names)),
            "PET_NPROC_PER_NODE": "1",
            "PET_NODE_RANK": str(index),
            "PET_MASTER_ADDR": names[0],
            "PET_MASTER_PORT": "29500",
        }
        pods.start(index, names, trainer["command"], {**environment_of(container, {}), **given})
    check_ranks(pods, fabric, len(names))
