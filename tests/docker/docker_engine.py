"""A Docker engine with Compose: the one that runs on this machine, or one that is started for the tests."""

import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.docker.debian import Debian, Missing

OLDEST_ENGINE = 25  # health checks' start_interval
PACKAGES_RELEASE = "trixie"  # the first Debian release whose engine is new enough
PACKAGES = ("docker.io", "docker-cli", "docker-compose", "docker-buildx", "containerd")
PACKAGES_OF_MACHINE = ("runc", "tini")  # these need the C library of the same release
START_SECONDS = 60
STOP_SECONDS = 60
POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Engine:
    """An engine, and the environment in which the docker command reaches it."""

    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))

    def docker(self, *arguments: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """Run the docker command and return both outputs as one. Exit status 124: it exceeded the time limit."""
        command = ["docker", *arguments]
        with subprocess.Popen(
            command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            try:
                output, _ = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                output, _ = process.communicate()
                return subprocess.CompletedProcess(command, 124, f"{output}\nnot done within {timeout} s")
        return subprocess.CompletedProcess(command, process.returncode, output)

    def has_bridge(self) -> bool:
        """Tell whether the engine has the network that builds use by default."""
        return self.docker("network", "inspect", "bridge").returncode == 0

    def is_usable(self) -> bool:
        """Tell whether the engine answers, is new enough, and has Compose and buildx."""
        if shutil.which("docker", path=self.environment["PATH"]) is None:
            return False
        version = self.docker("version", "--format", "{{.Server.Version}}")
        major = re.match(r"\d+", version.stdout)
        if version.returncode or major is None or int(major[0]) < OLDEST_ENGINE:
            return False
        return not any(self.docker(plugin, "version").returncode for plugin in ("compose", "buildx"))


@contextmanager
def started(debian: Debian, directory: Path) -> Iterator[Engine]:
    """Start an engine from Debian's packages, without networks to the outside, and end it.

    The packages and images are kept in ``directory`` for the next run. iptables is installed, because the engine uses
    it to get the containers' name queries.
    """
    if shutil.which("iptables") is None:
        debian.install("iptables", directory / "iptables")
    packages = [f"{name}/{PACKAGES_RELEASE}" for name in PACKAGES]
    packages += [f"{name}/{debian.release}" for name in PACKAGES_OF_MACHINE]
    root = debian.unpack(packages, directory / "packages")
    place = Path(tempfile.mkdtemp(prefix="switchml-docker-"))  # paths of Unix sockets must be short
    plugins = {"cliPluginsExtraDirs": [str(root / "usr/libexec/docker/cli-plugins")]}
    (place / "config.json").write_text(json.dumps(plugins))
    socket = f"unix://{place}/docker.sock"
    path = os.pathsep.join([str(root / "usr/sbin"), str(root / "usr/bin"), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "DOCKER_CONFIG": str(place), "DOCKER_HOST": socket}
    command = [
        *("dockerd", "--host", socket, "--data-root", str(directory / "data"), "--exec-root", str(place / "exec")),
        *("--pidfile", str(place / "dockerd.pid"), "--bridge=none"),
        *("--iptables=false", "--ip6tables=false", "--ip-forward=false"),
    ]
    log = directory / "dockerd.log"
    with log.open("wb") as output:
        daemon = subprocess.Popen(command, env=environment, stdout=output, stderr=output, start_new_session=True)
    try:
        engine = Engine(environment)
        _wait_usable(engine, daemon, log)
        yield engine
    finally:
        _end(daemon, place)


def _wait_usable(engine: Engine, daemon: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not engine.is_usable():
        if daemon.poll() is not None or time.monotonic() > deadline:
            raise Missing(f"a machine on which dockerd starts, see {log}")
        time.sleep(POLL_SECONDS)


def _end(daemon: subprocess.Popen[bytes], place: Path) -> None:
    """Stop the engine, and unmount what it has left mounted."""
    daemon.terminate()
    try:
        daemon.wait(STOP_SECONDS)
    finally:
        daemon.kill()
    mounted = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for mount in (path for path in mounted if Path(path).is_relative_to(place)):
        subprocess.run(["umount", mount], check=True)
    shutil.rmtree(place)
