"""Places the ranks of a new job at agents, and lets these open sockets for them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container

from switchml.controller.admission.placement import Placement, choose_in_one_pipe
from switchml.controller.agents import Agents
from switchml.controller.errors import AgentFailed, AgentTimeout, NoAgent
from switchml.controller.jobs.live import LiveJob, revocation
from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.switches import ManagedSwitch

__all__ = ["Assignments"]

_LOG = logging.getLogger(__name__)


class Assignments:
    """The way of ranks to their agents; `ranks_in_use(name)` says how many ranks an agent carries already."""

    def __init__(self, agents: Agents, ranks_in_use: Callable[[str], int]) -> None:
        self._agents = agents
        self._ranks_in_use = ranks_in_use

    def choose(
        self, switch: ManagedSwitch, workers: int, tenant: str, refused: Container[str] = frozenset()
    ) -> Placement:
        """Spread ranks over the agents of a switch that carry jobs of `tenant`, but for those in `refused`.

        Raises:
            NoAgent: there are too few agents, or they have too little room.

        """
        live = [session for session in self._agents.live_on(switch.name) if session.name not in refused]
        usable = [session for session in live if session.serves(tenant)]
        try:
            return choose_in_one_pipe(workers, usable, self._ranks_in_use, switch)
        except NoAgent as error:
            others = len(live) - len(usable)
            if not others:
                raise
            raise NoAgent(
                f"{error.message}. Agents of other tenants do not count, of which there are {others}: an administrator"
                " can share them ([agents] in the controller's configuration)",
                **error.figures,
            ) from None

    async def collect_endpoints(self, live: LiveJob) -> None:
        """Let the agents of a job open sockets; their answers fill in the ranks' addresses.

        Ranks that an agent refuses go to another one, unless their processes wait at it.

        Raises:
            AgentFailed: an agent was lost or refused its ranks, and no other can take them.
            AgentTimeout: one did not answer.

        """
        refused: dict[str, AgentFailed] = {}
        while refusals := await self._assign(live):
            refused |= refusals
            self._place_elsewhere(live, refused)

    async def _assign(self, live: LiveJob) -> dict[str, AgentFailed]:
        """Send the assignments and wait for the answers; return the refusals by agent."""
        loop = asyncio.get_running_loop()
        live.ready = {name: loop.create_future() for name in live.job.ranks_by_agent()}
        for name in live.ready:
            session = self._agents.live_session(name)
            assert session is not None, "the placement is of live agents, and nothing has run since"
            session.send(pb.ControllerMessage(assignment=live.assignment(name)))
        # Ranks can only be placed elsewhere once no answer to the first assignment is on its way any more.
        until = asyncio.FIRST_EXCEPTION if live.announcements else asyncio.ALL_COMPLETED
        seconds = live.seconds_to_open()
        _, silent = await asyncio.wait(live.ready.values(), timeout=seconds, return_when=until)
        refusals = {
            name: error
            for name, answer in live.ready.items()
            if answer.done() and isinstance(error := answer.exception(), AgentFailed)
        }
        if silent and refusals:
            raise next(iter(refusals.values()))
        if silent:
            names = ", ".join(name for name, answer in live.ready.items() if answer in silent)
            raise AgentTimeout(f"agent {names} opened no sockets for job {live.job.name} within {seconds:.0f} s")
        return refusals

    def _place_elsewhere(self, live: LiveJob, refused: dict[str, AgentFailed]) -> None:
        """Choose the agents of a job again, without those that refused; raise the first refusal where none are left."""
        job, why = live.job, next(iter(refused.values()))
        if live.announcements:
            raise why
        before, job.ranks = job.ranks, []  # which are not in use for the choice
        try:
            [switch] = live.switches
            placement = self.choose(switch, job.workers, job.tenant, refused)
        except NoAgent:
            job.ranks = before
            raise why from None
        job.ranks = placement.ranks()
        _LOG.warning("job %s: its ranks go to %s: %s", job.name, ", ".join(job.ranks_by_agent()), why)
        for name in {rank.agent for rank in before} - job.ranks_by_agent().keys() - refused.keys():
            session = self._agents.live_session(name)
            if session is not None:
                session.send(
                    revocation(job.id, job.epoch, pb.REVOCATION_REASON_JOB_FAILED, "its ranks went to other agents")
                )
