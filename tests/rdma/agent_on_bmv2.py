"""A job of agents through BMv2: ``python -m tests.rdma.agent_on_bmv2 DIRECTORY``, as root.

One agent is in the guest, with its card, and one on this machine, with the kernel's UDP. It prints the digests of all
ranks, as JSON. It continues in new namespaces, as `on_bmv2` does. DIRECTORY has the files of an image.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from contextlib import ExitStack
from ipaddress import IPv4Address
from pathlib import Path

from ptf_tests.frames import SWITCH_IP, SWITCH_MAC, mac_text
from ptf_tests.namespace import enter, make_veth_pairs
from ptf_tests.targets import Bmv2, veth_names
from switchml.controller.proto import switchml_pb2 as pb
from switchml.topologies.ethtool import switch_offloads_off
from tests.loopback.device_harness import daemon
from tests.rdma.calls import digests_of_ranks
from tests.rdma.guest import Image, running_guest
from tests.rdma.on_bmv2 import carried
from tests.rdma.test_agent import agent_command, table
from tests.rdma.test_guest import CARD, OTHER, cables
from tests.support.controller_harness import running_controller, wait_until

VALUES, MTU, WORLD, ELEMENTS = 64, 1500, 3, 2000


def give_address(interface: str) -> None:
    """Make an interface that of the host OTHER, which sends whole packets to the switch."""
    lines = [
        f"link set dev {interface} address {mac_text(OTHER.mac)}",
        f"address add {IPv4Address(OTHER.ip)}/24 dev {interface}",
        f"neighbour replace {IPv4Address(SWITCH_IP)} lladdr {mac_text(SWITCH_MAC)} dev {interface}",
    ]
    subprocess.run(["ip", "-batch", "-"], input="\n".join(lines) + "\n", text=True, check=True)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for one in (interface, interface.replace("host", "switch")):
            switch_offloads_off(control, one)


def main() -> None:
    directory = Path(sys.argv[1])
    enter("tests.rdma.agent_on_bmv2", sys.argv[1:])
    os.environ["SWITCHML_DIRECT"] = "0"
    make_veth_pairs(veth_names())
    give_address(f"host{OTHER.port}")
    image = Image(directory / "linux", directory / "files.cpio")
    with Bmv2(directory) as target, ExitStack() as stack:
        config = table(target.describe(VALUES).p4runtime, VALUES, target="bmv2", slots=512, default_pool=32)
        _, client = stack.enter_context(running_controller(directory, config))
        agent = directory / "udp.sock"
        command = [sys.executable, "-m", "switchml.host_agent.daemon", "--name", "udp", "--transport", "udp"]
        command += ["--controller", client.address, "--socket", str(agent), "--address", str(IPv4Address(OTHER.ip))]
        command += ["--mac", mac_text(OTHER.mac), "--switch-port", str(OTHER.port)]
        stack.enter_context(daemon(command, directory / "udp.ready", directory / "udp.log"))
        cable = cables(directory, CARD)
        stack.enter_context(carried(cable, f"host{CARD.port}"))
        command = agent_command(client.address, ELEMENTS)
        guest = stack.enter_context(running_guest(image, command, CARD, cable, MTU, sees_host=True, megabytes=512))
        assert guest.report() == {"ready": True}
        wait_until(lambda: len(client.list_agents()) == 2, "both agents are there")
        job = client.start_job(pb.StartJobRequest(workers=WORLD))
        here = [rank.rank for rank in job.ranks if rank.agent == "udp"]
        there = [rank.rank for rank in job.ranks if rank.agent == "guest"]
        assert here
        assert there
        guest.say(f"{job.id} {WORLD} {','.join(map(str, there))} none")
        found = dict(zip(here, digests_of_ranks(job.id, here, WORLD, agent, ELEMENTS), strict=True))
        found |= zip(there, guest.report()["digests"], strict=True)
        drops = client.show_switch().drop_reasons
        report = {"digests": [found[rank] for rank in range(WORLD)], "there": there, "drops": dict(drops)}
        sys.stdout.write(json.dumps(report) + "\n")


if __name__ == "__main__":
    main()
