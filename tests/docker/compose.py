"""docker/compose.yaml, run under a project name that only the tests use."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.docker.docker_engine import Engine

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docker" / "compose.yaml"
PROJECT = "switchml-docker-test"  # another one than that of a user who tries the images at the same time
SERVICE_SECONDS = 600
COMMAND_SECONDS = 60
DOWN_SECONDS = 120


@dataclass(frozen=True)
class Compose:
    """The services of the compose file on an engine."""

    engine: Engine

    def __call__(self, *arguments: str, timeout: float, files: tuple[Path, ...] = ()) -> str:
        """Run ``docker compose`` and return its output; it must end with exit status 0."""
        done = self._run(arguments, timeout, files)
        assert done.returncode == 0, f"{' '.join(arguments)}: exit status {done.returncode}\n{done.stdout}"
        return done.stdout

    def run_service(self, service: str) -> str:
        """Run a service that ends, and its dependencies; return its output. Its exit status must be 0."""
        done = self._run(("run", "--rm", "--no-TTY", service), SERVICE_SECONDS, ())
        if done.returncode:
            logs = self._run(("--profile", "*", "logs", "--tail", "20"), COMMAND_SECONDS, ()).stdout
            raise AssertionError(f"{service}: exit status {done.returncode}\n{done.stdout}\n{logs}")
        return done.stdout

    def unhealthy(self) -> list[str]:
        """Return the containers whose health checks fail."""
        filters = ("--filter", "health=unhealthy", "--filter", f"label=com.docker.compose.project={PROJECT}")
        return self.engine.docker("ps", *filters, "--format", "{{.Names}}").stdout.split()

    def ends_well(self, *arguments: str, timeout: float) -> bool:
        """Run ``docker compose`` and return whether its exit status is 0."""
        return self._run(arguments, timeout, ()).returncode == 0

    def down(self) -> None:
        """Stop all services and remove their volumes."""
        self("--profile", "soft", "--profile", "bmv2", "down", "--volumes", timeout=DOWN_SECONDS)

    def _run(
        self, arguments: tuple[str, ...], timeout: float, files: tuple[Path, ...]
    ) -> subprocess.CompletedProcess[str]:
        which = [word for file in (FILE, *files) for word in ("--file", str(file))]
        return self.engine.docker("compose", "--project-name", PROJECT, *which, *arguments, timeout=timeout)
