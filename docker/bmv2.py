"""Create a veth pair for each host of topologies/single-switch.yaml, then run BMv2 (``simple_switch_grpc``) on them.

Both ends of each pair are in the network namespace of this process. Each host's address has a separate routing table,
so that packets from it always leave through the host's veth pair: agents bind to the address and need neither
privileges nor a separate namespace. Creating the pairs needs CAP_NET_ADMIN, BMv2's ports need CAP_NET_RAW.

The pairs exist as long as the namespace does: a restarted BMv2 finds and keeps them.

P4Runtime listens on 127.0.0.1:9559, without a pipeline: the controller loads the program.
"""

import os
import socket
import subprocess
from collections.abc import Iterator

from switchml.topologies.ethtool import switch_offloads_off
from switchml.topologies.topology import PACKAGED, Topology, load

P4RUNTIME = "127.0.0.1:9559"


def cables(topology: Topology) -> Iterator[str]:
    """Yield the commands for ``ip -batch``."""
    switch = topology.switch
    yield "link set lo up"
    for host in topology.hosts:
        near, far = f"{switch.name}-{host.port}", host.name
        yield f"link add {far} address {host.mac} mtu {topology.mtu} type veth peer name {near} mtu {topology.mtu}"
        yield f"link set {near} up"
        yield f"link set {far} up"
        yield f"addr add {host.ipv4.ip}/32 dev {far}"
        yield f"route add {switch.ipv4}/32 dev {far} table {host.port}"
        yield f"rule add from {host.ipv4.ip} lookup {host.port}"
        yield f"neigh add {switch.ipv4} lladdr {switch.mac} dev {far} nud permanent"


def main() -> None:
    """Create the veth pairs, unless they exist, and replace this process by BMv2."""
    topology = load(PACKAGED)
    if topology.hosts[-1].name not in (name for _, name in socket.if_nameindex()):
        subprocess.run(["ip", "-batch", "-"], input="\n".join(cables(topology)) + "\n", text=True, check=True)
    command = ["simple_switch_grpc", "--no-p4", "--device-id", "1"]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for host in topology.hosts:
            port = f"{topology.switch.name}-{host.port}"
            for interface in (host.name, port):
                switch_offloads_off(control, interface)
            command += ["--interface", f"{host.port}@{port}"]
    os.execvp(command[0], [*command, "--", "--grpc-server-addr", P4RUNTIME])  # noqa: S606 (no shell is needed)


if __name__ == "__main__":
    main()
