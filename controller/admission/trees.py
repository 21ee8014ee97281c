"""The tree of switches that sums a job: the smallest one that holds the job's agents."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address

from switchml.common.switch_trees import unequal_values
from switchml.controller.agents import AgentSession
from switchml.controller.errors import InvalidRequest, NoFloats, NoRoom, SwitchUnavailable
from switchml.controller.records import JobSwitch
from switchml.controller.switches import ManagedSwitch, Switches
from switchml.dataplane.constants import Format

__all__ = ["JobTree", "most_below"]


@dataclass(frozen=True)
class JobTree:
    """The switches of a job, each one after the one above it; `parents` has the parent of each, "" for the top."""

    switches: list[ManagedSwitch]
    parents: dict[str, str]

    @classmethod
    def holding(cls, switches: Switches, agents: Mapping[str, str]) -> JobTree:
        """Return the smallest tree that holds the switches of `agents`, a map to the name of an agent, for messages.

        Raises:
            InvalidRequest: no switch is above all of them, those of the tree have different values per packet, or the
                program of one cannot be below another switch.
            SwitchUnavailable: a switch of the tree is not ready.

        """
        try:
            parents = switches.trees.smallest(agents)
        except ValueError as error:
            each = " and ".join(f"agent {agent} to switch {switch}" for switch, agent in agents.items())
            raise InvalidRequest(
                f"{error}: {each}; all ranks of a job need the same switch, or switches below one that they share"
            ) from None
        tree = cls([switches.get(name) for name in parents], parents)
        for switch in tree.switches:
            if not switch.ready:
                raise SwitchUnavailable(switch.why_not_ready())
            if parents[switch.name] and not switch.driver.capabilities.leaf:
                raise InvalidRequest(
                    f"the program of switch {switch.name} ({switch.config.target}) cannot be below another switch, and"
                    f" the job needs it below {parents[switch.name]}"
                )
        unequal = unequal_values((one.name, one.driver.capabilities.values_per_packet) for one in tree.switches)
        if unequal:
            raise InvalidRequest(f"{unequal}; all switches of a job's tree need the same number")
        return tree

    @classmethod
    def alone(cls, switch: ManagedSwitch) -> JobTree:
        """Return the tree of one switch."""
        return cls([switch], {switch.name: ""})

    @classmethod
    def over(cls, switches: Switches, aggregators: Sequence[str]) -> JobTree:
        """Return the aggregators of these names, which share the slots of a job; none is above another one.

        Raises:
            SwitchNotFound: no switch has one of the names.
            SwitchUnavailable: one is not ready.
            InvalidRequest: one is below another switch, or they differ in slots or values per packet.

        """
        tree = cls([switches.get(name) for name in aggregators], dict.fromkeys(aggregators, ""))
        for switch in tree.switches:
            if not switch.ready:
                raise SwitchUnavailable(switch.why_not_ready())
            if switch.config.parent is not None:
                raise InvalidRequest(
                    f"aggregator {switch.name} is below switch {switch.config.parent.switch}, to which it sends its"
                    " sums; name aggregators that have no parent"
                )
        abilities = [(one.name, one.driver.capabilities) for one in tree.switches]
        unequal = unequal_values((name, able.values_per_packet) for name, able in abilities)
        if unequal:
            raise InvalidRequest(f"{unequal}; all aggregators of a job need the same number")
        first, able = abilities[0]
        for name, other in abilities:
            if other.slots != able.slots:
                raise InvalidRequest(
                    f"switch {first} has {able.slots} slots and switch {name} has {other.slots}; all aggregators of a"
                    " job need the same number"
                )
        return tree

    def require_reach(self, sessions: Sequence[AgentSession]) -> None:
        """Check that packets of these agents can reach all switches of the tree, as aggregators.

        Raises:
            InvalidRequest: one has a loopback address and an agent has not, or is on another host, or the other way
                round; or only its own agents are at its ports.

        """
        hosts = sorted({session.registration.host for session in sessions})
        for switch, session in itertools.product(self.switches, dict.fromkeys(sessions)):
            name, address, theirs = switch.name, switch.config.address, session.registration.address
            local = IPv4Address(address).is_loopback
            if local != IPv4Address(theirs).is_loopback:
                raise InvalidRequest(
                    f"aggregator {name} has the address {address} and agent {session.name} has {theirs}: a loopback"
                    " address is reached from its own host alone; configure both with addresses of the network"
                )
            if local and len(hosts) > 1:
                raise InvalidRequest(
                    f"aggregator {name} has the loopback address {address}, and the agents are on {len(hosts)} hosts"
                    f" ({', '.join(hosts)}); give it the address of its host's data interface in the controller's"
                    " configuration"
                )
            if not switch.config.target.udp_ports and session.switch != name:
                raise InvalidRequest(
                    f"aggregator {name} ({switch.config.target}) has a port for each host, and agent {session.name} is"
                    f" attached to switch {session.switch}; only a soft switch takes packets of all agents at one port"
                )

    def require_tenant(self, tenant: str) -> None:
        """Check that jobs of this tenant may use all its switches.

        Raises:
            PermissionDenied: one is for another tenant.

        """
        for switch in self.switches:
            switch.require_tenant(tenant)

    @property
    def top(self) -> ManagedSwitch:
        """The switch that completes the sums."""
        return self.switches[0]

    def children(self, name: str) -> Iterator[ManagedSwitch]:
        """Yield the switches right below one."""
        return (switch for switch in self.switches if self.parents[switch.name] == name)

    def places(self, epoch: int, slot_base: int, slots: int, group: int) -> list[JobSwitch]:
        """Return the job's record for each switch."""
        return [
            JobSwitch(switch.name, epoch, slot_base, slots, group, upstream=self.parents[switch.name])
            for switch in self.switches
        ]

    def require_floats(self) -> None:
        """Check that all switches add floats as such.

        Raises:
            NoFloats: one does not.

        """
        for switch in self.switches:
            if Format.FLOAT32 not in switch.driver.capabilities.formats:
                raise NoFloats(
                    f"the program of switch {switch.name} ({switch.config.target}) does not add floats; a soft switch"
                    " does, and BMv2 with the program switchml_floats. Choose another switch, or start the job without"
                    " --wire floats"
                )

    def require_room(self, ranks: Mapping[str, int]) -> None:
        """Check that the bitmap of each switch has a bit for each rank and switch right below it, and for its parent.

        `ranks` has the number of ranks whose agents are attached to each switch.

        Raises:
            NoRoom: one has too few.

        """
        for switch in self.switches:
            count, below = ranks.get(switch.name, 0), sum(1 for _ in self.children(switch.name))
            most = most_below(switch, bool(self.parents[switch.name]))
            if count + below <= most:
                continue
            where = f" below switch {self.parents[switch.name]}" if self.parents[switch.name] else ""
            also = f" and {below} switches" if below else ""
            raise NoRoom(
                f"a job on switch {switch.name} ({switch.config.target}){where} has at most {most - below}"
                f" workers{also}, not {count}",
                workers=count,
                workers_maximum=most - below,
            )


def most_below(switch: ManagedSwitch, has_parent: bool) -> int:
    """Return how many ranks and switches of a job can be right below a switch; a parent takes a bit of the bitmap."""
    return switch.driver.capabilities.max_workers - int(has_parent)
