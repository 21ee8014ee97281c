"""Where the agent is and which rank this process is: from arguments, else from SWITCHML_* variables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from switchml.errors import ConnectError

__all__ = ["Target", "find_target"]

_LAUNCH = "run the program under `switchml-ctl job start --workers N -- COMMAND`, which sets it"


@dataclass(frozen=True)
class Target:
    """The rank to attach to. `world_size` is None where it shall not be compared with the job's."""

    agent: Path
    job: str
    rank: int
    world_size: int | None


def find_target(
    environ: Mapping[str, str],
    agent: str | os.PathLike[str] | None = None,
    job: str | int | None = None,
    rank: int | None = None,
    world_size: int | None = None,
) -> Target:
    """Return the rank that the arguments name, completed from `environ`.

    Raises:
        ConnectError: something is missing or no number; the message names the variable.

    """
    if job is None:
        job = environ.get("SWITCHML_JOB") or _missing("SWITCHML_JOB", "the id or name of the job", "job")
    if rank is None:
        rank = _number(environ, "SWITCHML_RANK")
        if rank is None:
            _missing("SWITCHML_RANK", "this process's rank in the job", "rank")
    if world_size is None:
        world_size = _number(environ, "SWITCHML_WORLD_SIZE")
    return Target(_agent_socket(environ, agent), str(job), int(rank), world_size)


def _agent_socket(environ: Mapping[str, str], agent: str | os.PathLike[str] | None) -> Path:
    if agent is not None:
        return Path(agent)
    if environ.get("SWITCHML_AGENT"):
        return Path(environ["SWITCHML_AGENT"])
    if environ.get("SWITCHML_RUN_DIR"):
        return Path(environ["SWITCHML_RUN_DIR"], "agent.sock")
    raise ConnectError(
        "neither SWITCHML_AGENT (the socket of the agent on this host) nor SWITCHML_RUN_DIR (the run directory of an "
        f"embedded fabric) is set; {_LAUNCH}, or set the first to the socket that `switchml-ctl agent list` shows"
    )


def _number(environ: Mapping[str, str], name: str) -> int | None:
    text = environ.get(name)
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise ConnectError(f"{name} is {text!r}, which is no number; {_LAUNCH}, or correct it")
    return int(text)


def _missing(name: str, meaning: str, argument: str) -> NoReturn:
    raise ConnectError(f"{name} ({meaning}) is not set; {_LAUNCH}, or pass `{argument}` to switchml.connect()")
