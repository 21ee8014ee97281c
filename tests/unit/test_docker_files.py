"""The files of docker/ agree with each other and with the project, as far as this can be checked without Docker."""

import ast
import re
import sys
from importlib.metadata import distribution
from ipaddress import IPv4Address
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ptf_tests import namespace
from switchml.dataplane.softswitch.daemon import main as switch_command
from switchml.host_agent.daemon import main as agent_command
from switchml.topologies.topology import PACKAGED, load

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
IN_IMAGE = PurePosixPath("/opt/switchml")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
COMPOSE = yaml.safe_load((DOCKER / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
DOCKERFILE = (DOCKER / "Dockerfile").read_text()
DIGEST = re.compile(r"[\w./-]+(:[\w.-]+)?@sha256:[0-9a-f]{64}")
ROOT_SERVICES = {"bmv2", "bmv2-packet-tests"}
NETWORK = "bmv2-network"  # it only holds the network namespace
TRIALS = {"demo", "packet-tests", "bmv2-demo", "bmv2-packet-tests"}
TARGETS = {"bmv2": "bmv2", "bmv2-packet-tests": "bmv2", **dict.fromkeys(("demo", "packet-tests", "bmv2-demo"), "test")}
IMAGES = {"switchml": "switchml", "test": "switchml-test", "bmv2": "switchml-bmv2"}
DAEMONS = {name for name, service in SERVICES.items() if "healthcheck" in service}


def commands(service: dict[str, Any]) -> list[list[str]]:
    """Return the commands that run in a service's container: its command and its health check."""
    check = service.get("healthcheck", {}).get("test", ["CMD"])
    assert check[0] == "CMD"
    return [service["command"], *([check[1:]] if check[1:] else [])]


def test_both_fabrics_have_everything() -> None:
    profiles = {name: service["profiles"] for name, service in SERVICES.items()}
    assert all(len(found) == 1 for found in profiles.values())
    soft = {name for name, [profile] in profiles.items() if profile == "soft"}
    assert soft == {"switch", "controller", "agent", "demo", "packet-tests"}
    assert SERVICES["agent"]["deploy"]["replicas"] == 8
    agents = {f"bmv2-agent-{number}" for number in range(1, 9)}
    others = {"bmv2-network", "bmv2", "bmv2-controller", "bmv2-demo", "bmv2-packet-tests"}
    assert SERVICES.keys() - soft == others | agents


@pytest.mark.parametrize("name", sorted(SERVICES.keys() - {NETWORK}))
def test_what_a_service_runs_exists(name: str) -> None:
    for command in commands(SERVICES[name]):
        program, *arguments = [word for word in command if word not in ("-I", "-S")]
        if program == "python":
            program, *arguments = arguments
        else:
            assert (DOCKER / PurePosixPath(program).name).stat().st_mode & 0o111, f"{program} is not executable"
        path = PurePosixPath(program)
        assert path.parent == IN_IMAGE / "docker"
        assert (DOCKER / path.name).is_file()
        if path.name == "healthy.py":
            checks = re.search(r"^CHECKS = .* in \((.*)\)}$", (DOCKER / path.name).read_text(), re.MULTILINE)
            assert checks is not None
            assert arguments[0] in checks[1].split(", ")


def test_what_scripts_run_is_an_entry_point() -> None:
    entry_points = PROJECT["project"]["scripts"].keys()
    for script in DOCKER.glob("*.sh"):
        assert script.read_text().startswith("#!/bin/sh\n# "), f"{script.name} does not say what it is for"
        for program in re.findall(r"^exec (switchml-\w+)", script.read_text(), re.MULTILINE):
            assert program in entry_points, script


def scripts_of(service: dict[str, Any]) -> str:
    """Return the text of every script that runs in a service's container."""
    return "".join(
        (DOCKER / PurePosixPath(word).name).read_text()
        for command in commands(service)
        for word in command
        if word.startswith(str(IN_IMAGE))
    )


def test_every_variable_that_a_service_sets_is_read_by_its_scripts() -> None:
    for name, service in SERVICES.items():
        read = re.findall(r"SWITCHML_\w+", scripts_of(service))
        # switchml-ctl reads the first variable in any container; all services of BMv2's fabric share the second.
        shared = {"SWITCHML_CONTROLLER"} | ({"SWITCHML_P4RUNTIME"} if "bmv2" in service["profiles"] else set())
        for variable in service.get("environment", {}).keys() - shared - {"SWITCHML_PTF_NAMESPACE"}:
            assert variable in read, f"{name} sets {variable}, which nothing in it reads"


def test_every_variable_that_a_script_needs_is_set() -> None:
    image = set(re.findall(r"^(?:ENV| {3}) (\w+)=", DOCKERFILE, re.MULTILINE))
    for name, service in SERVICES.items():
        environment = service.get("environment", {}).keys() | image
        for variable in re.findall(r"\$(SWITCHML_\w+)", scripts_of(service)):
            assert variable in environment, f"{name} does not set {variable}"
        [*checked] = service.get("healthcheck", {}).get("test", [])[-1:]
        needed = {
            "switch": "SWITCHML_P4RUNTIME",
            "controller": "SWITCHML_CONTROLLER_METRICS",
            "agent": "SWITCHML_AGENT_METRICS",
        }
        assert {needed[check] for check in checked} <= environment, f"{name} cannot be checked"


def test_services_wait_for_health_and_never_for_time() -> None:
    for name, service in SERVICES.items():
        for other, how in service.get("depends_on", {}).items():
            assert how["condition"] == ("service_started" if other == NETWORK else "service_healthy"), (
                f"{name} -> {other}"
            )
            assert other in DAEMONS | {NETWORK}
    assert not [script.name for script in DOCKER.iterdir() if "sleep" in script.read_text()]
    assert SERVICES["demo"]["depends_on"].keys() == {"agent"}
    assert SERVICES["bmv2-demo"]["depends_on"].keys() == {name for name in DAEMONS if "bmv2" in name} - {
        "bmv2-controller"
    }


@pytest.mark.parametrize("name", SERVICES)
def test_privileges(name: str) -> None:
    service = SERVICES[name]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["read_only"] is True
    assert not {"privileged", "pid", "ipc", "devices", "ports", "secrets", "env_file"} & service.keys()
    assert not [volume for volume in service.get("volumes", []) if volume.split(":")[0] not in COMPOSE["volumes"]]
    if name in ROOT_SERVICES:
        assert service["user"] == "0:0"
        assert service["cap_add"] == ["NET_ADMIN", "NET_RAW"]
    else:
        assert "user" not in service  # the image's
        assert "cap_add" not in service


def test_networks_do_not_reach_out() -> None:
    assert COMPOSE["networks"] == {"fabric": {"internal": True}}
    for name, service in SERVICES.items():
        if "networks" in service:
            assert service["networks"] == ["fabric"], name
        else:
            alone = name in {NETWORK, "packet-tests", "bmv2-packet-tests"}
            assert service["network_mode"] == ("none" if alone else f"service:{NETWORK}"), name


@pytest.mark.parametrize("name", SERVICES)
def test_daemons_are_started_again_and_trials_are_not(name: str) -> None:
    assert SERVICES[name].get("restart") == (None if name in TRIALS else "unless-stopped")


def test_images_are_built_here_at_the_version_of_the_project() -> None:
    stages = re.findall(r"^FROM \S+ AS (\S+)$", DOCKERFILE, re.MULTILINE)
    for name, service in SERVICES.items():
        image, _, tag = service["image"].partition(":")
        target = TARGETS.get(name, "switchml")
        assert tag == PROJECT["project"]["version"], name
        assert target in stages
        assert service["build"]["target"] == target, name
        assert image == IMAGES[target], name
        assert (
            DOCKER / service["build"]["context"] / service["build"]["dockerfile"]
        ).resolve() == DOCKER / "Dockerfile"


def test_base_images_are_pinned_and_users_are_not_root() -> None:
    stages: set[str] = set()
    users: dict[str, str] = {}
    for line in DOCKERFILE.splitlines():
        if line.startswith("FROM "):
            _, base, _, stage = line.split()
            assert base in stages or DIGEST.fullmatch(base), f"{base} is not pinned by a digest"
            assert ":latest" not in base
            stages.add(stage)
            users[stage] = users.get(base, "0:0")
        elif line.startswith("USER "):
            users[stage] = line.split()[1]
    assert [users[target] for target in IMAGES] == ["10001:10001"] * len(IMAGES)


def test_the_label_is_the_version_of_the_project() -> None:
    assert f"org.opencontainers.image.version={PROJECT['project']['version']} " in DOCKERFILE


def test_an_edit_of_a_source_downloads_nothing_again() -> None:
    """Stages that install packages copy only the requirements files and the script."""
    stages = dict(re.findall(r"^FROM \S+ AS (\S+)\n(.*?)(?=^FROM|\Z)", DOCKERFILE, re.MULTILINE | re.DOTALL))
    for stage in ("build", "packages", "test-packages"):
        assert "pip install --require-hashes" in stages[stage] or "install-packages.sh" in stages[stage], stage
        for line in re.findall(r"^COPY (.*)$", stages[stage], re.MULTILINE):
            assert all(
                re.fullmatch(r"docker/(requirements.*\.txt|install-packages\.sh)", word) for word in line.split()[:-1]
            )


def pins(name: str) -> dict[str, str]:
    """Return name and version of every requirement in a file, each of which has hashes."""
    text = re.sub(r"^#.*\n", "", (DOCKER / name).read_text(), flags=re.MULTILINE).replace("\\\n", "")
    found = [re.fullmatch(r"([a-z0-9-]+)==([\w.]+)( +--hash=sha256:[0-9a-f]{64})+", line) for line in text.splitlines()]
    assert all(found), f"{name}: every line is NAME==VERSION --hash=..."
    return {match[1]: match[2] for match in found if match}


@pytest.mark.parametrize(("name", "extras"), [("requirements.txt", []), ("requirements-test.txt", ["demo", "ptf"])])
def test_requirements_are_those_of_the_project(name: str, extras: list[str]) -> None:
    pinned = pins(name)
    wanted = [Requirement(text) for text in PROJECT["project"]["dependencies"]]
    for extra in extras:
        wanted += [Requirement(text) for text in PROJECT["project"]["optional-dependencies"][extra]]
    for requirement in wanted:
        if requirement.name == "switchml":  # an extra that contains other extras
            wanted += [
                Requirement(text)
                for extra in requirement.extras
                for text in PROJECT["project"]["optional-dependencies"][extra]
            ]
            continue
        if requirement.marker is not None and not requirement.marker.evaluate({"python_version": "3.12"}):
            continue
        package = canonicalize_name(requirement.name)
        assert package in pinned, f"docker/{name} lacks {package}"
        assert requirement.specifier.contains(pinned[package]), (
            f"{package} {pinned[package]} is not {requirement.specifier}"
        )


def test_both_images_have_the_same_versions() -> None:
    daemons = pins("requirements.txt")
    assert daemons.items() <= pins("requirements-test.txt").items()
    assert not {"hypothesis", "matplotlib", "ptf", "scapy", "scikit-learn"} & daemons.keys()


def test_requirements_of_the_build_are_those_of_the_project() -> None:
    pinned = pins("requirements-build.txt")
    for text in PROJECT["build-system"]["requires"]:
        requirement = Requirement(text)
        assert requirement.specifier.contains(pinned[canonicalize_name(requirement.name)])


def test_the_build_gets_every_package_of_the_wheel() -> None:
    copied = {
        word for line in re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, re.MULTILINE) for word in line.split()[:-1]
    }
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    links = [path.readlink().name for path in (ROOT / "switchml").iterdir() if path.is_symlink()]
    for package in [*PROJECT["tool"]["scikit-build"]["wheel"]["packages"], *links]:
        assert any(PurePosixPath(package).match(pattern) for pattern in copied), f"{package} is not copied"
        assert any(PurePosixPath(package).match(pattern) for pattern in sent), f".dockerignore withholds {package}"
    for pattern in copied:
        assert list(ROOT.glob(pattern)), f"{pattern} does not exist"
        assert {pattern, pattern.split("/")[0]} & sent, f".dockerignore withholds {pattern}"


def test_the_daemons_of_a_host_take_their_options() -> None:
    text = (DOCKER / "host-leaf.yaml").read_text()
    given = {"NAME": "host-1", "ADDRESS": "10.0.0.11", "CONTROLLER": "10.0.0.1:7600"}
    services = yaml.safe_load(re.sub(r"\$\{(\w+)\}", lambda found: given[found[1]], text))["services"]
    assert services.keys() == {"switch", "agent"}
    for command, service in ((switch_command, services["switch"]), (agent_command, services["agent"])):
        program, *arguments = service["command"]
        assert PROJECT["project"]["scripts"][program].startswith("switchml.")
        command.make_context(program, list(arguments))  # or it raises UsageError
        assert service["image"] == f"switchml:{PROJECT['project']['version']}"
        assert service["cap_drop"] == ["ALL"]
        assert service["read_only"] is True


def test_the_cables_are_those_of_the_packaged_topology() -> None:
    topology = load(PACKAGED)
    controller = SERVICES["bmv2-controller"]["environment"]
    assert IPv4Address(controller["SWITCHML_SWITCH_ADDRESS"]) == topology.switch.ipv4
    assert controller["SWITCHML_SWITCH_MAC"] == topology.switch.mac
    agents = [SERVICES[f"bmv2-agent-{number}"]["environment"] for number in range(1, 9)]
    assert [(agent["SWITCHML_ADDRESS"], agent["SWITCHML_MAC"], int(agent["SWITCHML_PORT"])) for agent in agents] == [
        (str(host.ipv4.ip), host.mac, host.port) for host in topology.hosts
    ]


def test_the_packet_tests_take_the_container_for_their_namespace() -> None:
    assert SERVICES["bmv2-packet-tests"]["environment"].keys() == {namespace._INSIDE}


def test_python_files_import_nothing_that_the_image_lacks() -> None:
    here = {"switchml"}
    installed = {canonicalize_name(name) for name in pins("requirements.txt")}
    for file in DOCKER.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in {name.split(".")[0] for name in names} - sys.stdlib_module_names - here:
                assert name in installed, f"{file.name} imports {name}"
                assert distribution(name)
