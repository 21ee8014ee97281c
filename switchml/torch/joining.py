"""Makes a process group a job of the switch: either all of its ranks join the job, or none."""

from __future__ import annotations

import json
import logging
import os
import secrets
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import switchml
from switchml._native import MAX_WORLD_SIZE
from switchml.client.communicator import Communicator
from switchml.client.environment import find_target, job_of_launch, launch_label, require_one_launcher
from switchml.client.errors import ConnectError, SwitchMLError
from switchml.client.wire import Wire
from switchml.common.job_numbers import rank_numbers
from switchml.common.processes import boot_id
from switchml.torch.collectives import Collective
from switchml.torch.deadlines import Deadline
from switchml.torch.group import Group
from switchml.torch.leaving import InNetworkWithFallback
from switchml.torch.paths import Link, Medium
from switchml.torch.routes import InNetwork, Route, over_gloo
from switchml.torch.statistics import count

__all__ = ["NotJoined", "RanksAbsent", "RanksDisagree", "Unjoined", "join"]

_LOG = logging.getLogger("switchml.torch")
_PROBE_SECONDS: Final = 5.0  # for the agent on this host to accept a connection
_START_SECONDS: Final = 30.0  # for the agent and the controller to answer; all ranks are already connecting then


class NotJoined(ConnectError):
    """The ranks of a group could not become a job; all of them raise this error with the same reasons."""


class RanksAbsent(SwitchMLError):
    """Ranks of a group did not come at all, so there is no fallback. `ranks` are ranks of the group."""

    def __init__(self, message: str, ranks: tuple[int, ...]) -> None:
        super().__init__(message)
        self.ranks = ranks


class RanksDisagree(SwitchMLError):
    """The ranks of a group have different options. Raised on all of them; there is no fallback."""


class Unjoined(Route):
    """The route of a group that has not joined the network; its first collective lets it do so."""

    state = "not joined yet"
    start_waits = True

    def __init__(self, group: Group) -> None:
        super().__init__()
        self._group = group

    def start(self, collective: Collective, awaited: bool) -> Route:  # noqa: ARG002
        """Return the route that the ranks find: over Gloo if they cannot be a job, even without a fallback."""
        return self.find(collective.deadline, required=False)

    def find(self, deadline: Deadline, required: bool) -> Route:
        """Join the job of the group, and return its network; or else Gloo, unless the network is `required`.

        Raises:
            SwitchMLError: as of `join`.

        """
        group = self._group
        try:
            comm, link = join(group, deadline)
        except NotJoined as error:
            if required:
                raise
            count("gloo_groups")
            route = over_gloo(group, str(error), self, deadline)
            if group.rank == 0:
                _LOG.warning("%s uses Gloo for everything: %s", group, error)
            return route
        count("network_groups")
        network = InNetwork if group.options.fallback is None else InNetworkWithFallback
        return network(group, comm, link)


def join(group: Group, deadline: Deadline) -> tuple[Communicator, Link]:
    """Attach this rank to the job of `group`, which begins when all ranks have come.

    `deadline` is that of the call that needs the job.

    Returns:
        The communicator, and what all ranks have in common on their ways to the switch.

    If the program runs under `switchml-ctl job start -- COMMAND`, the first default group with the same number of ranks
    is that job. Every other group becomes a new job, with a unique key that rank 0 of the group makes.

    Raises:
        ConnectError: torchrun runs inside `switchml-ctl job start`.
        NotJoined: at least one rank could not join. All ranks raise it, with the reasons of each that could not.
        RanksDisagree: the ranks have different priorities.
        RanksAbsent: some ranks had not come at the deadline.

    """
    require_one_launcher(os.environ)
    # The ranks first check that each has an agent; otherwise the others would wait for a rank that cannot come.
    asked = [
        facts["priority"]
        for facts in _agree(group, deadline, "agent", _agent_problem(group), {"priority": group.options.priority})
    ]
    if len(set(asked)) > 1:
        raise RanksDisagree(
            f"the ranks of {group} ask for different priorities: {', '.join(map(str, asked))}, in the order of the"
            " ranks; give the same pg_options to all of them"
        )
    communicator, problem = None, ""
    try:
        communicator = _connect(group, deadline)
        wire = group.options.wire
        problem = communicator.wire_problem(wire) if isinstance(wire, Wire) else ""
    except ConnectError as error:
        problem = str(error)
    try:
        told = _agree(group, deadline, "joined", problem, _facts(communicator))
    except NotJoined:
        if communicator is not None:
            communicator.close()
        raise
    assert communicator is not None
    optional_values = all(facts["optional_values"] for facts in told)
    return communicator, Link(optional_values, _medium(told), communicator.values_per_packet)


def _facts(communicator: Communicator | None) -> dict[str, Any]:
    """Return what the other ranks need to know of this one."""
    if communicator is None:
        return {}
    return {
        "optional_values": communicator.optional_values,
        "shares_memory": communicator.shares_memory,
        "host": boot_id(),
        "network": Path("/proc/self/ns/net").stat().st_ino,
    }


def _medium(told: Sequence[dict[str, Any]]) -> Medium:
    """Return the connection between ranks with these facts."""
    if len({facts["host"] for facts in told}) > 1:
        return "links"
    if all(facts["shares_memory"] for facts in told):
        return "shared memory"
    return "links" if len({facts["network"] for facts in told}) > 1 else "loopback"


def _agent_problem(group: Group) -> str:
    """Return why this rank cannot reach an agent; an empty string if it can."""
    if group.size > MAX_WORLD_SIZE:
        return f"a job has at most {MAX_WORLD_SIZE} ranks, and this group has {group.size}"
    try:
        target = find_target(os.environ, job="probe", rank=group.rank, world_size=group.size)
    except ConnectError as error:
        return str(error)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        probe.settimeout(_PROBE_SECONDS)
        try:
            probe.connect(os.fspath(target.agent))
        except OSError as error:
            return (
                f"no agent answers at {target.agent} ({error.strerror or error}); start one on this host "
                "(`switchml-ctl up`, or `switchml-agent --socket ...`), or correct SWITCHML_AGENT or SWITCHML_RUN_DIR"
            )
    return ""


_launched_job_used = False


def _connect(group: Group, deadline: Deadline) -> Communicator:
    global _launched_job_used
    priority = group.options.priority
    seconds = min(deadline.seconds_left, _START_SECONDS)
    launched = job_of_launch(os.environ) if group.is_default and not _launched_job_used else ""
    if launched and os.environ.get("SWITCHML_WORLD_SIZE", str(group.size)) == str(group.size):
        _launched_job_used = True
        comm = switchml.connect(job=launched, rank=group.rank, world_size=group.size, create=False, timeout=seconds)
        if comm.failure_policy != "abort":
            comm.close()
            raise ConnectError(
                f"job {launched} was started with --on-failure {comm.failure_policy}, and a process group of PyTorch"
                " cannot change its ranks: start it without, and let torchrun restart the program"
            )
        if priority not in (0, comm.priority):
            comm.close()
            raise ConnectError(
                f"job {launched} has priority {comm.priority}, and the default group asks for priority {priority}:"
                f" start the job with --priority {priority}"
            )
        return comm
    if group.rank == 0:
        address = f"{os.environ.get('MASTER_ADDR', 'torch')}:{os.environ.get('MASTER_PORT', '')}"
        label = launch_label(os.environ) or "torch"
        which = "" if group.is_default else f"-group-{group.name[:8]}"  # a name can be a digest of the ranks
        group.store.set("key", f"{label}{which} @ {address[:80]}/{secrets.token_hex(8)}")
    group.store.wait(["key"], deadline.left)
    key = group.store.get("key").decode()
    return switchml.connect(
        job=key,
        rank=group.rank,
        world_size=group.size,
        create=True,
        timeout=seconds,
        on_failure="abort",
        priority=priority,
        aggregators=group.options.aggregators or None,
    )


def _agree(
    group: Group, deadline: Deadline, step: str, problem: str, facts: dict[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Exchange `problem` with all ranks; raise the same error on all of them if any has one.

    Returns:
        The `facts` of all ranks.

    """
    keys = [f"{step}/{rank}" for rank in range(group.size)]
    group.store.set(keys[group.rank], json.dumps([problem, facts or {}]))
    try:
        group.store.wait(keys, deadline.left)
    except Exception as error:  # the type of the exception depends on the kind of store
        absent = tuple(rank for rank, key in enumerate(keys) if not group.store.check([key]))
        if absent:
            raise RanksAbsent(
                f"Timed out after {deadline.timeout:g} s in the first collective: rank "
                f"{rank_numbers(absent)} had not come to it. All ranks of a group have to make it; check "
                "whether these still run, or allow more time (the group's timeout).",
                absent,
            ) from error
    said = [json.loads(value) for value in group.store.multi_get(keys)]
    reasons: dict[str, list[int]] = {}
    for rank, (reason, _) in enumerate(said):
        if reason:
            reasons.setdefault(reason, []).append(rank)
    if reasons:
        words = "; ".join(f"rank {rank_numbers(ranks)}: {reason}" for reason, ranks in reasons.items())
        raise NotJoined(f"{group} could not become a job of the switch: {words}")
    return [facts for _, facts in said]
