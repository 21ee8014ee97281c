"""The parts of an agent that work together on the jobs of this host."""

from __future__ import annotations

from collections.abc import Callable

from switchml.controller.proto import switchml_pb2 as pb
from switchml.host_agent.assignments import Assignments
from switchml.host_agent.attachments import Attachments
from switchml.host_agent.local_jobs import LocalJobs
from switchml.host_agent.messages import JobFailure
from switchml.host_agent.orders import Orders
from switchml.host_agent.probing import Probing
from switchml.host_agent.ranks import EngineRanks
from switchml.host_agent.reports import Reports
from switchml.host_agent.waiting import WaitingRanks

__all__ = ["Agent"]


class Agent:
    """The agent `name`, apart from its connections to processes and to the controller.

    It may have `max_ranks`. `send` takes its messages for the controller. It belongs to one event loop.
    """

    def __init__(self, name: str, ranks: EngineRanks, max_ranks: int, send: Callable[[pb.AgentMessage], None]) -> None:
        waiting = WaitingRanks()
        self._ranks = ranks
        self.jobs = LocalJobs(name, ranks)
        self.reports = Reports(self.jobs, ranks, waiting, send)
        self.assignments = Assignments(self.jobs, ranks, waiting, self.reports, max_ranks)
        self._probing = Probing(ranks.address, send)
        self.orders = Orders(self.jobs, ranks, waiting, self.reports, self.assignments, self._probing)
        self.attachments = Attachments(self.jobs, ranks, waiting, self.reports)

    async def stop(self, failure: JobFailure) -> None:
        """End every job because the agent ends; return when all ranks are closed."""
        self._probing.close()
        self.jobs.end_all(failure)
        await self.assignments.finish()
        await self._ranks.shut_down()
