"""In the guest: what `doctor` says of the card, and what an agent is told that cannot use it, as a line of JSON.

Its argument is the address of the card's interface. Nothing answers on the cable.
"""

from __future__ import annotations

import json
import subprocess
import sys

from switchml.dataplane.constants import PROTOCOL_UDP_PORT
from switchml.dataplane.devices import open_rdma
from switchml.host_agent._engine import Engine, RankAssignment
from switchml.ops.doctor import OK, _rdma

FILES = "/dev/infiniband/uverbs0"
LIMIT = 64 << 10
# Root without the capabilities that let it lock any memory, and open any file.
POWERLESS = ("setpriv", "--bounding-set", "-ipc_lock,-dac_override,-dac_read_search")
CASES = {
    "device": ("rxe1", "", ()),
    "port": ("rxe0/2", "", ()),
    "address": ("rxe0", "10.0.0.9", ()),
    "access": ("rxe0", "", POWERLESS),
    "memory": ("rxe0", "", ("prlimit", f"--memlock={LIMIT}", *POWERLESS)),
    "switch": ("rxe0", "", ()),
    "link": ("rxe0", "", ()),
}


def refusal(device: str, address: str) -> str:
    """Return why a rank cannot be opened with a card; empty if it can."""
    try:
        card = open_rdma(device, address)
        rank = RankAssignment(
            address=address,
            job=1,
            rank=0,
            worker=0,
            epoch=1,
            world_size=1,
            slot_base=0,
            slots=16,
            values=64,
            switch_address="10.0.0.254",
            switch_udp_port=PROTOCOL_UDP_PORT,
        )
        Engine(messages=card.messages).open_rank(rank)
    except (OSError, ValueError) as error:
        return str(error)
    return ""


def main() -> None:
    if len(sys.argv) == 3:
        sys.stdout.write(refusal(*sys.argv[1:]))
        return
    card = next(iter(_rdma()))
    doctor = f"{card.name}: {card.found}" if card.status == OK else f"{card.status}: {card.found}"
    found = {}
    for name, (device, address, prefix) in CASES.items():
        command = [*prefix, sys.executable, "-m", "tests.rdma.refusals_in_guest", device, address or sys.argv[1]]
        if name == "access":
            subprocess.run(["chmod", "0", FILES], check=True)
        if name == "link":
            subprocess.run(["ip", "link", "set", "eth0", "down"], check=True)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found[name] = done.stdout or done.stderr
        if name == "access":
            subprocess.run(["chmod", "666", FILES], check=True)
    sys.stdout.write(json.dumps({"doctor": doctor, "refusals": found}) + "\n")


if __name__ == "__main__":
    main()
