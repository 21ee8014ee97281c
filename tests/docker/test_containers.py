"""The images and the services of docker/compose.yaml, run by a Docker engine: `pytest -m docker tests/docker`."""

import json
import sys
import time
from collections.abc import Callable

import pytest

from tests.docker.compose import COMMAND_SECONDS, ROOT, SERVICE_SECONDS, Compose
from tests.docker.docker_engine import Engine

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

RECOVERY_SECONDS = 90
POLL_SECONDS = 0.5
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
DAEMONS, TEST, BMV2 = (f"{name}:{VERSION}" for name in ("switchml", "switchml-test", "switchml-bmv2"))

pytestmark = [pytest.mark.docker, pytest.mark.timeout(2400)]  # the first test includes the time to build the images

every_image = pytest.mark.parametrize("image", [DAEMONS, TEST, BMV2], indirect=True)


def inside(engine: Engine, image: str, *command: str) -> str:
    """Run a command in a container as Compose confines it and return its output; it must end with exit status 0."""
    confined = ("--network", "none", "--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL")
    done = engine.docker("run", "--rm", *confined, image, *command, timeout=120)
    assert done.returncode == 0, done.stdout
    return done.stdout


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for a condition up to a deadline."""
    deadline = time.monotonic() + RECOVERY_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"not within {RECOVERY_SECONDS} s"
        time.sleep(POLL_SECONDS)


# ---- the images ------------------------------------------------------------------------------------------------------


@every_image
def test_directories_belong_to_the_user_and_group_of_the_processes(engine: Engine, image: str) -> None:
    assert inside(engine, image, "sh", "-c", "echo $(id -u):$(id -g)") == "10001:10001\n"
    for directory in ("/run/switchml", "/var/lib/switchml"):
        assert inside(engine, image, "stat", "--format", "%u:%g %a", directory) == "10001:10001 700\n"


NOT_COMPILED = """
import os, sys
import switchml.cli, switchml.commands.fabric, switchml.commands.job, switchml.client.communicator
import switchml.controller.daemon, switchml.dataplane.softswitch.daemon, switchml.host_agent.daemon
specifications = [getattr(module, "__spec__", None) for module in sys.modules.values()]
compiled = {found.origin: found.cached for found in specifications if found is not None and found.cached}
assert len(compiled) > 100
print([source for source, cached in compiled.items() if not os.path.exists(cached)])
"""


@every_image
def test_no_process_compiles_a_module(engine: Engine, image: str) -> None:
    """Check that modules are compiled: with read-only file systems, every process would compile them again."""
    assert inside(engine, image, "python", "-c", NOT_COMPILED) == "[]\n"


@pytest.mark.usefixtures("soft_images")
def test_the_image_of_the_daemons_holds_no_tests_and_no_demo(engine: Engine) -> None:
    listed = inside(engine, DAEMONS, "sh", "-c", "ls venv/lib/python3*/site-packages . ..").split()
    assert "grpc" in listed
    assert not {"sklearn", "scipy", "matplotlib", "hypothesis", "scapy", "ptf", "ptf_tests", "examples"} & set(listed)


@every_image
def test_labels(engine: Engine, image: str) -> None:
    done = engine.docker("image", "inspect", "--format", "{{json .Config.Labels}}", image)
    labels = json.loads(done.stdout)
    prefix = "org.opencontainers.image."
    assert labels[f"{prefix}version"] == VERSION
    assert labels[f"{prefix}licenses"] == "Apache-2.0"
    assert {f"{prefix}title", f"{prefix}description", f"{prefix}vendor"} <= labels.keys()


# ---- the services ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("service", ["demo", "packet-tests", "bmv2-demo", "bmv2-packet-tests"], indirect=True)
def test_a_service_ends_with_status_0(compose: Compose, service: str, figure: Callable[[str], None]) -> None:
    output = compose.run_service(service)
    assert not compose.unhealthy()
    figure(output.rstrip().splitlines()[-1])


FABRICS = {
    "demo": ("switch", "controller", ["agent"]),
    "bmv2-demo": ("bmv2", "bmv2-controller", [f"bmv2-agent-{number}" for number in range(1, 9)]),
}


@pytest.mark.parametrize("service", FABRICS, indirect=True)
def test_a_switch_that_ends_is_started_again(compose: Compose, service: str) -> None:
    """Check that the controller drives the restarted switch again, and that the next job runs on it."""
    switch, controller, agents = FABRICS[service]
    compose("up", "--detach", "--wait", *agents, timeout=SERVICE_SECONDS)
    compose("exec", "--no-TTY", switch, "sh", "-c", "kill -KILL -1", timeout=COMMAND_SECONDS)
    container = compose("ps", "--quiet", switch, timeout=COMMAND_SECONDS).strip()
    wait_until(lambda: compose.engine.docker("inspect", "--format", "{{.RestartCount}}", container).stdout == "1\n")
    check = ("python", "-I", "-S", "docker/healthy.py", "controller")
    wait_until(lambda: compose.ends_well("exec", "--no-TTY", controller, *check, timeout=COMMAND_SECONDS))
    compose.run_service(service)
