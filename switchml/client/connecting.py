"""The function `connect`, which makes a communicator."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from typing import Final

from switchml import _native
from switchml.client import metrics
from switchml.client.arguments import checked_priority, positive_seconds
from switchml.client.communicator import DEFAULT_TIMEOUT, Communicator
from switchml.client.environment import find_new_job, find_target
from switchml.client.membership import Membership

__all__ = ["connect"]

_JOIN_TIMEOUT: Final = 30.0  # seconds for an agent to answer
_START_SECONDS: Final = (
    20.0  # from the arrival of the last rank until the job is ready; the agent reports it if this fails
)


def connect(
    *,
    agent: str | os.PathLike[str] | None = None,
    job: str | int | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    create: bool | None = None,
    timeout: float | None = None,
    on_failure: str | None = None,
    priority: int = 0,
    aggregators: Sequence[str] | None = None,
) -> Communicator:
    """Attach this process to its rank of a job, through the agent on this host.

    Missing arguments are taken from the environment, which `switchml-ctl job start -- COMMAND` or torchrun sets.

    Args:
        agent: path of the agent's socket; default: SWITCHML_AGENT, or else an agent of the fabric in SWITCHML_RUN_DIR,
            or of the fabric that `switchml-ctl up` has started.
        job: id or name of the job; default: SWITCHML_JOB. With `create` it is a key of 1 to 200 printable characters;
            default: a key made from the launcher's variables (`switchml.client.environment.rendezvous_key`).
        rank: the rank that this process was started with; default: SWITCHML_RANK, or else RANK. `Communicator.rank`
            differs from it if the job has continued without lost ranks since then (`on_failure` is "shrink").
        world_size: number of ranks; without `create` it is only compared with the job's. Default:
            SWITCHML_WORLD_SIZE, or else WORLD_SIZE.
        create: begin the job when all `world_size` ranks have called this with the same key, each through the agent
            on its host. The pool has SWITCHML_SLOTS slots, the same for all ranks, or else the switch's default.
            `create` is the default if neither `job` nor SWITCHML_JOB names a job, as under torchrun. A key can be used
            again when its job has ended.
        timeout: seconds for the agent to answer (default: 30), or for the other ranks to come (default:
            `DEFAULT_TIMEOUT`). When the first rank's time is over, all waiting ranks are told which ones are missing.
        on_failure: with `create`, the policy for the loss of a rank, the same for all ranks. "abort": all other ranks
            get `WorkerLost`. "shrink": they continue without it. "restart": they continue with a new process, which
            takes its place by calling this with the same key and rank within a minute. With the latter two they get
            `WorldChanged`. Default: SWITCHML_ON_FAILURE, or else "abort". The policy of a job that was started by
            `switchml-ctl job start` is its --on-failure.
        priority: with `create`, from 0 to 7, the same for all ranks. Where jobs of one tenant share an agent, or the
            memory of a switch, those with the highest priority send first. That of a job that was started by
            `switchml-ctl job start` is its --priority.
        aggregators: with `create`, names of soft switches that share the job's slots, as parameter servers do; the same
            for all ranks. Default: SWITCHML_AGGREGATORS ("s1,s2"), or else the switch of the agents.

    Raises:
        ConnectError: something is missing, no agent answers, or the agent refuses; the message says what to do.
        TypeError: `rank`, `world_size`, `priority` or the id in `job` is not an integer, or `aggregators` is a string.
        ValueError: `timeout` is not a positive number, or `priority` is not from 0 to 7.

    """
    priority = checked_priority(priority)
    metrics.serve_from_environment()
    target = find_target(os.environ, agent, job, rank, world_size, create)
    new_job = find_new_job(os.environ, target, on_failure, aggregators)
    if timeout is None:
        timeout = DEFAULT_TIMEOUT if new_job else _JOIN_TIMEOUT
    positive_seconds(timeout)
    begin: dict[str, object] | None = None
    if new_job is not None:
        begin = {"priority": priority, "start_seconds": _START_SECONDS, **asdict(new_job)}
    membership = Membership(
        _native.Membership.attach(os.fspath(target.agent), target.job, target.rank, target.world_size, timeout, begin)
    )
    metrics.track(membership)
    return Communicator(membership)
