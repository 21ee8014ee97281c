"""Ranks of a measurement that torchrun starts on a new fabric."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

__all__ = ["run_ranks"]

_DEADLINE: Final = 1200  # seconds
_GRACE: Final = 60  # seconds after SIGTERM; torchrun kills its ranks within 30


def run_ranks(
    worker: Path,
    workers: int,
    arguments: Sequence[str],
    directory: Path,
    fabric: Sequence[str] = (),
    python: str = sys.executable,
) -> dict[str, Any]:
    """Run the program `worker` as `workers` ranks, and return what rank 0 wrote to the file that --output names.

    Args:
        worker: the program, which takes --output.
        workers: the number of ranks.
        arguments: further arguments of the program.
        directory: an empty directory, with a path short enough for Unix sockets.
        fabric: arguments of `switchml-ctl up`.
        python: the interpreter of the ranks, which has PyTorch.

    Raises:
        subprocess.SubprocessError: the fabric did not start, or a rank failed or was not done in 20 minutes.

    """
    output = directory / "result.json"
    control = str(Path(sysconfig.get_path("scripts")) / "switchml-ctl")
    environment = {**os.environ, "SWITCHML_RUN_DIR": str(directory / "run"), "OMP_NUM_THREADS": "1"}
    launcher = [python, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={workers}"]
    program = [str(worker), f"--output={output}", *arguments]
    subprocess.run([control, "up", *fabric], env=environment, check=True, stdout=subprocess.DEVNULL)
    try:
        _run([*launcher, *program], environment)
    finally:
        subprocess.run([control, "down"], env=environment, check=True, stdout=subprocess.DEVNULL)
    return dict(json.loads(output.read_text(encoding="utf-8")))


def _run(command: Sequence[str], environment: dict[str, str]) -> None:
    """Run torchrun. It is ended by SIGTERM, with which it ends its ranks: SIGKILL would leave them running."""
    with subprocess.Popen(command, env=environment) as process:
        try:
            status = process.wait(_DEADLINE)
        finally:
            _end(process)
    if status != 0:
        raise subprocess.CalledProcessError(status, command)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
