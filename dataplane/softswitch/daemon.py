"""The soft switch as a process, ``switchml-switch``."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import click

from switchml.common.daemon import DaemonOptions, daemon_options, run, stop_on_signals
from switchml.common.grpc_address import parse_grpc_address
from switchml.common.grpc_connections import BusyPeers, limit_connections
from switchml.common.grpc_stop import last_tasks_end, stop_server
from switchml.common.version import VERSION
from switchml.dataplane.constants import PROTOCOL_MAX_SLOT_INDEX, PROTOCOL_MAX_VALUES
from switchml.dataplane.devices import Poll
from switchml.dataplane.softswitch._native import UDP_PORT_BUFFER_BYTES, Switch
from switchml.dataplane.softswitch.device import P4RuntimeDevice
from switchml.dataplane.softswitch.pipeline_config import Dimensions
from switchml.dataplane.softswitch.ports import (
    DpdkPort,
    FramePort,
    PacketPort,
    Port,
    ShmPort,
    UdpPort,
    XdpPort,
    parse_dpdk_port,
    parse_frame_port,
    parse_packet_port,
    parse_shm_port,
    parse_udp_port,
    parse_xdp_port,
)
from switchml.dataplane.softswitch.server import create_server
from switchml.dataplane.softswitch.servicer import Servicer

__all__ = ["SoftSwitchOptions", "main", "serve"]

_LOG = logging.getLogger(__name__)

_DEFAULT_PORT = UdpPort(1, "127.0.0.1", 48864)
_STOP_GRACE_SECONDS = 0.5


def _checked_address(text: str) -> str:
    """Return a text that is a gRPC address. Raises ValueError if it is not."""
    parse_grpc_address(text)
    return text


@dataclass(frozen=True)
class SoftSwitchOptions:
    """The options of the process. Drop, duplicate, delay and flip are fractions of the packets, 0 to 1."""

    grpc: str  # HOST:PORT or unix:/PATH
    device_id: int
    ports: tuple[Port, ...]
    dimensions: Dimensions
    shards: int = 1
    drop: float = 0.0
    duplicate: float = 0.0
    delay: float = 0.0
    flip: float = 0.0
    seed: int = 0
    daemon: DaemonOptions = field(default_factory=DaemonOptions)


_T = TypeVar("_T")


def _option(parse: Callable[[str], _T]) -> Callable[[str], _T]:
    """Return a parser of an option's value whose ValueError click reports to the user."""

    def parsed(text: str) -> _T:
        try:
            return parse(text)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return parsed


async def serve(options: SoftSwitchOptions) -> None:
    """Run the switch until SIGTERM or SIGINT.

    Raises OSError, with a message for the user, if a port cannot be opened or the ready file cannot be written, and
    TlsError if certificates are missing or not usable.
    """
    security = options.daemon.security
    security.certificates_for(options.grpc)  # before anything else is created
    stop = stop_on_signals()
    switch = Switch(options.dimensions.slots, options.dimensions.values_per_packet, options.shards)
    ports = {one.number: one.add_to(switch) for one in options.ports}
    for port in ports:
        switch.set_faults(port, options.drop, options.duplicate, options.delay, options.seed, options.flip)
    device = P4RuntimeDevice(switch, frozenset(ports), options.dimensions)
    servicer = Servicer(options.device_id, device)
    metrics = None
    if options.daemon.metrics is not None:
        # The metrics server takes a tenth of a second to import.
        from switchml.common.metrics_server import MetricsExporter, on_loop
        from switchml.dataplane.softswitch.metrics import SwitchMetrics, jobs_of

        jobs = on_loop(lambda: jobs_of(device))
        numbers = SwitchMetrics(switch, ports, VERSION, jobs)
        metrics = MetricsExporter(options.daemon.metrics, numbers, security.certificates).address
    busy = BusyPeers()
    server, grpc_address = create_server(servicer, options.grpc, busy, security)
    await server.start()
    tasks = [asyncio.create_task(limit_connections(grpc_address, busy)), asyncio.create_task(stop.wait())]
    switch.start()
    try:
        _LOG.info("device %d serves P4Runtime on %s", options.device_id, grpc_address)
        for port, endpoint in ports.items():
            _LOG.info("port %d is %s", port, ", ".join(f"{name} {value}" for name, value in endpoint.items()))
            _warn_of_small_buffers(port, switch)
        served = {} if metrics is None else {"metrics": metrics}
        options.daemon.ready_file.write(grpc=grpc_address, ports=ports, **served)
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()  # an exception is raised here
        _LOG.info("stopping")
    finally:
        for task in tasks:
            task.cancel()
        servicer.end_streams()
        await stop_server(server, _STOP_GRACE_SECONDS)
        await last_tasks_end(_STOP_GRACE_SECONDS)
        switch.stop()
        for port in ports:
            _LOG.info("port %d: %s", port, switch.port_counters(port))
        _remove_sockets(ports)


def _remove_sockets(ports: Mapping[int, Mapping[str, str | int]]) -> None:
    """Remove the sockets that the native ports' destructors would remove: the process exits without those."""
    for endpoint in ports.values():
        if "path" in endpoint:
            Path(str(endpoint["path"])).unlink(missing_ok=True)


def _warn_of_small_buffers(port: int, switch: Switch) -> None:
    """Warn about system limits that keep the buffers of a UDP port smaller than they should be."""
    counters = switch.port_counters(port)
    for direction, limit in (("receive", "net.core.rmem_max"), ("send", "net.core.wmem_max")):
        granted = counters["receive_buffer"] if direction == "receive" else counters["send_buffer"]
        if counters["udp_port"] and granted < UDP_PORT_BUFFER_BYTES:
            _LOG.warning(
                "port %d: %s buffer of %d bytes instead of %d: the kernel limits it and drops packets in larger "
                "bursts; as root on this machine, outside of any container: sysctl -w %s=%d",
                *(port, direction, granted, UDP_PORT_BUFFER_BYTES, limit, UDP_PORT_BUFFER_BYTES),
            )


_FRACTION = click.FloatRange(0, 1)


@click.command(context_settings={"auto_envvar_prefix": "SWITCHML_SWITCH", "show_default": True})
@click.option(
    "--grpc",
    "endpoint",
    envvar="SWITCHML_SWITCH_GRPC",
    type=_option(_checked_address),
    metavar="HOST:PORT|unix:/PATH",
    default="127.0.0.1:9559",
    help="Address of the P4Runtime server; port 0 lets the kernel choose. A Unix socket is accessible to this "
    "user only.",
)
@click.option("--device-id", type=click.IntRange(1, 2**64 - 1), default=1, help="P4Runtime device id.")
@click.option(
    "--udp-port",
    "udp_ports",
    envvar="SWITCHML_SWITCH_UDP_PORT",
    type=_option(parse_udp_port),
    metavar="PORT=ADDRESS:UDPPORT",
    multiple=True,
    help="A switch port and its UDP socket; repeat for more ports. UDP port 0 lets the kernel choose. Default "
    "if no port of any kind is given: 1=127.0.0.1:48864.",
)
@click.option(
    "--frame-port",
    "frame_ports",
    envvar="SWITCHML_SWITCH_FRAME_PORT",
    type=_option(parse_frame_port),
    metavar="PORT=PATH,PEER",
    multiple=True,
    help="A switch port that receives Ethernet frames as datagrams on the Unix socket PATH and sends them to PEER.",
)
@click.option(
    "--packet-port",
    "packet_ports",
    envvar="SWITCHML_SWITCH_PACKET_PORT",
    type=_option(parse_packet_port),
    metavar="PORT=INTERFACE",
    multiple=True,
    help="A switch port that is a network interface.",
)
@click.option(
    "--shm-port",
    "shm_ports",
    envvar="SWITCHML_SWITCH_SHM_PORT",
    type=_option(parse_shm_port),
    metavar="PORT=PATH",
    multiple=True,
    help="A switch port for ranks on this machine that share memory with the switch; agents reach it at the "
    "Unix socket PATH.",
)
@click.option(
    "--dpdk-port",
    "dpdk_ports",
    envvar="SWITCHML_SWITCH_DPDK_PORT",
    type=_option(parse_dpdk_port),
    metavar="PORT=DEVARGS",
    multiple=True,
    help="A switch port that is a DPDK port: a PCI address or a virtual device, such as "
    "1=net_memif0,role=server,socket=/run/switchml/memif.sock.",
)
@click.option(
    "--xdp-port",
    "xdp_ports",
    envvar="SWITCHML_SWITCH_XDP_PORT",
    type=_option(parse_xdp_port),
    metavar="PORT=INTERFACE",
    multiple=True,
    help="A switch port that is an AF_XDP socket on a network interface; packets other than SwitchML's stay "
    "with the kernel.",
)
@click.option("--dpdk-eal", default="", metavar="ARGUMENTS", help="Arguments of DPDK's environment, in one string.")
@click.option(
    "--dpdk-mtu", type=click.IntRange(0, 65535), default=0, help="MTU of DPDK ports, in bytes; 0: keep the port's."
)
@click.option(
    "--poll",
    type=click.Choice(["adaptive", "busy"]),
    default="adaptive",
    help="Whether DPDK and AF_XDP ports let the data thread sleep when nothing comes; busy takes a whole CPU.",
)
@click.option(
    "--values",
    type=click.IntRange(1, PROTOCOL_MAX_VALUES),
    default=256,
    help="Values per packet, unless the device configuration gives them.",
)
@click.option(
    "--slots",
    type=click.IntRange(1, PROTOCOL_MAX_SLOT_INDEX + 1),
    default=4096,
    help="Pool indexes, unless the device configuration gives them.",
)
@click.option(
    "--shards",
    type=click.IntRange(1, 64),
    default=1,
    help="Threads that share the slots, each with a socket of every UDP port and a queue of every DPDK port; "
    "more than one only with no other kinds of port.",
)
@click.option(
    "--shm-threads",
    type=click.IntRange(0, 64),
    default=1,
    help="Threads of each shared-memory port, which add up; 0: one for each CPU.",
)
@click.option("--drop", type=_FRACTION, default=0.0, help="Fraction of packets to drop on purpose, in each direction.")
@click.option("--duplicate", type=_FRACTION, default=0.0, help="Fraction of packets to send or receive twice.")
@click.option("--delay", type=_FRACTION, default=0.0, help="Fraction of packets to delay until later ones have passed.")
@click.option("--flip", type=_FRACTION, default=0.0, help="Fraction of packets in whose UDP payload to flip one bit.")
@click.option("--seed", type=click.IntRange(0, 2**64 - 1), default=0, help="Seed of the injected faults.")
@daemon_options("switchml-switch", "SWITCHML_SWITCH", "once everything listens")
def main(
    endpoint: str,
    device_id: int,
    udp_ports: tuple[UdpPort, ...],
    frame_ports: tuple[FramePort, ...],
    packet_ports: tuple[PacketPort, ...],
    shm_ports: tuple[ShmPort, ...],
    dpdk_ports: tuple[DpdkPort, ...],
    xdp_ports: tuple[XdpPort, ...],
    dpdk_eal: str,
    dpdk_mtu: int,
    poll: Poll,
    values: int,
    slots: int,
    shards: int,
    shm_threads: int,
    drop: float,
    duplicate: float,
    delay: float,
    flip: float,
    seed: int,
    daemon: DaemonOptions,
) -> None:
    """Run the SwitchML soft switch: ports for packets, and a P4Runtime server to control it.

    Any P4Runtime client can drive it, with the p4info of dataplane/p4/build/bmv2/switchml.p4info.txtpb. Every option
    is also an environment variable SWITCHML_SWITCH_<OPTION>. SIGTERM and SIGINT end it with exit status 0, a port or
    file that cannot be opened with 1, a wrong option with 2.

    \b
    Examples:
      switchml-switch
      switchml-switch --grpc 0.0.0.0:9559 --tls /etc/switchml/tls --udp-port 1=10.0.0.1:48864
      switchml-switch --grpc 127.0.0.1:0 --udp-port 1=127.0.0.1:0 --ready-file /tmp/switch.json --drop 0.01
      switchml-switch --packet-port 1=eth1 --packet-port 2=eth2
      switchml-switch --xdp-port 1=eth1
      switchml-switch --dpdk-port 1=0000:3b:00.0 --poll busy

    """  # noqa: D301 (the escape is click's: keep these lines as they are)
    shm_ports = tuple(replace(port, threads=shm_threads) for port in shm_ports)
    devices: tuple[Port, ...] = (
        *(replace(port, eal=dpdk_eal, mtu=dpdk_mtu, poll=poll, queues=shards) for port in dpdk_ports),
        *(replace(port, poll=poll) for port in xdp_ports),
    )
    ports: tuple[Port, ...] = (*udp_ports, *frame_ports, *packet_ports, *shm_ports, *devices) or (_DEFAULT_PORT,)
    if len({port.number for port in ports}) != len(ports):
        raise click.UsageError("a switch port is given twice")
    if shards > 1 and len(udp_ports) + len(dpdk_ports) != len(ports) and ports != (_DEFAULT_PORT,):
        raise click.UsageError("with several --shards all ports must be UDP or DPDK ports")
    options = SoftSwitchOptions(
        grpc=endpoint,
        device_id=device_id,
        ports=ports,
        dimensions=Dimensions(values, slots),
        shards=shards,
        drop=drop,
        duplicate=duplicate,
        delay=delay,
        flip=flip,
        seed=seed,
        daemon=daemon,
    )
    run(serve(options), ValueError)


if __name__ == "__main__":
    main()
