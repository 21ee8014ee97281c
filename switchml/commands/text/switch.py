"""Text about switches and agents."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from rich.text import Text

from switchml.commands.switch import AgentFound, AgentList, Losses, PortList, SwitchEntries, SwitchFound, SwitchList
from switchml.commands.text.printing import Part, text
from switchml.commands.text.tables import FittedTable, age, packet_columns, packet_counts, ranges, table
from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.proto.words import enum_word
from switchml.dataplane.table_names import LOSS_TABLES

__all__: list[str] = []


@text.register(SwitchList)
def _(found: SwitchList) -> Iterator[Part]:
    yield _switches(found.switches) if found.switches else "the controller's configuration has no switch"


@text.register(SwitchFound)
def _(found: SwitchFound) -> Iterator[Part]:
    yield _switches([found.switch])


def _switches(switches: Sequence[pb.Switch]) -> FittedTable:
    columns = ("name", "target", "control", "data plane", "values", "slots", "free", "largest range", "state")
    drop = ("largest range", "control", "data plane", "values", "target")
    made = table(*columns, right=columns[4:8], drop=drop, wrap=("state",))
    for switch in switches:
        made.add_row(
            switch.name,
            switch.target,
            switch.control_address,
            f"{switch.data_address}:{switch.data_udp_port}",
            str(switch.values_per_packet),
            f"{switch.slots:,}",
            f"{switch.slots_free:,}",
            f"{switch.largest_free_range:,}",
            _switch_state(switch),
        )
    return made


def _switch_state(switch: pb.Switch) -> Text:
    if not switch.connected:
        return Text(switch.failure or "down", style="red")
    if not switch.primary:
        return Text("connected, not primary", style="yellow")
    if switch.drained:
        return Text(f"drained, {switch.jobs} jobs left", style="yellow")
    return Text("connected", style="green")


@text.register(SwitchEntries)
def _(found: SwitchEntries) -> Iterator[Part]:
    detail = found.detail
    yield _switches([detail.switch])
    tables: dict[str, list[pb.TableEntry]] = defaultdict(list)
    for entry in detail.entries:
        tables[entry.table].append(entry)
    for name, entries in tables.items():
        if name not in LOSS_TABLES.values():  # the loss tables are shown below
            yield _entries(name, entries)
    yield _groups(detail.groups) if detail.groups else "multicast groups: none"
    for title, counts in (("packets by verdict", detail.verdicts), ("packets dropped", detail.drop_reasons)):
        counted = table("", "packets", title=title, right=("packets",))
        for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
            counted.add_row(name.replace("_", " "), f"{count:,}")
        yield counted if counts else f"{title}: none"
    yield _losses(detail.losses)


def _entries(name: str, entries: Sequence[pb.TableEntry]) -> FittedTable:
    keys = sorted({key for entry in entries for key in entry.match})  # maps of protobuf are not ordered
    counted = any(entry.HasField("packets") for entry in entries)
    columns = [*keys, "action"] + (["packets"] if counted else [])
    made = table(*columns, title=f"{name} ({len(entries)})", right=("packets",), wrap=("action",))
    for entry in entries:
        parameters = ", ".join(f"{key}={value}" for key, value in sorted(entry.parameters.items()))
        row = [entry.match.get(key, "*") for key in keys] + [f"{entry.action}({parameters})"]
        if counted:
            row.append(f"{entry.packets:,}" if entry.HasField("packets") else "")
        made.add_row(*row)
    return made


def _groups(groups: Sequence[pb.MulticastGroup]) -> FittedTable:
    made = table(
        "group", "port", "ranks", title=f"multicast groups ({len(groups)})", right=("group", "port"), wrap=("ranks",)
    )
    for group in groups:
        ports: dict[int, list[int]] = defaultdict(list)
        for replica in group.replicas:
            ports[replica.port].append(replica.instance)
        for port, instances in sorted(ports.items()):
            made.add_row(str(group.id), str(port), ranges(instances))
    return made


@text.register(Losses)
def _(found: Losses) -> Iterator[Part]:
    yield _losses(found.losses)


def _losses(losses: Sequence[pb.PortLoss]) -> FittedTable | str:
    if not losses:
        return "no port drops packets on purpose"
    columns = ("port", "coming in", "leaving")
    made = table(*columns, title="packets dropped on purpose", right=columns)
    for loss in losses:
        made.add_row(str(loss.port), f"{loss.ingress:.4%}", f"{loss.egress:.4%}")
    return made


@text.register(PortList)
def _(found: PortList) -> Iterator[Part]:
    if not found.ports:
        yield "no agent is attached to a port of the switch"
        return
    columns = ("port", "agents", "ranks", "contributions", "contributions/s", "results/s", "lost in", "lost out")
    drop = ("contributions", "lost in", "lost out", "ranks")
    made = table(*columns, right=(columns[0], *columns[2:]), drop=drop, wrap=("agents",))
    for port in found.ports:
        made.add_row(
            str(port.port),
            ", ".join(port.agents),
            str(port.ranks),
            f"{port.contributions:,}",
            f"{port.contributions_per_second:,.0f}",
            f"{port.results_per_second:,.0f}",
            f"{port.ingress_loss:.4%}",
            f"{port.egress_loss:.4%}",
        )
    yield made


@text.register(AgentList)
def _(found: AgentList) -> Iterator[Part]:
    yield _agents(found.agents) if found.agents else "no agent has registered with the controller"


def _agents(agents: Sequence[pb.Agent]) -> FittedTable:
    columns = ("name", "tenant", "host", "address", "socket", "switch", "port", "ranks", "heartbeat")
    drop = ("socket", "version", "port", "tenant", "address", "host", "switch")
    made = table(*columns, "version", "state", right=("port", "ranks", "heartbeat"), drop=drop)
    for agent in agents:
        registration = agent.registration
        made.add_row(
            agent.name,
            "shared" if agent.shared else agent.tenant,
            registration.host,
            registration.address,
            registration.socket,
            registration.switch,
            str(registration.switch_port),
            f"{agent.ranks_in_use} of {registration.max_ranks}" if registration.max_ranks else str(agent.ranks_in_use),
            f"{age(agent.last_heartbeat)} ago" if agent.last_heartbeat else "",
            registration.version,
            Text("live", style="green") if agent.live else Text("gone", style="red"),
        )
    return made


@text.register(AgentFound)
def _(found: AgentFound) -> Iterator[Part]:
    yield _agents([found.agent])
    columns = ("job", "rank", "state", "chunks", *packet_columns())
    made = table(*columns, right=("rank", *columns[3:]), drop=("sent", "retransmitted"))
    for job, rank in found.carried():
        state = enum_word(pb.RankState, rank.state)
        made.add_row(job.name, str(rank.rank), state, f"{rank.position:,}", *packet_counts(rank))
    yield made if made.rows else "it has no ranks of live jobs"
