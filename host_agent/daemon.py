"""The agent's process, `switchml-agent`."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import socket
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from ipaddress import AddressValueError, IPv4Address
from pathlib import Path
from typing import Final

import click

from switchml.common.clock import chosen_clock
from switchml.common.daemon import DaemonOptions, daemon_options, run, stop_on_signals
from switchml.common.job_numbers import HIGHEST_PORT, MAX_PRIORITY
from switchml.common.version import VERSION
from switchml.controller.proto import switchml_pb2 as pb
from switchml.dataplane.constants import PROTOCOL_VERSION
from switchml.dataplane.devices import DEVICE_TRANSPORTS, Poll, open_dpdk, open_rdma, open_xdp
from switchml.host_agent._engine import SLOT_USES, SOCKET_BUFFER_BYTES, Engine, granted_socket_buffers, shm_port_at
from switchml.host_agent.agent import Agent
from switchml.host_agent.errors import AgentError, DeviceLost
from switchml.host_agent.messages import JobFailure
from switchml.host_agent.outbox import Outbox
from switchml.host_agent.ranks import EngineRanks
from switchml.host_agent.session import Session
from switchml.host_agent.socket_server import SocketServer

__all__ = ["AgentOptions", "main", "serve"]

_log = logging.getLogger(__name__)
_HIGHEST_DSCP: Final = 63
_ONE_THREAD: Final = {"xdp": "AF_XDP has one queue", "rdma": "an RDMA device has one queue pair for each job"}


@dataclass(frozen=True)
class AgentOptions:
    """The agent's options; the command line documents those of the same names."""

    controller: str
    name: str
    address: str
    socket: Path
    switch: str = ""
    switch_port: int = 1
    mac: str = "00:00:00:00:00:00"
    max_ranks: int = 64
    transport: str = "auto"
    switch_socket: Path | None = None
    device: str = ""
    dpdk_eal: str = ""
    dpdk_mtu: int = 0
    poll: Poll = "adaptive"
    next_hop: str | None = None
    threads: int = 1
    dscp: Mapping[int, int] = field(default_factory=dict)  # of packets, by the priority of their job
    slot_uses: int = SLOT_USES  # per epoch; tests use fewer
    largest_message: int = 0  # of the RDMA device, in bytes, once it is open
    daemon: DaemonOptions = field(default_factory=DaemonOptions)

    def registration(self) -> pb.Register:
        """Return a new registration message that describes the agent to the controller."""
        return pb.Register(
            version=VERSION,
            protocol_version=PROTOCOL_VERSION,
            name=self.name,
            host=socket.gethostname(),
            address=self.address,
            mac=self.mac,
            socket=str(self.socket),
            switch=self.switch,
            switch_port=self.switch_port,
            max_ranks=self.max_ranks,
            pid=os.getpid(),
            instance=uuid.uuid4().hex,
            largest_message=self.largest_message,
        )


def _choose_transport(options: AgentOptions) -> AgentOptions:
    """Return the options with the transport to use and its switch port filled in.

    Raises:
        OSError, ValueError: shared memory was requested and no switch answers at its socket, or options contradict each
            other.

    """
    if options.transport in DEVICE_TRANSPORTS:
        if not options.device:
            raise ValueError(f"transport {options.transport} needs a device (--device)")
        if options.transport in _ONE_THREAD and options.threads != 1:
            raise ValueError(
                f"{_ONE_THREAD[options.transport]}, which one data thread moves, not {options.threads}: --threads is"
                " for the transports udp and dpdk"
            )
        return replace(options, switch_socket=None)
    if options.device:
        raise ValueError(f"--device {options.device} is for --transport dpdk, xdp or rdma, not {options.transport}")
    if options.transport == "udp" or (options.transport == "auto" and options.switch_socket is None):
        return replace(options, transport="udp", switch_socket=None)
    if options.switch_socket is None:
        raise ValueError("shared memory needs the switch's socket (--switch-socket)")
    try:
        port = shm_port_at(str(options.switch_socket))
    except (OSError, ValueError) as error:
        if options.transport == "shm":
            raise
        _log.warning("packets go over UDP: %s", error)
        return replace(options, transport="udp", switch_socket=None)
    _log.info("ranks share memory with the switch at %s, port %d", options.switch_socket, port)
    return replace(options, transport="shm", switch_port=port)


def _make_engine(options: AgentOptions) -> tuple[Engine, AgentOptions]:
    """Return the engine, and the options with the MAC address of the device that it uses.

    Raises:
        OSError, ValueError: the device cannot be opened; the message says why.

    """
    if options.transport not in DEVICE_TRANSPORTS:
        return Engine(options.threads, slot_uses=options.slot_uses), options
    if options.transport == "rdma":
        card = open_rdma(options.device, options.address)
        _log.info("packets are messages of %s (%s)", options.device, card.driver or "software")
        engine = Engine(messages=card.messages, slot_uses=options.slot_uses)
        return engine, replace(options, mac=card.mac_text, largest_message=card.largest_message)
    if options.transport == "dpdk":
        device = open_dpdk(options.device, options.dpdk_eal, options.dpdk_mtu, queues=options.threads)
    else:
        device = open_xdp(options.device)
    _log.info("packets go over %s: %s, MAC %s", options.device, device.description, device.mac_text)
    next_hop = None if options.next_hop is None else int(options.next_hop.replace(":", ""), 16)
    engine = Engine(
        options.threads, queues=device.queues, address=options.address, next_hop=next_hop, busy=options.poll == "busy"
    )
    return engine, replace(options, mac=device.mac_text)


async def serve(options: AgentOptions, stop: asyncio.Event) -> None:
    """Run the agent until `stop` is set.

    Raises:
        RegistrationRefused: the controller refuses this agent.
        DeviceLost: the device cannot be used any more.
        TlsError: certificates are missing or not usable.
        SocketUnusable: the agent's socket cannot be created.
        OSError, ValueError: no switch answers at the socket for shared memory.

    """
    security = options.daemon.security
    for controller in options.controller.split(","):
        certificates = security.certificates_for(controller)
        if certificates is not None:
            certificates.read()  # report unusable certificates at the start; later reads are retried
    options = _choose_transport(options)
    if options.transport == "udp":
        _warn_of_small_buffers()
    engine, options = _make_engine(options)
    engine.start()
    outbox = Outbox()
    ranks = EngineRanks(engine, options.address, options.switch_socket, options.dscp)
    agent = Agent(options.name, ranks, options.max_ranks, outbox.put)
    session = Session(options.controller, security, options.registration(), agent, outbox, chosen_clock())
    server = SocketServer(options.socket, agent.attachments, session)
    metrics = None
    if options.daemon.metrics is not None:
        # The metrics server takes a tenth of a second to import.
        from switchml.common.metrics_server import MetricsExporter, on_loop
        from switchml.host_agent.metrics import AgentMetrics

        numbers = AgentMetrics(engine, agent.jobs, options.name, options.transport, lambda: outbox.connected)
        metrics = MetricsExporter(options.daemon.metrics, on_loop(numbers), security.certificates).address
    end = "was stopped"
    ready = {"socket": str(options.socket), "name": options.name} | ({} if metrics is None else {"metrics": metrics})
    tasks: list[asyncio.Task[object]] = []
    try:
        server.start()
        running = session.run(on_registered=lambda: options.daemon.ready_file.write(**ready))
        tasks = [asyncio.create_task(each) for each in (running, stop.wait(), _device_lost(engine))]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    except DeviceLost as lost:
        end = f"has ended: {lost}"
        agent.attachments.lose_all(str(lost))
        raise
    finally:
        await session.delivered()  # otherwise ranks that have just closed would be taken for lost
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await agent.stop(JobFailure("AgentLost", (), f"agent {options.name} {end}"))
        await server.close()
        options.daemon.ready_file.clear()
        engine.stop()
        if options.transport in DEVICE_TRANSPORTS:
            _log.info("%s: %s", options.device, engine.link_counters())


async def _device_lost(engine: Engine) -> None:
    """Wait until the engine's device cannot be used any more. Raises DeviceLost, which says why."""
    loop, descriptor, lost = asyncio.get_running_loop(), engine.lost_descriptor(), asyncio.Event()
    if descriptor >= 0:
        loop.add_reader(descriptor, lost.set)
    try:
        await lost.wait()
    finally:
        if descriptor >= 0:
            loop.remove_reader(descriptor)
    raise DeviceLost(engine.lost())


def _warn_of_small_buffers() -> None:
    """Warn about system limits that keep socket buffers smaller than they should be."""
    granted = granted_socket_buffers()
    for direction, limit, size in zip(("receive", "send"), ("rmem_max", "wmem_max"), granted, strict=True):
        if size < SOCKET_BUFFER_BYTES:
            _log.warning(
                "%s buffers of %d bytes instead of %d: the kernel limits them and drops packets in larger bursts; "
                "as root on this machine, outside of any container: sysctl -w net.core.%s=%d",
                *(direction, size, SOCKET_BUFFER_BYTES, limit, SOCKET_BUFFER_BYTES),
            )


async def _serve_until_signal(options: AgentOptions) -> None:
    await serve(options, stop_on_signals())


def _check_controller(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    for address in value.split(","):
        host, separator, port = address.rpartition(":")
        known = host and separator and port.isascii() and port.isdigit() and 0 < int(port) < 2**16
        if not known and not address.startswith("unix:/"):
            raise click.BadParameter(f"{address!r} is neither HOST:PORT nor unix:/PATH")
    return value


def _check_address(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    try:
        return str(IPv4Address(value))
    except AddressValueError as error:
        raise click.BadParameter(f"{value!r} is not an IPv4 address") from error


def _check_mac(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    if not re.fullmatch(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}", value):
        raise click.BadParameter(f"{value!r} is not a MAC address like 02:00:00:00:00:01")
    return value.lower()


def _check_optional_mac(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    return None if value is None else _check_mac(context, parameter, value)


def _check_dscp(_context: click.Context, _parameter: click.Parameter, value: str) -> dict[int, int]:
    """Return the DSCP of each priority that `value` names."""
    found: dict[int, int] = {}
    for pair in filter(None, value.split(",")):
        match = re.fullmatch(r"([0-9]+)=([0-9]{1,2})", pair, re.ASCII)
        if match is None:
            raise click.BadParameter(f"{pair!r} is not PRIORITY=DSCP, such as 7=46")
        priority, dscp = int(match[1]), int(match[2])
        if priority > MAX_PRIORITY or dscp > _HIGHEST_DSCP:
            raise click.BadParameter(f"{pair!r}: a priority is at most {MAX_PRIORITY}, a DSCP at most {_HIGHEST_DSCP}")
        if priority in found:
            raise click.BadParameter(f"priority {priority} is there twice")
        found[priority] = dscp
    return found


def _default_socket(_context: click.Context, _parameter: click.Parameter, value: Path | None) -> Path:
    if value is not None:
        return value
    directory = os.environ.get("SWITCHML_RUN_DIR")
    if not directory:
        raise click.BadParameter("give this option, or set SWITCHML_AGENT or SWITCHML_RUN_DIR")
    return Path(directory, "agent.sock").resolve()


_EXAMPLE = """\b
Example:
  switchml-agent --controller 10.0.0.1:9800 --address 10.0.0.7 --socket /run/switchml/agent.sock
"""


@click.command(context_settings={"help_option_names": ["-h", "--help"]}, epilog=_EXAMPLE)
@click.option(
    "--controller",
    envvar="SWITCHML_CONTROLLER",
    required=True,
    metavar="HOST:PORT|unix:/PATH",
    callback=_check_controller,
    help="The controller's gRPC address; with a standby controller, both addresses separated by a comma.  [env: "
    "SWITCHML_CONTROLLER]",
)
@click.option(
    "--name", default=socket.gethostname, help="Name of this agent, unique in the fabric.  [default: hostname]"
)
@click.option(
    "--address",
    default="127.0.0.1",
    show_default=True,
    callback=_check_address,
    help="IPv4 address of this host's data interface.",
)
@click.option(
    "--socket",
    "socket_path",
    envvar="SWITCHML_AGENT",
    callback=_default_socket,
    type=click.Path(path_type=Path, resolve_path=True, dir_okay=False),
    help="Unix socket for training processes.  [env: SWITCHML_AGENT; default: agent.sock in SWITCHML_RUN_DIR]",
)
@click.option("--switch", default="", help="Name of the switch that this host is attached to.  [default: the only one]")
@click.option(
    "--switch-port",
    type=click.IntRange(1, HIGHEST_PORT),
    default=1,
    show_default=True,
    help="Port of that switch to which this host is attached.",
)
@click.option(
    "--mac",
    default="00:00:00:00:00:00",
    show_default=True,
    callback=_check_mac,
    help="MAC address of the data interface; all zeros on UDP ports of the soft switch.",
)
@click.option(
    "--transport",
    type=click.Choice(["auto", "shm", "udp", "dpdk", "xdp", "rdma"]),
    default="auto",
    show_default=True,
    help="How ranks reach the switch: over UDP, or through memory that they share with a soft switch on this "
    "machine; auto uses shared memory if a switch answers at --switch-socket, which then assigns the port. "
    "dpdk and xdp send and receive frames on --device themselves, rdma messages (docs/guides/transports.md).",
)
@click.option(
    "--switch-socket",
    envvar="SWITCHML_SWITCH_SOCKET",
    type=click.Path(path_type=Path, resolve_path=True, dir_okay=False),
    help="Unix socket of the switch's shm port.  [env: SWITCHML_SWITCH_SOCKET]",
)
@click.option(
    "--device",
    default="",
    metavar="DEVARGS|INTERFACE|NAME",
    help="The data interface: for dpdk a PCI address or a virtual device with its options, for xdp the name of "
    "an interface, for rdma that of an RDMA device such as mlx5_0, or of one of its ports, mlx5_0/2. Its MAC address "
    "replaces --mac.",
)
@click.option("--dpdk-eal", default="", metavar="ARGUMENTS", help="Arguments of DPDK's environment, in one string.")
@click.option(
    "--dpdk-mtu",
    type=click.IntRange(0, 65535),
    default=0,
    show_default=True,
    help="MTU of the DPDK device, in bytes; 0: keep the device's.",
)
@click.option(
    "--poll",
    type=click.Choice(["adaptive", "busy"]),
    default="adaptive",
    show_default=True,
    help="Whether the data thread of dpdk and xdp sleeps when no packets arrive; busy occupies one CPU.",
)
@click.option(
    "--next-hop",
    callback=_check_optional_mac,
    metavar="MAC",
    help="MAC address to which dpdk and xdp send frames if the switch is not on the same network.  [default: "
    "resolved by ARP]",
)
@click.option(
    "--threads",
    envvar="SWITCHML_AGENT_THREADS",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Number of data threads that share each rank's slots, for udp and dpdk.  [env: SWITCHML_AGENT_THREADS]",
)
@click.option(
    "--dscp",
    envvar="SWITCHML_AGENT_DSCP",
    default="",
    metavar="PRIORITY=DSCP,...",
    callback=_check_dscp,
    help="The DSCP of the packets of jobs of each priority, such as 0=8,7=46, for a network that has queues for them. "
    "It is 0 for other priorities. Ranks that share memory send no packets.  [env: SWITCHML_AGENT_DSCP]",
)
@click.option(
    "--max-ranks",
    type=click.IntRange(1, 4096),
    default=64,
    show_default=True,
    help="Maximum number of ranks, over all jobs.",
)
@daemon_options("switchml-agent", "SWITCHML_AGENT", "once the agent is registered and listens")
def main(
    controller: str,
    name: str,
    address: str,
    socket_path: Path,
    switch: str,
    switch_port: int,
    mac: str,
    max_ranks: int,
    transport: str,
    switch_socket: Path | None,
    device: str,
    dpdk_eal: str,
    dpdk_mtu: int,
    poll: Poll,
    next_hop: str | None,
    threads: int,
    dscp: dict[int, int],
    daemon: DaemonOptions,
) -> None:
    """Move packets between the training processes of this host and the switch.

    Exit status: 0 when stopped by SIGTERM or SIGINT, 1 after an error that the agent cannot recover from, 2 for wrong
    options.
    """
    options = AgentOptions(
        controller=controller,
        name=name,
        address=address,
        socket=socket_path,
        switch=switch,
        switch_port=switch_port,
        mac=mac,
        max_ranks=max_ranks,
        transport=transport,
        switch_socket=switch_socket,
        device=device,
        dpdk_eal=dpdk_eal,
        dpdk_mtu=dpdk_mtu,
        poll=poll,
        next_hop=next_hop,
        threads=threads,
        dscp=dscp,
        daemon=daemon,
    )
    run(_serve_until_signal(options), AgentError, ValueError)


if __name__ == "__main__":
    main()
