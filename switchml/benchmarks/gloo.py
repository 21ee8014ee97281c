"""Gloo as a peer: through PyTorch, in any interpreter that has it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

from switchml.benchmarks.errors import MissingPeer

__all__ = ["version"]

_ASK_SECONDS: Final = 60
_QUESTION: Final = "import numpy, torch, torch.distributed as d; assert d.is_gloo_available(); print(torch.__version__)"


def version(python: str) -> str:
    """Return the version of PyTorch that `python` has. Raises MissingPeer, which says how to get one."""
    advice = "install the package torch there, or name another interpreter with --torch-python"
    try:
        asked = subprocess.run(
            [python, "-c", _QUESTION], check=False, capture_output=True, text=True, timeout=_ASK_SECONDS, cwd="/"
        )
    except OSError as error:
        raise MissingPeer(f"{python} cannot be run ({error.strerror}): {advice}") from error
    except subprocess.TimeoutExpired as error:
        raise MissingPeer(f"{python} did not import torch within {_ASK_SECONDS} s: {advice}") from error
    if asked.returncode != 0:
        last = (asked.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise MissingPeer(f"{Path(python)} cannot use torch ({last}): {advice}")
    return f"PyTorch {asked.stdout.strip()}"
