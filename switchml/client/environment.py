"""The agent, the job and the rank of this process, from arguments or else from the environment."""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import re
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Final, NoReturn

from switchml.client.arguments import whole_number
from switchml.client.errors import ConnectError
from switchml.client.run_directory import agent_sockets, configured_run_directory
from switchml.common.names import names_in_list
from switchml.common.variables import unknown_variables

__all__ = ["NewJob", "RankTarget", "find_new_job", "find_target", "job_of_launch", "launch_label", "rendezvous_key"]
__all__ += ["require_one_launcher"]

_log = logging.getLogger(__name__)
_LAUNCH: Final = "run the program under `switchml-ctl job start --workers N -- COMMAND`, which sets it"
_TORCHRUN: Final = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_ON_FAILURE: Final = ("abort", "shrink", "restart")
_LONGEST_KEY: Final = 200
_DIGEST_LENGTH: Final = 16
_LONGEST_LABEL: Final = 40
_GENERATED: Final = re.compile("none|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""The rendezvous ids that torchrun has by default and with --standalone."""


@dataclass(frozen=True)
class RankTarget:
    """The rank to attach to. `world_size` is None if it must not be compared with the job's.

    With `create`, `job` is a key: the job begins when ranks 0 to `world_size` - 1 have come with this key.
    """

    agent: Path
    job: str
    rank: int
    world_size: int | None
    create: bool = False


@dataclass(frozen=True)
class NewJob:
    """The options of a job that its ranks begin.

    Its pool has `slots` slots (0: the switch's default), which `aggregators` share if any are named.
    """

    slots: int = 0
    on_failure: str = "abort"
    aggregators: tuple[str, ...] = ()


def find_target(
    environ: Mapping[str, str],
    agent: str | os.PathLike[str] | None = None,
    job: str | int | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    create: bool | None = None,
) -> RankTarget:
    """Return the rank that the arguments name, completed from `environ`.

    Raises:
        ConnectError: something is missing or not a number; the message names the variable. Or two launchers have
            started this process.
        TypeError: `rank`, `world_size` or `job` is of another type.

    """
    require_one_launcher(environ)
    if job is not None and not isinstance(job, str):
        job = whole_number(job, "job")
    rank = None if rank is None else whole_number(rank, "rank")
    world_size = None if world_size is None else whole_number(world_size, "world_size")
    if (environ.get("LOCAL_RANK") or environ.get("SWITCHML_RANK") or environ.get("RANK") or str(rank or 0)) == "0":
        _warn(unknown_variables(environ))  # by one rank of each host
    if job is None:
        job = job_of_launch(environ)
        if not job and create is not False and any(environ.get(name) for name in _TORCHRUN):
            job, create = rendezvous_key(environ), True
        if not job:
            _missing("SWITCHML_JOB", "the id or name of the job", "job", ", or under torchrun")
    if rank is None:
        rank = _number(environ, "SWITCHML_RANK", "RANK")
        if rank is None:
            _missing("SWITCHML_RANK", "this process's rank in the job", "rank")
    if world_size is None:
        world_size = _number(environ, "SWITCHML_WORLD_SIZE", "WORLD_SIZE")
        if world_size is None and create:
            _missing("SWITCHML_WORLD_SIZE", "the number of ranks", "world_size")
    return RankTarget(_agent_socket(environ, agent, rank, world_size), str(job), rank, world_size, bool(create))


def find_new_job(
    environ: Mapping[str, str],
    target: RankTarget,
    on_failure: str | None = None,
    aggregators: Sequence[str] | None = None,
) -> NewJob | None:
    """Return the options of the job that the target's ranks begin, completed from `environ`; None if it exists already.

    Raises:
        ConnectError: an option cannot be used; the message names the variable.
        TypeError: `aggregators` is a string.

    """
    if not target.create and aggregators:
        raise ConnectError(
            f"job {target.job} exists already, and its aggregators were chosen when it began; name them in"
            " `switchml-ctl job start --aggregators`, or pass `create`"
        )
    if not target.create:
        return None
    on_failure = on_failure or environ.get("SWITCHML_ON_FAILURE") or "abort"
    if on_failure not in _ON_FAILURE:
        raise ConnectError(f"on_failure (SWITCHML_ON_FAILURE) is {on_failure!r}; it is one of {', '.join(_ON_FAILURE)}")
    return NewJob(_number(environ, "SWITCHML_SLOTS") or 0, on_failure, _aggregators(environ, aggregators))


@functools.cache
def _warn(text: str) -> None:
    """Log a warning, unless this process has logged it before."""
    if text:
        _log.warning("%s", text)


def _aggregators(environ: Mapping[str, str], given: Sequence[str] | None) -> tuple[str, ...]:
    if isinstance(given, str):
        raise TypeError(f"aggregators is {given!r}; it must be a sequence of names")
    text = environ.get("SWITCHML_AGGREGATORS", "") if given is None else ",".join(given)
    try:
        return names_in_list(text)
    except ValueError as error:
        raise ConnectError(f"aggregators (SWITCHML_AGGREGATORS): {error}") from None


def job_of_launch(environ: Mapping[str, str]) -> str:
    """Return the job that `switchml-ctl job start -- COMMAND` started this process for; empty if it did not."""
    return environ.get("SWITCHML_JOB", "")


def require_one_launcher(environ: Mapping[str, str]) -> None:
    """Raise ConnectError if torchrun runs inside `switchml-ctl job start`.

    Each torchrun would start all ranks of a training, so that several trainings would share the ranks of one job.
    """
    if environ.get("SWITCHML_JOB_DIR") and environ.get("TORCHELASTIC_RUN_ID"):
        raise ConnectError(
            "torchrun runs inside `switchml-ctl job start`, and each of them starts the ranks of a job; use one:"
            " `switchml-ctl job start --workers N -- python TRAIN.py`, or `torchrun --nproc-per-node N TRAIN.py`, which"
            " needs no job to be started before"
        )


def launch_label(environ: Mapping[str, str], script: str | None = None) -> str:
    """Return the name by which people know this training, which need not be unique; empty if it has no name.

    It is SWITCHML_JOB_NAME or, under torchrun, the name of the `script` (by default this program's) and the rendezvous
    id, unless torchrun has made that up. So all ranks of a launch have the same.
    """
    label = environ.get("SWITCHML_JOB_NAME", "")
    run = environ.get("TORCHELASTIC_RUN_ID", "")
    if not label and run:
        program = Path(sys.argv[0] if script is None else script).stem
        label = "-".join(part for part in (program, "" if _GENERATED.fullmatch(run) else run) if part)
    return re.sub(r"[^A-Za-z0-9_.]+", "-", label).strip("-")[:_LONGEST_LABEL]


def rendezvous_key(environ: Mapping[str, str], group: str = "", script: str | None = None) -> str:
    """Return the key with which the ranks of a process group meet. All of them have it, and no other group has.

    It is made from the variables of torchrun, which every launcher of torch programs sets: MASTER_ADDR and MASTER_PORT,
    TORCHELASTIC_RUN_ID, and the `group`'s name. TORCHELASTIC_RESTART_COUNT is part of it on one node only: torchrun
    counts the restarts that a node's own workers caused, so the nodes of a job may have different counts. The label of
    the launch comes first, with " @ " behind it.

    Raises:
        ConnectError: MASTER_ADDR or MASTER_PORT is not set.

    """
    address, port = environ.get("MASTER_ADDR"), environ.get("MASTER_PORT")
    if not address or not port:
        raise ConnectError(
            f"{'MASTER_PORT' if address else 'MASTER_ADDR'}, by which the ranks find each other, is not set; run the"
            " program under torchrun or `switchml-ctl job start --workers N -- COMMAND`, or set it to the same for all"
            " ranks"
        )
    if _is_loopback(address):
        address = socket.gethostname()  # otherwise the jobs of two hosts would have the same key
    parts = [f"{address}:{port}"]
    if environ.get("TORCHELASTIC_RUN_ID"):
        parts.append(environ["TORCHELASTIC_RUN_ID"])
        if environ.get("GROUP_WORLD_SIZE") == "1":
            parts.append(environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    key = "/".join([*parts, group] if group else parts)
    label = launch_label(environ, script)
    key = f"{label} @ {key}" if label else key
    if len(key) <= _LONGEST_KEY and key.isprintable():
        return key
    digest = hashlib.sha256(key.encode(errors="surrogateescape")).hexdigest()[:_DIGEST_LENGTH]
    readable = "".join(character if character.isprintable() else "?" for character in key)
    return f"{readable[: _LONGEST_KEY - _DIGEST_LENGTH - 1]}/{digest}"


def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def _agent_socket(
    environ: Mapping[str, str], agent: str | os.PathLike[str] | None, rank: int, world_size: int | None
) -> Path:
    """Return the agent's socket. The ranks are divided among the agents of a fabric on this machine."""
    if agent is not None:
        return Path(agent)
    if environ.get("SWITCHML_AGENT"):
        return Path(environ["SWITCHML_AGENT"])
    directory = configured_run_directory(environ)
    sockets = agent_sockets(directory)
    if not sockets:
        if environ.get("SWITCHML_RUN_DIR"):
            return directory / "agent.sock"  # where `switchml-agent` listens by default
        raise ConnectError(
            f"there is no agent: {directory} holds no fabric, and neither SWITCHML_AGENT (the socket of the agent on "
            "this host) nor SWITCHML_RUN_DIR (the run directory of a fabric on this machine) is set; start a fabric "
            f"here with `switchml-ctl up`, or {_LAUNCH}"
        )
    local_rank, local_size = _number(environ, "LOCAL_RANK"), _number(environ, "LOCAL_WORLD_SIZE")
    if local_rank is None or not local_size:
        local_rank, local_size = rank, world_size or 1
    return sockets[min(local_rank * len(sockets) // local_size, len(sockets) - 1)]


def _number(environ: Mapping[str, str], *names: str) -> int | None:
    """Return the number in the first of these variables that is set."""
    name = next((name for name in names if environ.get(name)), None)
    if name is None:
        return None
    text = environ[name]
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise ConnectError(f"{name} is {text!r}, which is not a number; {_LAUNCH}, or correct it")
    return int(text)


def _missing(name: str, meaning: str, argument: str, otherwise: str = "") -> NoReturn:
    raise ConnectError(
        f"{name} ({meaning}) is not set; {_LAUNCH}{otherwise}, or pass `{argument}` to switchml.connect()"
    )
