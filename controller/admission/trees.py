"""The tree of switches that sums a job.

Each pipe of a Tofino has separate registers, so its sums do not include packets that arrive through another pipe.
Therefore all ranks of a job must be behind one pipe, and so must the switches right below. Other targets have one
pipe.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from switchml.common.switch_trees import unequal_values
from switchml.controller.agents import AgentSession
from switchml.controller.errors import InvalidRequest, NoAgent, NoRoom, SwitchUnavailable
from switchml.controller.records import JobSwitch
from switchml.controller.switches import ManagedSwitch, Switches
from switchml.dataplane.constants import PROTOCOL_HEADER_BYTES

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

    def children(self, name: str) -> Iterator[ManagedSwitch]:
        """Yield the switches right below one."""
        return (switch for switch in self.switches if self.parents[switch.name] == name)

    def places(self, epoch: int, slot_base: int, slots: int, group: int) -> list[JobSwitch]:
        """Return the job's record for each switch."""
        return [
            JobSwitch(switch.name, epoch, slot_base, slots, group, upstream=self.parents[switch.name])
            for switch in self.switches
        ]

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

    def require_one_pipe(self, sessions: Sequence[AgentSession]) -> None:
        """Check that the agents of the ranks, and the switches right below each switch, are at one pipe of it.

        Raises:
            NoAgent: they are not.

        """
        for switch in self.switches:
            pipes: dict[int, dict[str, list[str]]] = {}
            for rank, session in enumerate(sessions):
                if session.switch == switch.name:
                    pipe = switch.driver.pipe(session.registration.switch_port)
                    pipes.setdefault(pipe, {}).setdefault("ranks", []).append(str(rank))
            for child in self.children(switch.name):
                assert child.config.parent is not None, "it is below another switch"
                pipe = switch.driver.pipe(child.config.parent.port)
                pipes.setdefault(pipe, {}).setdefault("switches", []).append(child.name)
            if len(pipes) > 1:
                where = [
                    f"pipe {pipe} has " + " and ".join(f"{what} {', '.join(names)}" for what, names in attached.items())
                    for pipe, attached in sorted(pipes.items())
                ]
                raise NoAgent(
                    f"a job's ranks must be on ports of one pipe of switch {switch.name}; pipes share no registers:"
                    f" {'; '.join(where)}"
                )

    def require_messages(self, sessions: Sequence[AgentSession]) -> None:
        """Check that the RDMA cards of agents can send to the switches, and that packets fit them.

        Raises:
            InvalidRequest: they cannot, or do not.

        """
        over_aggregators = len(self.switches) > 1 and not any(self.parents.values())
        for session in dict.fromkeys(sessions):
            largest = session.registration.largest_message
            reached = [one for one in self.switches if over_aggregators or one.name == session.switch]
            for switch in reached if largest else []:
                if not switch.driver.capabilities.rocev2 or switch.config.udp_ports:
                    what = "ports that are UDP sockets" if switch.config.udp_ports else "a program"
                    raise InvalidRequest(
                        f"agent {session.name} sends the messages of an RDMA card, and switch {switch.name}"
                        f" ({switch.config.target}) has {what} that cannot take them; start the agent with another"
                        " --transport"
                    )
                values = switch.driver.capabilities.values_per_packet
                needed = PROTOCOL_HEADER_BYTES + 4 * values
                if needed > largest:
                    raise InvalidRequest(
                        f"packets of switch {switch.name} have {values} values, {needed} bytes, and the RDMA card of"
                        f" agent {session.name} takes messages of {largest}; raise the MTU of its interface, or give"
                        f" the switch at most {(largest - PROTOCOL_HEADER_BYTES) // 4} values per packet"
                    )


def most_below(switch: ManagedSwitch, has_parent: bool) -> int:
    """Return how many ranks and switches of a job can be right below a switch; a parent takes a bit of the bitmap."""
    return switch.driver.capabilities.max_workers - int(has_parent)
