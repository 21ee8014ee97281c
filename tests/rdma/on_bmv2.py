"""Queue pairs of the guest's card through BMv2: ``python -m tests.rdma.on_bmv2 DIRECTORY``, as root.

It continues in new namespaces. BMv2 has veth pairs there, and a thread carries frames between one of them and the
cable of the guest. DIRECTORY has the files of an image.
"""

from __future__ import annotations

import select
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import finsy as fy

from ptf_tests.control_p4runtime import P4RuntimeControl
from ptf_tests.frames import SWITCH_IP, SWITCH_MAC
from ptf_tests.namespace import enter, make_veth_pairs
from ptf_tests.targets import Bmv2, veth_names
from switchml.dataplane.constants import DropReason
from tests.rdma.guest import Image
from tests.rdma.test_guest import CARD, Fabric, Task, reduce

MTUS = {64: 1500, 256: 4200}
ALL_FRAMES = 0x0003
LONGEST_FRAME = 16384


@contextmanager
def carried(cable_ends: tuple[Path, Path], interface: str) -> Iterator[None]:
    """Carry frames between an interface and a cable, given as `cables` does."""
    port, peer = cable_ends
    ended = Event()
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as cable,
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_FRAMES)) as wire,
    ):
        cable.bind(str(port))
        wire.bind((interface, 0))

        def carry() -> None:
            while not ended.is_set():
                for one in select.select([cable, wire], [], [], 0.2)[0]:
                    frame = one.recv(LONGEST_FRAME)
                    if one is cable:
                        wire.send(frame)
                    elif peer.exists():
                        cable.sendto(frame, str(peer))

        thread = Thread(target=carry)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            port.unlink()


def main() -> None:
    directory = Path(sys.argv[1])
    enter("tests.rdma.on_bmv2", sys.argv[1:])
    make_veth_pairs(veth_names())
    image = Image(directory / "linux", directory / "files.cpio")
    with Bmv2(directory) as target:
        for values, mtu in MTUS.items():
            with P4RuntimeControl(target.describe(values)) as control:
                control.load()
                address = fy.Action("set_switch_address", mac=SWITCH_MAC, ip=SWITCH_IP)
                control.modify(fy.P4TableEntry("switch_address_table", action=address, is_default_action=True))
                fabric = Fabric(control, directory, values)
                with carried(fabric.cable(CARD), f"host{CARD.port}"):
                    counted = reduce(fabric, image, Task(phases=10, mtu=mtu))
                assert control.drops(DropReason.BAD_ICRC) == 0
                sys.stdout.write(f"{values} values, MTU {mtu}: {counted}\n")


if __name__ == "__main__":
    main()
