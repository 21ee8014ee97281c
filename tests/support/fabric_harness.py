"""switchml-ctl run as a program, as users run it, with a separate run directory."""

import json
import os
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from switchml.common.errors import NamespaceError
from switchml.topologies.namespaces import require_privileges

SCRIPTS = Path(sysconfig.get_path("scripts"))
WORKERS = Path(__file__).parent / "workers"
SECONDS = 300  # for a command: only one that hangs takes as long


class Ctl:
    """switchml-ctl with one run directory."""

    program: tuple[str, ...] = (str(SCRIPTS / "switchml-ctl"),)

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        ours = {name: value for name, value in os.environ.items() if not name.startswith("SWITCHML_")}
        self.environment = {
            **ours,
            "SWITCHML_RUN_DIR": str(run_dir),
            "XDG_CONFIG_HOME": str(run_dir.parent / "config"),
            "PATH": f"{SCRIPTS}:{os.environ['PATH']}",
        }

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self.program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment,
            **options,
        )

    def run(self, *arguments: str, status: int = 0, timeout: float = SECONDS) -> subprocess.CompletedProcess[str]:
        """Run a command and check its exit status."""
        process = self.start(*arguments)
        try:
            stdout, stderr = process.communicate(timeout=timeout)
        except BaseException:
            process.terminate()  # this also ends the job and the fabric that it started
            process.communicate(timeout=20)
            raise
        assert process.returncode == status, f"{arguments}: {process.returncode}\n{stdout}\n{stderr}"
        return subprocess.CompletedProcess(arguments, process.returncode, stdout, stderr)

    def json(self, *arguments: str, status: int = 0, timeout: float = SECONDS) -> dict[str, Any]:
        """Run a command with --json before a possible `--`; return the object on its standard output."""
        ours = list(arguments)
        ours.insert(ours.index("--") if "--" in ours else len(ours), "--json")
        content = json.loads(self.run(*ours, status=status, timeout=timeout).stdout)
        assert isinstance(content, dict)
        return content

    def worker(self, name: str, *arguments: str) -> list[str]:
        """Return the command line of a script in workers/."""
        return ["--", sys.executable, str(WORKERS / f"{name}.py"), *arguments]

    def processes(self) -> list[dict[str, Any]]:
        state = self.run_dir / "fabric.json"
        return json.loads(state.read_text())["processes"] if state.exists() else []


class Studies(Ctl):
    """`python -m studies` in the checkout, with one run directory."""

    program = (sys.executable, "-m", "studies")

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        return super().start(*arguments, cwd=Path(__file__).parents[2], **options)


def runs(pid: int) -> bool:
    """Return whether the process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition: Callable[[], object], what: str, seconds: float = 30) -> None:
    """Wait until the condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what}: not within {seconds} s"
        time.sleep(0.05)


def why_no_namespaces() -> str:
    """Return the reason why this process cannot make network namespaces, or an empty text."""
    try:
        require_privileges()
    except NamespaceError as error:
        return str(error)
    name = f"switchml-probe-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    subprocess.run(["ip", "netns", "del", name], capture_output=True)
    return made.stderr.strip()


_REASON = why_no_namespaces()
needs_namespaces = pytest.mark.skipif(bool(_REASON), reason=f"skipped: no network namespaces: {_REASON}")
"""Marks tests that make network namespaces."""
