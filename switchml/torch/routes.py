"""The routes of a process group's collectives: the network, Gloo in its place, or none because the group has ended.

A group has one route at a time. It begins with `joining.Unjoined`, which leads to the network, or to Gloo if the ranks
cannot become a job; `leaving.InNetworkWithFallback` leads to Gloo too. `Failed` and `Closed` may follow each of them.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from enum import Enum, auto
from typing import Any, Final

from switchml._native import MAX_WORLD_SIZE
from switchml.client.communicator import Communicator
from switchml.client.errors import SwitchMLError
from switchml.torch.collectives import Collective
from switchml.torch.deadlines import Deadline
from switchml.torch.errors import SwitchMLBackendError
from switchml.torch.exact_network import ExactNetwork, NetworkJob
from switchml.torch.group import Group, make_gloo
from switchml.torch.paths import EMBEDDED, Link, Path
from switchml.torch.statistics import count

__all__ = ["Closed", "Failed", "InNetwork", "OverGloo", "OverGlooExact", "Route", "When", "over_gloo"]

_REPORT_SECONDS: Final = 3.0  # for the job to report the loss that made Gloo fail


class When(Enum):
    """The time at which a route can start a collective."""

    NOW = auto()  # also in the thread that makes the call
    IN_TURN = auto()  # in the thread that starts the collectives in order, because the start may wait
    LATER = auto()  # after the end of an earlier collective, or on another route


class Route(ABC):
    """The route of a group's collectives.

    Attributes:
        state: see `SwitchMLProcessGroup.state`.
        error: what later calls raise; None while the group is usable.
        job: the name of the group's job; empty if it has none.
        link: properties of the path to the switch that all ranks share; unknown before the group has joined.
        comm: the communicator; None if the group has not joined, or has left its job.
        trouble: a failure of this route that is not handled yet; it starts nothing any more.
        start_waits: True if the start of each collective may wait.
        finishes_here: True if a thread that waits for its only collective may do so without the other threads.

    """

    state: str
    error: SwitchMLBackendError | None = None
    start_waits = False
    finishes_here = False

    def __init__(self, job: str = "", link: Link = Link(), comm: Communicator | None = None) -> None:  # noqa: B008
        self.job = job
        self.link = link
        self.trouble: SwitchMLError | None = None
        self.comm = comm

    def when(self, collective: Collective) -> When:
        """Return when a collective can start; the queue's lock must be held."""
        if self.trouble is not None:
            return When.LATER
        return When.IN_TURN if self.start_waits or collective.waits else When.NOW

    @abstractmethod
    def start(self, collective: Collective, awaited: bool) -> Route:
        """Start a collective that can start, and return this route; or return the one that has to start it instead.

        If it is `awaited`, this thread must wait for it next.
        """

    def wait(self, collective: Collective) -> None:  # noqa: B027
        """Wait for a collective, if this route may have to end before it does."""

    def ended(self, collective: Collective) -> None:  # noqa: B027
        """Note the end of a collective; the queue's lock must be held."""

    def cause_of(self, error: Exception) -> Exception:
        """Return the failure of the job that made Gloo fail, because it names lost ranks; otherwise `error` itself."""
        if self.comm is None or isinstance(error, SwitchMLError):
            return error
        reported = threading.Event()
        self.comm.on_failure(lambda _: reported.set())
        reported.wait(_REPORT_SECONDS)
        return self.comm.failure or error

    def leave_job(self, loss: str) -> None:
        """Leave the job, if there is one; with a `loss`, report this rank as lost for that reason. Idempotent."""
        if self.comm is not None:
            self.comm.end(loss)


class InNetwork(Route):
    """The job of the group; its large sums of int64 may go over Gloo, in the same order (`long_sums`)."""

    comm: Communicator
    state = "network"
    finishes_here = True

    def __init__(self, group: Group, comm: Communicator, link: Link) -> None:
        super().__init__(comm.name, link, comm)
        self._group = group
        self._sums_gloo: Any = None  # for long sums only, so that their order does not depend on that of other calls

    def when(self, collective: Collective) -> When:
        """Return when a collective can start: not before its path is known."""
        when = super().when(collective)
        path = self._path(collective)
        if path is None:
            return When.LATER
        return When.IN_TURN if when is When.NOW and path == "gloo" and self._sums_gloo is None else when

    def start(self, collective: Collective, awaited: bool) -> Route:
        """Start a collective, in the network or as a long sum over Gloo."""
        if self._path(collective) == "gloo":
            if self._sums_gloo is None:
                group = self._group
                self._sums_gloo = make_gloo(group.store, group.rank, group.size, collective.deadline.left)
            collective.start_over_gloo(self._sums_gloo)
            count("gloo_calls")
            count("long_sums_over_gloo")
        else:
            collective.start(self.comm.awaited if awaited else self.comm)
            count("network_calls")
            count("network_bytes", collective.bytes)
        return self

    def _path(self, collective: Collective) -> Path | None:
        turn = collective.turn
        return "network" if turn is None else turn.path(self._group.size, self.link.medium)


class OverGloo(Route):
    """Gloo in the place of the network, for a reason."""

    exact: ExactNetwork | None = None

    def __init__(self, gloo: Any, why: str, before: Route) -> None:
        super().__init__(before.job, before.link)
        self.gloo = gloo
        self.why = why
        self.state = f"gloo: {why}"

    def start(self, collective: Collective, awaited: bool) -> Route:  # noqa: ARG002
        """Start a collective over Gloo."""
        collective.start_over_gloo(self.gloo)
        count("gloo_calls")
        return self


class OverGlooExact(OverGloo):
    """Gloo in the place of the network, with its bits; the start of a collective makes it, in rounds."""

    start_waits = True

    def __init__(self, gloo: Any, why: str, before: Route, job: NetworkJob) -> None:
        super().__init__(gloo, why, before)
        self.state = f"gloo-exact: {why}"
        self.exact: ExactNetwork = ExactNetwork(gloo, job)

    def start(self, collective: Collective, awaited: bool) -> Route:  # noqa: ARG002
        """Make a collective over Gloo."""
        collective.start_again(self.exact)
        count("gloo_calls")
        return self


class Failed(Route):
    """No route, because a collective has failed: later ones raise its error. The group still belongs to its job."""

    error: SwitchMLBackendError

    def __init__(self, error: SwitchMLBackendError, before: Route) -> None:
        super().__init__(before.job, before.link, before.comm)
        self.error = error
        self.state = f"failed: {error}"

    def start(self, collective: Collective, awaited: bool) -> Route:  # noqa: ARG002
        """Raise the error."""
        raise self.error


class Closed(Failed):
    """No route, because the group was destroyed."""

    def __init__(self, error: SwitchMLBackendError, before: Route) -> None:
        super().__init__(error, before)
        self.comm = None  # torch keeps groups that were not destroyed beyond the end of the interpreter


def over_gloo(group: Group, why: str, before: Route, deadline: Deadline) -> OverGloo:
    """Return the route over Gloo that the group's options want; all of its ranks make it at the same point."""
    gloo = make_gloo(group.store, group.rank, group.size, deadline.left)
    if group.options.fallback != "gloo-exact" or group.size > MAX_WORLD_SIZE:
        return OverGloo(gloo, why, before)
    # The bits are those of the group's job, or else of one like that of the default group.
    links = (before.link, group.default_link, EMBEDDED)
    values, optional_values = next((link.values, link.optional_values) for link in links if link.values)
    return OverGlooExact(gloo, why, before, NetworkJob(group.rank, group.size, values, optional_values))
